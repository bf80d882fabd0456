//! The pump: drives jobs, timers and answers of one call on the isolate's thread, until the prelude reports a result.
//!
//! It is synchronous, and shared by all engines: an engine executes one job or one entry at a time, and decides nothing.

use crate::bridge::{Bridge, Event, Settled, text_of};
use crate::end::FunctionEnd;
use crate::engine::{Isolate, JobRun, PreludeEntry};
use crate::host::{HostAnswer, HostError};
use crate::stop::Mail;

/// Jobs between two looks at the limits. Each job may be shorter than what the engine's own check needs to notice.
const JOBS_PER_CHECK: u32 = 64;

/// Drives the isolate until the prelude reports a result.
///
/// Jobs that are pending when it does are executed first, and a rejection that is unhandled then fails the call: a function cannot
/// hide an error by returning early.
pub(crate) fn drive(isolate: &mut dyn Isolate, bridge: &Bridge) -> Result<Settled, FunctionEnd> {
    loop {
        run_jobs(isolate, bridge)?;
        if let Some(rejection) = isolate.unhandled_rejection() {
            return Err(rejection);
        }
        if let Some(settled) = bridge.take_settled() {
            return Ok(settled);
        }
        match bridge.next_event() {
            Event::Timer(id) => isolate.enter(PreludeEntry::Timer { id: &id.to_string() })?,
            Event::Mail(Mail::Answer { call, answer }) => {
                isolate.enter(PreludeEntry::Answer { call: &call.to_string(), answer: &encoded(answer) })?;
            }
            Event::Mail(Mail::Cancel) => isolate.enter(PreludeEntry::Abort)?,
            Event::Mail(Mail::Stop) => check(bridge)?,
            Event::Nothing => return Err(FunctionEnd::NeverSettles),
        }
    }
}

fn run_jobs(isolate: &mut dyn Isolate, bridge: &Bridge) -> Result<(), FunctionEnd> {
    check(bridge)?;
    let mut executed = 0;
    while isolate.run_job()? == JobRun::Executed {
        executed += 1;
        if executed % JOBS_PER_CHECK == 0 {
            check(bridge)?;
        }
    }
    bridge.stopped().map_or(Ok(()), Err)
}

fn check(bridge: &Bridge) -> Result<(), FunctionEnd> {
    bridge.must_stop();
    bridge.stopped().map_or(Ok(()), Err)
}

/// An answer as the prelude reads it: a letter for its sort, then its text.
fn encoded(answer: Result<HostAnswer, HostError>) -> String {
    match answer {
        Ok(HostAnswer::Json(text)) => format!("j{text}"),
        Ok(HostAnswer::Bytes(bytes)) => format!("b{}", text_of(&bytes)),
        Ok(HostAnswer::Nothing) => "n".to_owned(),
        Err(HostError(message)) => format!("e{message}"),
    }
}

//! `ostler continue`: goes on with the conversation of a finished task.

use std::io::Read as _;

use ostler_core::TaskId;
use ostler_ops::continuation::{self, Continuation};
use ostler_ops::submit;
use ostler_store::{Clock as _, SystemClock};

use super::submit::{ids, wait_for};
use super::{Console, task_name};
use crate::args::Continue;
use crate::exit::{Code, refused};
use crate::store_location::IfMissing;

/// Bytes of a prompt from standard input.
const MAX_PROMPT: u64 = 16 << 20;

pub(super) async fn run(console: &Console, asked: Continue) -> anyhow::Result<Code> {
    let Continue { one, prompt, to: queue, wait } = asked;
    let prompt = prompt_of(prompt)?;
    let place = console.place()?;
    let store = place.open(IfMissing::Refuse).await?;
    let which = task_name::of_one(store.as_ref(), &one).await?;
    let asked = Continuation { which, prompt, queue };
    let request = continuation::request(store.as_ref(), &asked, TaskId(ids()?())).await?;
    request.check(place.bounds(), SystemClock.now())?;
    let answer = submit::submit(store.as_ref(), &request).await?;
    if wait {
        return wait_for(console, store.as_ref(), answer.id(), None).await;
    }
    console.out.answer(&answer.view(), |_| format!("{}\n", answer.id()))?;
    Ok(Code::Done)
}

/// The prompt of an argument, which may stand for standard input.
pub(super) fn prompt_of(given: String) -> anyhow::Result<String> {
    let prompt = if given == "-" { from_stdin()? } else { given };
    if prompt.trim().is_empty() {
        return Err(refused(Code::BadInput, "the prompt is empty"));
    }
    Ok(prompt)
}

fn from_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_PROMPT + 1).read_to_string(&mut text);
    read.map_err(|error| refused(Code::BadInput, format!("cannot read the prompt: {error}")))?;
    if text.len() as u64 > MAX_PROMPT {
        return Err(refused(Code::BadInput, format!("the prompt is longer than {MAX_PROMPT} bytes")));
    }
    Ok(text)
}

//! `ostler run`: a prompt for a pool of agents, in one line.

use ostler_config::TakesPrompts;
use ostler_core::TaskId;
use ostler_ops::obstacle::Candidate;
use ostler_ops::run::RunRequest;
use ostler_ops::submit::{self, SubmitAnswer};
use ostler_store::{Clock as _, SystemClock};

use super::continuation::prompt_of;
use super::obstacles::tell_at_once;
use super::submit::{folder, ids, is_new, rejected, wait_for};
use super::{Console, config};
use crate::args::RunArgs;
use crate::config::Config;
use crate::exit::{Code, refused, say};
use crate::store_location::{CONFIG_FILE, IfMissing};

pub(super) async fn run(console: &Console, asked: RunArgs) -> anyhow::Result<Code> {
    let RunArgs { prompt, folder: work, id, max_iterations, model, pool, wait, wait_timeout } = asked;
    let request = RunRequest {
        prompt: prompt_of(prompt)?,
        folder: work.as_deref().map(folder).transpose()?,
        id,
        max_iterations,
        model,
    };
    let config = console.config_file().map(|path| config::of_store(&path)).transpose()?;
    let queue = pool_of(config.as_ref(), pool)?;
    let place = console.place()?;
    let request = request.request(&queue, TaskId(ids()?()));
    request.check(place.bounds(), SystemClock.now())?;
    let store = place.open(IfMissing::Make).await?;
    let answer = submit::submit(store.as_ref(), &request).await?;
    accepted(answer)?;
    if wait {
        return wait_for(console, store.as_ref(), answer.id(), wait_timeout).await;
    }
    console.out.answer(&answer.view(), |_| format!("{}\n", answer.id()))?;
    if is_new(answer) {
        tell_at_once(store.as_ref(), &[Candidate::from(&request)]).await;
    }
    Ok(Code::Done)
}

/// Tells the user if the run exists.
pub(super) fn accepted(answer: SubmitAnswer) -> anyhow::Result<()> {
    match answer {
        SubmitAnswer::Created(_) | SubmitAnswer::SameId(_) | SubmitAnswer::Replaced(_) => {}
        SubmitAnswer::SameKey(_) => say("a run with this id already exists; this is its task"),
        SubmitAnswer::Rejected(holder) => return Err(rejected(holder)),
    }
    Ok(())
}

/// The pool that was named, or the only one that takes prompts.
fn pool_of(config: Option<&Config>, asked: Option<String>) -> anyhow::Result<String> {
    let pools = config.map(|config| config.pools.as_slice()).unwrap_or_default();
    let listed = |names: &[&str]| names.join(", ");
    let wrong = |sentence: String| Err(refused(Code::BadInput, sentence));
    if let Some(name) = asked {
        let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        // Without pools in a config here, a node elsewhere may have it.
        if names.is_empty() || names.contains(&name.as_str()) {
            return Ok(name);
        }
        return wrong(format!(
            "{CONFIG_FILE} has no pool \"{name}\"; its pools are {}; other queues: ostler submit",
            listed(&names)
        ));
    }
    let takes = pools.iter().filter(|pool| pool.executor.takes_prompts() == TakesPrompts::Yes);
    let names: Vec<&str> = takes.map(|pool| pool.name.as_str()).collect();
    match names.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] if config.is_none() => wrong(format!(
            "there is no {CONFIG_FILE} here that says which pool runs it; name one with --pool"
        )),
        [] => wrong(format!(
            "{CONFIG_FILE} has no pool that takes prompts, such as one with executor = \"agent\"; add one, or name a pool \
             with --pool"
        )),
        several => wrong(format!("several pools take prompts; say which with --pool: {}", listed(several))),
    }
}

//! `ostler add`: enqueues a command that runs in the caller's folder, and starts a node for it if none is up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use ostler_ops::added::{AddedCommand, COMMAND_KIND, USUAL_VARIABLES};
use ostler_ops::submit;
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::json::Json;
use ostler_wire::task::Waited;

use super::background::{self, command_queue};
use super::submit::{accepted, ids, request, told};
use super::{Console, config, task_name};
use crate::args::Add;
use crate::config::StoreUrl;
use crate::exit::{Code, refused, say};
use crate::print::Format;
use crate::store_location::{CONFIG_FILE, IfMissing};

pub(super) async fn run(console: &Console, add: Add) -> anyhow::Result<Code> {
    let place = console.place()?;
    let queue = command_queue(place.url());
    let environment = environment(&add, place.url(), &|name| std::env::var_os(name))?;
    let options = add.options();
    let words = add.words.into_iter().map(OsString::into_vec).collect();
    let payload = AddedCommand::new(words, environment).payload();
    let mut request = request(queue.clone(), COMMAND_KIND.to_owned(), payload, options, &ids()?)?;
    request.check(place.bounds(), SystemClock.now())?;
    let own = config::here().map(|path| config::of_store(&path)).transpose()?;
    let is_own = own.is_some_and(|config| config.pools.iter().any(|pool| pool.name == queue));
    let missing = if request.after.is_empty() { IfMissing::Make } else { IfMissing::Refuse };
    let store = place.open(missing).await?;
    request.after = task_name::all_whole(store.as_ref(), request.after).await?;
    let answer = submit::submit(store.as_ref(), &request).await?;
    let id = answer.id();
    accepted(console, answer)?;
    if is_own {
        say(&format!("the pool \"{queue}\" of {CONFIG_FILE} runs it, in a node: ostler up"));
    } else {
        background::ensure(console, &place, store.as_ref(), &queue).await?;
    }
    if !add.wait {
        console.out.answer(&answer.view(), |_| format!("{id}\n"))?;
        return Ok(Code::Done);
    }
    let waited = Waited::from(&submit::wait(store.as_ref(), id, add.wait_timeout).await?);
    print_output(console, &waited)
}

/// Prints what a command wrote as it wrote it, and its failure.
fn print_output(console: &Console, waited: &Waited) -> anyhow::Result<Code> {
    let text =
        waited.output.as_ref().map(Json::as_str).and_then(|json| serde_json::from_str::<String>(json).ok());
    match (text, console.out.format()) {
        (Some(text), Format::People) => {
            console.out.task_text(&(text + "\n"))?;
            Ok(Code::Done)
        }
        // A command that wrote nothing has no output to print.
        (None, Format::People) if waited.output.is_none() && waited.error.is_none() => Ok(Code::Done),
        (None, Format::People) | (Some(_) | None, Format::Json) => told(console, waited),
    }
}

/// The variables of the command, with their values of now.
fn environment(
    add: &Add,
    store: &StoreUrl,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> anyhow::Result<BTreeMap<String, String>> {
    if add.all_env {
        return match store {
            StoreUrl::Sqlite(_) => Ok(everything()),
            StoreUrl::Postgres(_) => Err(refused(
                Code::BadInput,
                "--all-env is refused on PostgreSQL: passwords of your environment would be stored in plain text on the server; \
                 name single variables with --env NAME",
            )),
        };
    }
    let mut found = BTreeMap::new();
    for name in USUAL_VARIABLES {
        if let Some(value) = env(name).and_then(|value| value.into_string().ok()) {
            found.insert(name.to_owned(), value);
        }
    }
    for name in &add.env {
        let wrong = |why: &str| refused(Code::BadInput, format!("--env {name}: {why}"));
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(wrong(
                "expected the name of an environment variable; its value is taken from your environment",
            ));
        }
        let value = env(name).ok_or_else(|| wrong("this variable is not set"))?;
        let value = value.into_string().map_err(|_| wrong("its value is not UTF-8 text"))?;
        found.insert(name.clone(), value);
    }
    Ok(found)
}

/// The whole environment, as far as it is text.
fn everything() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

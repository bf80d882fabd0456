//! The real claude behind `ctx.gateway()`: a handler in Python asks it twice in one session, and its node is killed in the second answer.

use ostler_testkit::ProcessSignal;
use serde_json::json;

use super::in_time;
use super::llm::ScriptedLlm;
use super::site::{Agent, Site, is_kept_in};
use crate::gateway::is_begun;
use crate::ostler::Place;

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");

const HANDLER: &str = r#"
from ostler import worker

@worker.task("run")
def run(payload, ctx):
    session = ctx.gateway().create_session()
    answers = [session.run_query(prompt).text for prompt in payload["prompts"]]
    return {"answers": answers, "session": session.id}

worker.run()
"#;

#[test]
fn a_handler_asks_the_real_claude_and_after_the_death_of_the_node_only_what_was_not_answered() {
    let agent = Agent::Claude;
    let Some(bin) = agent.bin() else { return };
    let place = Place::new();
    let llm = ScriptedLlm::start(place.folder());
    let config = format!(
        "[lease]\nttl = \"5s\"\nheartbeat = \"200ms\"\npoll = \"200ms\"\n\
         [prices.{model}]\ninput = \"$1\"\noutput = \"$5\"\n\
         [pool.runs]\nexecutor = \"process\"\ncommand = [\"python3\", \"handler.py\"]\nmin_workers = 1\nmax_workers = 1\n\
         env = {{ PYTHONPATH = \"{SDK}\", PYTHONDONTWRITEBYTECODE = \"1\" }}\nkeep_env = [\"PATH\"]\nretry = {{ base = \"10ms\" }}\n\
         gateway = {{ agent = \"claude\", command = [\"{program}\"], config_folders = \"agents\", model = \"{model}\", \
         base_url = \"http://127.0.0.1:{port}\", \
         env = {{ CLAUDE_CODE_OAUTH_TOKEN = \"sk-of-a-test-0000\", OF_THE_TEST = \"{port}\" }} }}\n",
        model = agent.model(),
        program = bin.join("claude").display(),
        port = llm.port,
    );
    place.write("ostler.toml", config);
    place.write("handler.py", HANDLER);
    let site = Site { place, llm };
    let node = site.up();
    // The second answer takes twelve seconds.
    let prompts = ["[[item first]][[words 1 0]] Plan it.", "[[item second]][[words 24 0.5]] Do it."];
    let payload = json!({ "prompts": prompts }).to_string();
    let id = site.place.done(["submit", "runs", "run", "--payload", &payload]).trim().to_owned();
    in_time("it is asked twice", || (site.llm.of("second").len() == 1).then_some(()));
    let agents = site.place.folder().join("agents");
    is_kept_in(&agents, "Do it.");
    in_time("its beginning is on record", || is_begun(&agents, "query 1.2").then_some(()));
    node.signal(ProcessSignal::KILL);
    drop(node);
    in_time("claude died with the node", || site.processes().is_empty().then_some(()));
    let _node = site.up();
    let task = site.done(&id);
    let words: String = (0..24).map(|number| format!("word{number} ")).collect();
    let answers = [0, 1].map(|number| task["output"]["answers"][number].as_str().unwrap_or_default().trim());
    assert_eq!(answers, ["word0", words.trim()], "{task}");
    let (first, second) = (site.llm.of("first"), site.llm.of("second"));
    assert_eq!(
        (first.len(), second.len()),
        (1, 2),
        "what was answered is not paid again: {first:?} {second:?}"
    );
    assert!(second[1].last.contains("Go on."), "{second:?}");
    assert!(!first[0].session.is_empty(), "{first:?}");
    assert!(second.iter().all(|request| request.session == first[0].session), "one conversation: {second:?}");
    let log = site.place.done(["logs", &id]);
    assert!(log.contains("query 1.1 was answered in an earlier attempt"), "{log}");
    let attempts = task["attempts"].as_array().expect("a list");
    assert!(attempts.iter().any(|attempt| attempt["cost_usd"].as_f64() > Some(0.0)), "{task}");
}

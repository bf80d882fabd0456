//! Answers with a schema: a model that ignores it is asked again a few times, and prose around a value does no harm.

use serde_json::json;

use super::site::{Agent, Site};

const AGENTS: [Agent; 2] = [Agent::Claude, Agent::Codex];

#[test]
fn a_model_that_ignores_the_schema_is_asked_again_with_what_is_wrong_and_then_the_task_fails() {
    let lines = "schema_retries = 1\nschema = { type = \"object\", required = [\"score\"], properties = { score = { type = \"integer\" } } }";
    let Some(site) = Site::new(&AGENTS.map(|agent| (agent, lines))) else { return };
    let _node = site.up();
    let ask = |agent: Agent, item: &str, answer: &str| {
        let item = format!("{item}-{}", agent.name());
        let id = site.submit(agent, &format!("[[item {item}]][[say {answer}]] Rate it."));
        (item, id)
    };
    let (good, bad) = (
        AGENTS.map(|agent| ask(agent, "good", "Here it is: {\"score\": 7}. Done.")),
        AGENTS.map(|agent| ask(agent, "bad", "{\"score\": \"seven\"}")),
    );
    for (item, id) in &good {
        let task = site.done(id);
        assert_eq!(task["output"], json!({"score": 7}), "{item}: {task}");
        assert_eq!(
            site.llm
                .of(item)
                .iter()
                .filter(|request| request.last.contains("does not match the JSON schema"))
                .count(),
            0
        );
    }
    for (item, id) in &bad {
        let task = site.ended(id, "failed");
        assert_eq!(
            (&task["error"]["class"], &task["error"]["step"]),
            (&json!("permanent"), &json!("schema")),
            "{item}: {task}"
        );
        let requests = site.llm.of(item);
        let back: Vec<_> = requests
            .iter()
            .filter(|request| request.last.contains("does not match the JSON schema"))
            .collect();
        assert!(
            !back.is_empty() && back.iter().all(|request| request.last.contains("/score")),
            "{item}: {requests:?}"
        );
        // Claude itself reminds the model once for each prompt.
        assert!(requests.len() <= 4, "{item}: {} requests", requests.len());
        let sessions: std::collections::BTreeSet<&str> =
            requests.iter().map(|request| request.session.as_str()).collect();
        assert_eq!(sessions.len(), 1, "{item}: it is sent back in the same conversation");
        let log = site.place.done(["logs", id]);
        assert!(log.contains("seven") && log.contains("is sent back"), "{item}: {log}");
    }
}

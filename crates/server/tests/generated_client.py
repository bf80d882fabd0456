#!/usr/bin/env python3
"""Makes clients from docs/openapi.json and lets each do a scenario: python3 crates/server/tests/generated_client.py

The generators, openapi-python-client and openapi-generator, come from the package registry, into a virtual environment below the target folder.
The one for Rust needs Java. Each language has a store of its own: a file, or a schema of the server.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz import ROOT, TOKENS, Node, store_for

GENERATORS = {"python": "openapi-python-client==0.29.1", "rust": "openapi-generator-cli==7.26.0"}
DESCRIPTION = ROOT / "docs/openapi.json"


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--program", type=Path, default=ROOT / "target/debug/ostler", help="the program ostler")
    asked.add_argument("--store", help="the store, such as postgres://…; by default a new file")
    asked.add_argument("--languages", default="python,rust", help="of the clients")
    asked = asked.parse_args()
    for language in asked.languages.split(","):
        with tempfile.TemporaryDirectory() as folder:
            client = {"python": python, "rust": rust}[language](Path(folder))
            work = Path(folder) / "node"
            work.mkdir()
            store = store_for(asked.store, f"client_{language}")
            with Node(asked.program.resolve(), store, work) as node:
                arguments = [f"http://{node.address}", TOKENS["full"]]
                subprocess.run([*client, *arguments], check=True, cwd=folder)
        print(f"the client that was generated in {language} did the scenario")


def generator(language):
    tools = ROOT / f"target/tmp/generated-client-{language}"
    program = tools / "bin" / GENERATORS[language].split("==")[0]
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
        subprocess.run([tools / "bin/pip", "install", "--quiet", GENERATORS[language]], check=True)
    return program


def python(folder):
    program = generator("python")
    words = ["generate", "--path", DESCRIPTION, "--output-path", folder / "ostler_client", "--meta", "none"]
    subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL)
    return [program.parent / "python", "-c", PYTHON]


def rust(folder):
    made = folder / "ostler_client"
    wanted = "packageName=ostler_client,library=reqwest,supportAsync=true"
    words = ["generate", "-g", "rust", "-i", DESCRIPTION, "-o", made, f"--additional-properties={wanted}"]
    subprocess.run([generator("rust"), *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (made / "examples").mkdir()
    (made / "examples/scenario.rs").write_text(rust_scenario())
    with (made / "Cargo.toml").open("a") as manifest:
        manifest.write('\n[dev-dependencies]\ntokio = { version = "1", features = ["macros", "rt"] }\n\n[workspace]\n')
    target = ROOT / "target/tmp/generated-client-rust-target"
    words = ["cargo", "build", "--quiet", "--no-default-features", "--example", "scenario"]
    subprocess.run(words, check=True, cwd=made, env={**os.environ, "CARGO_TARGET_DIR": target, "RUSTFLAGS": "-Awarnings"})
    return [target / "debug/examples/scenario"]


PYTHON = """
import sys
from ostler_client import AuthenticatedClient
from ostler_client.api.dead import dead_list, dead_replay
from ostler_client.api.queues import queues_pause, queues_resume, queues_show
from ostler_client.api.stats import stats
from ostler_client.api.tasks import tasks_list, tasks_log, tasks_result, tasks_show, tasks_submit
from ostler_client.models import Error, ReasonInput, RetryInput, TaskInput, TasksInput

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=60)

def task(payload):
    return TaskInput.from_dict({"queue": "shell", "kind": "run", "payload": payload})

one = tasks_submit.sync(client=client, body=task("echo hello"), idempotency_key="scenario-1")
again = tasks_submit.sync(client=client, body=task("echo hello"), idempotency_key="scenario-1")
assert one.id == again.id, (one, again)
done = tasks_result.sync(one.id, client=client, wait="30s")
assert (str(done.state), done.output) == ("completed", "hello"), done
both = tasks_submit.sync(client=client, body=TasksInput(tasks=[task("exit 3"), task("true")]))
failed = tasks_result.sync(both.tasks[0].id, client=client, wait="30s")
assert str(failed.state) == "failed", failed
tasks_result.sync(both.tasks[1].id, client=client, wait="30s")
page = tasks_list.sync(client=client, queue="shell", limit=2)
assert len(page.tasks) == 2 and page.cursor, page
rest = tasks_list.sync(client=client, queue="shell", limit=2, cursor=page.cursor)
assert len(rest.tasks) == 1, rest
letters = dead_list.sync(client=client)
assert [letter.id for letter in letters.letters] == [both.tasks[0].id], letters
dead_replay.sync(both.tasks[0].id, client=client, body=RetryInput.from_dict({"payload": "true"}))
assert str(tasks_result.sync(both.tasks[0].id, client=client, wait="30s").state) == "completed"
queues_pause.sync("shell", client=client, body=ReasonInput(reason="lunch"))
assert queues_show.sync("shell", client=client).paused == "lunch"
queues_resume.sync("shell", client=client)
assert tasks_show.sync(one.id, client=client).id == one.id
assert tasks_log.sync(one.id, client=client).events is not None
assert isinstance(tasks_show.sync("01JC8Z0Q4M9T7N3V5X1B2D6F8H", client=client), Error)
assert stats.sync(client=client).submitted == 3
"""


def rust_scenario():
    """Its functions take each parameter of the query in its place, whether it is given or not."""
    paths = json.loads(DESCRIPTION.read_text())["paths"]

    def query(path, **given):
        names = [parameter["name"] for parameter in paths[path]["get"]["parameters"] if parameter["in"] == "query"]
        assert set(given) <= set(names), (given, names)
        return ", ".join(f"Some({given[name]})" if name in given else "None" for name in names)

    first = query("/api/v1/tasks", queue='"shell"', limit="2")
    second = query("/api/v1/tasks", queue='"shell"', limit="2", cursor="&cursor")
    dead = query("/api/v1/dead")
    return RUST.replace("FIRST_PAGE", first).replace("SECOND_PAGE", second).replace("ALL_LETTERS", dead)


RUST = """
use ostler_client::apis::configuration::Configuration;
use ostler_client::apis::{Error, dead_api, queues_api, stats_api, tasks_api};
use ostler_client::models::{ReasonInput, RetryInput, SubmitAnswerView, SubmitBody, TaskInput, TasksInput, Waited};

fn task(payload: &str) -> TaskInput {
    let mut task = TaskInput::new();
    task.queue = Some(Some("shell".into()));
    task.kind = Some(Some("run".into()));
    task.payload = Some(Some(payload.into()));
    task
}

async fn one(node: &Configuration, key: &str) -> String {
    let body = SubmitBody::TaskInput(Box::new(task("echo hello")));
    match tasks_api::tasks_submit(node, Some(key), None, Some(body)).await.expect("an answer") {
        SubmitAnswerView::Submitted(made) => made.id,
        SubmitAnswerView::SubmittedTasks(all) => panic!("{all:?}"),
    }
}

async fn result(node: &Configuration, id: &str) -> Waited {
    tasks_api::tasks_result(node, id, None, Some("30s")).await.expect("a result")
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let given: Vec<String> = std::env::args().collect();
    let mut node = Configuration::new();
    node.base_path = given[1].clone();
    node.bearer_access_token = Some(given[2].clone());
    let node = &node;

    let first = one(node, "scenario-1").await;
    assert_eq!(first, one(node, "scenario-1").await);
    let done = result(node, &first).await;
    assert_eq!((done.state.as_str(), done.output), ("completed", Some(Some("hello".into()))));

    let body = SubmitBody::TasksInput(Box::new(TasksInput::new(vec![task("exit 3"), task("true")])));
    let both = match tasks_api::tasks_submit(node, None, None, Some(body)).await.expect("an answer") {
        SubmitAnswerView::SubmittedTasks(both) => both.tasks,
        SubmitAnswerView::Submitted(one) => panic!("{one:?}"),
    };
    let ids: Vec<String> = both.into_iter().map(|task| task.id.flatten().expect("an id")).collect();
    assert_eq!(result(node, &ids[0]).await.state, "failed");
    assert_eq!(result(node, &ids[1]).await.state, "completed");

    let page = tasks_api::tasks_list(node, FIRST_PAGE).await.expect("a page");
    assert_eq!(page.tasks.len(), 2);
    let cursor = page.cursor.flatten().expect("a cursor");
    assert_eq!(tasks_api::tasks_list(node, SECOND_PAGE).await.expect("a page").tasks.len(), 1);

    let letters = dead_api::dead_list(node, ALL_LETTERS).await.expect("dead letters").letters;
    assert_eq!(letters.iter().map(|letter| &letter.id).collect::<Vec<_>>(), [&ids[0]]);
    let mut mended = RetryInput::new();
    mended.payload = Some(Some("true".into()));
    dead_api::dead_replay(node, &ids[0], None, Some(mended)).await.expect("a replay");
    assert_eq!(result(node, &ids[0]).await.state, "completed");

    let mut why = ReasonInput::new();
    why.reason = Some(Some("lunch".into()));
    queues_api::queues_pause(node, "shell", Some(why)).await.expect("a pause");
    assert_eq!(queues_api::queues_show(node, "shell").await.expect("a queue").paused, Some(Some("lunch".into())));
    queues_api::queues_resume(node, "shell").await.expect("it is resumed");

    assert_eq!(tasks_api::tasks_show(node, &first, None).await.expect("a task").id, first);
    assert!(!tasks_api::tasks_log(node, &ids[0], None, None, None).await.expect("a log").events.is_empty());
    let Err(Error::ResponseError(absent)) = tasks_api::tasks_show(node, "01JC8Z0Q4M9T7N3V5X1B2D6F8H", None).await else {
        panic!("such a task does not exist");
    };
    assert_eq!(absent.status, 404);
    assert_eq!(stats_api::stats(node, None).await.expect("statistics").submitted, 3);
}
"""


if __name__ == "__main__":
    main()

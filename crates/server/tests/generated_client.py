#!/usr/bin/env python3
"""Makes a Python client from docs/openapi.json and lets it do a scenario: python3 crates/server/tests/generated_client.py

The generator, openapi-python-client, comes from the package registry, into a virtual environment below the target folder.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz import ROOT, TOKENS, Node

VERSION = "0.29.1"


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--program", type=Path, default=ROOT / "target/debug/ostler", help="the program ostler")
    asked.add_argument("--store", help="the store, such as postgres://…; by default a new file")
    asked = asked.parse_args()
    tools = ROOT / "target/tmp/generated-client"
    if not (tools / "bin/openapi-python-client").exists():
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
        wanted = f"openapi-python-client=={VERSION}"
        subprocess.run([tools / "bin/pip", "install", "--quiet", wanted], check=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "ostler_client"
        words = ["generate", "--path", ROOT / "docs/openapi.json", "--output-path", made, "--meta", "none"]
        subprocess.run([tools / "bin/openapi-python-client", *words], check=True, stdout=subprocess.DEVNULL)
        work = Path(folder) / "node"
        work.mkdir()
        with Node(asked.program.resolve(), asked.store, work) as node:
            arguments = [f"http://{node.address}", TOKENS["full"]]
            subprocess.run([tools / "bin/python", "-c", SCENARIO, *arguments], check=True, cwd=folder)


SCENARIO = """
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
print("the generated client did the scenario")
"""


if __name__ == "__main__":
    main()

"""A pool of LLM workers in Python: a worker of your own, and the orchestrator that gives it work units.

    python3 examples/llm_pool.py FOLDER

It needs the program `ostler` on the PATH and the SDK (`pip install ./sdk/python`), and no model: `model` stands in for one. For a real
one, replace `model` by a call of your provider's client, and `PRICE` by what the answer says of its usage.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

PROMPT = "Describe {{ subject }} in one sentence. Write it to a file."
SUBJECTS = ["a lamp", "a cat", "a boat", "a volcano", "a bell", "a coat", "a pen", "a drum"]
PRICE = 0.0006


# ---- the worker: `ostler` starts up to four of these processes, and gives each a unit at a time ----


def model(messages):
    """Stands in for a model: it asks for a tool, then answers. It knows no cats, and a volcano is the end of its process."""
    subject = messages[0].removeprefix("Describe ").split(" in one")[0]
    if "cat" in subject:
        raise LookupError("the model knows no cats")
    if "volcano" in subject:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = f"{subject.capitalize()} is a thing."
    if len(messages) > 1:
        return {"text": answer}
    return {"tool": "write", "input": {"path": subject.replace(" ", "-") + ".md", "text": answer}}


def describe(payload, ctx):
    """One unit: a conversation with the model, every part of which is kept."""
    from ostler import Permanent

    # Stored before the first request: a later attempt finds it as ctx.previous_session, and can resume.
    ctx.session(ctx.previous_session or f"session-{ctx.id}")
    ctx.prompt(payload["prompt"])
    messages = [payload["prompt"]]
    while True:
        ctx.check()
        try:
            said = model(messages)
        except LookupError as error:
            # What the worker reports is the failure of the unit; any other exception is one, too, and is tried again.
            raise Permanent(str(error)) from error
        ctx.usage(model="a-model", input_tokens=20, output_tokens=8, cost_usd=PRICE)
        if "text" in said:
            ctx.message(said["text"])
            return said["text"]
        call = f"call-{len(messages)}"
        ctx.tool_call(call, said["tool"], said["input"])
        (ctx.folder / said["input"]["path"]).write_text(said["input"]["text"])
        ctx.file(said["input"]["path"])
        ctx.tool_result(call, "written")
        messages.append("written")


# ---- the orchestrator: it may be in any language, and sees JSON ----

CONFIG = """
store = "sqlite:units.db"

[pool.units]
executor = "process"
command = {command}
keep_env = ["PATH", "HOME", "PYTHONPATH"]
max_workers = 4
timeout = "10m"
folders = "work"
retry = {{ attempts = 1 }}
"""


def ostler(*words, codes=(0,)):
    ran = subprocess.run(["ostler", *words], stdout=subprocess.PIPE, text=True)
    if ran.returncode not in codes:
        raise SystemExit(f"ostler {words[0]} ended with {ran.returncode}")
    return ran.stdout


def on_unit_complete(unit, conversation):
    print(f"{unit['item']['subject']}: {unit['output'].strip()} ({len(conversation)} events, {unit['files']})")


def on_unit_failed(unit, conversation):
    print(f"{unit['item']['subject']}: failed: {unit['error']} ({len(conversation)} events)")


def orchestrate():
    Path("ostler.toml").write_text(CONFIG.format(command=json.dumps([sys.executable, os.path.abspath(__file__), "worker"])))
    Path("units.jsonl").write_text("".join(json.dumps({"subject": subject}) + "\n" for subject in SUBJECTS))

    # A job: all units at once, never more than four of them running. Exit code 1: some have failed.
    words = ["map", "-q", "--pool", "units", "--kind", "describe", "--prompt", PROMPT, "--jsonl", "units.jsonl"]
    ostler(*words, "--name", "descriptions", "--json", codes=(0, 1))
    for line in ostler("job", "export", "descriptions").splitlines():
        unit = json.loads(line)
        unit["item"] = json.loads(unit["item"])
        conversation = [json.loads(event) for event in ostler("logs", unit["task"], "--json").splitlines()]
        callback = on_unit_complete if unit["state"] == "completed" else on_unit_failed
        callback(unit, conversation)
    job = json.loads(ostler("job", "show", "descriptions", "--json"))
    tasks = job["tasks"]
    print(f"{tasks['completed']} completed, {tasks['failed']} failed, ${job['cost_usd']:.4f}")

    # Single units, as they come: a node runs them, and drains when it is told to stop.
    with subprocess.Popen(["ostler", "up"], stdout=subprocess.PIPE, text=True) as node:
        node.stdout.readline()  # It is ready.
        payload = json.dumps({"prompt": PROMPT.replace("{{ subject }}", "a moon")})
        print(json.loads(ostler("submit", "units", "describe", "--payload", payload, "--wait")))
        node.terminate()


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        from ostler import worker

        worker.task("describe")(describe)
        worker.run()
    else:
        os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
        orchestrate()

#!/usr/bin/env python3
"""A stand-in for `codex app-server`: a dialogue in JSON lines, conversations in files, and no request to a model.

The prompt says what it does, as in "[[hang]] please". Each turn is a line in the file that STAND_IN_LOG names. With STAND_IN_OPENS=never it answers
nothing.
"""
import json
import os
import re
import select
import signal
import sys

if "--version" in sys.argv:
    print("codex-cli 0.166.0")
    sys.exit(0)
threads = os.path.join(os.environ["CODEX_HOME"], "sessions")
os.makedirs(threads, exist_ok=True)
total = 0


def emit(value):
    print(json.dumps(value), flush=True)


def notify(method, **params):
    emit({"method": method, "params": params})


def note(**fields):
    with open(os.environ["STAND_IN_LOG"], "a") as log:
        log.write(json.dumps({"pid": os.getpid(), **fields}) + "\n")


def turn(thread, prompt):
    global total
    kept = os.path.join(threads, thread)
    with open(kept, "a") as file:
        file.write(json.dumps(prompt) + "\n")
    with open(kept) as file:
        prompts = [json.loads(line) for line in file]
    note(prompt=prompt, session=thread)
    notify("turn/started", turn={"id": "turn-1"})
    found = re.search(r"\[\[(\S+?)\]\]", prompts[0])
    if found and found.group(1) == "hang" and len(prompts) == 1:
        note(waits=True)
        return
    if found and found.group(1) == "tireless":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        number = 0
        while True:
            number += 1
            command = {"id": f"call-{number}", "type": "commandExecution", "command": "ls", "status": "inProgress"}
            notify("item/started", item=command)
            notify("item/completed", item={**command, "status": "completed", "exitCode": 0})
            used = {"inputTokens": 100 * number, "cachedInputTokens": 0, "outputTokens": number, "reasoningOutputTokens": 0}
            notify("thread/tokenUsage/updated", tokenUsage={"total": used, "last": used})
            if select.select([sys.stdin], [], [], 0.02)[0]:
                note(ignored=json.loads(sys.stdin.readline()).get("method"))
    total = 1000 * len(prompts)
    usage = {"inputTokens": total, "cachedInputTokens": 0, "outputTokens": total // 10, "reasoningOutputTokens": 0}
    item = {"id": "item-1", "type": "agentMessage", "text": f"Prompts: {len(prompts)}"}
    notify("item/completed", item=item)
    notify("thread/tokenUsage/updated", tokenUsage={"total": usage, "last": usage})
    notify("turn/completed", turn={"id": "turn-1", "status": "completed"})


for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params", {})
    if method == "initialize" and os.environ.get("STAND_IN_OPENS") == "never":
        continue
    elif method == "initialize":
        emit({"id": request["id"], "result": {}})
    elif method == "thread/start":
        thread = f"thread-{os.getpid()}"
        emit({"id": request["id"], "result": {"thread": {"id": thread}, "model": "gpt-5"}})
    elif method == "thread/resume":
        thread = params["threadId"]
        if os.path.exists(os.path.join(threads, thread)):
            emit({"id": request["id"], "result": {"thread": {"id": thread}, "model": "gpt-5"}})
        else:
            emit({"id": request["id"], "error": {"code": -32600, "message": f"no rollout found for {thread}"}})
    elif method == "turn/start":
        emit({"id": request["id"], "result": {}})
        turn(params["threadId"], params["input"][0]["text"])
    elif method == "turn/interrupt":
        emit({"id": request["id"], "result": {}})
        note(interrupted=True)
        notify("turn/completed", turn={"id": "turn-1", "status": "interrupted"})

#!/usr/bin/env python3
"""An agent of the Agent Client Protocol in a page, without a model: it repeats what it is told, and asks before it writes a file.

    [pool.echo]
    executor = "agent"
    agent = "acp"
    command = ["python3", "examples/acp_agent.py"]

One JSON object in each line, requests with an `id`, and answers with the same. It keeps no sessions, so Ostler begins a new one with each
attempt; an agent that does says `"loadSession": true`.
"""
import json
import os
import sys
import uuid

folder = None


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def update(session, **fields):
    send(method="session/update", params={"sessionId": session, "update": fields})


def say(session, text):
    update(session, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def may_write(session, name):
    """Asks for permission, and reads the next line, which is the answer."""
    call = {"toolCallId": "write", "title": f"write {name}", "kind": "edit", "locations": [{"path": os.path.join(folder, name)}]}
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}, {"optionId": "no", "name": "No", "kind": "reject_once"}]
    send(id="may-write", method="session/request_permission", params={"sessionId": session, "toolCall": call, "options": options})
    return json.loads(sys.stdin.readline())["result"]["outcome"].get("optionId") == "yes"


def turn(session, prompt):
    if not prompt.startswith("write "):
        return say(session, f"You said: {prompt}")
    name = prompt.split()[1]
    if not may_write(session, name):
        return say(session, f"I may not write {name}.")
    with open(os.path.join(folder, name), "w") as file:
        file.write("written by an agent\n")
    update(session, sessionUpdate="tool_call_update", toolCallId="write", status="completed")
    say(session, f"I wrote {name}.")


for line in sys.stdin:
    request = json.loads(line)
    number, method, params = request.get("id"), request.get("method"), request.get("params", {})
    if method == "initialize":
        send(id=number, result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        folder = params["cwd"]
        send(id=number, result={"sessionId": str(uuid.uuid4())})
    elif method == "session/prompt":
        turn(params["sessionId"], params["prompt"][0]["text"])
        send(id=number, result={"stopReason": "end_turn"})
    elif number is not None:
        send(id=number, error={"code": -32601, "message": f"{method} is not known"})

#!/usr/bin/env python3
"""A stand-in for an agent of the Agent Client Protocol: a dialogue in JSON lines, sessions in files, and no request to a model.

The prompt says what it does, as in "[[ask edit a.txt]] please"; of a session, its first prompt. Each prompt is a line in the file that
STAND_IN_LOG names, and its sessions are beside that file. STAND_IN_CAN names what it can: "resume", "load" or nothing; STAND_IN_SPEAKS the
version of the protocol. With STAND_IN_OPENS=never it writes lines, and opens no session. STAND_IN_REFUSES is what it
says instead of opening an earlier session.
"""
import json
import os
import re
import select
import signal
import sys
import time

if "--version" in sys.argv:
    print(os.environ.get("STAND_IN_VERSION", "1.18.33"))
    sys.exit(0)
log = os.environ["STAND_IN_LOG"]
sessions = log + ".sessions"
os.makedirs(sessions, exist_ok=True)
abilities = os.environ.get("STAND_IN_CAN", "resume load").split()
last_request = 0


def emit(**fields):
    print(json.dumps({"jsonrpc": "2.0", **fields}), flush=True)


def note(**fields):
    with open(log, "a") as file:
        file.write(json.dumps({"pid": os.getpid(), **fields}) + "\n")


def update(session, what, **fields):
    emit(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": what, **fields}})


def piece(session, words, what="agent_message_chunk"):
    update(session, what, content={"type": "text", "text": words})


def say(session, words, what="agent_message_chunk"):
    for part in re.findall(r".{1,7}", words, re.S):
        piece(session, part, what)


def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def ask(method, **params):
    """Asks the client, and returns its answer."""
    global last_request
    last_request += 1
    emit(id=f"of-the-agent-{last_request}", method=method, params=params)
    return read()


def history(session):
    try:
        with open(os.path.join(sessions, session)) as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return None


def waits(session):
    """Until the client cancels, or ends its input."""
    note(waits=True, session=session)
    while (message := read()) is not None:
        if message.get("method") == "session/cancel":
            note(cancelled=True)
            return "cancelled"
    return None


def turn(session, prompt):
    """Works on a prompt, and returns the stop reason; None: it says nothing more."""
    prompts = history(session) + [prompt]
    with open(os.path.join(sessions, session), "a") as file:
        file.write(json.dumps(prompt) + "\n")
    note(prompt=prompt, session=session)
    found = re.search(r"\[\[(\S+?)(?: (.*?))?\]\]", prompts[0])
    command, words = found.groups() if found else ("text", None)
    if command == "text":
        say(session, "Hello.")
    elif command == "say":
        say(session, words)
    elif command == "pause":
        piece(session, "A few words, and")
        while not os.path.exists(words):
            time.sleep(0.02)
        piece(session, " then the rest.")
    elif command == "cost":
        say(session, f"Prompts: {len(prompts)}")
        for part in (0.04, 0.1):
            total = round(0.1 * (len(prompts) - 1) + part, 3)
            update(session, "usage_update", used=1000, size=9000, cost={"amount": total, "currency": "USD"})
    elif command == "ask":
        kind, path = words.split()
        call = {"toolCallId": f"call-{len(prompts)}", "title": f"{kind} {path}", "kind": kind, "locations": [{"path": path}]}
        options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}, {"optionId": "n", "name": "No", "kind": "reject_once"}]
        outcome = ask("session/request_permission", sessionId=session, toolCall=call, options=options)["result"]["outcome"]
        if outcome.get("optionId") == "y":
            update(session, "tool_call_update", toolCallId=call["toolCallId"], status="completed")
        say(session, f"Answered: {outcome['optionId']}")
    elif command == "files":
        say(session, str(ask("fs/read_text_file", sessionId=session, path="/etc/passwd")["error"]["code"]))
    elif command == "hang" and len(prompts) == 1:
        say(session, "It begins.")
        update(session, "plan", entries=[{"content": "Wait", "status": "in_progress"}])
        return waits(session)
    elif command == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        update(session, "plan", entries=[])
        note(waits=True)
        while True:
            time.sleep(60)
    elif command == "tools":
        for number in range(int(words)):
            update(session, "tool_call", toolCallId=str(number), title="ls", kind="execute", status="in_progress")
            update(session, "tool_call_update", toolCallId=str(number), status="completed")
        if (message := read()) is not None and message.get("method") == "session/cancel":
            return "cancelled"
    elif command == "tireless":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        number = 0
        while True:
            number += 1
            update(session, "tool_call", toolCallId=str(number), title="ls", kind="execute", status="in_progress")
            update(session, "tool_call_update", toolCallId=str(number), status="completed")
            if select.select([sys.stdin], [], [], 0.02)[0] and (message := read()) is not None:
                note(ignored=message.get("method"))
    elif command == "crash":
        say(session, "Half a sent")
        print("it broke in the middle", file=sys.stderr, flush=True)
        os._exit(3)
    elif command == "stay":
        say(session, "Done.")
        note(stays=True)
    elif command == "stop":
        say(session, "Some words.")
        return words
    elif command == "nothing":
        pass
    elif command == "schema":
        say(session, '{"score": 7}' if len(prompts) > int(words) else '{"score": "seven"}')
    else:
        say(session, f"Prompts: {len(prompts)}, last: {prompt}")
    return "end_turn"


def opened(request, session):
    """An earlier session. With session/load its history is replayed, some of it after the answer."""
    found = history(session)
    if "STAND_IN_REFUSES" in os.environ:
        return emit(id=request["id"], error={"code": -32000, "message": os.environ["STAND_IN_REFUSES"]})
    if found is None:
        return emit(id=request["id"], error={"code": -32002, "message": "Resource not found", "data": {"uri": session}})
    is_loaded = request["method"] == "session/load"
    for at, prompt in enumerate(found if is_loaded else []):
        say(session, prompt, "user_message_chunk")
        if at == 0:
            emit(id=request["id"], result={})
        say(session, "An old answer.")
    if not (is_loaded and found):
        emit(id=request["id"], result={})


while (request := read()) is not None:
    method, params = request.get("method"), request.get("params", {})
    if method == "initialize":
        can = {"loadSession": "load" in abilities, "sessionCapabilities": {"resume": {}} if "resume" in abilities else {}}
        emit(id=request["id"], result={"protocolVersion": int(os.environ.get("STAND_IN_SPEAKS", "1")), "agentCapabilities": can})
    elif method == "session/new" and os.environ.get("STAND_IN_OPENS") == "never":
        while True:
            update("", "available_commands_update", availableCommands=[])
            print("still here", file=sys.stderr, flush=True)
            time.sleep(0.05)
    elif method == "session/new":
        session = f"sess_{os.getpid()}_{time.time_ns()}"
        open(os.path.join(sessions, session), "w").close()
        emit(id=request["id"], result={"sessionId": session})
    elif method in ("session/load", "session/resume"):
        opened(request, params["sessionId"])
    elif method == "session/prompt":
        text = params["prompt"][0]["text"]
        failed = re.search(r"\[\[error (-?\d+) (.*?)\]\]", text)
        if failed:
            note(prompt=text)
            emit(id=request["id"], error={"code": int(failed.group(1)), "message": failed.group(2)})
            continue
        reason = turn(params["sessionId"], text)
        if reason is None:
            break
        usage = {"inputTokens": 100, "outputTokens": 10, "totalTokens": 110}
        emit(id=request["id"], result={"stopReason": reason, "usage": usage})
        if "[[stay]]" in text:
            while True:
                time.sleep(60)
    elif "id" in request:
        emit(id=request["id"], error={"code": -32601, "message": f"Method not found: {method}"})

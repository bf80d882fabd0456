#!/usr/bin/env python3
"""A stand-in for claude: speaks its stream of JSON lines, keeps conversations in files, and makes no request to a model.

The first prompt of a conversation says what it does, as in "[[hang]] please"; "Summarize FILE" answers with the first sentence. Each request to a model that the real one would make is a
line in the file that STAND_IN_LOG names.
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

MODEL = "claude-sonnet-4-5"
# The size of a text that does not fit into a prompt, in characters.
MAX_WORDS = 100_000
out = sys.stdout.buffer
turns = 0


def emit(value, end=b"\n"):
    out.write(json.dumps(value).encode() + end)
    out.flush()


def usage(tokens):
    return {"input_tokens": 1000, "output_tokens": tokens, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}


def say(block, tokens=10):
    global turns
    turns += 1
    message = {"id": f"msg_{os.getpid()}_{turns}", "model": MODEL, "content": [block], "usage": usage(tokens)}
    emit({"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": session})


def text(words):
    say({"type": "text", "text": words})


def result(words, end=b"\n", structured=None):
    spent = {MODEL: {"inputTokens": 1000 * max(turns, 1), "outputTokens": 10, "cacheReadInputTokens": 0,
                     "cacheCreationInputTokens": 0, "costUSD": 0.01 * max(turns, 1)}}
    line = {"subtype": "success", "is_error": False, "result": words, "type": "result", "session_id": session,
            "terminal_reason": "completed", "permission_denials": [], "modelUsage": spent, "model_usage_since_last_result": spent}
    if structured is not None:
        line["structured_output"] = structured
    emit(line, end)


def note(**fields):
    with open(os.environ["STAND_IN_LOG"], "a") as log:
        log.write(json.dumps({"session": session, "pid": os.getpid(), **fields}) + "\n")


def noise():
    """Writes to standard error, and says nothing."""
    while True:
        print("still here", file=sys.stderr, flush=True)
        time.sleep(0.1)


def forever():
    while True:
        time.sleep(60)


def left_behind():
    child = subprocess.Popen(["setsid", "sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    note(child=child.pid)


def until_there(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def summarize(path, prompts):
    if len(prompts) > 1:
        text(f"It stands in {path}.")
        return result(f"It stands in {path}.")
    emit({"type": "rate_limit_event",
          "rate_limit_info": {"status": "allowed", "rateLimitType": "five_hour", "utilization": 0.25, "resetsAt": int(time.time()) + 3600}})
    say({"type": "tool_use", "id": "call_1", "name": "Read", "input": {"file_path": path}})
    with open(path) as file:
        words = file.read()
    if len(words) > MAX_WORDS:
        emit({"type": "result", "subtype": "success", "is_error": True, "result": "Prompt is too long", "session_id": session,
              "terminal_reason": "prompt_too_long"})
        sys.exit(1)
    emit({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "call_1", "content": words}]}})
    answer = words.split(".")[0].strip() + "."
    text(answer)
    result(answer)


def act(name, word, prompts):
    if name == "text":
        sys.stderr.write("a line on standard error\n")
        text("Hello.")
        result("Hello.")
    elif name == "who":
        with open("/proc/self/cmdline") as line:
            argv = line.read().split("\0")
        result(json.dumps({"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()}))
    elif name == "hang":
        forever()
    elif name == "noise":
        noise()
    elif name == "tool":
        say({"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "tail -f /dev/null"}})
        left_behind()
        forever()
    elif name == "stay":
        result("It stays.")
        left_behind()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        forever()
    elif name == "leave":
        left_behind()
        result("It left something.")
    elif name == "file":
        with open(word, "w") as left:
            left.write("a report\n")
        result("It wrote a file.")
    elif name == "huge":
        text("x" * (4 << 20))
        result("It was long.")
    elif name == "bytes":
        out.write(b"\xff\xfe not text\n")
        result("No line break.", end=b"")
    elif name == "many":
        for at in range(int(word)):
            text(f"line {at}")
        result("All of them.")
    elif name == "words":
        for at in range(int(word)):
            text(f"word {at}")
    elif name == "closed":
        result("It works on.")
        os.close(1)
        note(closed=True)
        os._exit(0)
    elif name == "nothing":
        pass
    elif name == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif name == "near":
        for used in (0.91, 0.92):
            emit({"type": "rate_limit_event", "rate_limit_info": {
                "status": "allowed_warning", "rateLimitType": "five_hour", "utilization": used, "resetsAt": int(time.time()) + 3600}})
        result("It goes on.")
    elif name == "limit":
        resets = int(word)
        info = {"status": "rejected", "resetsAt": resets, "rateLimitType": "five_hour", "utilization": 1.0}
        emit({"type": "rate_limit_event", "rate_limit_info": info})
        words = "You've hit your 5-hour limit"
        emit({"type": "assistant", "error": "rate_limit", "api_error_params": {"rate_limit_info": info},
              "message": {"id": "m", "model": "<synthetic>", "content": [{"type": "text", "text": words}]}})
        emit({"type": "result", "subtype": "success", "is_error": True, "result": words, "terminal_reason": "api_error",
              "api_error": "usage_limit_reached", "api_error_status": 429})
        sys.exit(1)
    elif name == "secret":
        text("The key is " + os.environ["API_KEY"])
        sys.stderr.write("key " + os.environ["API_KEY"] + "\n")
        result("Done.")
    elif name == "schema":
        answer = {"score": 7} if len(prompts) > int(word) else {"score": "seven"}
        result("Here: " + json.dumps(answer))
    elif name == "dear":
        for _ in range(1000):
            say({"type": "text", "text": "on"}, tokens=20_000)
        forever()
    elif name == "gate":
        if len(prompts) == 1:
            text("It begins.")
            note(waits=True)
            until_there(word)
        text("It goes on.")
        result(f"Prompts: {len(prompts)}, last: {prompts[-1]}")
    elif name == "stop":
        note(waits=True)
        forever()
    else:
        sys.exit(f"no such scenario: {name}")


if "--version" in sys.argv:
    if "STAND_IN_LAUNCHES" in os.environ:
        # As a launcher does: the program is a child of its own, which has its output too.
        child = subprocess.Popen(["sleep", "600"])
        with open(os.environ["STAND_IN_LOG"], "a") as log:
            log.write(json.dumps({"launched": child.pid, "pid": os.getpid()}) + "\n")
    print(os.environ.get("STAND_IN_VERSION", "2.1.325 (Claude Code)"), flush=True)
    if "STAND_IN_LINGERS" in os.environ:
        forever()
    sys.exit(0)
flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
session = flags.get("session-id") or flags["resume"]
folder = os.path.join(os.environ["CLAUDE_CONFIG_DIR"], "projects")
os.makedirs(folder, exist_ok=True)
history = os.path.join(folder, session + ".jsonl")
if "session-id" in flags and os.path.exists(history):
    sys.exit(f"Error: Session ID {session} is already in use.")
if "resume" in flags and not os.path.exists(history):
    words = f"No conversation found with session ID: {session}"
    emit({"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [words], "session_id": session})
    sys.exit(words)
prompt = sys.stdin.read()
with open(history, "a") as kept:
    kept.write(json.dumps(prompt) + "\n")
with open(history) as kept:
    prompts = [json.loads(line) for line in kept]
emit({"type": "system", "subtype": "init", "session_id": session, "model": MODEL, "claude_code_version": "2.1.325",
      "mcp_servers": []})
note(prompt=prompt, resumed="resume" in flags)
document = re.match(r"Summarize (\S+)", prompts[0])
if document:
    summarize(document.group(1), prompts)
    sys.exit(0)
found = re.search(r"\[\[(\S+?)(?: (\S+))?\]\]", prompts[0])
act(found.group(1) if found else "text", found.group(2) if found else None, prompts)

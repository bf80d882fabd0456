#!/usr/bin/env python3
"""A scripted LLM server on loopback: the APIs of Anthropic (messages), OpenAI (responses, chat completions) and Google (generateContent), for
the real agents in tests.

    scripted_llm.py FOLDER

It writes its port to FOLDER/port, and two lines for each request to FOLDER/requests.jsonl: one when it is asked, with the time, the
session, the item and a sha256 of each text of the user, and one when it has answered, with the status and the tokens that it bills.

The texts of the user say what is answered. The last mark of each sort counts:

    [[item NAME]]           the name in the log
    [[words N SECONDS]]     N words, with a pause before each
    [[say TEXT]]            this text
    [[tool N COMMAND]]      before the answer, N requests call a shell with this command
    [[tokens IN OUT]]       what each request bills; without it 100, and one for each word

FOLDER/mode.json, which is read with each request, says what is refused:

    subscription    answers have the headers of a subscription: how much of its allowance is used
    refuse          usage_limit, throttled, overloaded, unauthorized, billing or quota; or answers that are none: html, truncated
    after           only after this many answers
    times           only this often
    seconds         only this long, from the first refusal on; a usage limit resets then
    resets_at       or at this time
"""
import hashlib
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

folder = sys.argv[1]
lock = threading.Lock()
counts = {"asked": 0, "answered": 0, "refused": 0}
first_refusal = None

# Status, the error of the Anthropic API, and that of OpenAI.
REFUSALS = {
    "usage_limit": (429, {"type": "rate_limit_error", "message": "This request would exceed your account's rate limit."},
                    {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus"}),
    "throttled": (429, {"type": "rate_limit_error", "message": "Number of requests has exceeded your per-minute rate limit."},
                  {"type": "requests", "code": "rate_limit_exceeded", "message": "Rate limit reached for requests."}),
    "overloaded": (529, {"type": "overloaded_error", "message": "Overloaded"},
                   {"type": "server_error", "code": "server_is_overloaded", "message": "Overloaded"}),
    "unauthorized": (401, {"type": "authentication_error", "message": "invalid x-api-key"},
                     {"type": "invalid_request_error", "code": "invalid_api_key", "message": "Incorrect API key provided."}),
    "billing": (403, {"type": "billing_error", "message": "Your account has a billing problem."},
                {"type": "billing_not_active", "code": "billing_not_active", "message": "Your account is not active, please check your billing details."}),
    "quota": (429, {"type": "rate_limit_error", "message": "Your credit balance is too low; see billing."},
              {"type": "insufficient_quota", "code": "insufficient_quota", "message": "You exceeded your current quota."}),
}
# Answers with status 200 that are no answers: a page, and a stream that ends early.
BROKEN = ("html", "truncated")


def mode():
    try:
        with open(os.path.join(folder, "mode.json")) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def log(**fields):
    with lock, open(os.path.join(folder, "requests.jsonl"), "a") as file:
        file.write(json.dumps({**fields, "at": time.time()}) + "\n")


def refusal(now):
    """What this request is refused with, and when that ends; counts it either way."""
    global first_refusal
    setting = mode()
    with lock:
        wanted = setting.get("refuse")
        if counts["answered"] < setting.get("after", 0) or counts["refused"] >= setting.get("times", sys.maxsize):
            wanted = None
        if wanted and first_refusal is None:
            first_refusal = now
        end = setting.get("resets_at") or (first_refusal or now) + setting.get("seconds", 3600)
        if "seconds" in setting and first_refusal is not None and now >= end:
            wanted = None
        counts["refused" if wanted else "answered"] += 1
        return wanted, int(end) + (end > int(end)), setting.get("subscription", False)


class Conversation:
    """What a request says."""

    def __init__(self, body):
        self.texts = []
        self.tool_results = 0
        for turn in body.get("messages") or body.get("input") or []:
            content = turn.get("content")
            if turn.get("type", "message").endswith("_output") or turn.get("role") == "tool":
                self.tool_results += 1
            if turn.get("role") != "user":
                continue
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
                if part.get("type") in ("text", "input_text"):
                    self.texts.append(part["text"])
                elif part.get("type") == "tool_result":
                    self.tool_results += 1
        for turn in body.get("contents") or []:
            for part in turn.get("parts", []):
                self.tool_results += "functionResponse" in part
                if turn.get("role") == "user" and "text" in part:
                    self.texts.append(part["text"])
        tools = body.get("tools") or []
        declared = [one for tool in tools for one in tool.get("functionDeclarations") or [tool.get("function", tool)]]
        self.tools = [tool.get("name", "") for tool in declared]
        self.model = body.get("model", "")

    def mark(self, pattern):
        found = [match for text in self.texts for match in re.findall(r"\[\[" + pattern + r"\]\]", text)]
        return found[-1] if found else None

    def calls(self):
        """The command to run, unless it has run often enough. A request without tools, such as one for a title, runs none."""
        found = self.mark(r"tool (\d+) (.*?)")
        return found[1] if found and self.tools and self.tool_results < int(found[0]) else None

    def words(self):
        """Pieces of the answer, each after its pause."""
        said = self.mark(r"say (.*?)")
        count, pause = self.mark(r"words (\d+) ([\d.]+)") or (3, 0)
        for piece in [said] if said is not None else [f"word{at} " for at in range(int(count))]:
            time.sleep(float(pause))
            yield piece

    def shell(self, command):
        """A call of the shell, in the words of the agent."""
        for name, fields in [("Bash", {"command": command, "description": "Run it", "timeout": 600000}),
                             ("run_shell_command", {"command": command, "description": "Run it"}),
                             ("bash", {"command": command, "description": "Run it", "timeout": 10000}),
                             ("exec_command", {"cmd": command}), ("shell_command", {"command": command}),
                             ("shell", {"command": ["sh", "-c", command]})]:
            if name in self.tools:
                return name, fields
        return self.tools[0], {}


class Bill:
    """The tokens of one request."""

    def __init__(self, conversation):
        fixed = conversation.mark(r"tokens (\d+) (\d+)")
        self.input, self.most = (int(fixed[0]), int(fixed[1])) if fixed else (100, None)
        self.said = 0

    def output(self):
        return self.said if self.most is None else self.most


def anthropic(conversation, bill):
    usage = {"input_tokens": bill.input, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    message = {"id": f"msg_{time.time_ns()}", "type": "message", "role": "assistant", "model": conversation.model, "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": message}
    command = conversation.calls()
    if command is None:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for word in conversation.words():
            bill.said += 1
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
    else:
        name, fields = conversation.shell(command)
        block = {"type": "tool_use", "id": f"toolu_{time.time_ns()}", "name": name, "input": {}}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        piece = {"type": "input_json_delta", "partial_json": json.dumps(fields)}
        yield {"type": "content_block_delta", "index": 0, "delta": piece}
    yield {"type": "content_block_stop", "index": 0}
    stop = "end_turn" if command is None else "tool_use"
    yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": bill.output()}}
    yield {"type": "message_stop"}


def responses(conversation, bill):
    response = {"id": f"resp_{time.time_ns()}", "object": "response", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response}
    command = conversation.calls()
    if command is None:
        item = {"id": f"msg_{time.time_ns()}", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        text = ""
        for word in conversation.words():
            bill.said += 1
            text += word
            yield {"type": "response.output_text.delta", "item_id": item["id"], "output_index": 0, "content_index": 0, "delta": word}
        done = {**item, "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}
    else:
        name, fields = conversation.shell(command)
        done = {"type": "function_call", "id": f"fc_{time.time_ns()}", "call_id": f"call_{time.time_ns()}", "name": name,
                "arguments": json.dumps(fields), "status": "completed"}
        yield {"type": "response.output_item.added", "output_index": 0, "item": {**done, "arguments": ""}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": done}
    usage = {"input_tokens": bill.input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": bill.output(),
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": bill.input + bill.output()}
    yield {"type": "response.completed", "response": {**response, "status": "completed", "output": [done], "usage": usage}}


def chat(conversation, bill):
    def chunk(delta, finish=None, **fields):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": conversation.model, "choices": [choice], **fields}

    command = conversation.calls()
    yield chunk({"role": "assistant", "content": ""})
    if command is None:
        for word in conversation.words():
            bill.said += 1
            yield chunk({"content": word})
    else:
        name, fields = conversation.shell(command)
        call = {"index": 0, "id": f"call_{time.time_ns()}", "type": "function", "function": {"name": name, "arguments": json.dumps(fields)}}
        yield chunk({"tool_calls": [call]})
    yield chunk({}, "stop" if command is None else "tool_calls")
    usage = {"prompt_tokens": bill.input, "completion_tokens": bill.output(), "total_tokens": bill.input + bill.output()}
    yield {**chunk({}), "choices": [], "usage": usage}


def google(conversation, bill):
    def piece(parts, **fields):
        usage = {"promptTokenCount": bill.input, "candidatesTokenCount": bill.output(), "totalTokenCount": bill.input + bill.output()}
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **fields}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": conversation.model}

    command = conversation.calls()
    if command is None:
        for word in conversation.words():
            bill.said += 1
            yield piece([{"text": word}])
    else:
        name, fields = conversation.shell(command)
        yield piece([{"functionCall": {"name": name, "args": fields}, "thoughtSignature": "c2lnbmVk"}])
    yield piece([{"text": ""}], finishReason="STOP")


APIS = [("messages", anthropic), ("chat/completions", chat), ("GenerateContent", google), ("generateContent", google), ("responses", responses)]


def allowance(is_anthropic, is_used_up, end):
    """The headers of a subscription."""
    week = end + 86400
    if not is_anthropic:
        return {"x-codex-primary-used-percent": "100" if is_used_up else "42", "x-codex-primary-window-minutes": "300",
                "x-codex-primary-reset-at": str(end), "x-codex-secondary-used-percent": "30",
                "x-codex-secondary-window-minutes": "10080", "x-codex-secondary-reset-at": str(week)}
    state = "rejected" if is_used_up else "allowed"
    fields = {"status": state, "reset": end, "representative-claim": "five_hour", "5h-status": state,
              "5h-utilization": 1 if is_used_up else 0.42, "5h-reset": end, "7d-status": "allowed", "7d-utilization": 0.3,
              "7d-reset": week, "fallback-percentage": 0.5, "overage-status": "rejected",
              "overage-disabled-reason": "org_level_disabled"}
    return {"anthropic-ratelimit-unified-" + name: str(value) for name, value in fields.items()}


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(200, {"data": []}, {})

    def do_HEAD(self):
        self.answer(200, {}, {})

    def answer(self, status, value, headers):
        body = json.dumps(value).encode()
        self.head(status, {**headers, "content-type": "application/json", "content-length": str(len(body))})
        self.wfile.write(body)

    def head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def stream(self, events, headers):
        self.head(200, {**headers, "content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.chunk(f"{name}data: {json.dumps(event)}\n\n")
        if "chat" in self.path:
            self.chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def broken(self, number, how, events):
        """An answer that is none."""
        log(event="answered", number=number, status=200, input_tokens=0, output_tokens=0, whole=False)
        try:
            if how == "html":
                page = b"<!doctype html><title>Please log in</title>"
                self.head(200, {"content-type": "text/html", "content-length": str(len(page))})
                return self.wfile.write(page)
            self.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
            for event in list(events)[:2]:
                self.chunk(f"data: {json.dumps(event)}\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_POST(self):
        now = time.time()
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if "count_tokens" in self.path or "countTokens" in self.path:
            return self.answer(200, {"input_tokens": 100, "totalTokens": 100}, {})
        api = next(api for part, api in APIS if part in self.path)
        is_anthropic = api is anthropic
        conversation = Conversation(body)
        with lock:
            counts["asked"] += 1
            number = counts["asked"]
        sessions = [self.headers.get(name) for name in ("x-claude-code-session-id", "session-id", "session_id")]
        log(event="asked", number=number, path=self.path.split("?")[0], session=next(filter(None, sessions), None),
            item=conversation.mark(r"item (.*?)"), side=not conversation.tools,
            sha256=[hashlib.sha256(text.encode()).hexdigest() for text in conversation.texts],
            last=conversation.texts[-1][-2000:] if conversation.texts else "")
        refused, end, has_allowance = refusal(now)
        headers = allowance(is_anthropic, refused == "usage_limit", end) if has_allowance or refused == "usage_limit" else {}
        bill, is_whole = Bill(conversation), False
        if refused in BROKEN:
            return self.broken(number, refused, api(conversation, bill))
        if refused:
            return self.refuse(number, refused, api, headers, end)
        try:
            if ":generateContent" in self.path:
                self.answer(200, list(api(conversation, bill))[-2], headers)
            else:
                self.stream(api(conversation, bill), headers)
            is_whole = True
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            log(event="answered", number=number, status=200, input_tokens=bill.input, output_tokens=bill.output(), whole=is_whole)

    def refuse(self, number, refused, api, headers, end):
        status, of_anthropic, of_openai = REFUSALS[refused]
        if refused == "usage_limit":
            of_openai = {**of_openai, "resets_at": end, "resets_in_seconds": max(0, end - int(time.time()))}
        if refused == "unauthorized":
            # An agent that tries again takes its time, so that a busy machine can stop it before.
            headers = {**headers, "retry-after": "20"}
        log(event="answered", number=number, status=status, input_tokens=0, output_tokens=0, whole=True)
        value = {"error": of_openai}
        if api is anthropic:
            value = {"type": "error", "error": of_anthropic, "request_id": f"req_{number}"}
        elif api is google:
            value = {"error": {"code": status, "message": of_openai["message"], "status": refused.upper()}}
        try:
            self.answer(status, value, headers)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class Listener(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_):
        """An agent that was killed is no error."""


server = Listener(("127.0.0.1", 0), Server)
port = os.path.join(folder, "port")
with open(port + ".next", "w") as file:
    file.write(str(server.server_address[1]))
os.rename(port + ".next", port)
server.serve_forever()

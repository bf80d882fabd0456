#!/usr/bin/env python3
"""A scripted LLM server on loopback: the APIs of Anthropic (messages) and OpenAI (responses), for the real agents in tests.

    scripted_llm.py PORT_FILE LOG

The last "[[words N SECONDS]]" of a conversation says how many words are answered and how long each takes. Each request is a line in LOG.
"""
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port_file, log_file = sys.argv[1:3]
lock = threading.Lock()


def plan(body):
    """How many words, and the pause before each."""
    found = re.findall(r"\[\[words (\d+) ([\d.]+)\]\]", json.dumps(body))
    return (int(found[-1][0]), float(found[-1][1])) if found else (3, 0.0)


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({"data": []})

    def do_HEAD(self):
        self.answer({})

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def event(self, value):
        data = f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def stream(self, events):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            self.event(event)
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if "count_tokens" in self.path:
            return self.answer({"input_tokens": 100})
        with lock, open(log_file, "a") as log:
            session = self.headers.get("x-claude-code-session-id") or self.headers.get("session_id")
            log.write(json.dumps({"path": self.path.split("?")[0], "session": session, "text": json.dumps(body)[-2000:]}) + "\n")
        words, pause = plan(body)
        try:
            self.stream(anthropic(words, pause) if "messages" in self.path else responses(words, pause))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def spoken(words, pause):
    for at in range(words):
        time.sleep(pause)
        yield f"word{at} "


def anthropic(words, pause):
    usage = {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    message = {"id": f"msg_{time.time_ns()}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in spoken(words, pause):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": words}}
    yield {"type": "message_stop"}


def responses(words, pause):
    response = {"id": f"resp_{time.time_ns()}", "object": "response", "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": response}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    text = ""
    for word in spoken(words, pause):
        text += word
        yield {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word}
    done = {**item, "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": done}
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": words,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 100 + words}
    yield {"type": "response.completed", "response": {**response, "status": "completed", "output": [done], "usage": usage}}


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
server.daemon_threads = True
with open(port_file + ".next", "w") as file:
    file.write(str(server.server_address[1]))
os.rename(port_file + ".next", port_file)
server.serve_forever()

"""A small gateway, as docs/guide/gateway.md describes one: sessions and queries over HTTP, without dependencies.

    python3 examples/gateway.py --port 8900 [--script rules.json] [--log requests.jsonl]

There is no model in it: `reply` stands in for one. Replace it by whatever runs your agent. With GATEWAY_TOKEN in the environment, each
request needs that bearer token.

For tests, a script says what happens to queries: a list of rules such as {"when": "words of the input", "lines": [{…}, …]}. A rule may
also have "status" and "retry_after" (a refusal), "gate" (a file to wait for before the last line) and "cut": true (the last line is left
out). The first rule whose words are in the input counts. The log has a line for each request.
"""

import argparse
import json
import os
import re
import select
import socket
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 64 << 20
PRICE_USD = 0.001


def reply(session, body):
    """Stands in for an agent: what it says, what it cost, and its answer."""
    count = len(session["inputs"])
    yield {"type": "thinking", "text": "What was asked before?"}
    yield {"type": "text", "text": f"This is query {count} of the session."}
    yield {"type": "usage", "model": "stand-in", "input_tokens": 20, "output_tokens": 8, "cost_usd": PRICE_USD}
    yield {"type": "result", "output": f"Queries: {count}, last: {body['input']}"}


class State:
    """The sessions. A real gateway keeps them on disk."""

    def __init__(self, rules, log):
        self.lock = threading.Lock()
        self.rules = rules
        self.log_file = log
        self.sessions = {}
        self.seen = set()
        self.answers = {}

    def log(self, **fields):
        if self.log_file:
            with self.lock, open(self.log_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(fields) + "\n")

    def create(self, body):
        id = f"sess-{uuid.uuid4().hex[:12]}"
        with self.lock:
            self.sessions[id] = {"user_id": body["user_id"], "workspace": body.get("workspace"), "inputs": []}
        self.log(created=id, user_id=body["user_id"], workspace=body.get("workspace"))
        return id


class Handler(BaseHTTPRequestHandler):
    state: State

    def do_POST(self):
        token = os.environ.get("GATEWAY_TOKEN")
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            return self.refuse(401, "queue_stop", "the token is missing or wrong")
        try:
            size = int(self.headers.get("Content-Length") or 0)
            if size > MAX_BODY_BYTES:
                return self.refuse(413, "permanent", f"a request has at most {MAX_BODY_BYTES} bytes")
            body = json.loads(self.rfile.read(size))
            if self.path == "/sessions":
                return self.answer(200, {"session_id": self.state.create(body)})
            found = re.fullmatch(r"/sessions/([^/]+)/queries", self.path)
            if not found:
                return self.refuse(404, "permanent", "there is no such path")
            return self.query(found[1], body)
        except (ValueError, KeyError, TypeError) as error:
            return self.refuse(400, "permanent", f"the request cannot be read: {error}")

    def query(self, id, body):
        state, query, key = self.state, body["query_id"], body["query_key"]
        state.log(query=query, key=key, session=id, input=body["input"], resumed=body["resumed"], options=body["options"])
        with state.lock:
            session = state.sessions.get(id)
            duplicate = query in state.seen
            state.seen.add(query)
            known = state.answers.get(key)
        if session is None:
            return self.refuse(404, "permanent", f"there is no session {id}")
        if duplicate:
            return self.refuse(409, "permanent", "this query is here already")
        rule = next((rule for rule in state.rules if rule["when"] in body["input"]), {})
        if "status" in rule:
            return self.refuse(rule["status"], rule.get("class"), rule.get("message", "scripted"), rule.get("retry_after"))
        if known is None:
            session["inputs"].append(body["input"])
            lines = list(rule["lines"]) if "lines" in rule else list(reply(session, body))
        else:
            # An earlier attempt asked the same, and has not received the answer.
            lines = [known]
        try:
            self.stream(lines, rule, key)
        except OSError:
            # The client has closed its connection: the query is given up.
            state.log(given_up=query)
        return None

    def stream(self, lines, rule, key):
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        *events, last = lines
        for event in events:
            self.line(event)
        self.wait_for(rule.get("gate"))
        if rule.get("cut"):
            return
        if last["type"] == "result":
            with self.state.lock:
                self.state.answers[key] = last
        self.line(last)

    def wait_for(self, gate):
        """Waits for a file, and says that it is alive."""
        while gate and not os.path.exists(gate):
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError
            self.line({"type": "ping", "at": time.time()})

    def line(self, value):
        self.wfile.write(json.dumps(value).encode() + b"\n")
        self.wfile.flush()

    def answer(self, status, value, retry_after=None):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after is not None:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, kind, message, retry_after=None):
        error = {"message": message} if kind is None else {"class": kind, "message": message}
        self.answer(status, {"error": error}, retry_after)

    def log_message(self, *_):
        pass  # The log has what is worth knowing.


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # A client that went away.


def main():
    options = argparse.ArgumentParser(description="A small gateway.")
    options.add_argument("--port", type=int, default=8900)
    options.add_argument("--script", help="a JSON file with rules")
    options.add_argument("--log", help="a file for a line of JSON about each request")
    given = options.parse_args()
    rules = json.load(open(given.script, encoding="utf-8")) if given.script else []
    Handler.state = State(rules, given.log)
    server = Server(("127.0.0.1", given.port), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

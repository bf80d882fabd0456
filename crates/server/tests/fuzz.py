#!/usr/bin/env python3
"""Fuzzes the HTTP API of a real node by its description, with schemathesis: python3 crates/server/tests/fuzz.py

For each kind of token it sends generated requests, valid and invalid, and compares the answers with docs/openapi.json. It prints the number of
cases and fails if a check does, if any answer has a status of 500 or more, or if there were fewer cases than asked for. Each kind has a store of
its own: a file, or a schema of the server. schemathesis comes from the package registry, into a virtual environment below the target folder.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VERSION = "4.32.5"
TOKENS = {"full": "full-token-of-a-fuzz-run", "read": "read-token-of-a-fuzz-run", "none": None}
# Streams have no end, and a drained node serves nothing more.
LEFT_OUT = ("live", "tasks.events", "nodes.drain")
# The description does not say which texts are dates or durations, and which settings exclude each other: such requests are answered with 400
# and the name of the field.
CHECKS_LEFT_OUT = ("positive_data_acceptance",)
# A path with a page, which has no description, has a method more than the description says.
SETTINGS = """
[[operations]]
include-operation-id = "login"

[operations.checks]
unsupported_method.enabled = false
"""
CONFIG = """
[pool.shell]
executor = "command"
command = ["sh", "-c", "{{ payload }}"]
retry = { attempts = 1 }
"""


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--program", type=Path, default=ROOT / "target/debug/ostler", help="the program ostler")
    asked.add_argument("--store", help="the store, such as postgres://…; by default a new file")
    asked.add_argument("--cases", type=int, default=20_000, help="generated cases for each token, at least")
    asked.add_argument("--tokens", default="full,read,none", help="kinds of tokens")
    asked.add_argument("--seed", type=int, default=1)
    asked = asked.parse_args()
    tool = schemathesis()
    failed = False
    for kind in asked.tokens.split(","):
        store = store_for(asked.store, f"fuzz_{kind}")
        with tempfile.TemporaryDirectory() as folder, Node(asked.program.resolve(), store, Path(folder)) as node:
            node.fill()
            failed |= run(tool, node, kind, asked)
    sys.exit(1 if failed else 0)


def schemathesis():
    """The program, installed once."""
    folder = ROOT / "target/tmp/fuzz"
    program = folder / "bin/schemathesis"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", f"schemathesis=={VERSION}"], check=True)
    return program


def store_for(server, name):
    """A schema of the server that no other run has; None: a new file."""
    if not server:
        return None
    parts = urllib.parse.urlsplit(server)
    query = dict(urllib.parse.parse_qsl(parts.query))
    query["schema"] = f"{query.get('schema', 'ostler')}_{name}_{os.getpid()}"
    return parts._replace(query=urllib.parse.urlencode(query)).geturl()


class Node:
    """A node of the real program, with a pool and an API."""

    # How long it may take to read its tokens again.
    MAX_REREAD = 30

    def __init__(self, program, store, folder):
        (folder / "ostler.toml").write_text(CONFIG)
        env = {**os.environ, "OSTLER_STORE": store or str(folder / "ostler.db"), "XDG_STATE_HOME": str(folder)}
        # A node with this variable knows no other token.
        env.pop("OSTLER_TOKEN", None)
        self.log = (folder / "log").open("w+")
        words = [program, "up", "--listen", "127.0.0.1:0", "--name", "fuzzed"]
        self.process = subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.address = json.loads(self.process.stdout.readline())["listen"]
        self.folder = folder
        self.set_tokens()

    def set_tokens(self):
        """Writes the tokens into the file that the node has made, and waits until they are valid."""
        (tokens,) = self.folder.rglob("*.token")
        tokens.write_text(f"owner full {TOKENS['full']}\nviewer read {TOKENS['read']}\n")
        until = time.monotonic() + self.MAX_REREAD
        while True:
            try:
                return self.ask("GET", "/api/v1/session")
            except urllib.error.HTTPError as error:
                if error.code != 401 or time.monotonic() > until:
                    raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def ask(self, method, path, body=None):
        request = urllib.request.Request(f"http://{self.address}{path}", method=method)
        request.add_header("authorization", f"Bearer {TOKENS['full']}")
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, data, timeout=60) as answer:
            return json.load(answer)

    def fill(self):
        """Something of everything, so that generated requests find it."""
        for payload in ["echo hello", "exit 3", "sleep 0.1; echo there >&2"]:
            made = self.ask("POST", "/api/v1/tasks", {"queue": "shell", "kind": "run", "payload": payload})
            self.ask("GET", f"/api/v1/tasks/{made['id']}/result?wait=30s")
        self.ask("POST", "/api/v1/jobs", {"pool": "shell", "kind": "run", "items": ["true", "false"], "name": "both"})
        self.ask("PUT", "/api/v1/schedules/hourly", {"queue": "shell", "kind": "run", "every": "1h", "payload": "true"})

    def is_up(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=30) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


def run(tool, node, kind, asked):
    """One token. Whether something failed."""
    document = node.folder / "openapi.json"
    (node.folder / "schemathesis.toml").write_text(SETTINGS)
    document.write_text(json.dumps(node.ask("GET", "/api/v1/openapi.json")))
    operations = sum(len(methods) for methods in json.loads(document.read_text())["paths"].values())
    words = [tool, "run", document, "--url", f"http://{node.address}", "--checks", "all", "--exclude-checks"]
    words += [",".join(CHECKS_LEFT_OUT), "--phases", "examples,coverage,fuzzing,stateful", "--continue-on-failure", "--no-color"]
    # Operations without parameters have few cases: the others make up for them.
    words += ["--max-examples", str(max(1, asked.cases * 3 // (2 * operations))), "--seed", str(asked.seed), "--workers", "2"]
    words += ["--request-timeout", "60", "--suppress-health-check", "all", "--warnings", "off"]
    for name in LEFT_OUT:
        words += ["--exclude-operation-id", name]
    token = TOKENS[kind]
    if token is not None:
        words += ["--header", f"Authorization: Bearer {token}"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=node.folder)
    print(done.stdout[-20_000:] if done.returncode else "", end="")
    counted = re.search(r"(\d+) generated", done.stdout)
    cases = int(counted.group(1)) if counted else 0
    up = node.is_up()
    node.log.flush()
    errors = [line for line in (node.folder / "log").read_text().splitlines() if " ERROR " in line]
    print(f"token {kind}: {cases} cases, exit code {done.returncode}, node {'up' if up else 'DOWN'}, {len(errors)} errors in its log")
    for line in errors[:10]:
        print(f"  {line}")
    if cases < asked.cases:
        print(f"  fewer than {asked.cases} cases")
    return done.returncode != 0 or not up or bool(errors) or cases < asked.cases


if __name__ == "__main__":
    main()

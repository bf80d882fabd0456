#!/usr/bin/env python3
"""An MCP server that does not end: not with its input, and not with SIGTERM. It also leaves a child in a session of its own."""
import json
import signal
import subprocess
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
nothing = subprocess.DEVNULL
subprocess.Popen(["tail", "-f", "/dev/null"], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answers = {
        "initialize": {"protocolVersion": asked.get("params", {}).get("protocolVersion"), "capabilities": {"tools": {}},
                       "serverInfo": {"name": "stays", "version": "1"}},
        "tools/list": {"tools": []},
    }
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"], {})}), flush=True)
while True:
    time.sleep(60)

"""A node for tests: starts a real worker process, and says and hears frames over a real socket pair."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SDK = HERE.parent
# How long anything may take before a test gives up. Nothing comes near it, on a busy machine neither.
MAX_WAIT_S = 60


class Node:
    """The node's end of one worker."""

    def __init__(self, *command: str) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(MAX_WAIT_S)
        environment = {**os.environ, "OSTLER_FD": str(theirs.fileno()), "PYTHONPATH": str(SDK)}
        self.process = subprocess.Popen(
            command or (sys.executable, str(HERE / "handlers.py")),
            pass_fds=[theirs.fileno()],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        self.socket = ours
        self._file = ours.makefile("rb")
        self._tasks = 0

    def say(self, **frame: Any) -> None:
        self.socket.sendall(json.dumps(frame).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next frame. An empty one: the worker is gone."""
        line = self._file.readline()
        frame: dict[str, Any] = json.loads(line) if line else {}
        return frame

    def greet(self) -> dict[str, Any]:
        self.say(type="hello", protocol=1, pool="docs", worker="w-1")
        return self.hear()

    def give(self, kind: str, payload: Any = None, **more: Any) -> dict[str, Any]:
        """Gives the worker a task. What answers about it begins like this."""
        self._tasks += 1
        about = {"id": f"task-{self._tasks}", "token": 2 + self._tasks}
        frame = {"attempt": 1, "timeout_ms": 300_000, "steps": {}, **more}
        self.say(type="task", kind=kind, payload=payload, **about, **frame)
        return about

    def do(self, kind: str, payload: Any = None, **more: Any) -> list[dict[str, Any]]:
        """Gives the worker a task, saves its steps, and hears all that it says, up to its result."""
        about = self.give(kind, payload, **more)
        said = []
        while True:
            frame = self.hear()
            assert frame, "the worker is gone: " + self.end()[2]
            assert {name: frame.pop(name) for name in about} == about, "a frame is about another task"
            said.append(frame)
            if frame["type"] == "result":
                return said
            if frame["type"] == "step":
                self.say(type="saved", step=frame["name"], **about)

    def end(self) -> tuple[int, str, str]:
        """Waits until the worker has ended: its code, its stdout, its stderr."""
        out, err = self.process.communicate(timeout=MAX_WAIT_S)
        return self.process.returncode, out.decode(), err.decode()

    def close(self) -> None:
        """Whatever the test left is ended."""
        self.process.kill()
        self.process.communicate()
        self._file.close()
        self.socket.close()

"""A real node for tests of the clients: `ostler up` in a folder of its own, on a Unix socket. OSTLER_PROGRAM names the program."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent
SDK = HERE.parent.parent
ROOT = SDK.parent.parent
SCENARIO: dict[str, Any] = json.loads((SDK.parent / "scenario.json").read_text())
# How long anything may take before a test gives up. Nothing comes near it, on a busy machine neither.
MAX_WAIT_S = 60
# The URL of a store on a server, with a schema; nodes have a file otherwise.
STORE = os.environ.get("OSTLER_TEST_STORE")
SCHEMAS = itertools.count(1)


def program() -> str:
    """The program under test."""
    found = os.environ.get("OSTLER_PROGRAM") or shutil.which("ostler")
    if not found:
        raise RuntimeError("these tests need a node: set OSTLER_PROGRAM to a built program, such as target/debug/ostler")
    return found


class Served:
    """A node that serves its API."""

    def __init__(self, config: Optional[list[str]] = None, listen: Optional[str] = None, folder: Optional[Path] = None) -> None:
        self._own = None if folder else tempfile.TemporaryDirectory(prefix="ostler-")
        self.folder = folder or Path(self._own.name if self._own else "")
        lines = config or SCENARIO["config"]
        if STORE:
            # Each node has a schema of its own.
            lines = [f'store = "{STORE}_{next(SCHEMAS)}"' if line.startswith("store = ") else line for line in lines]
        (self.folder / "ostler.toml").write_text("\n".join(lines) + "\n")
        self.url = listen or f"unix:{self.folder / 'api.sock'}"
        self.process = self.start()
        # Beside the store, or in the state folder of the user if the store is on a server.
        (self.token_file,) = self.folder.rglob("*.token")

    def start(self) -> "subprocess.Popen[bytes]":
        """Starts the node, and returns when it serves."""
        away = ("OSTLER_TOKEN", "OSTLER_STORE", "OSTLER_SERVER", "OSTLER_LISTEN", "XDG_STATE_HOME", "OSTLER_FD")
        environment = {name: value for name, value in os.environ.items() if name not in away}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [program(), "up", "--listen", self.url.replace("http://", "")],
                cwd=self.folder,
                env={**environment, "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        if b'"ready"' not in line:
            process.kill()
            process.wait()
            raise AssertionError(f"the node did not start: {line!r} {(self.folder / 'log').read_text()}")
        self.process = process
        return process

    def token(self, name: str) -> str:
        for words in map(str.split, self.token_file.read_text().splitlines()):
            if words and words[0] == name:
                return words[2]
        raise AssertionError(f"the node made no token for {name}")

    def stop(self) -> None:
        """Ends the node, without its leave."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def close(self) -> None:
        self.stop()
        if self._own:
            self._own.cleanup()


sys.path.insert(0, str(SDK))

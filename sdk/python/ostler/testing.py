"""A node for tests: ``ostler up`` in a folder of its own, with a client.

    from ostler.testing import running_node

    with running_node('[pool.texts]\\nexecutor = "process"\\ncommand = ["python3", "worker.py"]') as node:
        assert node.client.result(node.client.submit("texts", "count", {"text": "to be"}), wait=60) == {"words": 2}

With pytest, the fixture ``ostler_node`` is there once this package is installed: ``node = ostler_node(config)``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Generator, Mapping, Optional, Union

from .client import Client

__all__ = ["RunningNode", "running_node"]

# How long a node may take to exit once it was asked to. Then it is killed, with all that it has started.
_MAX_EXIT_S = 20
# Variables that would lead a node, or its client, to another store.
_ELSEWHERE = ("OSTLER_STORE", "OSTLER_SERVER", "OSTLER_TOKEN", "OSTLER_LISTEN", "XDG_STATE_HOME")


class RunningNode:
    """A running node, its client and its folder, in which the config and the store are."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]", url: str) -> None:
        self.folder = folder
        self.process = process
        self.url = url
        # Beside the store. For a store on a server it is in the state folder: pass OSTLER_TOKEN to the node, and make a client by it.
        self.client = Client(url, token_file=next(iter(sorted(folder.rglob("*.token"))), None))

    @property
    def log(self) -> str:
        """What the node has written so far."""
        return (self.folder / "node.log").read_text(errors="replace")


@contextlib.contextmanager
def running_node(
    config: str,
    folder: "Optional[Union[str, os.PathLike[str]]]" = None,
    *,
    program: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Generator[RunningNode, None, None]:
    """Starts a node with this config, and stops it at the end. Its commands start in the folder of the caller.

    ``folder`` is for the config, the store and the log; without it, it is temporary. ``program`` is ``ostler``, on the PATH or as
    ``OSTLER_PROGRAM`` says. ``env`` are further variables of the node; a pool passes on those of its ``keep_env``.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ostler-"))
        place = Path(folder).resolve()
        (place / "ostler.toml").write_text(f"{_top(config)}{config}\n")
        variables = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
        log = stack.enter_context(open(place / "node.log", "w", encoding="utf-8"))
        process = subprocess.Popen(
            [program or os.environ.get("OSTLER_PROGRAM", "ostler"), "up", "--config", str(place / "ostler.toml"), "--listen", "127.0.0.1:0"],
            env={**variables, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        stack.callback(_stop, process)
        assert process.stdout is not None
        stack.enter_context(process.stdout)
        line = process.stdout.readline()
        if not line:
            process.wait()
            raise RuntimeError("the node did not start: " + (place / "node.log").read_text(errors="replace"))
        node = RunningNode(place, process, "http://" + json.loads(line)["listen"])
        stack.callback(node.client.close)
        yield node


def _top(config: str) -> str:
    """The store, unless the config has one, in front of the first table."""
    before = config.split("\n[", 1)[0]
    named = not before.lstrip().startswith("[") and any(line.split("=")[0].strip() == "store" for line in before.splitlines())
    return "" if named else 'store = "sqlite:ostler.db"\n'


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_MAX_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""Worker SDK for Ostler, in one file without dependencies.

    from ostler import worker

    @worker.task("resize")
    def resize(payload, ctx):
        image = ctx.step("fetched", lambda: fetch(payload["url"]))
        ...
        return {"width": 640}

    worker.run()

A node starts this program (``executor = "process"``) and sends it one task at a time over an inherited socket. What a handler
returns is the task's output, what it raises is the task's error, and what it prints goes to the task's log.

Read the file from the top: errors, contexts, the worker, and then the worker protocol.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal, NoReturn, Optional, TypeVar, Union, overload

if TYPE_CHECKING:
    import asyncio

__version__ = "0.1.0"
__all__ = [
    "worker", "Worker", "Context", "AsyncContext", "Tested",
    "TaskError", "Transient", "Partial", "Permanent", "RateLimited", "QueueStop",
    "Stopped", "Cancelled", "Lost",
]  # fmt: skip

PROTOCOL = 1
# The protocol's limit for one line, including the newline.
MAX_FRAME_BYTES = 16 * 1024 * 1024
# Error messages are truncated at the end, details at the start, where a traceback says least.
MAX_MESSAGE_CHARS = 16 * 1024
MAX_DETAILS_CHARS = 64 * 1024
READ_BYTES = 64 * 1024
# After this time a thread starts to read the socket for a cancel. For shorter tasks, waking it would cost more than the task.
PATIENCE_S = 0.005

T = TypeVar("T")
Level = Literal["debug", "info", "warn", "error"]
Wait = Union[float, timedelta]


# ---- errors that a handler raises ----


class TaskError(Exception):
    """An error with a class that decides what follows. Raise one of its subclasses; all take the same arguments.

    ``retry_after``: the least delay before the next attempt, in seconds or as a timedelta. ``hint``: what might help.
    ``details``: defaults to the traceback. ``step``: the step that failed; set automatically inside ``ctx.step``.
    """

    class_name: Optional[str] = None
    # Class attributes too, for subclasses that do not call this constructor.
    retry_after: Optional[float] = None
    step: Optional[str] = None
    hint: Optional[str] = None
    details: Optional[str] = None

    def __init__(
        self,
        message: str,
        *,
        retry_after: Optional[Wait] = None,
        step: Optional[str] = None,
        hint: Optional[str] = None,
        details: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = None if retry_after is None else _seconds(retry_after)
        self.step = step
        self.hint = hint
        self.details = details


class Transient(TaskError):
    """May succeed next time: retried with backoff, while attempts are left."""

    class_name = "transient"


class Partial(TaskError):
    """Part of the work is done, and its steps are kept; the rest may succeed next time."""

    class_name = "partial"


class Permanent(TaskError):
    """Will never succeed: invalid input, not found, forbidden. A dead letter at once."""

    class_name = "permanent"


class RateLimited(TaskError):
    """Too many requests. The task waits for ``after`` seconds, or until ``until``; no attempt is used up."""

    class_name = "rate_limited"

    def __init__(
        self,
        message: str,
        *,
        after: Optional[Wait] = None,
        until: Optional[datetime] = None,
        step: Optional[str] = None,
        hint: Optional[str] = None,
        details: Optional[str] = None,
    ) -> None:
        if (after is None) == (until is None):
            raise TypeError("RateLimited needs either after= (seconds or a timedelta) or until= (a datetime)")
        if until is not None:
            # A naive datetime is local time, as everywhere in Python.
            after = until.astimezone(timezone.utc) - datetime.now(timezone.utc)
        super().__init__(message, retry_after=after, step=step, hint=hint, details=details)


class QueueStop(TaskError):
    """No task of this queue can succeed now: bad credentials, no quota. The queue pauses with the reason; no attempt is used up."""

    class_name = "queue_stop"


class Stopped(BaseException):
    """The attempt must stop. Not an ``Exception``, so that ``except Exception`` does not swallow it; ``finally`` runs."""


class Cancelled(Stopped):
    """The task was cancelled, its time is up, or the node drains. The message has the reason."""


class Lost(Stopped):
    """The lease is lost: another node has the task, and nothing that this attempt sends counts."""


# ---- the context of a handler ----


class _Attempt:
    """Base of both contexts. The public methods are for handlers, and may be called from any of their threads."""

    def __init__(self, link: Union[_Node, _Memory], frame: Mapping[str, Any]) -> None:
        self.id: str = frame["id"]
        """The task's id."""
        self.kind: str = frame["kind"]
        """The task's kind."""
        self.attempt: int = frame.get("attempt", 1)
        """The number of the attempt, from 1."""
        self.folder: Optional[Path] = Path(frame["folder"]) if frame.get("folder") else None
        """The task's folder, if it has one."""
        self.previous_session: Optional[str] = frame.get("previous_session")
        """The last session that an earlier attempt reported, to resume it."""
        self.timeout: Optional[float] = frame["timeout_ms"] / 1000 if frame.get("timeout_ms") is not None else None
        """The attempt's timeout in seconds."""
        self._link = link
        self._about = (self.id, int(frame["token"]))
        self._payload = frame.get("payload")
        self._began = time.monotonic()
        self._stop: Optional[Stopped] = None
        self._steps: dict[str, Any] = frame.get("steps") or {}
        self._begun: set[str] = set()
        self._saved: set[str] = set()
        # For each step that waits for its answer, and for each sleep: the call that wakes it.
        self._waiting: dict[object, Callable[[], object]] = {}
        # The last exception raised by a step, and the step's name.
        self._failed: Optional[tuple[BaseException, str]] = None
        # Guards the state that the handler's threads and the reading thread both change.
        self._guard = threading.Lock()
        self._over = False

    @property
    def cancelled(self) -> bool:
        """Whether the attempt must stop."""
        return self._stop is not None

    def check(self) -> None:
        """Raises ``Cancelled`` or ``Lost`` if the attempt must stop."""
        if self._stop is not None:
            # A new instance each time, so that the traceback does not grow.
            raise type(self._stop)(*self._stop.args)

    def time_left(self) -> Optional[float]:
        """The seconds left of the timeout; not below 0."""
        return None if self.timeout is None else max(0.0, self._began + self.timeout - time.monotonic())

    def progress(self, done: int, total: Optional[int] = None, note: Optional[str] = None) -> None:
        """Reports progress, in whole numbers."""
        total = None if total is None else _whole("total", total)
        self._say("progress", done=_whole("done", done), total=total, note=None if note is None else _text(note))

    def log(self, level: Level, message: str) -> None:
        """Writes a line to the task's log: "debug", "info", "warn" or "error". Printed output goes there too."""
        if level not in ("debug", "info", "warn", "error"):
            raise ValueError(f'the level of a log line is "debug", "info", "warn" or "error", and not {level!r}')
        self._say("log", level=level, message=_text(message))

    def file(self, path: Union[str, os.PathLike[str]]) -> None:
        """Records a file that the task created in its folder."""
        if self.folder is None:
            raise ValueError(f"ctx.file({os.fspath(path)!r}): the task has no folder; submit it with one")
        # Compare names without resolving links: the folder itself may be reached through one.
        inside = os.path.relpath(os.path.join(self.folder, path), self.folder)
        if inside == os.curdir or inside.split(os.sep)[0] == os.pardir:
            raise ValueError(f"ctx.file({os.fspath(path)!r}): it must be a file inside of the task's folder, {self.folder}")
        self._say("file", path=_text(inside))

    def secret(self, name: str) -> str:
        """The value of one of the pool's secrets, which is a variable of the environment. Raises ``QueueStop`` if the pool has none
        of this name."""
        value = os.environ.get(name)
        if value is None:
            raise QueueStop(f'the pool has no secret "{name}"', hint="add it to the pool's secrets")
        return value

    # Outgoing frames. None after the result: the node may have sent this worker another task.

    def _say(self, type: str, **fields: Any) -> bool:
        data = _line(type, self._about, fields)
        with self._link.mouth:
            if not self._over:
                self._link.send(data)
            return not self._over

    def _end(self, result: Mapping[str, Any]) -> None:
        try:
            data = _line("result", self._about, result)
        except Permanent as error:
            data = _line("result", self._about, {"ok": False, "error": _failure(self, error)})
        self._link.done(self)
        with self._link.mouth:
            self._over = True
            self._link.send(data)

    # Waiting: steps for their answers, and sleeps.

    def _expect(self, what: object, call: Callable[[], object]) -> bool:
        """Registers ``call`` for when the answer arrives or the attempt must stop. False if it must stop already."""
        with self._guard:
            self._waiting[what] = call
            return self._stop is None

    def _begin(self, name: str) -> Optional[tuple[Any]]:
        """Begins a step. Returns its result if an earlier attempt saved it."""
        if not isinstance(name, str) or not name:
            raise TypeError('name the step: ctx.step("fetched", lambda: …)')
        self.check()
        with self._guard:
            if name in self._begun:
                raise Permanent(f'the step "{name}" is done twice in one attempt; each has its own name', step=name)
            self._begun.add(name)
        return (self._steps[name],) if name in self._steps else None

    def _save(self, name: str, value: Any, answered: Callable[[], object]) -> Any:
        """Sends a step's result and returns it as decoded JSON. ``answered`` is called when the node has answered."""
        try:
            text = _encode(value)
        except _UNWRITABLE as error:
            raise Permanent(f'the step "{name}" cannot be written as JSON: {error}', step=name) from error
        if not self._expect(name, answered) or not self._say("step", name=name, value=_Raw(text)):
            answered()
        return json.loads(text)

    def _check_saved(self, name: str) -> None:
        with self._guard:
            self._waiting.pop(name, None)
            saved = name in self._saved
        if not saved:
            self.check()
            raise RuntimeError(f'the step "{name}" comes too late: the attempt is over')

    def _blame(self, name: str, error: Exception) -> None:
        """Remembers the innermost step that raised the exception."""
        if self._failed is None or self._failed[0] is not error:
            self._failed = (error, name)

    # Incoming frames, from the thread that reads the socket.

    def _hear(self, frame: Mapping[str, Any]) -> None:
        type, step = frame["type"], frame.get("step")
        if type == "lost":
            self._halt(Lost("the lease is lost: another node has the task"))
        elif type == "cancel":
            self._halt(Cancelled(str(frame.get("reason") or "no reason was given")))
        elif isinstance(step, str):
            with self._guard:
                answered = self._waiting.pop(step, None)
                if answered is not None:
                    self._saved.add(step)
            if answered is not None:
                answered()

    def _halt(self, stop: Stopped) -> None:
        with self._guard:
            # Lost overrides Cancelled: nothing that is sent after it counts.
            if self._stop is not None and not isinstance(stop, Lost):
                return
            self._stop = stop
            calls = list(self._waiting.values())
            self._waiting.clear()
        for call in calls:
            call()


class Context(_Attempt):
    """The context of a plain handler."""

    def sleep(self, seconds: float) -> None:
        """Sleeps. If the attempt must stop, raises ``Cancelled`` or ``Lost`` at once."""
        woken = threading.Event()
        if self._expect(woken, woken.set):
            woken.wait(seconds)
        with self._guard:
            self._waiting.pop(woken, None)
        self.check()

    def step(self, name: str, work: Callable[[], T]) -> T:
        """Runs a step once: its result is durable before this returns, and a later attempt gets the result back instead of
        repeating the step. Each step of a handler has its own name.

        The returned value has been through JSON, the first time too: a tuple comes back as a list.
        """
        kept = self._begin(name)
        try:
            value: T = kept[0] if kept else self._keep(name, work())
            return value
        except Exception as error:
            self._blame(name, error)
            raise

    def step_or_warn(self, name: str, work: Callable[[], T]) -> Optional[T]:
        """Runs an optional step: if it raises, the task gets a warning, and this returns None. A later attempt does not repeat
        it."""
        kept = self._begin(name)
        if kept:
            value: Optional[T] = kept[0]
            return value
        try:
            done = work()
        except Exception as error:
            self._keep(name, None)
            self._say("step_failed", name=name, message=_message(error))
            return None
        return self._keep(name, done)

    def _keep(self, name: str, value: T) -> T:
        answered = threading.Event()
        kept: T = self._save(name, value, answered.set)
        self._link.wait(answered)
        self._check_saved(name)
        return kept


class AsyncContext(_Attempt):
    """The context of an ``async def`` handler. When the attempt must stop, the handler is cancelled by asyncio."""

    @overload
    async def step(self, name: str, work: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def step(self, name: str, work: Callable[[], T]) -> T: ...
    async def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Runs a step once; see ``Context.step``. ``work`` is a plain or an async function."""
        kept = self._begin(name)
        try:
            return kept[0] if kept else await self._keep(name, await _awaited(work))
        except Exception as error:
            self._blame(name, error)
            raise

    @overload
    async def step_or_warn(self, name: str, work: Callable[[], Awaitable[T]]) -> Optional[T]: ...
    @overload
    async def step_or_warn(self, name: str, work: Callable[[], T]) -> Optional[T]: ...
    async def step_or_warn(self, name: str, work: Callable[[], Any]) -> Any:
        """Runs an optional step; see ``Context.step_or_warn``."""
        kept = self._begin(name)
        if kept:
            return kept[0]
        try:
            done = await _awaited(work)
        except Exception as error:
            await self._keep(name, None)
            self._say("step_failed", name=name, message=_message(error))
            return None
        return await self._keep(name, done)

    async def _keep(self, name: str, value: Any) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        kept = self._save(name, value, lambda: _later(loop, answered.set))
        await answered.wait()
        self._check_saved(name)
        return kept


async def _awaited(work: Callable[[], Any]) -> Any:
    value = work()
    return await value if inspect.isawaitable(value) else value


# ---- the worker ----

Handler = Union[Callable[[Any, Context], Any], Callable[[Any, AsyncContext], Awaitable[Any]]]
H = TypeVar("H", bound=Handler)


class Worker:
    """Handlers by kind, and the loop that runs them. A program uses one: ``ostler.worker``."""

    def __init__(self) -> None:
        # Each handler with the type of its context.
        self._handlers: dict[Optional[str], tuple[Any, type[Union[Context, AsyncContext]]]] = {}
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def task(self, kind: Optional[str] = None) -> Callable[[H], H]:
        """Registers the decorated function for tasks of this kind; without a kind, for all kinds that have no other handler.

        It gets the payload and a context: a ``Context``, or an ``AsyncContext`` if it is an ``async def``.
        """
        if kind is not None and not isinstance(kind, str):
            raise TypeError('name the kind: @worker.task("resize"), or @worker.task() for all others')

        def register(handler: H) -> H:
            if kind in self._handlers:
                raise ValueError(f"there are two handlers for {'all other kinds' if kind is None else repr(kind)}")
            is_async = any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None))))
            self._handlers[kind] = (handler, AsyncContext if is_async else Context)
            return handler

        return register

    def run(self) -> None:
        """Runs tasks until the node sends stop. Call it at the end of the program, after registering the handlers."""
        if not self._handlers:
            _refuse('this worker has no handler. Write one, below @worker.task("resize"), and call worker.run() after it.')
        node = _Node(_inherited_socket(), self)
        for stream in (sys.stdout, sys.stderr):
            # Printed lines should reach the log at once, not 8 KiB later.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True)
        threading.Thread(target=node.watch, name="ostler", daemon=True).start()
        try:
            attempt = node.next()
            while attempt is not None:
                self._perform(attempt)
                attempt = node.next()
        finally:
            node.leave()
            self._close_loop()

    def test(
        self,
        kind: str,
        payload: Any = None,
        *,
        steps: Optional[dict[str, Any]] = None,
        attempt: int = 1,
        timeout: Optional[float] = None,
        folder: Union[str, os.PathLike[str], None] = None,
    ) -> Tested:
        """Runs a handler once without a node, for unit tests. Exceptions propagate.

        ``steps`` are those of earlier attempts; the ones that this attempt saves are added. Pass the same dict to run the next
        attempt.
        """
        memory = _Memory(Tested({} if steps is None else steps))
        frame = {"id": "test", "token": 1, "attempt": attempt, "kind": kind, "folder": None if folder is None else str(folder)}
        frame["timeout_ms"] = None if timeout is None else timeout * 1000
        # As from a node: a JSON copy, not the objects of the test.
        frame.update(json.loads(_encode({"payload": payload, "steps": memory.tested.steps})))
        memory.attempt = self._attempt(memory, frame)
        try:
            memory.tested.output = json.loads(self._output(memory.attempt))
        finally:
            self._close_loop()
        return memory.tested

    def _kinds(self) -> Optional[list[str]]:
        """All kinds with a handler; None: any kind."""
        return None if None in self._handlers else sorted(kind for kind in self._handlers if kind is not None)

    def _attempt(self, link: Union[_Node, _Memory], frame: Mapping[str, Any]) -> _Attempt:
        handler = self._handlers.get(frame["kind"]) or self._handlers.get(None)
        return Context(link, frame) if handler is None else handler[1](link, frame)

    def _perform(self, attempt: _Attempt) -> None:
        """Runs one attempt and sends its result."""
        try:
            result: dict[str, Any] = {"ok": _Raw("true"), "output": _Raw(self._output(attempt))}
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            result = {"ok": False, "error": _failure(attempt, error)}
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass  # The handler closed it; the result is still sent.
        attempt._end(result)

    def _output(self, attempt: _Attempt) -> str:
        """Runs the handler and returns its output as JSON."""
        handler = self._handlers.get(attempt.kind) or self._handlers.get(None)
        if handler is None:
            raise Permanent(f'this worker has no handler for the kind "{attempt.kind}"; it has: {", ".join(self._kinds() or [])}')
        attempt.check()
        output = handler[0](attempt._payload, attempt)
        if isinstance(attempt, AsyncContext):
            output = self._finish(attempt, output)
        elif inspect.iscoroutine(output):
            output.close()
            raise Permanent(f'the handler of "{attempt.kind}" returned a coroutine; it must be an "async def" itself')
        try:
            return _encode(output)
        except _UNWRITABLE as error:
            raise Permanent(f'what the handler of "{attempt.kind}" returned cannot be written as JSON: {error}') from error

    def _finish(self, attempt: AsyncContext, running: Any) -> Any:
        # Imported here: a worker without async handlers starts faster.
        import asyncio

        loop = self._loop = self._loop or asyncio.new_event_loop()
        task = loop.create_task(running)
        if not attempt._expect(task, lambda: _later(loop, task.cancel)):
            task.cancel()
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            attempt.check()
            raise

    def _close_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


class Tested:
    """What a handler did in ``worker.test``, as a node would have recorded it."""

    def __init__(self, steps: dict[str, Any]) -> None:
        self.output: Any = None
        self.steps = steps
        self.progress: list[tuple[int, Optional[int], Optional[str]]] = []
        self.logs: list[tuple[str, str]] = []
        self.files: list[str] = []
        self.warnings: list[tuple[str, str]] = []
        """Steps that failed in ``step_or_warn``, with their messages."""


# ---- the connection to the node ----


class _Node:
    """The socket to the node. Any thread may write, one at a time (``mouth`` is the write lock, ``_ear`` the read lock).

    A thread that waits for the node reads the socket itself: the main thread for its next task, and a thread that runs a step for
    the answer. While a handler runs, the watcher thread reads it for a cancel.
    """

    def __init__(self, sock: socket.socket, worker: Worker) -> None:
        self.mouth = threading.Lock()
        self._ear = threading.Lock()
        self._sock = sock
        self._worker = worker
        self._parts: list[bytes] = []
        self._length = 0
        # A node sends the next task after the result, so there is at most one.
        self._inbox: deque[_Attempt] = deque()
        # Attempts without a result.
        self._live: dict[tuple[Any, Any], _Attempt] = {}
        self._current: Optional[_Attempt] = None
        self._stopped = False
        self._wake = threading.Event()
        self._dozing = False
        # A forked child must not use the worker's socket.
        os.register_at_fork(after_in_child=sock.close)

    def next(self) -> Optional[_Attempt]:
        """The next attempt to run; None when the node sends stop."""
        while True:
            if self._inbox:
                self._current = self._inbox.popleft()
                if self._dozing:
                    self._wake.set()
                return self._current
            if self._stopped:
                return None
            with self._ear:
                if not self._inbox and not self._stopped:
                    self._listen()

    def wait(self, answered: threading.Event) -> None:
        """Waits for the answer to a step."""
        while not answered.is_set():
            if self._ear.acquire(blocking=False):
                try:
                    while not answered.is_set():
                        self._listen()
                finally:
                    self._ear.release()
            else:
                # Another thread is reading, and may stop once it has its own answer.
                answered.wait(PATIENCE_S)

    def watch(self) -> None:
        """The watcher thread. Skips short tasks; reads the socket during longer ones, until the next task arrives."""
        while not self._stopped or self._current is not None:
            seen = self._current
            if seen is None:
                self._dozing = True
                if self._current is None:
                    self._wake.wait()
                self._wake.clear()
                self._dozing = False
                continue
            # No other thread reads while an async handler runs.
            time.sleep(0 if isinstance(seen, AsyncContext) else PATIENCE_S)
            if self._current is seen and self._ear.acquire(blocking=False):
                try:
                    while not self._inbox and not (self._stopped and self._current is None):
                        self._listen()
                finally:
                    self._ear.release()

    def send(self, data: bytes) -> None:
        """Requires ``mouth``, the write lock."""
        try:
            self._sock.sendall(data)
        except OSError:
            self._gone()

    def done(self, attempt: _Attempt) -> None:
        self._live.pop(attempt._about, None)
        self._current = None

    def leave(self) -> None:
        self._stopped = True
        self._current = None
        self._wake.set()
        try:
            # Wakes a thread that is still reading; close alone does not.
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The node has closed it already.
        self._sock.close()

    def _listen(self) -> None:
        """Reads once from the socket and handles all complete frames. Requires ``_ear``, the read lock."""
        try:
            data = self._sock.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._gone()
        *ends, rest = data.split(b"\n")
        try:
            for end in ends:
                line = b"".join([*self._parts, end])
                self._parts, self._length = [], 0
                self._hear(json.loads(line.decode()))
            self._parts.append(rest)
            self._length += len(rest)
            if self._length > MAX_FRAME_BYTES:
                raise ValueError(f"a line of more than {MAX_FRAME_BYTES} bytes")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            _die(f"the node sent what is no frame of protocol {PROTOCOL}: {type(error).__name__}: {error}")

    def _hear(self, frame: Mapping[str, Any]) -> None:
        type = frame.get("type")
        if type == "task":
            attempt = self._worker._attempt(self, frame)
            self._live[attempt._about] = attempt
            self._inbox.append(attempt)
        elif type in ("saved", "lost", "cancel"):
            about = self._live.get((frame.get("id"), frame.get("token")))
            if about is not None:
                about._hear(frame)
        elif type == "stop":
            self._stopped = True
        elif type == "hello":
            if frame["protocol"] != PROTOCOL:
                _die(f"the node speaks protocol {frame['protocol']}, and this worker {PROTOCOL}; install the SDK of its version")
            ready = {"protocol": PROTOCOL, "sdk": f"python/{__version__}", "kinds": self._worker._kinds()}
            with self.mouth:
                self.send(_line("ready", None, ready))
        # Other types belong to later versions.

    def _gone(self) -> None:
        """The node is gone. An idle worker ends as after stop; a busy one exits at once, since its result would not count."""
        if self._live:
            _die("the node is gone; this worker exits, and another node will run its task")
        self._stopped = True


class _Memory:
    """Replaces the node in ``Worker.test``: records frames, and saves every step."""

    def __init__(self, tested: Tested) -> None:
        self.mouth = threading.Lock()
        self.tested = tested
        self.attempt: Optional[_Attempt] = None

    def send(self, data: bytes) -> None:
        frame = json.loads(data)
        tested, type = self.tested, frame["type"]
        if type == "step" and self.attempt is not None:
            tested.steps[frame["name"]] = frame["value"]
            self.attempt._hear({"type": "saved", "step": frame["name"]})
        elif type == "step_failed":
            tested.warnings.append((frame["name"], frame["message"]))
        elif type == "progress":
            tested.progress.append((frame["done"], frame.get("total"), frame.get("note")))
        elif type == "log":
            tested.logs.append((frame["level"], frame["message"]))
        elif type == "file":
            tested.files.append(frame["path"])

    def wait(self, answered: threading.Event) -> None:
        answered.wait()

    def done(self, attempt: _Attempt) -> None:
        pass


def _inherited_socket() -> socket.socket:
    """The socket inherited from the node, marked non-inheritable."""
    number = os.environ.pop("OSTLER_FD", None)
    if number is None:
        program = json.dumps(sys.argv[0] or "worker.py")
        _refuse(
            "this is a worker, and a node starts it: OSTLER_FD is not set. Say in ostler.toml\n\n"
            f'    [pool.NAME]\n    executor = "process"\n    command = ["python3", {program}]\n\n'
            "and run `ostler up`. To try a handler without a node, call worker.test(kind, payload)."
        )
    try:
        fd = int(number)
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
        sock.setblocking(True)
        return sock
    except (ValueError, OSError) as error:
        _refuse(f"OSTLER_FD should be the number of a socket that a node left open, and is {number!r}: {error}")


def _refuse(sentence: str) -> NoReturn:
    print(f"ostler: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def _die(sentence: str) -> NoReturn:
    """Exits the process at once, from any thread: results of running handlers no longer count."""
    try:
        os.write(2, f"ostler: {sentence}\n".encode())
    finally:
        os._exit(1)


def _later(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        pass  # The loop is closed, so nothing waits there.


# ---- encoding ----


class _Raw(str):
    """Already encoded JSON."""


_UNWRITABLE = (TypeError, ValueError, RecursionError)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encode(value: Any) -> str:
    """Encodes strict JSON: no NaN, no lone surrogates."""
    text = _ENCODER.encode(value)
    text.encode()
    return text


def _line(type: str, about: Optional[tuple[str, int]], fields: Mapping[str, Any]) -> bytes:
    """Encodes a frame, without the fields that are None. Raises ``Permanent`` if it is too large."""
    parts = [f'{{"type":"{type}"' if about is None else f'{{"type":"{type}","id":{_encode(about[0])},"token":{about[1]}']
    for name, value in fields.items():
        if value is not None:
            parts.append(f'"{name}":{value if isinstance(value, _Raw) else _encode(value)}')
    data = (",".join(parts) + "}\n").encode()
    if len(data) > MAX_FRAME_BYTES:
        what = f'the step "{fields["name"]}"' if type == "step" else f"the {type}"
        hint = "write it to a file in the task's folder, and say ctx.file(path)"
        raise Permanent(f"{what} has {len(data)} bytes as JSON; at most {MAX_FRAME_BYTES} can be sent", hint=hint)
    return data


def _failure(attempt: _Attempt, error: BaseException) -> dict[str, Any]:
    """The error object of a result frame. Without a class, the pool decides."""
    failure: dict[str, Any] = {"message": _message(error)}
    step = hint = details = None
    if isinstance(error, TaskError):
        failure["class"] = error.class_name
        failure["retry_after_ms"] = None if error.retry_after is None else math.ceil(error.retry_after * 1000)
        step, hint, details = error.step, error.hint, error.details
    elif isinstance(error, (ConnectionError, socket.timeout)) or type(error).__name__ == "TimeoutError":
        # By name: before Python 3.11 asyncio and concurrent.futures had their own TimeoutError.
        failure["class"] = "transient"
    if step is None and attempt._failed is not None and attempt._failed[0] is error:
        step = attempt._failed[1]
    if details is None and not isinstance(error, Stopped):
        details = "".join(traceback.format_exception(type(error), error, _of_the_handler(error.__traceback__)))
    failure["step"] = None if step is None else _text(step)
    failure["hint"] = None if hint is None else _text(hint)[:MAX_MESSAGE_CHARS]
    failure["details"] = None if details is None else _text(details)[-MAX_DETAILS_CHARS:]
    return {name: value for name, value in failure.items() if value is not None}


def _of_the_handler(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """The traceback without the leading frames of this file and asyncio."""
    at = trace
    while at is not None and (at.tb_frame.f_code.co_filename == __file__ or "/asyncio/" in at.tb_frame.f_code.co_filename):
        at = at.tb_next
    return at or trace


def _message(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:
        said = "(its message cannot be read)"
    if isinstance(error, Cancelled):
        said = f"cancelled: {said}"
    elif isinstance(error, SystemExit):
        said = f"the handler called sys.exit({'' if error.code is None else repr(error.code)})"
    elif not isinstance(error, (TaskError, Stopped)):
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return _text(said if len(said) <= MAX_MESSAGE_CHARS else said[: MAX_MESSAGE_CHARS - 1] + "…")


def _text(text: object) -> str:
    """Valid UTF-8: lone surrogates, as in some file names, become question marks."""
    return str(text).encode("utf-8", "replace").decode()


def _whole(name: str, value: Any) -> int:
    # Accepts numpy integers too.
    if not hasattr(value, "__index__") or value < 0:
        raise ValueError(f"{name} of ctx.progress must be a whole number, not below 0, and is {value!r}")
    return int(value)


def _seconds(wait: Wait) -> float:
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
    if not math.isfinite(seconds):
        raise ValueError(f"a time to wait is a number of seconds or a timedelta, and not {wait!r}")
    return max(0.0, seconds)


worker = Worker()
"""The worker of this program."""

"""Workers for Ostler, in Python. This one file is all of it, and it needs nothing but Python.

    from ostler import worker

    @worker.task("resize")
    def resize(payload, ctx):
        image = ctx.step("fetched", lambda: fetch(payload["url"]))
        ...
        return {"width": 640}

    worker.run()

A node starts this program (``executor = "process"``) and gives it one task at a time, over a socket that it inherits. What a
handler returns is the task's output, what it raises is the task's error, and what it prints is in the task's log.

Read the file from the top: errors, what a handler sees, the worker, and then how it talks with the node.
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
# The protocol's bound for one line, its end included.
MAX_FRAME_BYTES = 16 * 1024 * 1024
# What an error says is cut here: its message at the end, its details at the start, where a traceback says least.
MAX_MESSAGE_CHARS = 16 * 1024
MAX_DETAILS_CHARS = 64 * 1024
READ_BYTES = 64 * 1024
# A handler that runs for so long may want to hear of a cancel. Below, waking a thread for it would cost more than the task.
PATIENCE_S = 0.005

T = TypeVar("T")
Level = Literal["debug", "info", "warn", "error"]
Wait = Union[float, timedelta]


# ---- what a handler raises ----


class TaskError(Exception):
    """An error that says what should follow. Raise one of its kinds; all take the same words.

    ``retry_after``: not before so many seconds (or a timedelta). ``hint``: what might help. ``details``: more for whoever looks
    closer; the traceback, if it is not given. ``step``: the step that failed; known by itself inside of ``ctx.step``.
    """

    class_name: Optional[str] = None
    # Here too, for errors of your own that do not call this constructor.
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
    """May work next time: tried again with backoff, until no try is left."""

    class_name = "transient"


class Partial(TaskError):
    """Part of it is done, and its steps are kept; the rest may work next time."""

    class_name = "partial"


class Permanent(TaskError):
    """Will never work: invalid input, not found, forbidden. A dead letter at once."""

    class_name = "permanent"


class RateLimited(TaskError):
    """Too many requests. The task waits so many seconds (``after``), or until then (``until``), and no try is used up."""

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
            # A time without a zone is the local time, as everywhere in Python.
            after = until.astimezone(timezone.utc) - datetime.now(timezone.utc)
        super().__init__(message, retry_after=after, step=step, hint=hint, details=details)


class QueueStop(TaskError):
    """Nothing of this sort can work now: bad credentials, no quota. The queue pauses with the reason; no try is used up."""

    class_name = "queue_stop"


class Stopped(BaseException):
    """The attempt is to end now. No Exception, so that ``except Exception`` does not swallow it; ``finally`` runs."""


class Cancelled(Stopped):
    """Somebody cancelled the task, its time is up, or the node drains. The message has the reason."""


class Lost(Stopped):
    """The lease is lost: somebody else speaks for the task now, and nothing that this attempt says counts."""


# ---- what a handler sees ----


class _Attempt:
    """What both contexts have. The methods without an underscore are for handlers, and for any thread of theirs."""

    def __init__(self, link: Union[_Node, _Memory], frame: Mapping[str, Any]) -> None:
        self.id: str = frame["id"]
        """The task's id."""
        self.kind: str = frame["kind"]
        """What sort of work it is."""
        self.attempt: int = frame.get("attempt", 1)
        """The number of the attempt, counted from one."""
        self.folder: Optional[Path] = Path(frame["folder"]) if frame.get("folder") else None
        """The folder to work in, if the task has one."""
        self.timeout: Optional[float] = frame["timeout_ms"] / 1000 if frame.get("timeout_ms") is not None else None
        """How many seconds the attempt may take."""
        self._link = link
        self._about = (self.id, int(frame["token"]))
        self._payload = frame.get("payload")
        self._began = time.monotonic()
        self._stop: Optional[Stopped] = None
        self._steps: dict[str, Any] = frame.get("steps") or {}
        self._begun: set[str] = set()
        self._saved: set[str] = set()
        # For each step that waits for its answer, and for each sleep: whom to wake.
        self._waiting: dict[object, Callable[[], object]] = {}
        # The last exception that came out of a step, and the step.
        self._failed: Optional[tuple[BaseException, str]] = None
        # Guards what the handler's threads and whoever listens both change.
        self._guard = threading.Lock()
        self._over = False

    @property
    def cancelled(self) -> bool:
        """Whether the attempt is to end."""
        return self._stop is not None

    def check(self) -> None:
        """Raises ``Cancelled`` or ``Lost`` if the attempt is to end."""
        if self._stop is not None:
            # A new one each time, so that no traceback grows.
            raise type(self._stop)(*self._stop.args)

    def time_left(self) -> Optional[float]:
        """How many seconds are left of the timeout; not less than none."""
        return None if self.timeout is None else max(0.0, self._began + self.timeout - time.monotonic())

    def progress(self, done: int, total: Optional[int] = None, note: Optional[str] = None) -> None:
        """Says how far the work is, in whole numbers."""
        total = None if total is None else _whole("total", total)
        self._say("progress", done=_whole("done", done), total=total, note=None if note is None else _text(note))

    def log(self, level: Level, message: str) -> None:
        """Writes a line into the task's log: "debug", "info", "warn" or "error". What is printed is there too."""
        if level not in ("debug", "info", "warn", "error"):
            raise ValueError(f'the level of a log line is "debug", "info", "warn" or "error", and not {level!r}')
        self._say("log", level=level, message=_text(message))

    def file(self, path: Union[str, os.PathLike[str]]) -> None:
        """Says that the task made this file, inside of its folder."""
        if self.folder is None:
            raise ValueError(f"ctx.file({os.fspath(path)!r}): the task has no folder; submit it with one")
        # The name decides, and not what links lead to: the folder itself may be reached by one.
        inside = os.path.relpath(os.path.join(self.folder, path), self.folder)
        if inside == os.curdir or inside.split(os.sep)[0] == os.pardir:
            raise ValueError(f"ctx.file({os.fspath(path)!r}): it must be a file inside of the task's folder, {self.folder}")
        self._say("file", path=_text(inside))

    # What goes out. Nothing does once the result is said: the node may have given this worker another task.

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

    # What waits: steps for their answers, and sleeps.

    def _expect(self, what: object, call: Callable[[], object]) -> bool:
        """Whether it is worth waiting. The call is made when the answer is there, or the attempt is to end."""
        with self._guard:
            self._waiting[what] = call
            return self._stop is None

    def _begin(self, name: str) -> Optional[tuple[Any]]:
        """Begins a step. If an earlier attempt has done it, this is what it came to."""
        if not isinstance(name, str) or not name:
            raise TypeError('name the step: ctx.step("fetched", lambda: …)')
        self.check()
        with self._guard:
            if name in self._begun:
                raise Permanent(f'the step "{name}" is done twice in one attempt; each has its own name', step=name)
            self._begun.add(name)
        return (self._steps[name],) if name in self._steps else None

    def _save(self, name: str, value: Any, answered: Callable[[], object]) -> Any:
        """Sends what a step came to, as JSON has it. ``answered`` is called when the node has said what became of it."""
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
        """The exception comes out of this step, or out of one inside of it."""
        if self._failed is None or self._failed[0] is not error:
            self._failed = (error, name)

    # What comes in, by whoever listens.

    def _hear(self, frame: Mapping[str, Any]) -> None:
        type, step = frame["type"], frame.get("step")
        if type == "lost":
            self._halt(Lost("the lease is lost: somebody else has the task"))
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
            # Lost is the stronger word: whatever is said after it does not count.
            if self._stop is not None and not isinstance(stop, Lost):
                return
            self._stop = stop
            calls = list(self._waiting.values())
            self._waiting.clear()
        for call in calls:
            call()


class Context(_Attempt):
    """What a plain handler sees of the attempt that it runs."""

    def sleep(self, seconds: float) -> None:
        """Waits so long. If the attempt is to end meanwhile, raises ``Cancelled`` or ``Lost`` at once."""
        woken = threading.Event()
        if self._expect(woken, woken.set):
            woken.wait(seconds)
        with self._guard:
            self._waiting.pop(woken, None)
        self.check()

    def step(self, name: str, work: Callable[[], T]) -> T:
        """Does a step of the task, once: what it came to is durable before this returns, and a later attempt gets it back
        instead of doing it again. Each step of a handler has a name of its own.

        What comes back is what JSON made of it, the first time too: a tuple comes back as a list.
        """
        kept = self._begin(name)
        try:
            value: T = kept[0] if kept else self._keep(name, work())
            return value
        except Exception as error:
            self._blame(name, error)
            raise

    def step_or_warn(self, name: str, work: Callable[[], T]) -> Optional[T]:
        """Does a step that the task can do without: if it raises, that is a warning on the task, and None comes back. It is not
        tried again by a later attempt."""
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
    """What an ``async def`` handler sees. When the attempt is to end, the handler is cancelled as asyncio does it."""

    @overload
    async def step(self, name: str, work: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def step(self, name: str, work: Callable[[], T]) -> T: ...
    async def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Does a step of the task, once; see ``Context.step``. ``work`` is a plain or an async function."""
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
        """Does a step that the task can do without; see ``Context.step_or_warn``."""
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
    """Handlers by kind, and the loop that runs them. A program needs one: ``ostler.worker``."""

    def __init__(self) -> None:
        # With each handler, what it sees.
        self._handlers: dict[Optional[str], tuple[Any, type[Union[Context, AsyncContext]]]] = {}
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def task(self, kind: Optional[str] = None) -> Callable[[H], H]:
        """The function below runs tasks of this kind; without one, those that no other function runs.

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
        """Runs tasks until the node says stop. Call it at the end of the program, once its handlers are there."""
        if not self._handlers:
            _refuse('this worker has no handler. Write one, below @worker.task("resize"), and call worker.run() after it.')
        node = _Node(_inherited_socket(), self)
        for stream in (sys.stdout, sys.stderr):
            # What is printed is in the log when it is printed, and not 8 KiB later.
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
        """Runs a handler once without a node, for unit tests. What it raises comes out of here.

        ``steps`` are those of earlier attempts; what this one keeps is added. Give the same dict again to be the next attempt.
        """
        memory = _Memory(Tested({} if steps is None else steps))
        frame = {"id": "test", "token": 1, "attempt": attempt, "kind": kind, "folder": None if folder is None else str(folder)}
        frame["timeout_ms"] = None if timeout is None else timeout * 1000
        # The handler sees what it would get from a node, and not the very objects of the test.
        frame.update(json.loads(_encode({"payload": payload, "steps": memory.tested.steps})))
        memory.attempt = self._attempt(memory, frame)
        try:
            memory.tested.output = json.loads(self._output(memory.attempt))
        finally:
            self._close_loop()
        return memory.tested

    def _kinds(self) -> Optional[list[str]]:
        """All kinds that it runs; None: any."""
        return None if None in self._handlers else sorted(kind for kind in self._handlers if kind is not None)

    def _attempt(self, link: Union[_Node, _Memory], frame: Mapping[str, Any]) -> _Attempt:
        handler = self._handlers.get(frame["kind"]) or self._handlers.get(None)
        return Context(link, frame) if handler is None else handler[1](link, frame)

    def _perform(self, attempt: _Attempt) -> None:
        """One attempt, to its one result."""
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
                pass  # Somebody closed it. That takes no result from anybody.
        attempt._end(result)

    def _output(self, attempt: _Attempt) -> str:
        """Runs the handler. What it returns, as JSON."""
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
        # Only here: a worker without async handlers starts faster without it.
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
    """What a handler did in ``worker.test``, as a node would have kept it."""

    def __init__(self, steps: dict[str, Any]) -> None:
        self.output: Any = None
        self.steps = steps
        self.progress: list[tuple[int, Optional[int], Optional[str]]] = []
        self.logs: list[tuple[str, str]] = []
        self.files: list[str] = []
        self.warnings: list[tuple[str, str]] = []
        """Steps that failed in ``step_or_warn``, with their messages."""


# ---- who is at the other end ----


class _Node:
    """The node, by the socket to it. Any thread may speak, one at a time.

    Whoever has to wait for the node listens itself: the main thread for its next task, and whoever does a step for the answer.
    While a handler runs, the watcher listens for a cancel.
    """

    def __init__(self, sock: socket.socket, worker: Worker) -> None:
        self.mouth = threading.Lock()
        self._ear = threading.Lock()
        self._sock = sock
        self._worker = worker
        self._parts: list[bytes] = []
        self._length = 0
        # A node gives the next task after the result, so there is at most one.
        self._inbox: deque[_Attempt] = deque()
        # All that have no result yet.
        self._live: dict[tuple[Any, Any], _Attempt] = {}
        self._current: Optional[_Attempt] = None
        self._stopped = False
        self._wake = threading.Event()
        self._dozing = False
        # A fork of this process is not this worker.
        os.register_at_fork(after_in_child=sock.close)

    def next(self) -> Optional[_Attempt]:
        """The next attempt to run; None when the node says stop."""
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
                # Somebody else listens, and may leave when it has what it waits for.
                answered.wait(PATIENCE_S)

    def watch(self) -> None:
        """The watcher's thread. It lets short tasks pass; from then on it listens, until the next task is there."""
        while not self._stopped or self._current is not None:
            seen = self._current
            if seen is None:
                self._dozing = True
                if self._current is None:
                    self._wake.wait()
                self._wake.clear()
                self._dozing = False
                continue
            # In an async handler nobody else can listen.
            time.sleep(0 if isinstance(seen, AsyncContext) else PATIENCE_S)
            if self._current is seen and self._ear.acquire(blocking=False):
                try:
                    while not self._inbox and not (self._stopped and self._current is None):
                        self._listen()
                finally:
                    self._ear.release()

    def send(self, data: bytes) -> None:
        """Only for whoever holds the mouth."""
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
            # Whoever still listens is woken by this, and not by a close alone.
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The node was faster.
        self._sock.close()

    def _listen(self) -> None:
        """Hears what comes next. Only for whoever holds the ear."""
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
        # Whatever else it says is for a later version.

    def _gone(self) -> None:
        """There is no node any more. An idle worker ends as if it were told to; a busy one works for nobody, and ends at once."""
        if self._live:
            _die("the node is gone; this worker ends, and its task is somebody else's")
        self._stopped = True


class _Memory:
    """In place of a node, in ``Worker.test``: keeps what is said, and saves every step."""

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
    """The socket that the node left to this process, for nobody else to inherit."""
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
    """Ends the process from any thread, at once: what runs in it does not count any more."""
    try:
        os.write(2, f"ostler: {sentence}\n".encode())
    finally:
        os._exit(1)


def _later(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        pass  # The loop is closed: nobody waits there any more.


# ---- what is written ----


class _Raw(str):
    """JSON that is written already."""


_UNWRITABLE = (TypeError, ValueError, RecursionError)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encode(value: Any) -> str:
    """The value as JSON that every reader takes: no NaN, no halves of characters."""
    text = _ENCODER.encode(value)
    text.encode()
    return text


def _line(type: str, about: Optional[tuple[str, int]], fields: Mapping[str, Any]) -> bytes:
    """A frame as it is sent, without the fields that are None. Over the bound nothing is."""
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
    """The error as the node has it. One that nobody classed has no class: the pool decides."""
    failure: dict[str, Any] = {"message": _message(error)}
    step = hint = details = None
    if isinstance(error, TaskError):
        failure["class"] = error.class_name
        failure["retry_after_ms"] = None if error.retry_after is None else math.ceil(error.retry_after * 1000)
        step, hint, details = error.step, error.hint, error.details
    elif isinstance(error, (ConnectionError, socket.timeout)) or type(error).__name__ == "TimeoutError":
        # By its name: before Python 3.11 asyncio and concurrent.futures had a TimeoutError of their own.
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
    """The trace without its beginning, which is how a handler is called here."""
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
    """Text that can be sent: what is no character, as in some names of files, becomes a question mark."""
    return str(text).encode("utf-8", "replace").decode()


def _whole(name: str, value: Any) -> int:
    # numpy's numbers are whole numbers too.
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

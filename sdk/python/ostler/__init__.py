"""Worker SDK for Ostler, in one file without dependencies. The client of the HTTP API is beside it, in ``client.py``.

    from ostler import worker

    @worker.task("resize")
    def resize(payload, ctx):
        image = ctx.step("fetched", lambda: fetch(payload["url"]))
        ...
        return {"width": 640}

    worker.run()

A node starts this program (``executor = "process"``) and sends it tasks over an inherited socket: one at a time, or, if the pool
has ``per_worker`` and all handlers are ``async def``, many at once. What a handler returns is the task's output, what it raises is
the task's error, and what it prints goes to the task's log.

Read the file from the top: errors, contexts, the worker, and then the worker protocol.
"""

from __future__ import annotations

import inspect
import io
import json
import math
import os
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal, NamedTuple, NoReturn, Optional, TypeVar, Union, overload

if TYPE_CHECKING:
    import asyncio

    from .async_client import AsyncClient, AsyncJobs
    from .client import Client, Conflict, Forbidden, Invalid, Jobs, NotFinished, NotFound, OstlerError, QueueFull, Submitted
    from .client import TaskCancelled, TaskFailed, Unauthorized, Unavailable, Unreachable, Unsuccessful

__version__ = "0.1.0"
__all__ = [
    "worker", "Worker", "Context", "AsyncContext", "TaskInfo", "Tested",
    "Gateway", "GatewaySession", "AsyncGateway", "AsyncGatewaySession", "QueryEvent", "QueryResult",
    "TaskError", "Transient", "Partial", "Permanent", "RateLimited", "UsageLimit", "QueueStop",
    "Stopped", "Cancelled", "Lost",
    "Client", "AsyncClient", "Jobs", "AsyncJobs", "Submitted",
    "OstlerError", "Invalid", "NotFound", "Conflict", "QueueFull", "Unauthorized", "Forbidden", "Unavailable", "Unreachable",
    "Unsuccessful", "TaskFailed", "TaskCancelled", "NotFinished",
]  # fmt: skip

PROTOCOL = 1
# The protocol's limit for one line, including the newline.
MAX_FRAME_BYTES = 16 * 1024 * 1024
# Error messages are truncated at the end, details at the start, where a traceback says least.
MAX_MESSAGE_CHARS = 16 * 1024
MAX_DETAILS_CHARS = 64 * 1024
READ_BYTES = 64 * 1024
# A longer line of output is split.
MAX_LINE_CHARS = 8 * 1024
# After this time a thread starts to read the socket for a cancel. For shorter tasks, waking it would cost more than the task.
PATIENCE_S = 0.005



def __getattr__(name: str) -> Any:
    """Imports the client when it is first used: a worker starts without it."""
    if name in ("AsyncClient", "AsyncJobs"):
        from . import async_client

        return getattr(async_client, name)
    if name in __all__:
        from . import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


T = TypeVar("T")
Level = Literal["debug", "info", "warn", "error"]
Role = Literal["user", "assistant", "system"]
Backoff = Literal["fixed", "linear", "exponential"]
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
            raise TypeError(f"{type(self).__name__} needs either after= (seconds or a timedelta) or until= (a datetime)")
        if until is not None:
            # A naive datetime is local time, as everywhere in Python.
            after = until.astimezone(timezone.utc) - datetime.now(timezone.utc)
        super().__init__(message, retry_after=after, step=step, hint=hint, details=details)


class UsageLimit(RateLimited):
    """The allowance of the account is used up. Nothing that uses the account of this queue starts for ``after`` seconds, or until
    ``until``; no attempt is used up."""

    class_name = "usage_limit"


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


class TaskInfo(NamedTuple):
    """Another task, as it is now."""

    id: str
    state: str
    """"queued", "claimed", "running", "completed", "failed" or "cancelled"."""
    output: Any
    """Its output, if it has completed."""
    error: Optional[str]
    """The message of its last failure."""
    queue: Optional[str] = None
    kind: Optional[str] = None
    payload: Any = None
    """Its input. Left out if it does not fit into a frame."""
    key: Optional[str] = None
    """Its unique key: the id of a run."""
    folder: Optional[str] = None
    attempts: int = 0
    """Attempts that were started."""
    failures: int = 0
    """Attempts that failed."""
    created_at: Optional[datetime] = None


class QueryEvent(NamedTuple):
    """What an agent says or does during a query of a gateway. Only the fields of its type are there."""

    type: Literal["message", "thinking", "tool_call", "tool_result", "usage", "status", "warning"]
    text: str = ""
    role: Optional[Role] = None
    """Of a message."""
    call: Optional[str] = None
    """Joins the call of a tool and its result."""
    tool: Optional[str] = None
    """The name of the tool."""
    input: Any = None
    """Of a call of a tool: any JSON."""
    output: Any = None
    """Of the result of a tool."""
    error: bool = False
    """Whether the tool has failed."""
    usage: Optional[dict[str, Any]] = None
    """What was spent since the last such event, as ``ctx.usage`` takes it. The attempt counts it by itself."""


class QueryResult(NamedTuple):
    """The answer to a query of a gateway."""

    output: Any
    """A text, or the value that a schema asked for."""
    session_id: str
    """The session that it was given in."""

    @property
    def type(self) -> Literal["result"]:
        """Tells it from the events of a stream."""
        return "result"

    @property
    def text(self) -> str:
        """The answer as text; of a value, its JSON."""
        return self.output if isinstance(self.output, str) else _encode(self.output)


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
        self.traceparent: Optional[str] = frame.get("traceparent")
        """The W3C trace context that the task was submitted with, if it was."""
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
        # For each frame that waits for its answer, and for each sleep: the call that wakes it.
        self._waiting: dict[object, Callable[[], object]] = {}
        self._answers: dict[object, Mapping[str, Any]] = {}
        self._requests = count(1)
        # The last exception raised by a step, and the step's name.
        self._failed: Optional[tuple[BaseException, str]] = None
        # What it printed, up to the end of the line, by stream, if it shares the process.
        self._printed: dict[object, str] = {}
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

    # A conversation with a model. Nothing of it is left out: while the store is slower than the handler, these calls block.

    def prompt(self, text: str) -> None:
        """Records the rendered prompt."""
        self._say("prompt", text=_text(text))

    def message(self, text: str, role: Role = "assistant") -> None:
        """Records a message."""
        if role not in ("user", "assistant", "system"):
            raise ValueError(f'the role of a message is "user", "assistant" or "system", and not {role!r}')
        self._say("message", text=_text(text), role=role)

    def thinking(self, text: str) -> None:
        """Records a model's reasoning."""
        self._say("thinking", text=_text(text))

    def tool_call(self, call: str, tool: str, input: Any = None) -> None:
        """Records that a model calls a tool. ``call`` joins the call and its result; ``input`` is any JSON."""
        self._say("tool_call", call=_text(call), tool=_text(tool), input=input)

    def tool_result(self, call: str, output: Any = None, *, error: bool = False) -> None:
        """Records the result of a tool: a text, or any JSON. ``error``: the tool has failed."""
        self._say("tool_result", call=_text(call), output=output, error=True if error else None)

    def usage(
        self,
        *,
        model: Optional[str] = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        reasoning_tokens: int = 0,
        cost_usd: Optional[float] = None,
        estimated: bool = False,
    ) -> None:
        """Records what a model was paid for since the last such call. The attempt has the sum, by model. Without a cost, the node
        uses the price of the model, if it is known."""
        tokens = {"input_tokens": input_tokens, "output_tokens": output_tokens, "cache_read_tokens": cache_read_tokens}
        tokens.update(cache_write_tokens=cache_write_tokens, reasoning_tokens=reasoning_tokens)
        counted = {name: _whole(name, value, "usage") or None for name, value in tokens.items()}
        if cost_usd is not None and not (math.isfinite(cost_usd) and cost_usd >= 0):
            raise ValueError(f"cost_usd of ctx.usage must be a number, not below 0, and is {cost_usd!r}")
        guess = True if estimated else None
        self._say("usage", model=None if model is None else _text(model), **counted, cost_usd=cost_usd, estimated=guess)

    # Outgoing frames. None after the result: the node may have sent this worker another task.

    def _say(self, type: str, /, **fields: Any) -> bool:
        data = _line(type, self._about, fields)
        with self._link.mouth:
            if not self._over:
                self._link.send(data)
            return not self._over

    def _print(self, stream: object, text: str) -> None:
        """Logs printed output, line by line."""
        *lines, rest = (self._printed.get(stream, "") + text).split("\n")
        while len(rest) > MAX_LINE_CHARS:
            lines.append(rest[:MAX_LINE_CHARS])
            rest = rest[MAX_LINE_CHARS:]
        self._printed[stream] = rest
        for line in lines:
            self.log("info", line)

    def _end(self, result: Mapping[str, Any]) -> None:
        for rest in filter(None, self._printed.values()):
            self.log("info", rest)
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

    def _written(self, name: str, value: Any) -> str:
        """A step's result as JSON."""
        try:
            return _encode(value)
        except _UNWRITABLE as error:
            raise Permanent(f'the step "{name}" cannot be written as JSON: {error}', step=name) from error

    def _ask(self, key: object, answered: Callable[[], object], type: str, fields: Mapping[str, Any]) -> None:
        """Sends a frame that the node answers. ``answered`` is called when it has, or when the attempt must stop."""
        if not self._expect(key, answered) or not self._say(type, **fields):
            answered()

    def _answer(self, key: object, what: str) -> Mapping[str, Any]:
        with self._guard:
            self._waiting.pop(key, None)
            answer = self._answers.pop(key, None)
        if answer is None:
            self.check()
            raise RuntimeError(f"{what} comes too late: the attempt is over")
        if answer["type"] == "refused":
            kind = Transient if answer.get("class") == "transient" else Permanent
            raise kind(str(answer.get("message") or f"{what} was refused"))
        return answer

    def _number(self) -> int:
        return next(self._requests)

    def _gateway_call(self, what: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a call to the pool's gateway."""
        if not self._link.gateway:
            raise Permanent("the pool has no gateway", hint="set gateway in the pool's config")
        try:
            text = _encode({"gateway": what, **_given(fields)})
        except _UNWRITABLE as error:
            raise Permanent(f"what is asked of the gateway cannot be written as JSON: {error}") from error
        return {"request": self._number(), "call": _Raw(text)}

    def _drop_query(self, query: int) -> None:
        """Gives a query up. Nothing waits for the answer."""
        self._say("call", request=self._number(), call={"gateway": "drop_query", "query": query})

    def _gateway_answer(self, frame: Mapping[str, Any]) -> Mapping[str, Any]:
        if "refused" in frame:
            raise Permanent(str(frame["refused"]))
        answer: Mapping[str, Any] = frame["answer"]
        if "error" in answer:
            raise _error_of(answer["error"])
        return answer

    def _run(
        self,
        prompt: str,
        pool: Optional[str],
        id: Optional[str],
        folder: Union[str, os.PathLike[str], None],
        max_iterations: Optional[int],
        model: Optional[str],
    ) -> dict[str, Any]:
        """The submission of a run."""
        payload = _given({"prompt": _text(prompt), "max_iterations": max_iterations, "model": model})
        fields = self._submission("run", payload, pool, id, None, None)
        fields["folder"] = None if folder is None else os.path.abspath(folder)
        return fields

    def _submission(
        self, kind: str, payload: Any, queue: Optional[str], key: Optional[str], delay: Optional[Wait], id: Optional[str]
    ) -> dict[str, Any]:
        if not isinstance(kind, str) or not kind:
            raise TypeError('name the kind: ctx.submit("resize", {…})')
        try:
            text = _encode(payload)
        except _UNWRITABLE as error:
            raise Permanent(f"the payload of ctx.submit cannot be written as JSON: {error}") from error
        delay_ms = None if delay is None else math.ceil(_seconds(delay) * 1000)
        return {"kind": kind, "payload": _Raw(text), "queue": queue, "key": key, "delay_ms": delay_ms, "task": id}

    def _found(self, answer: Mapping[str, Any]) -> Optional[TaskInfo]:
        found = answer.get("task")
        if found is None:
            return None
        at = found.get("created_at_ms")
        return TaskInfo(
            str(found["id"]), str(found["state"]), found.get("output"), found.get("error"), found.get("queue"), found.get("kind"),
            found.get("payload"), found.get("key"), found.get("folder"), int(found.get("attempts") or 0), int(found.get("failures") or 0),
            None if at is None else datetime.fromtimestamp(at / 1000, timezone.utc),
        )  # fmt: skip

    def _blame(self, name: str, error: Exception) -> None:
        """Remembers the innermost step that raised the exception."""
        if self._failed is None or self._failed[0] is not error:
            self._failed = (error, name)

    # Incoming frames, from the thread that reads the socket.

    def _hear(self, frame: Mapping[str, Any]) -> None:
        type = frame["type"]
        if type == "lost":
            self._halt(Lost("the lease is lost: another node has the task"))
        elif type == "cancel":
            self._halt(Cancelled(str(frame.get("reason") or "no reason was given")))
        else:
            # By the name of the step, the id of the session, or the number of the request.
            key = next(((name, frame[name]) for name in ("step", "session", "request") if name in frame), None)
            with self._guard:
                answered = self._waiting.pop(key, None)
                if answered is not None:
                    self._answers[key] = frame
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

    def session(self, id: str) -> None:
        """Records the id by which a later attempt can resume the conversation. It is durable when this returns: call it before the
        request that it names."""
        id = _text(id)
        self._call(("session", id), f'the session "{id}"', "session", session=id)

    def submit(
        self,
        kind: str,
        payload: Any = None,
        *,
        queue: Optional[str] = None,
        key: Optional[str] = None,
        delay: Optional[Wait] = None,
        id: Optional[str] = None,
    ) -> str:
        """Submits another task, to this task's queue unless another is given, and returns its id. It is durable when this returns.

        A later attempt that submits the same again gets the same task, and so does one with the same ``key`` or ``id``. ``delay``: when
        it is due, in seconds or as a timedelta.
        """
        fields = self._submission(kind, payload, queue, key, delay, id)
        number = self._number()
        return str(self._call(("request", number), "the task", "submit", request=number, **fields)["task"])

    def run(
        self,
        prompt: str,
        *,
        pool: Optional[str] = None,
        id: Optional[str] = None,
        folder: Union[str, os.PathLike[str], None] = None,
        max_iterations: Optional[int] = None,
        model: Optional[str] = None,
    ) -> str:
        """Gives a prompt to a pool of agents, this task's own unless another is given, and returns the id of its task. ``id`` is an
        id of your own, any text: the same again is the same task."""
        fields = self._run(prompt, pool, id, folder, max_iterations, model)
        number = self._number()
        return str(self._call(("request", number), "the run", "submit", request=number, **fields)["task"])

    def task(self, id: Optional[str] = None) -> Optional[TaskInfo]:
        """Looks up a task, or this one without an id; None if there is none with this id."""
        number, id = self._number(), self.id if id is None else str(id)
        return self._found(self._call(("request", number), "the question", "lookup", request=number, task=id))

    def gateway(self) -> Gateway:
        """The gateway of the pool: sessions with an agent, in which several things are asked one after the other."""
        return Gateway(self)

    def _ask_gateway(self, what: str, **fields: Any) -> Mapping[str, Any]:
        call = self._gateway_call(what, fields)
        return self._gateway_answer(self._call(("request", call["request"]), "the query", "call", **call))

    def _keep(self, name: str, value: T) -> T:
        text = self._written(name, value)
        self._call(("step", name), f'the step "{name}"', "step", name=name, value=_Raw(text))
        kept: T = json.loads(text)
        return kept

    def _call(self, key: object, what: str, type: str, /, **fields: Any) -> Mapping[str, Any]:
        answered = threading.Event()
        self._ask(key, answered.set, type, fields)
        self._link.wait(answered)
        return self._answer(key, what)


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

    async def session(self, id: str) -> None:
        """Records the id of a conversation; see ``Context.session``."""
        id = _text(id)
        await self._call(("session", id), f'the session "{id}"', "session", session=id)

    async def submit(
        self,
        kind: str,
        payload: Any = None,
        *,
        queue: Optional[str] = None,
        key: Optional[str] = None,
        delay: Optional[Wait] = None,
        id: Optional[str] = None,
    ) -> str:
        """Submits another task, and returns its id; see ``Context.submit``."""
        fields = self._submission(kind, payload, queue, key, delay, id)
        number = self._number()
        return str((await self._call(("request", number), "the task", "submit", request=number, **fields))["task"])

    async def run(
        self,
        prompt: str,
        *,
        pool: Optional[str] = None,
        id: Optional[str] = None,
        folder: Union[str, os.PathLike[str], None] = None,
        max_iterations: Optional[int] = None,
        model: Optional[str] = None,
    ) -> str:
        """Gives a prompt to a pool of agents; see ``Context.run``."""
        fields = self._run(prompt, pool, id, folder, max_iterations, model)
        number = self._number()
        return str((await self._call(("request", number), "the run", "submit", request=number, **fields))["task"])

    async def task(self, id: Optional[str] = None) -> Optional[TaskInfo]:
        """Looks up a task, or this one without an id; None if there is none with this id."""
        number, id = self._number(), self.id if id is None else str(id)
        return self._found(await self._call(("request", number), "the question", "lookup", request=number, task=id))

    def gateway(self) -> AsyncGateway:
        """The gateway of the pool; see ``Context.gateway``."""
        return AsyncGateway(self)

    async def _ask_gateway(self, what: str, **fields: Any) -> Mapping[str, Any]:
        call = self._gateway_call(what, fields)
        return self._gateway_answer(await self._call(("request", call["request"]), "the query", "call", **call))

    async def _keep(self, name: str, value: Any) -> Any:
        text = self._written(name, value)
        await self._call(("step", name), f'the step "{name}"', "step", name=name, value=_Raw(text))
        return json.loads(text)

    async def _call(self, key: object, what: str, type: str, /, **fields: Any) -> Mapping[str, Any]:
        import asyncio

        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        self._ask(key, lambda: _later(loop, answered.set), type, fields)
        await answered.wait()
        return self._answer(key, what)


# ---- the gateway of a pool ----


class Gateway:
    """Sessions with an agent. A later attempt gets the sessions of the earlier one, in the order in which it creates them, and the
    answers that it had: only what was not answered is asked again, in the same session."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def create_session(
        self, *, user_id: Optional[str] = None, workspace: Union[str, os.PathLike[str], None] = None
    ) -> GatewaySession:
        """Creates a session. ``user_id`` defaults to ``worker_`` and the task's id, ``workspace`` to the task's folder."""
        place = None if workspace is None else os.path.abspath(workspace)
        answer = self._ctx._ask_gateway("create_session", user_id=user_id, workspace=place)
        return GatewaySession(self._ctx, answer)

    def resume_session(self, id: str, *, workspace: Union[str, os.PathLike[str], None] = None) -> GatewaySession:
        """Goes on in a session that another task has created."""
        place = None if workspace is None else os.path.abspath(workspace)
        return GatewaySession(self._ctx, self._ctx._ask_gateway("resume_session", id=str(id), workspace=place))


class GatewaySession:
    """A session, in which queries see what was said before."""

    def __init__(self, ctx: Context, answer: Mapping[str, Any]) -> None:
        self._ctx = ctx
        self._number = int(answer["session"])
        self.id = str(answer["id"])
        """The id by which the gateway knows the session."""

    def run_query(self, input: str, **options: Any) -> QueryResult:
        """Asks, and returns the answer. What the agent says and does meanwhile is in the task's log, and its cost in the attempt's.
        ``options`` win over the settings of the gateway: ``model``, ``max_iterations``, ``schema`` and so on.

        Raises a ``TaskError`` with the class of the cause: one that is not caught ends the attempt with that class."""
        answer = self._ctx._ask_gateway("run_query", session=self._number, input=_text(input), options=_given(options) or None)
        self.id = str(answer["id"])
        return QueryResult(answer.get("output"), self.id)

    def stream(self, input: str, **options: Any) -> Generator[Union[QueryEvent, QueryResult], None, None]:
        """Asks, and yields what the agent says and does as it arrives; the last item is the answer, a ``QueryResult``. It is asked when
        the first item is. A loop that is left early gives the query up. While nothing is read, the agent waits.

        Raises like ``run_query``, after the events that came before. A query that was answered in an earlier attempt has no events."""
        ask, fields = self._ctx._ask_gateway, {"input": _text(input), "options": _given(options) or None}
        query, is_over = ask("stream_query", session=self._number, **fields)["query"], False
        try:
            while not is_over:
                answer = ask("next_events", query=query)
                if "events" in answer:
                    yield from map(_event_of, answer["events"])
                else:
                    is_over, self.id = True, str(answer["id"])
                    yield QueryResult(answer.get("output"), self.id)
        finally:
            if not is_over:
                self._ctx._drop_query(query)


class AsyncGateway:
    """Sessions with an agent; see ``Gateway``."""

    def __init__(self, ctx: AsyncContext) -> None:
        self._ctx = ctx

    async def create_session(
        self, *, user_id: Optional[str] = None, workspace: Union[str, os.PathLike[str], None] = None
    ) -> AsyncGatewaySession:
        """Creates a session; see ``Gateway.create_session``."""
        place = None if workspace is None else os.path.abspath(workspace)
        answer = await self._ctx._ask_gateway("create_session", user_id=user_id, workspace=place)
        return AsyncGatewaySession(self._ctx, answer)

    async def resume_session(
        self, id: str, *, workspace: Union[str, os.PathLike[str], None] = None
    ) -> AsyncGatewaySession:
        """Goes on in a session that another task has created."""
        place = None if workspace is None else os.path.abspath(workspace)
        return AsyncGatewaySession(self._ctx, await self._ctx._ask_gateway("resume_session", id=str(id), workspace=place))


class AsyncGatewaySession:
    """A session; see ``GatewaySession``."""

    def __init__(self, ctx: AsyncContext, answer: Mapping[str, Any]) -> None:
        self._ctx = ctx
        self._number = int(answer["session"])
        self.id = str(answer["id"])
        """The id by which the gateway knows the session."""

    async def run_query(self, input: str, **options: Any) -> QueryResult:
        """Asks, and returns the answer; see ``GatewaySession.run_query``."""
        answer = await self._ctx._ask_gateway("run_query", session=self._number, input=_text(input), options=_given(options) or None)
        self.id = str(answer["id"])
        return QueryResult(answer.get("output"), self.id)

    async def stream(self, input: str, **options: Any) -> AsyncGenerator[Union[QueryEvent, QueryResult], None]:
        """Asks, and yields what the agent says and does as it arrives, and then the answer; see ``GatewaySession.stream``."""
        ask, fields = self._ctx._ask_gateway, {"input": _text(input), "options": _given(options) or None}
        query, is_over = (await ask("stream_query", session=self._number, **fields))["query"], False
        try:
            while not is_over:
                answer = await ask("next_events", query=query)
                for event in answer.get("events", ()):
                    yield _event_of(event)
                if "events" not in answer:
                    is_over, self.id = True, str(answer["id"])
                    yield QueryResult(answer.get("output"), self.id)
        finally:
            if not is_over:
                self._ctx._drop_query(query)


def _event_of(fields: Mapping[str, Any]) -> QueryEvent:
    """An event of a query. Fields of a later version are left out."""
    if fields["type"] == "usage":
        return QueryEvent("usage", usage={name: value for name, value in fields.items() if name != "type" and value is not None})
    return QueryEvent(**{name: value for name, value in fields.items() if name in QueryEvent._fields})


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _error_of(error: Mapping[str, Any]) -> TaskError:
    """The exception for an error of the gateway."""
    name, wait = error.get("class"), error.get("retry_after_ms")
    kinds = {kind.class_name: kind for kind in (Transient, Partial, Permanent, QueueStop)}
    kind = kinds.get(name, TaskError)
    made = kind(
        str(error.get("message") or "the gateway gave no reason"),
        retry_after=None if wait is None else wait / 1000,
        hint=error.get("hint"),
        details=error.get("details"),
    )
    # Classes without a subclass here, such as rate_limited.
    made.class_name = name
    return made


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
        self._options: dict[str, dict[str, Any]] = {}
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def task(
        self,
        kind: Optional[str] = None,
        *,
        attempts: Optional[int] = None,
        timeout: Optional[Wait] = None,
        backoff: Optional[Backoff] = None,
        base: Optional[Wait] = None,
        max: Optional[Wait] = None,
        jitter: Optional[bool] = None,
        max_crashes: Optional[int] = None,
    ) -> Callable[[H], H]:
        """Registers the decorated function for tasks of this kind; without a kind, for all kinds that have no other handler.

        It gets the payload and a context: a ``Context``, or an ``AsyncContext`` if it is an ``async def``.

        The options are defaults for tasks of this kind: the node's config and the task's own options win. ``attempts``: how many may
        fail. ``timeout`` of an attempt, ``base`` and ``max`` of the backoff: seconds or a timedelta.
        """
        if kind is not None and not isinstance(kind, str):
            raise TypeError('name the kind: @worker.task("resize"), or @worker.task() for all others')
        counts = {"attempts": attempts, "max_crashes": max_crashes}
        options: dict[str, Any] = {name: _option_count(name, value) for name, value in counts.items()}
        waits = {"timeout": timeout, "base": base, "max": max}
        options.update({f"{name}_ms": _option_ms(name, value) for name, value in waits.items()})
        if backoff not in (None, "fixed", "linear", "exponential"):
            raise ValueError(f'backoff of a task is "fixed", "linear" or "exponential", and not {backoff!r}')
        options.update(backoff=backoff, jitter=None if jitter is None else bool(jitter))
        options = {name: value for name, value in options.items() if value is not None}
        if options and kind is None:
            raise TypeError('options belong to a kind: @worker.task("resize", attempts=5)')

        def register(handler: H) -> H:
            if kind in self._handlers:
                raise ValueError(f"there are two handlers for {'all other kinds' if kind is None else repr(kind)}")
            is_async = any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None))))
            self._handlers[kind] = (handler, AsyncContext if is_async else Context)
            if kind is not None and options:
                self._options[kind] = options
            return handler

        return register

    def run(self) -> None:
        """Runs tasks until the node sends stop. Call it at the end of the program, after registering the handlers."""
        if not self._handlers:
            _refuse('this worker has no handler. Write one, below @worker.task("resize"), and call worker.run() after it.')
        node = _Node(_inherited_socket(), self)
        for stream in (sys.stdout, sys.stderr):
            # Printed lines should reach the log at once, not 8 KiB later.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        threading.Thread(target=node.watch, name="ostler", daemon=True).start()
        try:
            attempt = node.next()
            while attempt is not None:
                if node.slots > 1:
                    self._perform_many(node, attempt)
                else:
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
        tasks: Sequence[TaskInfo] = (),
        answers: Optional[Sequence[Any]] = None,
        events: Sequence[Sequence[Mapping[str, Any]]] = (),
    ) -> Tested:
        """Runs a handler once without a node, for unit tests. Exceptions propagate.

        ``steps`` are those of earlier attempts; the ones that this attempt saves are added. Pass the same dict to run the next
        attempt. ``tasks`` are found by ``ctx.task``. ``answers`` are those of the gateway, one after the other; an error of this module
        is raised. ``events`` are those of its streams, one list for each: ``{"type": "message", "text": "…"}``.
        """
        memory = _Memory(Tested({} if steps is None else steps), {task.id: task._asdict() for task in tasks}, answers, events)
        frame: dict[str, Any] = {"id": "test", "token": 1, "attempt": attempt, "kind": kind, "folder": None if folder is None else str(folder)}
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
        self._report(attempt, result)

    def _perform_many(self, node: _Node, first: _Attempt) -> None:
        """Runs attempts side by side on one loop, until the node sends stop."""
        import asyncio

        async def perform(attempt: _Attempt) -> None:
            _SHARING.set(attempt)
            try:
                output = await self._supervised(attempt, self._call(attempt))
                result: dict[str, Any] = {"ok": _Raw("true"), "output": _Raw(self._written(attempt, output))}
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                result = {"ok": False, "error": _failure(attempt, error)}
            self._report(attempt, result)

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            running: set[asyncio.Task[None]] = set()

            def begin(attempt: _Attempt) -> None:
                task = loop.create_task(perform(attempt))
                running.add(task)
                task.add_done_callback(running.discard)

            def arrives(attempt: _Attempt) -> None:
                _later(loop, lambda: begin(attempt))

            begin(first)
            await loop.run_in_executor(None, node.read_all, arrives)
            while running:
                await asyncio.wait(running)

        sys.stdout, sys.stderr = _Shared(sys.stdout), _Shared(sys.stderr)
        asyncio.run(serve())

    def _report(self, attempt: _Attempt, result: Mapping[str, Any]) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass  # The handler closed it; the result is still sent.
        attempt._end(result)

    def _output(self, attempt: _Attempt) -> str:
        """Runs the handler and returns its output as JSON."""
        output = self._call(attempt)
        if isinstance(attempt, AsyncContext):
            # Imported here: a worker without async handlers starts faster.
            import asyncio

            self._loop = self._loop or asyncio.new_event_loop()
            output = self._loop.run_until_complete(self._supervised(attempt, output))
        elif inspect.iscoroutine(output):
            output.close()
            raise Permanent(f'the handler of "{attempt.kind}" returned a coroutine; it must be an "async def" itself')
        return self._written(attempt, output)

    def _call(self, attempt: _Attempt) -> Any:
        handler = self._handlers.get(attempt.kind) or self._handlers.get(None)
        if handler is None:
            raise Permanent(f'this worker has no handler for the kind "{attempt.kind}"; it has: {", ".join(self._kinds() or [])}')
        attempt.check()
        return handler[0](attempt._payload, attempt)

    def _written(self, attempt: _Attempt, output: Any) -> str:
        try:
            return _encode(output)
        except _UNWRITABLE as error:
            raise Permanent(f'what the handler of "{attempt.kind}" returned cannot be written as JSON: {error}') from error

    async def _supervised(self, attempt: _Attempt, running: Any) -> Any:
        """Awaits an async handler, and cancels it when the attempt must stop."""
        import asyncio

        loop = asyncio.get_running_loop()
        task = loop.create_task(running)
        if not attempt._expect(task, lambda: _later(loop, task.cancel)):
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            attempt.check()
            raise

    def _close_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


# The attempt whose handler runs, while several share the process. Everything that a handler starts on the loop inherits it.
_SHARING: ContextVar[Optional[_Attempt]] = ContextVar("ostler", default=None)


class _Shared(io.TextIOBase):
    """Stdout or stderr of handlers that share the process: what one prints goes to the log of its own task."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        attempt = _SHARING.get()
        if attempt is None:
            return int(self._stream.write(text))
        attempt._print(self, text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return int(self._stream.fileno())


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
        self.conversation: list[dict[str, Any]] = []
        """Prompts, messages, thinking, tool calls and results, sessions and usage, as frames with their ``type``."""
        self.submitted: list[dict[str, Any]] = []
        """Tasks that were submitted: kind, payload, and what else was given."""
        self.queries: list[dict[str, Any]] = []
        """What was asked of the gateway: session, input and options."""
        self.dropped: list[int] = []
        """Streams that were left early, by their numbers from 1."""


# ---- the connection to the node ----


class _Node:
    """The socket to the node. Any thread may write, one at a time (``mouth`` is the write lock, ``_ear`` the read lock).

    A thread that waits for the node reads the socket itself: the main thread for its next task, and a thread that runs a step for
    the answer. While a handler runs, the watcher thread reads it for a cancel.
    """

    def __init__(self, sock: socket.socket, worker: Worker) -> None:
        # A stream that the garbage collector ends may be in a thread that is about to write.
        self.mouth = threading.RLock()
        self._ear = threading.Lock()
        self._sock = sock
        self._worker = worker
        self._parts: list[bytes] = []
        self._length = 0
        # At most `slots`: a node sends the next task after a result.
        self._inbox: deque[_Attempt] = deque()
        # Whether the pool has a gateway.
        self.gateway = False
        # How many tasks the node may send at once.
        self.slots = 1
        # Begins an attempt on the loop that runs all of them. None: they run one after the other.
        self._begin: Optional[Callable[[_Attempt], object]] = None
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

    def read_all(self, begin: Callable[[_Attempt], object]) -> None:
        """Reads the socket until the node sends stop, and hands every attempt to ``begin``."""
        with self._ear:
            self._begin = begin
            while self._inbox:
                begin(self._inbox.popleft())
            while not self._stopped:
                self._listen()

    def wait(self, answered: threading.Event) -> None:
        """Waits for an answer."""
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
        while self._begin is None and (not self._stopped or self._current is not None):
            seen = self._current
            if seen is None or self.slots > 1:
                self._dozing = True
                if self._current is None or self.slots > 1:
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
            (self._begin or self._inbox.append)(attempt)
        elif type in ("saved", "lost", "cancel", "submitted", "found", "refused", "answer"):
            about = self._live.get((frame.get("id"), frame.get("token")))
            if about is not None:
                about._hear(frame)
        elif type == "stop":
            self._stopped = True
        elif type == "hello":
            if frame["protocol"] != PROTOCOL:
                _die(f"the node speaks protocol {frame['protocol']}, and this worker {PROTOCOL}; install the SDK of its version")
            ready: dict[str, Any] = {"protocol": PROTOCOL, "sdk": f"python/{__version__}", "kinds": self._worker._kinds()}
            ready["options"] = self._worker._options or None
            self.gateway = frame.get("gateway") is True
            # A plain handler would hold up the others.
            if all(context is AsyncContext for _, context in self._worker._handlers.values()):
                self.slots = max(1, int(frame.get("per_worker") or 1))
                ready["per_worker"] = self.slots if self.slots > 1 else None
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

    def __init__(
        self,
        tested: Tested,
        tasks: Mapping[str, Mapping[str, Any]],
        answers: Optional[Sequence[Any]],
        events: Sequence[Sequence[Mapping[str, Any]]],
    ) -> None:
        self.mouth = threading.RLock()
        self.gateway = answers is not None
        self.answers: deque[Any] = deque(answers or ())
        self.events: deque[Sequence[Mapping[str, Any]]] = deque(events)
        # The queries that stream: what their next events are, and their answer.
        self.streams: list[tuple[deque[Mapping[str, Any]], dict[str, Any]]] = []
        self.sessions = 0
        self.tested = tested
        self.tasks = tasks
        self.attempt: Optional[_Attempt] = None

    def send(self, data: bytes) -> None:
        frame = json.loads(data)
        tested, type = self.tested, frame["type"]
        if type == "step" and self.attempt is not None:
            tested.steps[frame["name"]] = frame["value"]
            self.attempt._hear({"type": "saved", "step": frame["name"]})
        elif type == "submit" and self.attempt is not None:
            given = {name: frame[name] for name in frame if name not in ("type", "id", "token", "request")}
            tested.submitted.append(given)
            task = frame.get("task") or f"test-{len(tested.submitted)}"
            self.attempt._hear({"type": "submitted", "request": frame["request"], "task": task})
        elif type == "lookup" and self.attempt is not None:
            own = {"id": self.attempt.id, "state": "running", "kind": self.attempt.kind, "payload": self.attempt._payload}
            own["attempts"] = self.attempt.attempt
            found = self.tasks.get(frame["task"]) or (own if frame["task"] == self.attempt.id else None)
            self.attempt._hear({"type": "found", "request": frame["request"], "task": found})
        elif type == "call" and self.attempt is not None:
            self.attempt._hear({"type": "answer", "request": frame["request"], "answer": self._answered(frame["call"])})
        elif type == "step_failed":
            tested.warnings.append((frame["name"], frame["message"]))
        elif type == "progress":
            tested.progress.append((frame["done"], frame.get("total"), frame.get("note")))
        elif type == "log":
            tested.logs.append((frame["level"], frame["message"]))
        elif type == "file":
            tested.files.append(frame["path"])
        elif type != "result":
            tested.conversation.append({name: frame[name] for name in frame if name not in ("id", "token")})
            if type == "session" and self.attempt is not None:
                self.attempt._hear({"type": "saved", "session": frame["session"]})

    def _answered(self, call: Mapping[str, Any]) -> dict[str, Any]:
        what = call["gateway"]
        if what in ("create_session", "resume_session"):
            self.sessions += 1
            return {"session": self.sessions, "id": call.get("id") or f"test-session-{self.sessions}"}
        if what == "drop_query":
            self.tested.dropped.append(call["query"])
            return {}
        if what == "next_events":
            query: int = call["query"]
            waiting, end = self.streams[query - 1]
            return {"events": [waiting.popleft()]} if waiting else end
        self.tested.queries.append({name: call[name] for name in ("session", "input", "options") if name in call})
        given = self.answers.popleft() if self.answers else Permanent("the test has no more answers")
        if isinstance(given, TaskError):
            wait = None if given.retry_after is None else given.retry_after * 1000
            answer = {"error": {"class": given.class_name, "message": str(given), "retry_after_ms": wait}}
        else:
            answer = {"output": given, "id": f"test-session-{call['session']}"}
        if what == "run_query":
            return answer
        self.streams.append((deque(self.events.popleft() if self.events else ()), answer))
        return {"query": len(self.streams)}

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


def _whole(name: str, value: Any, call: str = "progress") -> int:
    # Accepts numpy integers too.
    if not hasattr(value, "__index__") or value < 0:
        raise ValueError(f"{name} of ctx.{call} must be a whole number, not below 0, and is {value!r}")
    return int(value)


def _option_count(name: str, value: Any) -> Optional[int]:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} of a task must be a whole number from 1, and is {value!r}")
    return value


def _option_ms(name: str, value: Optional[Wait]) -> Optional[int]:
    if value is None:
        return None
    ms = math.ceil(_seconds(value) * 1000)
    if ms < 1:
        raise ValueError(f"{name} of a task is a number of seconds above 0, or a timedelta, and not {value!r}")
    return ms


def _seconds(wait: Wait) -> float:
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
    if not math.isfinite(seconds):
        raise ValueError(f"a time to wait is a number of seconds or a timedelta, and not {wait!r}")
    return max(0.0, seconds)


worker = Worker()
"""The worker of this program."""

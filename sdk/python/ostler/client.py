"""A client of Ostler's HTTP API: submit, wait, follow, act, from any program. Without dependencies.

    from ostler import Client

    with Client(token_file="jobs.db.token") as client:
        task = client.submit("texts", "count", {"text": "to be or not"})
        print(client.result(task, wait=60))

What a method returns is the JSON of the API, as Python has it: what ``ostler … --json`` prints. `AsyncClient` has the same methods for
asyncio.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Optional, TypeVar, Union

from . import _flows as flows
from ._errors import Conflict, Forbidden, Invalid, NotFinished, NotFound, OstlerError, QueueFull, TaskCancelled, TaskFailed
from ._errors import Unauthorized, Unavailable, Unreachable, Unsuccessful
from ._flows import Flow, Step, Submitted, TaskName, Time
from ._http import MAX_ANSWER_BYTES, Address, Answer, AnswerReader, Lost, Request, request_bytes
from ._settings import settings

__all__ = [
    "Client", "Jobs", "Submitted", "TaskName", "Time",
    "OstlerError", "Invalid", "NotFound", "Conflict", "QueueFull", "Unauthorized", "Forbidden", "Unavailable", "Unreachable",
    "Unsuccessful", "TaskFailed", "TaskCancelled", "NotFinished",
]  # fmt: skip

T = TypeVar("T")
Json = dict[str, Any]
JsonList = list[dict[str, Any]]
READ_BYTES = 64 * 1024
# Connections that are kept for the next request, and for how long: a node closes idle ones after half a minute.
MAX_IDLE = 8
MAX_IDLE_S = 10.0
# A node sends something at least every 15 seconds, so a stream that is silent for longer is a broken one.
STREAM_SILENCE_S = 45.0


class Client:
    """A client. Threads may share it. Close it, or use it in ``with``.

    ``url``: the variable ``OSTLER_SERVER`` or ``http://127.0.0.1:7700`` if it is left out; also ``unix:/path/api.sock``.
    ``token``: if it is left out, that of the owner in ``token_file``, or the variable ``OSTLER_TOKEN``. ``timeout``: how long the node
    may be silent, in seconds; waits for tasks come on top.

    A request whose answer was lost is sent again, a few times, if that makes nothing twice: looks, and changes with an idempotency
    key, which this client makes for each submission.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        token_file: "Optional[Union[str, os.PathLike[str]]]" = None,
        timeout: float = 30.0,
    ) -> None:
        self._to, token, timeout = settings(url, token, token_file, timeout)
        self._rim = _Sockets(self._to, token, timeout)
        self.jobs = Jobs(self)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. The client can still be used."""
        self._rim.close()

    # -- submit --

    def submit(self, queue: str, kind: str, payload: Any = None, *, idempotency_key: Optional[str] = None, **options: Any) -> Submitted:
        """Submits a task. The options are those of ``ostler submit``: ``priority``, ``key``, ``in_``, ``at``, ``after``, ``attempts``, …

        Durations are seconds, a timedelta or a text such as ``"5m"``. With an ``idempotency_key`` of your own, the same call makes one
        task even after a restart of your program; the client makes one for each call otherwise, for its own repeats.
        """
        return self._run(flows.submit(self._to, {**options, "queue": queue, "kind": kind, "payload": payload}, idempotency_key))

    def submit_many(self, tasks: Iterable[Mapping[str, Any]], *, idempotency_key: Optional[str] = None) -> list[Submitted]:
        """Submits tasks, each a dict with ``queue``, ``kind``, ``payload`` and options. Each chunk of up to 500 is one transaction.

        The answers are in the order of the tasks. If it raises, the chunks before may be in: repeat it with the same
        ``idempotency_key``, which makes nothing twice.
        """
        return self._run(flows.submit_many(self._to, tasks, idempotency_key))

    def run(
        self,
        prompt: str,
        *,
        pool: str,
        id: Optional[str] = None,
        model: Optional[str] = None,
        max_iterations: Optional[int] = None,
        idempotency_key: Optional[str] = None,
        **options: Any,
    ) -> Submitted:
        """Gives a prompt to a pool of agents. One more run with the same ``id``, any text, is the same task."""
        settings = {"max_iterations": max_iterations, "model": model}
        return self._run(flows.run(self._to, prompt, pool, id, settings, options, idempotency_key))

    def continue_task(self, task: TaskName, prompt: str, *, to: Optional[str] = None, queue: Optional[str] = None) -> Submitted:
        """Goes on with the conversation of a finished task of an agent, in a new task."""
        return self._run(flows.continue_task(self._to, task, prompt, to, queue))

    # -- look --

    def task(self, task: TaskName, *, queue: Optional[str] = None) -> Json:
        """A task with its payload, output and attempts: by id, by a part of it, or by ``key:K`` with its queue."""
        return self._run(flows.get(self._to, "tasks", flows.name_of(task), query={"queue": queue}))

    def result(self, task: TaskName, wait: Optional[Time] = None, queue: Optional[str] = None) -> Any:
        """The output of a task, after up to ``wait`` seconds. Raises `TaskFailed`, `TaskCancelled` or `NotFinished`."""
        return self._run(flows.result(self._to, task, wait, queue))

    def wait(self, task: TaskName, timeout: Optional[Time] = None, *, queue: Optional[str] = None) -> Json:
        """Waits for the end of a task, whatever it is: id, state, output, error. Raises `NotFinished`, which is a `TimeoutError`."""
        return self._run(flows.wait(self._to, task, timeout, queue))

    def wait_many(self, tasks: Iterable[TaskName], timeout: Optional[Time] = None) -> JsonList:
        """Waits for the ends of all tasks, and returns them in the order of the tasks."""
        return self._run(flows.wait_many(self._to, tasks, timeout))

    def as_completed(self, tasks: Iterable[TaskName], timeout: Optional[Time] = None) -> Iterator[Json]:
        """The ends of tasks, roughly as they come: one is waited for, and the others are looked at twice a second, 64 at a time."""
        return self._iterate(flows.as_completed(self._to, tasks, timeout))

    def follow(self, task: TaskName, after: Optional[int] = None, *, queue: Optional[str] = None, raw: bool = False) -> Iterator[Json]:
        """The events of a task as they come, up to its end. After a cut it reconnects, without a gap and without doubles."""
        return self._iterate(flows.follow(self._to, task, after, queue, raw))

    def task_events(self, task: TaskName, after: Optional[int] = None, *, queue: Optional[str] = None, raw: bool = False) -> Json:
        """The events so far, a page of them: ``events``, and in ``after`` where the next page begins."""
        query = {"after": after, "queue": queue, "raw": raw or None}
        return self._run(flows.get(self._to, "tasks", flows.name_of(task), "log", query=query))

    def tasks(self, **filters: Any) -> Iterator[Json]:
        """All tasks that match: ``state``, ``queue``, ``kind``, ``text``, ``where``, ``class_``, …; ``limit`` is the size of a page."""
        return self._iterate(flows.pages(self._to, "tasks", "tasks", filters))

    def task_page(self, **filters: Any) -> Json:
        """One page: ``tasks``, and a ``cursor`` unless it was the last one."""
        return self._run(flows.get(self._to, "tasks", query=flows.fields(filters)))

    def file(self, task: TaskName, path: str) -> bytes:
        """A file that an attempt left in the folder of its task."""
        return self._run(flows.file(self._to, task, path))

    # -- act --

    def cancel(self, task: TaskName, *, queue: Optional[str] = None) -> Json:
        """Cancels a waiting task, and asks a running one to stop."""
        return self._run(flows.change(self._to, "tasks", flows.name_of(task), "cancel", query={"queue": queue}))

    def retry(self, task: TaskName, *, queue: Optional[str] = None, **options: Any) -> Json:
        """Queues a failed or cancelled task again, or makes a waiting one due. Options: ``payload``, ``from_scratch``, ``again``."""
        return self._run(flows.again(self._to, "tasks", task, "retry", queue, options))

    def amend(self, task: TaskName, *, queue: Optional[str] = None, **options: Any) -> Json:
        """Changes retry and timeout settings of a task that has not finished: the options of ``ostler amend``."""
        return self._run(flows.again(self._to, "tasks", task, "amend", queue, options))

    def dead(self, **filters: Any) -> Iterator[Json]:
        """Dead letters: tasks that failed for good."""
        return self._iterate(flows.pages(self._to, "dead", "letters", filters))

    def dead_letter(self, task: TaskName, *, queue: Optional[str] = None) -> Json:
        """One dead letter."""
        return self._run(flows.get(self._to, "dead", flows.name_of(task), query={"queue": queue}))

    def replay(self, task: TaskName, *, queue: Optional[str] = None, **options: Any) -> Json:
        """Runs a dead letter again. Options: ``payload``, ``from_scratch``."""
        return self._run(flows.again(self._to, "dead", task, "replay", queue, options))

    def drop(self, task: TaskName, *, queue: Optional[str] = None) -> Json:
        """Removes a dead letter for good."""
        return self._run(flows.change(self._to, "dead", flows.name_of(task), method="DELETE", query={"queue": queue}))

    def act(
        self,
        action: str,
        filter: Mapping[str, Any],
        *,
        preview: bool = False,
        cutoff: Optional[str] = None,
        from_scratch: Optional[bool] = None,
    ) -> Json:
        """Does ``cancel``, ``retry``, ``replay`` or ``drop`` to all tasks that match: first with ``preview=True``, then with its cut-off.

        Tasks that begin to match after the preview are not touched.
        """
        return self._run(flows.act(self._to, action, filter, preview, cutoff, from_scratch))

    def actions(self) -> JsonList:
        """The actions on many tasks that the node knows."""
        return self._run(flows.get(self._to, "tasks", "actions"))

    def action(self, id: str) -> Json:
        """How far an action is."""
        return self._run(flows.get(self._to, "tasks", "actions", id))

    def wait_action(self, id: str, timeout: Optional[Time] = None) -> Json:
        """Waits until an action runs no more."""
        return self._run(flows.until(self._to, ("tasks", "actions", id), flows.action_ended, timeout))

    def stop_action(self, id: str) -> Json:
        """Stops an action between two batches."""
        return self._run(flows.change(self._to, "tasks", "actions", id, "stop"))

    # -- the system --

    def pause(self, queue: str, *, reason: Optional[str] = None) -> Json:
        """Starts nothing of a queue until it is resumed."""
        return self._run(flows.change(self._to, "queues", queue, "pause", body=flows.fields({"reason": reason})))

    def resume(self, queue: str) -> Json:
        """Resumes a queue."""
        return self._run(flows.change(self._to, "queues", queue, "resume"))

    def queues(self, *, all: bool = False) -> JsonList:
        """Queues, with what throttles them; ``all``: also those of jobs."""
        return self._run(flows.get(self._to, "queues", query={"all": all or None}))

    def stats(self, queue: Optional[str] = None) -> Json:
        """Counts, totals and durations."""
        return self._run(flows.get(self._to, "stats", query={"queue": queue}))

    def nodes(self) -> JsonList:
        """Running nodes with their pools."""
        return self._run(flows.get(self._to, "nodes"))

    def workers(self) -> JsonList:
        """The workers of all nodes."""
        return self._run(flows.get(self._to, "workers"))

    def doctor(self) -> JsonList:
        """What is wrong, with advice."""
        return self._run(flows.get(self._to, "doctor"))

    def live(self) -> Iterator[Json]:
        """The overview as it changes, without an end: ``stats``, ``queues``, ``nodes`` and ``workers``, each time whole and the newest.

        What changes several times a second comes once. After a cut, or a restart of the node, it goes on with what is true then.
        """
        return self._iterate(flows.live(self._to))

    def request(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> Any:
        """Any operation of the API that has no method here, such as ``request("GET", "schedules")``. Its answer as JSON."""
        return self._run(flows.raw(self._to, method, path, query, body, idempotency_key))

    # -- doing the steps --

    def _run(self, flow: Flow[T]) -> T:
        steps = self._rim.drive(flow)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    def _iterate(self, flow: Flow[None]) -> Iterator[Any]:
        return self._rim.drive(flow)


class Jobs:
    """Jobs: many items for one pool. ``client.jobs``; a job is named by its id or its name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._to = client._to

    def create(self, pool: str, items: Iterable[Any], *, idempotency_key: Optional[str] = None, **options: Any) -> Json:
        """Creates a job. Options: ``name``, ``pilot``, ``max_cost`` such as ``"$5"``, ``concurrency``, ``attempts``, ``timeout``, …"""
        return self._client._run(flows.create_job(self._to, pool, items, options, idempotency_key))

    def list(self, *, limit: Optional[int] = None, before: Optional[str] = None) -> JsonList:
        """The newest jobs; ``before``: of those older than this id, as that of the last job of a page."""
        return self._client._run(flows.get(self._to, "jobs", query={"limit": limit, "before": before}))

    def show(self, job: str) -> Json:
        """A job, with its counts and what it may spend."""
        return self._client._run(flows.get(self._to, "jobs", job))

    def wait(self, job: str, timeout: Optional[Time] = None) -> Json:
        """Waits until all items have ended. Items that wait for approval have not."""
        return self._client._run(flows.until(self._to, ("jobs", job), flows.job_ended, timeout))

    def wait_pilot(self, job: str, timeout: Optional[Time] = None) -> Json:
        """Waits until as many items have ended as the pilot has."""
        return self._client._run(flows.until(self._to, ("jobs", job), flows.pilot_ended, timeout))

    def results(self, job: str) -> Iterator[Json]:
        """The results of all items in their order. Raises if the connection is cut before the last one."""
        return self._client._iterate(flows.lines(self._to, "jobs", job, "results"))

    def approve(self, job: str) -> Json:
        """Lets the items that wait for the pilot run."""
        return self._act(job, "approve")

    def reject(self, job: str) -> Json:
        """Cancels the items that wait for the pilot."""
        return self._act(job, "reject")

    def pause(self, job: str) -> Json:
        """Starts no item until the job is resumed."""
        return self._act(job, "pause")

    def resume(self, job: str, *, max_cost: Optional[str] = None) -> Json:
        """Lets the items start again, with another budget if one is given."""
        return self._act(job, "resume", {"max_cost": max_cost})

    def cancel(self, job: str) -> Json:
        """Cancels the unfinished items."""
        return self._act(job, "cancel")

    def retry_failed(self, job: str, *, from_scratch: Optional[bool] = None) -> Json:
        """Runs the failed items again."""
        return self._act(job, "retry-failed", {"from_scratch": from_scratch})

    def set_concurrency(self, job: str, items: int) -> Json:
        """How many items run at once, on each node that runs the job."""
        return self._act(job, "concurrency", {"items": items})

    def add(self, job: str, items: Iterable[Any]) -> Json:
        """Adds items."""
        return self._client._run(flows.add_items(self._to, job, items))

    def remove(self, job: str) -> Json:
        """Removes a job that no node is running, with its tasks."""
        return self._client._run(flows.change(self._to, "jobs", job, method="DELETE"))

    def _act(self, job: str, verb: str, body: Optional[Json] = None) -> Json:
        return self._client._run(flows.change(self._to, "jobs", job, verb, body=flows.fields(body or {})))


# ---- sockets ----


class _Idle(NamedTuple):
    socket: socket.socket
    since: float
    process: int


class _Sockets:
    """The rim: does the steps of flows with blocking sockets, and keeps some connections for the next request."""

    def __init__(self, to: Address, token: Optional[str], timeout: float) -> None:
        self._to, self._token, self._timeout = to, token, timeout
        self._answered = False
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for kept in idle:
            kept.socket.close()

    def drive(self, flow: Flow[T]) -> Generator[Any, None, T]:
        """Does the steps of one flow. Its stream is closed with it, also if the caller leaves the iteration."""
        stream: Optional[_Stream] = None
        lost: Optional[Lost] = None
        value: Any = None
        try:
            while True:
                step: Step = flow.throw(lost) if lost is not None else flow.send(value)
                value, lost = None, None
                try:
                    if isinstance(step, Request):
                        value = self._exchange(step)
                    elif isinstance(step, flows.Sleep):
                        time.sleep(max(0.0, step.seconds))
                    elif isinstance(step, flows.Emit):
                        yield step.value
                    elif isinstance(step, flows.Open):
                        if stream is not None:
                            stream.close()
                        stream = self._open(step.request)
                        value = stream.answer
                    else:
                        assert stream is not None, "a flow opens a stream before it reads"
                        value = stream.read()
                except Lost as error:
                    lost = error
        except StopIteration as end:
            return end.value
        finally:
            if stream is not None:
                stream.close()

    def _exchange(self, request: Request) -> Answer:
        # A kept connection may have been closed meanwhile, and what cannot be repeated needs one that certainly was not.
        connection = self._kept() if request.repeatable else None
        connection = connection or self._connect()
        reader, body = AnswerReader(), bytearray()
        try:
            self._send(connection, request, "keep-alive")
            connection.settimeout(self._timeout + request.wait_s)
            while not reader.done:
                body += reader.feed(_receive(connection))
                if len(body) > MAX_ANSWER_BYTES:
                    raise Lost(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        except BaseException:
            connection.close()
            raise
        self._answered = True
        self._keep(connection) if reader.reusable else connection.close()
        return Answer(reader.status, reader.headers, bytes(body))

    def _open(self, request: Request) -> "_Stream":
        connection = self._connect()
        try:
            self._send(connection, request, "close")
            stream = _Stream(connection)
        except BaseException:
            connection.close()
            raise
        self._answered = True
        return stream

    def _connect(self) -> socket.socket:
        try:
            if self._to.scheme == "unix":
                connection = socket.socket(socket.AF_UNIX)
                try:
                    connection.settimeout(self._timeout)
                    connection.connect(self._to.host)
                except BaseException:
                    connection.close()
                    raise
                return connection
            connection = socket.create_connection((self._to.host, self._to.port), self._timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._to.scheme == "https":
                return ssl.create_default_context().wrap_socket(connection, server_hostname=self._to.host)
            return connection
        except OSError as error:
            raise Lost(error.strerror or str(error), unknown=not self._answered) from error

    def _send(self, connection: socket.socket, request: Request, mode: str) -> None:
        data = request_bytes(request, self._to, self._token, mode)
        try:
            connection.settimeout(self._timeout)
            connection.sendall(data)
        except OSError as error:
            raise Lost(f"the request could not be sent: {error.strerror or error}") from error

    def _kept(self) -> Optional[socket.socket]:
        now, process = time.monotonic(), os.getpid()
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return None
            # A child of a fork must not speak on its parent's connections.
            if kept.process == process and now - kept.since < MAX_IDLE_S:
                return kept.socket
            kept.socket.close()

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append(_Idle(connection, time.monotonic(), os.getpid()))
                return
        connection.close()


class _Stream:
    """An answer that is read piece by piece."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = AnswerReader()
        self._first = b""
        while not self._reader.status:
            self._first = self._reader.feed(_receive(connection))
        while self._reader.status != 200 and not self._reader.done and len(self._first) < READ_BYTES:
            self._first += self._reader.feed(_receive(connection))
        body = b"" if self._reader.status == 200 else self._first
        self.answer = Answer(self._reader.status, self._reader.headers, body)
        connection.settimeout(STREAM_SILENCE_S)

    def read(self) -> bytes:
        piece, self._first = self._first, b""
        while not piece and not self._reader.done:
            piece = self._reader.feed(_receive(self._connection))
        return piece

    def close(self) -> None:
        self._connection.close()


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(READ_BYTES)
    except socket.timeout as error:
        raise Lost("nothing came in time") from error
    except OSError as error:
        raise Lost(f"the connection was lost: {error.strerror or error}") from error

"""The client for asyncio: the methods of `Client`, awaited, and its iterators with ``async for``.

    async with AsyncClient(token_file="jobs.db.token") as client:
        task = await client.submit("texts", "count", {"text": "to be or not"})
        async for event in client.follow(task):
            print(event["data"])

A cancelled call closes its connection. Each request has a connection of its own.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Optional, TypeVar, Union

from . import _flows as flows
from ._flows import Flow, Step, Submitted, TaskName, Time
from ._http import MAX_ANSWER_BYTES, Answer, AnswerReader, Lost, Request, request_bytes
from ._settings import settings
from .client import READ_BYTES, STREAM_SILENCE_S, Json, JsonList

__all__ = ["AsyncClient", "AsyncJobs"]

T = TypeVar("T")


class AsyncClient:
    """A client for asyncio. `Client` describes the methods and the arguments."""

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        token_file: "Optional[Union[str, os.PathLike[str]]]" = None,
        timeout: float = 30.0,
    ) -> None:
        self._to, self._token, self._timeout = settings(url, token, token_file, timeout)
        self._answered = False
        self.jobs = AsyncJobs(self)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """For programs that close what they open: no connection outlives its request."""

    # -- submit --

    async def submit(self, queue: str, kind: str, payload: Any = None, *, idempotency_key: Optional[str] = None, **options: Any) -> Submitted:
        return await self._run(flows.submit(self._to, {**options, "queue": queue, "kind": kind, "payload": payload}, idempotency_key))

    async def submit_many(self, tasks: Iterable[Mapping[str, Any]], *, idempotency_key: Optional[str] = None) -> list[Submitted]:
        return await self._run(flows.submit_many(self._to, tasks, idempotency_key))

    async def run(
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
        settings = {"max_iterations": max_iterations, "model": model}
        return await self._run(flows.run(self._to, prompt, pool, id, settings, options, idempotency_key))

    async def continue_task(self, task: TaskName, prompt: str, *, to: Optional[str] = None, queue: Optional[str] = None) -> Submitted:
        return await self._run(flows.continue_task(self._to, task, prompt, to, queue))

    # -- look --

    async def task(self, task: TaskName, *, queue: Optional[str] = None) -> Json:
        return await self._run(flows.get(self._to, "tasks", flows.name_of(task), query={"queue": queue}))

    async def result(self, task: TaskName, wait: Optional[Time] = None, queue: Optional[str] = None) -> Any:
        return await self._run(flows.result(self._to, task, wait, queue))

    async def wait(self, task: TaskName, timeout: Optional[Time] = None, *, queue: Optional[str] = None) -> Json:
        return await self._run(flows.wait(self._to, task, timeout, queue))

    async def wait_many(self, tasks: Iterable[TaskName], timeout: Optional[Time] = None) -> JsonList:
        return await self._run(flows.wait_many(self._to, tasks, timeout))

    def as_completed(self, tasks: Iterable[TaskName], timeout: Optional[Time] = None) -> AsyncIterator[Json]:
        return self._iterate(flows.as_completed(self._to, tasks, timeout))

    def follow(self, task: TaskName, after: Optional[int] = None, *, queue: Optional[str] = None, raw: bool = False) -> AsyncIterator[Json]:
        return self._iterate(flows.follow(self._to, task, after, queue, raw))

    async def task_events(self, task: TaskName, after: Optional[int] = None, *, queue: Optional[str] = None, raw: bool = False) -> Json:
        query = {"after": after, "queue": queue, "raw": raw or None}
        return await self._run(flows.get(self._to, "tasks", flows.name_of(task), "log", query=query))

    def tasks(self, **filters: Any) -> AsyncIterator[Json]:
        return self._iterate(flows.pages(self._to, "tasks", "tasks", filters))

    async def task_page(self, **filters: Any) -> Json:
        return await self._run(flows.get(self._to, "tasks", query=flows.fields(filters)))

    async def file(self, task: TaskName, path: str) -> bytes:
        return await self._run(flows.file(self._to, task, path))

    # -- act --

    async def cancel(self, task: TaskName, *, queue: Optional[str] = None) -> Json:
        return await self._run(flows.change(self._to, "tasks", flows.name_of(task), "cancel", query={"queue": queue}))

    async def retry(self, task: TaskName, *, queue: Optional[str] = None, **options: Any) -> Json:
        return await self._run(flows.again(self._to, "tasks", task, "retry", queue, options))

    async def amend(self, task: TaskName, *, queue: Optional[str] = None, **options: Any) -> Json:
        return await self._run(flows.again(self._to, "tasks", task, "amend", queue, options))

    def dead(self, **filters: Any) -> AsyncIterator[Json]:
        return self._iterate(flows.pages(self._to, "dead", "letters", filters))

    async def dead_letter(self, task: TaskName, *, queue: Optional[str] = None) -> Json:
        return await self._run(flows.get(self._to, "dead", flows.name_of(task), query={"queue": queue}))

    async def replay(self, task: TaskName, *, queue: Optional[str] = None, **options: Any) -> Json:
        return await self._run(flows.again(self._to, "dead", task, "replay", queue, options))

    async def drop(self, task: TaskName, *, queue: Optional[str] = None) -> Json:
        return await self._run(flows.change(self._to, "dead", flows.name_of(task), method="DELETE", query={"queue": queue}))

    async def act(
        self,
        action: str,
        filter: Mapping[str, Any],
        *,
        preview: bool = False,
        cutoff: Optional[str] = None,
        from_scratch: Optional[bool] = None,
    ) -> Json:
        return await self._run(flows.act(self._to, action, filter, preview, cutoff, from_scratch))

    async def actions(self) -> JsonList:
        return await self._run(flows.get(self._to, "tasks", "actions"))

    async def action(self, id: str) -> Json:
        return await self._run(flows.get(self._to, "tasks", "actions", id))

    async def wait_action(self, id: str, timeout: Optional[Time] = None) -> Json:
        return await self._run(flows.until(self._to, ("tasks", "actions", id), flows.action_ended, timeout))

    async def stop_action(self, id: str) -> Json:
        return await self._run(flows.change(self._to, "tasks", "actions", id, "stop"))

    # -- the system --

    async def pause(self, queue: str, *, reason: Optional[str] = None) -> Json:
        return await self._run(flows.change(self._to, "queues", queue, "pause", body=flows.fields({"reason": reason})))

    async def resume(self, queue: str) -> Json:
        return await self._run(flows.change(self._to, "queues", queue, "resume"))

    async def queues(self, *, all: bool = False) -> JsonList:
        return await self._run(flows.get(self._to, "queues", query={"all": all or None}))

    async def stats(self, queue: Optional[str] = None) -> Json:
        return await self._run(flows.get(self._to, "stats", query={"queue": queue}))

    async def nodes(self) -> JsonList:
        return await self._run(flows.get(self._to, "nodes"))

    async def workers(self) -> JsonList:
        return await self._run(flows.get(self._to, "workers"))

    async def doctor(self) -> JsonList:
        return await self._run(flows.get(self._to, "doctor"))

    def live(self) -> AsyncIterator[Json]:
        return self._iterate(flows.live(self._to))

    async def request(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> Any:
        return await self._run(flows.raw(self._to, method, path, query, body, idempotency_key))

    # -- doing the steps --

    async def _run(self, flow: Flow[T]) -> T:
        ends: list[T] = []
        async for _ in self._drive(flow, ends):
            raise AssertionError("a flow without an iterator emits nothing")
        return ends[0]

    def _iterate(self, flow: Flow[None]) -> AsyncIterator[Any]:
        return self._drive(flow, [])

    async def _drive(self, flow: Flow[T], ends: "list[T]") -> AsyncIterator[Any]:
        """Does the steps of one flow. Its stream is closed with it, also if the caller is cancelled or leaves the iteration.

        An async generator cannot return a value: that of the flow is added to ``ends``.
        """
        stream: Optional[_Stream] = None
        lost: Optional[Lost] = None
        value: Any = None
        try:
            while True:
                try:
                    step: Step = flow.throw(lost) if lost is not None else flow.send(value)
                except StopIteration as end:
                    ends.append(end.value)
                    return
                value, lost = None, None
                try:
                    if isinstance(step, Request):
                        value = await self._exchange(step)
                    elif isinstance(step, flows.Sleep):
                        await asyncio.sleep(max(0.0, step.seconds))
                    elif isinstance(step, flows.Emit):
                        yield step.value
                    elif isinstance(step, flows.Open):
                        if stream is not None:
                            stream.close()
                        stream = await self._open(step.request)
                        value = stream.answer
                    else:
                        assert stream is not None, "a flow opens a stream before it reads"
                        value = await stream.read()
                except Lost as error:
                    lost = error
        finally:
            if stream is not None:
                stream.close()

    async def _exchange(self, request: Request) -> Answer:
        stream = await self._open(request)
        try:
            body = bytearray(stream.answer.body)
            while True:
                piece = await stream.read()
                if not piece:
                    return stream.answer._replace(body=bytes(body))
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise Lost(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        finally:
            stream.close()

    async def _open(self, request: Request) -> "_Stream":
        data = request_bytes(request, self._to, self._token, "close")
        try:
            connecting = self._connect()
            reader, writer = await asyncio.wait_for(connecting, self._timeout)
        except (OSError, asyncio.TimeoutError) as error:
            why = "the connection was not accepted in time" if isinstance(error, asyncio.TimeoutError) else str(error.strerror or error)
            raise Lost(why, unknown=not self._answered) from error
        stream = _Stream(reader, writer)
        try:
            await stream.begin(data, self._timeout, request.wait_s)
        except BaseException:
            stream.close()
            raise
        self._answered = True
        return stream

    async def _connect(self) -> "tuple[asyncio.StreamReader, asyncio.StreamWriter]":
        if self._to.scheme == "unix":
            return await asyncio.open_unix_connection(self._to.host)
        tls = ssl.create_default_context() if self._to.scheme == "https" else None
        return await asyncio.open_connection(self._to.host, self._to.port, ssl=tls)


class _Stream:
    """One connection, and its answer, piece by piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._source, self._writer = reader, writer
        self._reader = AnswerReader()
        self._first = b""
        self._silence_s = 0.0
        self.answer = Answer(0, {}, b"")

    async def begin(self, data: bytes, timeout: float, wait_s: float) -> None:
        """Sends the request, and reads the head of the answer; of one that is no success, the body too."""
        self._writer.write(data)
        try:
            await asyncio.wait_for(self._writer.drain(), timeout)
        except (OSError, asyncio.TimeoutError) as error:
            raise Lost(f"the request could not be sent: {error}") from error
        self._silence_s = timeout + wait_s
        while not self._reader.status:
            self._first = self._reader.feed(await self._receive())
        while self._reader.status != 200 and not self._reader.done and len(self._first) < READ_BYTES:
            self._first += self._reader.feed(await self._receive())
        body = b""
        if self._reader.status != 200:
            body, self._first = self._first, b""
        self.answer = Answer(self._reader.status, self._reader.headers, body)
        self._silence_s = max(self._silence_s, STREAM_SILENCE_S)

    async def read(self) -> bytes:
        piece, self._first = self._first, b""
        while not piece and not self._reader.done:
            piece = self._reader.feed(await self._receive())
        return piece

    def close(self) -> None:
        self._writer.close()

    async def _receive(self) -> bytes:
        try:
            return await asyncio.wait_for(self._source.read(READ_BYTES), self._silence_s)
        except asyncio.TimeoutError as error:
            raise Lost("nothing came in time") from error
        except OSError as error:
            raise Lost(f"the connection was lost: {error.strerror or error}") from error


class AsyncJobs:
    """Jobs: many items for one pool. ``client.jobs``; `Jobs` describes the methods."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._to = client._to

    async def create(self, pool: str, items: Iterable[Any], *, idempotency_key: Optional[str] = None, **options: Any) -> Json:
        return await self._client._run(flows.create_job(self._to, pool, items, options, idempotency_key))

    async def list(self, *, limit: Optional[int] = None, before: Optional[str] = None) -> JsonList:
        return await self._client._run(flows.get(self._to, "jobs", query={"limit": limit, "before": before}))

    async def show(self, job: str) -> Json:
        return await self._client._run(flows.get(self._to, "jobs", job))

    async def wait(self, job: str, timeout: Optional[Time] = None) -> Json:
        return await self._client._run(flows.until(self._to, ("jobs", job), flows.job_ended, timeout))

    async def wait_pilot(self, job: str, timeout: Optional[Time] = None) -> Json:
        return await self._client._run(flows.until(self._to, ("jobs", job), flows.pilot_ended, timeout))

    def results(self, job: str) -> AsyncIterator[Json]:
        return self._client._iterate(flows.lines(self._to, "jobs", job, "results"))

    async def approve(self, job: str) -> Json:
        return await self._act(job, "approve")

    async def reject(self, job: str) -> Json:
        return await self._act(job, "reject")

    async def pause(self, job: str) -> Json:
        return await self._act(job, "pause")

    async def resume(self, job: str, *, max_cost: Optional[str] = None) -> Json:
        return await self._act(job, "resume", {"max_cost": max_cost})

    async def cancel(self, job: str) -> Json:
        return await self._act(job, "cancel")

    async def retry_failed(self, job: str, *, from_scratch: Optional[bool] = None) -> Json:
        return await self._act(job, "retry-failed", {"from_scratch": from_scratch})

    async def set_concurrency(self, job: str, items: int) -> Json:
        return await self._act(job, "concurrency", {"items": items})

    async def add(self, job: str, items: Iterable[Any]) -> Json:
        return await self._client._run(flows.add_items(self._to, job, items))

    async def remove(self, job: str) -> Json:
        return await self._client._run(flows.change(self._to, "jobs", job, method="DELETE"))

    async def _act(self, job: str, verb: str, body: Optional[Json] = None) -> Json:
        return await self._client._run(flows.change(self._to, "jobs", job, verb, body=flows.fields(body or {})))

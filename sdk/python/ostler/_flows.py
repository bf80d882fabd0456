"""What each call of a client does, without I/O: generators that yield a step and are sent its result.

A rim (`Client`, `AsyncClient`) does the steps: it sends a request, sleeps, reads from a stream, hands a value to the caller. So paging,
repeats, long polls and reconnects are written once, and are the same in both.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, Optional, TypeVar, Union

from ._errors import Invalid, NotFinished, OstlerError, TaskCancelled, TaskFailed, Unreachable, of_answer
from ._http import Address, Answer, EventReader, LineReader, Lost, Request, json_body, path_of, unreachable

T = TypeVar("T")

# How often one request is sent at most, and the pauses between: a restart of a node fits into them.
MAX_SENDS = 6
FIRST_PAUSE_S = 0.25
MAX_PAUSE_S = 5.0
# A node that asks for a longer pause is not waited for.
MAX_RETRY_AFTER_S = 30.0
# One long poll: below the minute after which proxies lose patience.
MAX_POLL_S = 30.0
# An answer that comes too early, as from a node that stops, is not asked for again at once.
EARLY_PAUSE_S = 0.2
# A chunk of tasks is one request and one transaction. The API takes more; a node answers these long before the timeout.
CHUNK_TASKS = 500
CHUNK_BYTES = 256 * 1024
MAX_ITEMS = 100_000
# While the first of many tasks is waited for, this many others are looked at, this often.
LOOK_TASKS = 64
LOOK_EVERY_S = 0.5
# How often a job or an action is looked at: the API has no long poll for them.
JOB_POLL_S = 0.25
# A stream that lasted this long was a good one: a cut after it begins a new count of reconnects.
GOOD_STREAM_S = 5.0

# The kind of a prompt for a pool of agents.
RUN_KIND = "run"
ENDED = ("completed", "failed", "cancelled")
# The parts of the overview; a node may send more.
LIVE_SECTIONS = frozenset(("stats", "queues", "nodes", "workers"))
REPEATED_STATUSES = (429, 502, 503, 504)

Time = Union[str, float, timedelta]
_SPANS = ("in", "key_for", "deadline", "timeout")
_MOMENTS = ("at", "not_after", "failed_since", "failed_until", "ended_since", "ended_until")
TASK_FIELDS = frozenset(
    "queue kind payload priority key key_for key_until if_taken in at attempts timeout deadline not_after after if_failed cost "
    "limit_key folder traceparent id".split()
)


class Sleep(NamedTuple):
    seconds: float


class Open(NamedTuple):
    """Opens a stream. The answer has a body only if its status is not 200."""

    request: Request


class Read(NamedTuple):
    """The next piece of the stream that is open; empty: its end."""


class Emit(NamedTuple):
    """A value for the caller of an iterator."""

    value: Any


Step = Union[Request, Sleep, Open, Read, Emit]
Flow = Generator[Step, Any, T]


class Submitted(NamedTuple):
    """What became of a submitted task."""

    id: Optional[str]
    """The task's id; if its key was taken, that of the task that has it. ``None``: there is no task."""
    result: str
    """``created``, ``existing``, ``replaced``; from ``submit_many`` also ``rejected``, ``queue_full``, ``id_taken``, ``no_such_task``."""


TaskName = Union[str, Submitted]


def name_of(task: TaskName) -> str:
    name = task if isinstance(task, str) else task.id
    if not name:
        raise Invalid("invalid", "there is no task: nothing was enqueued", {"field": "id"})
    return name


# ---- one request ----


def send(to: Address, request: Request, opens: type[Any] = Request) -> Flow[Answer]:
    """Sends a request, and repeats it if that is safe and may help. Raises what the answer says if it is no success."""
    for sends in range(1, MAX_SENDS + 1):
        last = sends == MAX_SENDS or not request.repeatable
        try:
            answer: Answer = yield (Open(request) if opens is Open else request)
        except Lost as lost:
            # If nothing has ever answered there, no node is up, and waiting does not change that.
            if last or lost.unknown:
                raise unreachable(to, lost.why) from lost
            yield Sleep(pause(sends))
            continue
        if answer.status < 300:
            return answer
        error = of_answer(answer.status, answer.json())
        wait = retry_wait(answer, error, sends)
        if last or wait is None:
            raise error
        yield Sleep(wait)
    raise AssertionError("the last send returns or raises")


def pause(sends: int) -> float:
    """Doubles, up to a bound; a random part keeps many clients apart."""
    return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ** (sends - 1)) * random.uniform(0.75, 1.0)


def retry_wait(answer: Answer, error: OstlerError, sends: int) -> Optional[float]:
    """How long to wait before a repeat; ``None``: it is of no use."""
    if answer.status not in REPEATED_STATUSES or error.code == "queue_full":
        # A full queue is for the caller to know: to wait here would hide that it submits too fast.
        return None
    told = answer.headers.get("retry-after", "")
    wait = max(pause(sends), float(told)) if told.isdigit() else pause(sends)
    return wait if wait <= MAX_RETRY_AFTER_S else None


def get(to: Address, *parts: str, query: Optional[dict[str, Any]] = None, wait_s: float = 0.0) -> Flow[Any]:
    return (yield from send(to, Request("GET", path_of(*parts, query=query), repeatable=True, wait_s=wait_s))).json()


def change(to: Address, *parts: str, method: str = "POST", query: Optional[dict[str, Any]] = None, body: Any = None) -> Flow[Any]:
    """A change without an idempotency key: never repeated."""
    data = json_body({} if body is None else body) if method != "DELETE" else None
    return (yield from send(to, Request(method, path_of(*parts, query=query), data))).json()


def keyed(to: Address, parts: tuple[str, ...], body: bytes, key: Optional[str], query: Optional[dict[str, Any]] = None) -> Flow[Any]:
    """A change that may be repeated: by its idempotency key, or by the ids in its body."""
    headers = () if key is None else (("Idempotency-Key", key),)
    return (yield from send(to, Request("POST", path_of(*parts, query=query), body, headers, repeatable=True))).json()


def raw(to: Address, method: str, path: str, query: Optional[Mapping[str, Any]], body: Any, key: Optional[str]) -> Flow[Any]:
    """Any request of the API, for what has no method here."""
    whole = path if path.startswith("/") else f"/api/v1/{path}"
    whole += path_of("x", query=dict(query or {}))[len("/api/v1/x") :]
    headers = () if key is None else (("Idempotency-Key", key),)
    data = None if body is None else json_body(body)
    repeatable = method == "GET" or key is not None
    return (yield from send(to, Request(method, whole, data, headers, repeatable))).json()


# ---- fields ----


def new_key() -> str:
    return uuid.uuid4().hex


def fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the API has them: ``in_`` and ``class_`` lose their underscore, numbers and dates become text, ``None`` goes."""
    named: dict[str, Any] = {}
    for name, value in given.items():
        name = name[:-1] if name.endswith("_") else name
        if value is None and name != "payload":
            continue
        if name in _SPANS and value is not None:
            value = span_text(name, value)
        elif name in _MOMENTS and isinstance(value, datetime):
            if value.tzinfo is None:
                raise Invalid("invalid", f"{name}: a datetime needs a time zone", {"field": name})
            value = value.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        named[name] = value
    return named


def span_text(name: str, span: Time) -> str:
    """``"5m"`` stays; seconds and a timedelta become milliseconds."""
    if isinstance(span, str):
        return span
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not 0 <= seconds < float("inf"):
        raise Invalid("invalid", f"{name}: expected seconds, a timedelta, or a text such as 5m", {"field": name})
    return f"{max(1, round(seconds * 1000))}ms"


def seconds_of(name: str, span: Time) -> float:
    """For waits of the client itself, which has no reader for texts such as 5m."""
    if isinstance(span, str):
        raise Invalid("invalid", f"{name}: expected seconds or a timedelta", {"field": name})
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


# ---- submissions ----


def task_body(task: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    body = fields(task)
    for name in body:
        if name not in TASK_FIELDS:
            known = ", ".join(sorted(TASK_FIELDS))
            raise Invalid("invalid", f"{at}{name} is no option of a task: {known}", {"field": name})
    return body


def submit(to: Address, task: Mapping[str, Any], key: Optional[str]) -> Flow[Submitted]:
    body = task_body(task)
    # The API takes an id or an idempotency key, and either makes a repeat safe.
    key = key or (None if "id" in body else new_key())
    answer = yield from keyed(to, ("tasks",), json_body(body), key)
    return Submitted(answer["id"], answer["result"])


def run(to: Address, prompt: str, pool: str, id: Optional[str], settings: dict[str, Any], options: dict[str, Any], key: Optional[str]) -> Flow[Submitted]:
    """A prompt for a pool of agents. Settings that are ``None`` are those of the pool."""
    payload = {"prompt": prompt, **{name: value for name, value in settings.items() if value is not None}}
    task = {**options, "queue": pool, "kind": RUN_KIND, "payload": payload, "key": id}
    return (yield from submit(to, task, key))


def chunks(tasks: Iterable[Mapping[str, Any]]) -> Generator[tuple[list[bytes], bool], None, None]:
    """Tasks as JSON, in chunks within the bounds, and whether they have ids of their own: those take no idempotency key."""
    chunk: list[bytes] = []
    size, own_ids = 0, False
    for place, task in enumerate(tasks):
        body = task_body(task, f"task {place + 1}: ")
        text = json_body(body)
        if chunk and (len(chunk) == CHUNK_TASKS or size + len(text) > CHUNK_BYTES or own_ids != ("id" in body)):
            yield chunk, own_ids
            chunk, size = [], 0
        own_ids = "id" in body
        chunk.append(text)
        size += len(text) + 1
    if chunk:
        yield chunk, own_ids


def submit_many(to: Address, tasks: Iterable[Mapping[str, Any]], key: Optional[str]) -> Flow[list[Submitted]]:
    done: list[Submitted] = []
    for number, (chunk, own_ids) in enumerate(chunks(tasks)):
        chunk_key = None if own_ids else (f"{key}-{number}" if key else new_key())
        body = b'{"tasks":[' + b",".join(chunk) + b"]}"
        answer = yield from keyed(to, ("tasks",), body, chunk_key)
        done += [Submitted(line.get("id"), line["result"]) for line in answer["tasks"]]
    return done


# ---- results ----


def output_of(waited: dict[str, Any]) -> Any:
    """The output, or an error that says why there is none."""
    state: str = waited["state"]
    error: dict[str, Any] = waited.get("error") or {}
    if state == "completed":
        return waited.get("output")
    if state == "failed":
        raise TaskFailed("task_failed", str(error.get("message", "the task failed")), waited)
    if state == "cancelled":
        raise TaskCancelled("task_cancelled", str(error.get("message", f"task {waited['id']} was cancelled")), waited)
    raise NotFinished("not_finished", f"task {waited['id']} has not ended: it is {state}", waited)


def poll(to: Address, task: str, queue: Optional[str], wait_s: float) -> Flow[dict[str, Any]]:
    """One long poll; the task may not have ended."""
    wait_s = min(wait_s, MAX_POLL_S)
    query = {"queue": queue, "wait": span_text("wait", wait_s) if wait_s > 0 else None}
    return (yield from get(to, "tasks", task, "result", query=query, wait_s=wait_s))


def wait(to: Address, task: TaskName, timeout: Optional[Time], queue: Optional[str]) -> Flow[dict[str, Any]]:
    """Long polls until the task has ended."""
    name = name_of(task)
    end = deadline(timeout)
    while True:
        before = time.monotonic()
        waited = yield from poll(to, name, queue, end - before)
        if waited["state"] in ENDED:
            return waited
        now = time.monotonic()
        if now >= end:
            output_of(waited)
        if now - before < EARLY_PAUSE_S:
            yield Sleep(min(EARLY_PAUSE_S, end - now))


def deadline(timeout: Optional[Time]) -> float:
    return float("inf") if timeout is None else time.monotonic() + seconds_of("timeout", timeout)


def result(to: Address, task: TaskName, wait_for: Optional[Time], queue: Optional[str]) -> Flow[Any]:
    if wait_for is None:
        return output_of((yield from poll(to, name_of(task), queue, 0)))
    return output_of((yield from wait(to, task, wait_for, queue)))


def wait_many(to: Address, tasks: Iterable[TaskName], timeout: Optional[Time]) -> Flow[list[dict[str, Any]]]:
    end = deadline(timeout)
    ended: list[dict[str, Any]] = []
    for task in tasks:
        left = None if end == float("inf") else max(0.0, end - time.monotonic())
        ended.append((yield from wait(to, task, left, None)))
    return ended


def as_completed(to: Address, tasks: Iterable[TaskName], timeout: Optional[Time]) -> Flow[None]:
    """Waits for the first task, and looks at some of the others now and then: queues are mostly first in, first out."""
    end = deadline(timeout)
    pending = deque(dict.fromkeys(name_of(task) for task in tasks))
    look_at = time.monotonic() + LOOK_EVERY_S
    while pending:
        before = time.monotonic()
        alone = len(pending) == 1
        waited = yield from poll(to, pending[0], None, min(end - before, MAX_POLL_S if alone else max(0.0, look_at - before)))
        now = time.monotonic()
        if waited["state"] in ENDED:
            pending.popleft()
            yield Emit(waited)
        elif now >= end:
            output_of(waited)
        elif alone and now - before < EARLY_PAUSE_S:
            yield Sleep(min(EARLY_PAUSE_S, end - now))
        if pending and now >= look_at:
            yield from look_around(to, pending)
            look_at = time.monotonic() + LOOK_EVERY_S


def look_around(to: Address, pending: "deque[str]") -> Flow[None]:
    """Looks at the tasks behind the first one; those that go on move to the end, so that each has its turn."""
    first = pending.popleft()
    for _ in range(min(LOOK_TASKS, len(pending))):
        name = pending.popleft()
        waited = yield from poll(to, name, None, 0)
        if waited["state"] in ENDED:
            yield Emit(waited)
        else:
            pending.append(name)
    pending.appendleft(first)


# ---- lists and streams ----


def pages(to: Address, path: str, member: str, filters: Mapping[str, Any]) -> Flow[None]:
    """All pages. An empty page with a cursor is not the end: the node looks at a bounded number of tasks for each."""
    query = fields(filters)
    while True:
        page = yield from get(to, path, query=query)
        for row in page[member]:
            yield Emit(row)
        query["cursor"] = page.get("cursor")
        if query["cursor"] is None:
            return


class Cuts:
    """How often a stream was cut since it last brought something. Too many cuts in a row are an error."""

    def __init__(self, to: Address) -> None:
        self.to = to
        self.count = 0

    def is_good(self) -> None:
        self.count = 0

    def after(self, opened: float, why: str) -> Sleep:
        self.count = 1 if time.monotonic() - opened >= GOOD_STREAM_S else self.count + 1
        if self.count >= MAX_SENDS:
            raise unreachable(self.to, why)
        return Sleep(pause(self.count))


def follow(to: Address, task: TaskName, after: Optional[int], queue: Optional[str], with_raw: bool) -> Flow[None]:
    """Events up to the end of the task. After a cut it goes on behind the last event: none is left out, none comes twice."""
    query = {"queue": queue, "after": after, "raw": True if with_raw else None}
    path = path_of("tasks", name_of(task), "events", query=query)
    last, cuts = after or 0, Cuts(to)
    headers: tuple[tuple[str, str], ...] = ()
    while True:
        answer = yield from send(to, Request("GET", path, headers=headers, repeatable=True), Open)
        if answer.status == 204:
            return
        opened, reader = time.monotonic(), EventReader()
        why = "the stream was cut"
        try:
            while True:
                piece: bytes = yield Read()
                if not piece:
                    break
                for event in reader.feed(piece):
                    if event.name == "end":
                        return
                    if event.name != "message" or event.id is None or int(event.id) <= last:
                        continue
                    last = int(event.id)
                    cuts.is_good()
                    yield Emit(json.loads(event.data))
        except Lost as lost:
            why = lost.why
        headers = (("Last-Event-ID", str(last)),)
        yield cuts.after(opened, why)


def live(to: Address) -> Flow[None]:
    """The overview: its whole newest state, again after each change. After a cut only what has changed meanwhile is sent."""
    path = path_of("live")
    state: dict[str, Any] = {}
    last, cuts = "", Cuts(to)
    while True:
        headers = (("Last-Event-ID", last),) if last else ()
        yield from send(to, Request("GET", path, headers=headers, repeatable=True), Open)
        opened, reader = time.monotonic(), EventReader()
        why = "the stream was cut"
        try:
            while True:
                piece: bytes = yield Read()
                if not piece:
                    break
                changed = False
                for event in reader.feed(piece):
                    if event.name == "reset":
                        # Another start of the node, which sends everything anew.
                        state, last = {}, ""
                        continue
                    last = event.id or last
                    cuts.is_good()
                    if event.name in LIVE_SECTIONS:
                        state = {**state, event.name: json.loads(event.data)}
                        changed = True
                if changed and len(state) == len(LIVE_SECTIONS):
                    yield Emit(state)
        except Lost as lost:
            why = lost.why
        yield cuts.after(opened, why)


def lines(to: Address, *parts: str) -> Flow[None]:
    """A JSON object per line. A cut is an error: the caller must not take a part for the whole."""
    yield from send(to, Request("GET", path_of(*parts), repeatable=True), Open)
    reader = LineReader()
    while True:
        try:
            piece: bytes = yield Read()
            found = reader.feed(piece)
        except Lost as lost:
            raise Unreachable("incomplete", f"the results are not whole: {lost.why}", {"address": to.shown}) from lost
        for line in found:
            yield Emit(json.loads(line))
        if not piece:
            return


# ---- actions and jobs ----


def act(
    to: Address, action: str, filter: Mapping[str, Any], preview: bool, cutoff: Optional[str], from_scratch: Optional[bool]
) -> Flow[dict[str, Any]]:
    body = {"action": action, "filter": fields(filter), "preview": preview or None, "cutoff": cutoff, "from_scratch": from_scratch}
    data = json_body(fields(body))
    # The id of an action is made from what it does and from its cut-off: started twice, it is the same one.
    return (yield from keyed(to, ("tasks", "actions"), data, None))


def until(to: Address, parts: tuple[str, ...], ready: Any, timeout: Optional[Time]) -> Flow[dict[str, Any]]:
    """Looks at a job or an action until it is as wanted."""
    end = deadline(timeout)
    while True:
        seen = yield from get(to, *parts)
        if ready(seen):
            return seen
        now = time.monotonic()
        if now >= end:
            raise NotFinished("not_finished", f"{parts[-1]} has not ended: it is {seen['state']}", seen)
        yield Sleep(min(JOB_POLL_S, end - now))


def action_ended(action: dict[str, Any]) -> bool:
    return action["state"] != "running"


def job_ended(job: dict[str, Any]) -> bool:
    """All items have an end. The state alone does not say it: a cancelled job may have items that are still stopping."""
    counts = job["tasks"]
    return counts["queued"] + counts["claimed"] + counts["running"] == 0


def pilot_ended(job: dict[str, Any]) -> bool:
    counts = job["tasks"]
    return job_ended(job) or counts["completed"] + counts["failed"] + counts["cancelled"] >= (job.get("pilot") or 0)


def create_job(to: Address, pool: str, items: Iterable[Any], options: Mapping[str, Any], key: Optional[str]) -> Flow[dict[str, Any]]:
    rows = list(items)
    check_items(rows)
    body: dict[str, Any] = {**fields(options), "pool": pool, "items": rows}
    return (yield from keyed(to, ("jobs",), json_body(body), key or new_key()))


def check_items(items: list[Any]) -> None:
    if not 1 <= len(items) <= MAX_ITEMS:
        raise Invalid("invalid", f"items: expected 1 to {MAX_ITEMS} items, and there are {len(items)}", {"field": "items"})


def add_items(to: Address, job: str, items: Iterable[Any]) -> Flow[dict[str, Any]]:
    body = {"items": list(items)}
    check_items(body["items"])
    return (yield from change(to, "jobs", job, "items", body=body))


# ---- the rest of one task ----


def again(to: Address, path: str, task: TaskName, verb: str, queue: Optional[str], options: Mapping[str, Any]) -> Flow[dict[str, Any]]:
    return (yield from change(to, path, name_of(task), verb, query={"queue": queue}, body=fields(options)))


def continue_task(to: Address, task: TaskName, prompt: str, pool: Optional[str], queue: Optional[str]) -> Flow[Submitted]:
    body = json_body(fields({"prompt": prompt, "to": pool}))
    answer = yield from keyed(to, ("tasks", name_of(task), "continue"), body, new_key(), {"queue": queue})
    return Submitted(answer["id"], answer["result"])


def file(to: Address, task: TaskName, path: str) -> Flow[bytes]:
    parts = ("tasks", name_of(task), "files", *path.split("/"))
    return (yield from send(to, Request("GET", path_of(*parts), repeatable=True))).body

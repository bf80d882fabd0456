"""A program with types, as users write it. Pyright checks it: a line that must be wrong says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Optional, TypedDict

from ostler import AsyncClient, AsyncContext, Client, Context, GatewaySession, QueryResult, Submitted, TaskInfo, Tested, Worker

worker = Worker()


class Order(TypedDict):
    number: int


@worker.task("plain", attempts=5, timeout=30, backoff="fixed", base=timedelta(seconds=1), jitter=True)
def plain(payload: Order, ctx: Context) -> str:
    fetched: int = ctx.step("fetched", lambda: payload["number"])
    extra: Optional[int] = ctx.step_or_warn("extra", lambda: 1)
    ctx.session("s-1")
    ctx.message("Hello", "user")
    ctx.message("Hello", "robot")  # pyright: ignore[reportArgumentType]
    ctx.tool_result("c1", {"any": ["JSON"]}, error=True)
    ctx.usage(model="m", input_tokens=fetched, cost_usd=0.5)
    child: str = ctx.submit("child", {"n": extra}, queue="q", key="k", delay=timedelta(minutes=1))
    found: Optional[TaskInfo] = ctx.task(child)
    session: GatewaySession = ctx.gateway().create_session(user_id="u", workspace=ctx.folder)
    answer: QueryResult = session.run_query("Hello", max_iterations=3)
    ctx.run(answer.text, pool="runs", id="job_1", max_iterations=50)
    session.run_query(1)  # pyright: ignore[reportArgumentType]
    for event in session.stream("Hello", max_iterations=3):
        if event.type == "result":
            last: QueryResult = event
            ctx.log("info", last.session_id)
        elif event.type == "tool_call":
            ctx.log("info", f"{event.tool}: {event.input}")
    return found.state if found else "gone"


@worker.task("async")
async def later(payload: Order, ctx: AsyncContext) -> str:
    async def fetch() -> bytes:
        return b""

    fetched: bytes = await ctx.step("fetched", fetch)
    counted: int = await ctx.step("counted", lambda: len(fetched))
    await ctx.session(f"s-{counted}")
    child: str = await ctx.submit("child")
    found = await ctx.task(child)
    asked = await (await ctx.gateway().create_session()).run_query("Hello")
    async for event in (await ctx.gateway().create_session()).stream("Hello"):
        said: str = event.text
        ctx.log("info", said)
    await ctx.run(asked.text)
    return found.id if found else child


@worker.task("wrong", backoff="wild")  # pyright: ignore[reportArgumentType]
def wrong(payload: Order, ctx: Context) -> None: ...


tested: Tested = worker.test("plain", {"number": 1}, tasks=[TaskInfo("x", "failed", None, "no")])


with Client("unix:api.sock", token_file="jobs.db.token", timeout=5) as client:
    task: Submitted = client.submit("texts", "count", {"text": "to be"}, priority=5, in_=timedelta(minutes=1))
    prompted: Submitted = client.run("Tidy up", pool="runs", id="job_1", max_iterations=5, priority=3)
    many: list[Submitted] = client.submit_many({"queue": "texts", "kind": "count"} for _ in range(3))
    words: int = client.result(task, wait=60)["words"]
    states: list[str] = [end["state"] for end in client.as_completed([task, *many, "key:first"])]
    numbers: list[int] = [event["number"] for event in client.follow(task, after=3)]
    depths: list[int] = [now["stats"]["tasks"]["queued"] for now in client.live()]
    client.jobs.create("texts", ["a", {"b": 1}], pilot=1)
    client.wait(task, "5m", key=1)  # pyright: ignore[reportCallIssue]
    client.task(5)  # pyright: ignore[reportArgumentType]


async def ask(client: AsyncClient) -> str:
    task: Submitted = await client.submit("texts", "count")
    async for event in client.follow(task):
        print(event["data"])
    return (await client.wait(task, 60))["state"]

"""A program with types, as users write it. Pyright checks it: a line that must be wrong says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Optional, TypedDict

from ostler import AsyncContext, Context, TaskInfo, Tested, Worker

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
    return found.id if found else child


@worker.task("wrong", backoff="wild")  # pyright: ignore[reportArgumentType]
def wrong(payload: Order, ctx: Context) -> None: ...


tested: Tested = worker.test("plain", {"number": 1}, tasks=[TaskInfo("x", "failed", None, "no")])

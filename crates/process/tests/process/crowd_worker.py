"""A worker of the tests with async handlers only: it runs many tasks at once. What it does is its payload."""

import asyncio
import os
import sys

from ostler import worker

inside = 0
everyone = asyncio.Event()


@worker.task("k", attempts=5, timeout=30)
async def do(payload, ctx):
    return await WAYS[payload["do"]](payload["how"], ctx)


async def echo(how, ctx):
    return how


async def barrier(how, ctx):
    """Returns when this many are in it at once."""
    global inside
    inside += 1
    if inside == how:
        everyone.set()
    await everyone.wait()
    return os.getpid()


async def wait(how, ctx):
    ctx.log("info", "waiting")
    await asyncio.sleep(3600)


async def deaf(how, ctx):
    ctx.log("info", "waiting")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


async def die(how, ctx):
    os._exit(how)


async def garbage(how, ctx):
    ctx._link._sock.sendall(b"noise\n")
    await asyncio.sleep(3600)


async def prints(how, ctx):
    for part in "one", "two":
        print(part, how)
        await asyncio.sleep(0)
    print("no end of line", how, end="", file=sys.stderr)


async def converse(how, ctx):
    await ctx.session(f"s-{how}")
    ctx.prompt(f"prompt {how}")
    ctx.message(f"question {how}", "user")
    ctx.thinking(f"thought {how}")
    ctx.tool_call(f"c-{how}", "Read", {"path": how})
    done = await ctx.step("one", lambda: how)
    ctx.tool_result(f"c-{how}", [how], error=True)
    ctx.message(f"answer {how}")
    ctx.usage(model="m", input_tokens=3, output_tokens=4, cost_usd=0.25)
    return done


async def submit(how, ctx):
    first = await ctx.submit("child", how)
    second = await ctx.submit("child", how, queue="other", key="one", delay=1.5, id="01JC8Z0Q4M9T7N3V5X1B2D6F8H")
    found = await ctx.task(first)
    try:
        await ctx.submit("full")
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    return [first, second, found.state, found.output, found.error, await ctx.task(second), said]


WAYS = {
    "echo": echo, "barrier": barrier, "wait": wait, "deaf": deaf, "die": die, "garbage": garbage, "converse": converse,
    "submit": submit, "print": prints,
}  # fmt: skip

worker.run()

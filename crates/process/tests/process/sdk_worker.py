"""A worker of the tests, by the SDK for Python. What it does is its payload."""

import signal
import time

from ostler import TaskError, worker


@worker.task("k")
def do(payload, ctx):
    return WAYS[payload["do"]](payload["how"], ctx)


@worker.task("k-async")
async def do_async(payload, ctx):
    import asyncio

    ctx.log("info", "waiting")
    try:
        return await ctx.step("done", lambda: payload["how"]) if payload["do"] == "echo" else await asyncio.sleep(3600)
    finally:
        ctx.log("info", "cleaned up")


def echo(how, ctx):
    return how


def fail(how, ctx):
    error = TaskError(how["message"], step=how.get("step"), hint=how.get("hint"), retry_after=how.get("retry_after_ms", 0) / 1000)
    error.class_name = how["class"]
    raise error


def panics(how, ctx):
    raise RuntimeError("as requested")


def hang(how, ctx):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctx.log("info", "waiting")
    while True:
        time.sleep(600)


def stop(how, ctx):
    ctx.log("info", "waiting")
    ctx.sleep(3600)


def finish(how, ctx):
    ctx.log("info", "waiting")
    while not ctx.cancelled:
        sum(range(1000))
    return "finished"


def finish_after(how, ctx):
    finish(how, ctx)
    ctx.log("info", "stopping")
    time.sleep(how)


def big(how, ctx):
    return "x" * (how - 2)


def flood(how, ctx):
    for line in range(how):
        ctx.log("info", f"line {line}")


def steps(how, ctx):
    print("beginning")
    done = [ctx.step(name, lambda: f"did {name}") for name in how]
    ctx.step_or_warn("extra", lambda: {}["key"])
    ctx.progress(1, 2, "so far")
    return done


def secret(how, ctx):
    print("its value is " + ctx.secret(how))
    ctx.log("info", "value " + ctx.secret(how))
    ctx.secret("MISSING")


def previous_session(how, ctx):
    return ctx.previous_session


WAYS = {
    "echo": echo, "fail": fail, "raise": panics, "hang": hang, "stop": stop, "finish": finish, "finish-after": finish_after,
    "big": big, "flood": flood, "steps": steps, "secret": secret, "previous-session": previous_session,
}  # fmt: skip

worker.run()

"""The worker that the tests start: one handler for each thing to be seen."""

import asyncio
import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone

from ostler import AsyncContext, Context, QueueStop, Lost, Partial, Permanent, RateLimited, Transient, UsageLimit, worker

# Before it is ready: noise, without an end of line too.
print('{"type":"result","id":"noise"}')
sys.stdout.write("half a line")

later = threading.Event()
threads = []


@worker.task("echo")
def echo(payload, ctx: Context):
    return {
        "payload": payload,
        "seen": [ctx.id, ctx.kind, ctx.attempt, str(ctx.folder), ctx.timeout, ctx.cancelled, ctx.traceparent],
        "in time": ctx.timeout is not None and 0 < ctx.time_left() <= ctx.timeout,
    }


@worker.task("echo-async")
async def echo_async(payload, ctx: AsyncContext):
    await asyncio.sleep(0)
    return [payload, type(ctx).__name__]


@worker.task("notes")
def notes(payload, ctx: Context):
    ctx.progress(1)
    ctx.progress(40, 100, "pages")
    ctx.log("warn", "half \udcff a name")
    ctx.file("report.pdf")
    ctx.file(ctx.folder / "sub" / "b.txt")


@worker.task("steps")
def steps(payload, ctx: Context):
    fetched = ctx.step("fetched", lambda: {"pages": (1, 2), 3: "x"})
    extra = ctx.step_or_warn("extra", lambda: 1 // payload["by"])
    return [fetched, extra, ctx.step("nothing", lambda: None)]


@worker.task("steps-async")
async def steps_async(payload, ctx: AsyncContext):
    async def slow():
        await asyncio.sleep(0)
        return "slow"

    async def bad():
        raise ValueError("not today")

    both = await asyncio.gather(ctx.step("slow", slow), ctx.step("plain", lambda: "plain"))
    return [*both, await ctx.step_or_warn("bad", bad)]


@worker.task("steps-in-threads")
def steps_in_threads(payload, ctx: Context):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return sorted(pool.map(lambda number: ctx.step(f"step-{number}", lambda: number), range(12)))


@worker.task("step-fails")
def step_fails(payload, ctx: Context):
    ctx.step("outer", lambda: ctx.step("move", lambda: {}["gone"]))


@worker.task("step-twice")
def step_twice(payload, ctx: Context):
    ctx.step("one", lambda: 1)
    ctx.step("one", lambda: 2)


@worker.task("step-wrong")
def step_wrong(payload, ctx: Context):
    ctx.step("wrong", lambda: {"set": {1}} if payload == "set" else "x" * (16 * 1024 * 1024))


@worker.task("waits-for-saved")
def waits_for_saved(payload, ctx: Context):
    try:
        ctx.step("one", lambda: 1)
    except Exception:
        return "an Exception"
    except Lost:
        ctx.log("error", "lost")
        raise
    return "went on"


@worker.task("waits-for-saved-async")
async def waits_for_saved_async(payload, ctx: AsyncContext):
    try:
        await ctx.step("one", lambda: 1)
    finally:
        ctx.log("info", "cleaned up")
    return "went on"


@worker.task("sleeps")
def sleeps(payload, ctx: Context):
    ctx.log("info", "begun")
    try:
        ctx.sleep(3600)
    finally:
        ctx.log("info", "cleaned up")


@worker.task("looks")
def looks(payload, ctx: Context):
    ctx.log("info", "begun")
    while not ctx.cancelled:
        sum(range(1000))
    if payload == "goes on":
        return "it was done already"
    ctx.check()


@worker.task("waits-async")
async def waits_async(payload, ctx: AsyncContext):
    ctx.log("info", "begun")
    try:
        await asyncio.Event().wait()
    finally:
        ctx.log("info", "cleaned up")


@worker.task("cancels-itself")
async def cancels_itself(payload, ctx: AsyncContext):
    raise asyncio.CancelledError("my own")


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Bare(Permanent):
    def __init__(self):
        pass


ERRORS = {
    "transient": lambda: Transient("later", retry_after=2, hint="wait", details="more", step="move"),
    "delta": lambda: Transient("later", retry_after=timedelta(milliseconds=1500)),
    "partial": lambda: Partial("half of it", step="second"),
    "permanent": lambda: Permanent("never"),
    "after": lambda: RateLimited("slow down", after=0.25),
    "until": lambda: RateLimited("slow down", until=datetime.now(timezone.utc) - timedelta(hours=1)),
    "usage_limit": lambda: UsageLimit("allowance used up", after=60),
    "queue_stop": lambda: QueueStop("no money"),
    "timeout": lambda: TimeoutError("too slow"),
    "socket": lambda: socket.timeout("too slow"),
    "futures": lambda: concurrent.futures.TimeoutError("too slow"),
    "connection": lambda: ConnectionResetError("gone"),
    "value": lambda: ValueError("bad"),
    "silent": lambda: KeyboardError(),
    "odd": lambda: Odd(),
    "bare": lambda: Bare(),
    "exit": lambda: SystemExit(3),
    "long": lambda: ValueError("x" * 20_000_000),
}


class KeyboardError(Exception):
    pass


@worker.task("fails")
def fails(payload, ctx: Context):
    raise ERRORS[payload]()


@worker.task("fails-async")
async def fails_async(payload, ctx: AsyncContext):
    raise ERRORS[payload]()


@worker.task("misuse")
def misuse(payload, ctx: Context):
    said = []
    for call in (
        lambda: ctx.progress(0.5),
        lambda: ctx.progress(-1),
        lambda: ctx.log("loud", "x"),
        lambda: ctx.file("a"),
        lambda: ctx.step("", lambda: 1),
        lambda: RateLimited("x"),
        lambda: Transient("x", retry_after=float("nan")),
        lambda: worker.task(misuse),
        lambda: worker.task("echo")(misuse),
    ):
        try:
            call()
        except (ValueError, TypeError) as error:
            said.append(str(error))
    return said


@worker.task("outside")
def outside(payload, ctx: Context):
    said = []
    for path in ("../x", "/etc/passwd", "."):
        try:
            ctx.file(path)
        except ValueError as error:
            said.append(str(error))
    return said


@worker.task("returns")
def returns(payload, ctx: Context):
    return {
        "set": {1},
        "nan": float("nan"),
        "half": "\ud800",
        "large": "x" * (16 * 1024 * 1024),
        "fits": "x" * (16 * 1024 * 1024 - 200),
        "coroutine": echo_async(payload, ctx) if payload == "coroutine" else None,
    }[payload]


@worker.task("prints")
def prints(payload, ctx: Context):
    print('{"type":"result","ok":true}\nnot JSON')
    print("on stderr", file=sys.stderr)
    sys.stdout.write("no end of line")
    return "printed"


@worker.task("children")
def children(payload, ctx: Context):
    """What children of this process have of the socket."""
    look = "import os, json; print(json.dumps([os.environ.get('OSTLER_FD'), os.listdir('/proc/self/fd')]))"
    out = subprocess.run([sys.executable, "-c", look], stdout=subprocess.PIPE, close_fds=False, check=True).stdout
    pid = os.fork()
    if pid == 0:
        ctx.log("info", "from the fork")
        os._exit(0)
    os.waitpid(pid, 0)
    variable, descriptors = json.loads(out)
    return {"variable": variable, "descriptors": descriptors, "own": os.environ.get("OSTLER_FD")}


@worker.task("speaks-later")
def speaks_later(payload, ctx: Context):
    def speak():
        later.wait()
        ctx.log("info", "too late")
        ctx.progress(1)
        try:
            ctx.step("late", lambda: 1)
        except RuntimeError as error:
            print(error)

    threads.append(threading.Thread(target=speak))
    threads[0].start()


@worker.task("lets-it-speak")
def lets_it_speak(payload, ctx: Context):
    later.set()
    threads[0].join()
    return "it spoke"


@worker.task("the-ends")
def the_ends(payload, ctx: Context):
    return threading.current_thread() is threading.main_thread()


if "any" in sys.argv:

    @worker.task()
    def anything(payload, ctx: Context):
        return ctx.kind


worker.run()
print("after the run")

// A worker of the tests, by the SDK for JavaScript. What it does is its payload.

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { TaskError, worker } from "../../../../sdk/js/index.js";

const waiting = (ctx) => ctx.log("info", "waiting");

const WAYS = {
  echo: (how) => how,
  fail(how) {
    const named = class extends TaskError {
      static className = how.class;
    };
    throw new named(how.message, { step: how.step, hint: how.hint, retryAfterMs: how.retry_after_ms });
  },
  raise() {
    throw new Error("as requested");
  },
  async "throw-later"() {
    setTimeout(() => {
      throw new RangeError("later");
    }, 1);
    await once(process, "never");
  },
  async "reject-later"() {
    Promise.reject(new TypeError("never awaited"));
    await once(process, "never");
  },
  async hang(how, ctx) {
    process.on("SIGTERM", () => {});
    waiting(ctx);
    await once(process, "never");
  },
  async stop(how, ctx) {
    waiting(ctx);
    await sleep(3_600_000, null, { signal: ctx.signal });
  },
  async finish(how, ctx) {
    waiting(ctx);
    await once(ctx.signal, "abort");
    return "finished";
  },
  async "finish-after"(how, ctx) {
    await WAYS.finish(how, ctx);
    ctx.log("info", "stopping");
    await sleep(how * 1000);
  },
  big: (how) => "x".repeat(how - 2),
  flood(how, ctx) {
    for (let line = 0; line < how; line += 1) ctx.log("info", `line ${line}`);
  },
  secret(how, ctx) {
    console.log(`its value is ${ctx.secret(how)}`);
    ctx.log("info", `value ${ctx.secret(how)}`);
    ctx.secret("MISSING");
  },
  "previous-session": (how, ctx) => ctx.previousSession ?? null,
  async steps(how, ctx) {
    console.log("beginning");
    const done = [];
    for (const name of how) done.push(await ctx.step(name, () => `did ${name}`));
    await ctx.stepOrWarn("extra", () => Promise.reject(new Error("no key")));
    ctx.progress(1, 2, "so far");
    return done;
  },
};

worker.task("k", (payload, ctx) => WAYS[payload.do](payload.how, ctx));

worker.task("k-async", async (payload, ctx) => {
  waiting(ctx);
  try {
    if (payload.do === "echo") return await ctx.step("done", () => payload.how);
    return await sleep(3_600_000, null, { signal: ctx.signal });
  } finally {
    ctx.log("info", "cleaned up");
  }
});

worker.run();

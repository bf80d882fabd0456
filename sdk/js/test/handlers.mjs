// The worker that the tests start: one handler for each thing to be seen.

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { QueueStop, Lost, PartialError, Permanent, RateLimited, TaskError, Transient, UsageLimit, worker } from "../index.js";

// Before it is ready: noise, without an end of line too.
console.log('{"type":"result","id":"noise"}');
process.stdout.write("half a line");

const MAX_FRAME_BYTES = 16 * 1024 * 1024;

worker.task("echo", (payload, ctx) => ({
  payload,
  seen: [ctx.id, ctx.kind, ctx.attempt, ctx.folder ?? null, ctx.timeoutMs ?? null, ctx.cancelled, ctx.traceparent ?? null],
  inTime: ctx.timeLeftMs() > 0 && ctx.timeLeftMs() <= ctx.timeoutMs,
}));

worker.task("echo-async", async (payload) => {
  await null;
  return payload;
});

worker.task("nothing", () => {});

worker.task("notes", (payload, ctx) => {
  ctx.progress(1);
  ctx.progress(40, 100, "pages");
  ctx.log("warn", "half \udcff a name");
  ctx.file("report.pdf");
  ctx.file(`${ctx.folder}/sub/b.txt`);
});

worker.task("floods", async (payload, ctx) => {
  for (let line = 0; line < payload; line += 1) ctx.log("info", "x".repeat(16 * 1024));
  console.log("flooded");
  // It comes up for air when what it has said is saved.
  await ctx.step("aired", () => 1);
  ctx.log("info", "the last");
});

worker.task("steps", async (payload, ctx) => {
  const fetched = await ctx.step("fetched", () => ({ at: new Date(0), gone: undefined }));
  const extra = await ctx.stepOrWarn("extra", () => payload.by.length);
  return [fetched, extra, await ctx.step("nothing", () => {})];
});

worker.task("steps-at-once", (payload, ctx) =>
  Promise.all([1, 2, 3].map((number) => ctx.step(`step-${number}`, async () => number))));

worker.task("step-fails", (payload, ctx) =>
  ctx.step("outer", () => ctx.step("move", () => { throw new RangeError("too far"); })));

worker.task("step-twice", async (payload, ctx) => {
  await ctx.step("one", () => 1);
  await ctx.step("one", () => 2);
});

worker.task("step-wrong", (payload, ctx) => ctx.step("wrong", () => (payload === "large" ? "x".repeat(MAX_FRAME_BYTES) : 1n)));

worker.task("waits-for-saved", async (payload, ctx) => {
  try {
    await ctx.step("one", () => 1);
  } catch (error) {
    if (error instanceof Lost) ctx.log("error", "lost");
    throw error;
  }
  return "went on";
});

worker.task("waits", async (payload, ctx) => {
  ctx.log("info", "begun");
  try {
    await once(process, "never", { signal: ctx.signal });
  } finally {
    ctx.log("info", "cleaned up");
  }
});

worker.task("looks", async (payload, ctx) => {
  ctx.log("info", "begun");
  while (!ctx.cancelled) await sleep(0);
  if (payload === "goes on") return "it was done already";
  ctx.check();
});

worker.task("warns-when-cancelled", async (payload, ctx) => {
  ctx.log("info", "begun");
  await ctx.stepOrWarn("waited", () => once(process, "never", { signal: ctx.signal }));
});

worker.task("aborts-itself", () => {
  throw new DOMException("my own", "AbortError");
});

const coded = (code) => Object.assign(new Error("gone"), { code });

const ERRORS = {
  transient: () => new Transient("later", { retryAfterMs: 2000, hint: "wait", details: "more", step: "move" }),
  partial: () => new PartialError("half of it", { step: "second" }),
  permanent: () => new Permanent("never"),
  after: () => new RateLimited("slow down", { afterMs: 249.5 }),
  until: () => new RateLimited("slow down", { until: new Date(0) }),
  usage_limit: () => new UsageLimit("allowance used up", { afterMs: 60_000 }),
  queue_stop: () => new QueueStop("no money"),
  unclassed: () => new TaskError("who knows", { hint: "ask" }),
  timeout: () => new DOMException("too slow", "TimeoutError"),
  connection: () => coded("ECONNRESET"),
  fetch: () => new TypeError("fetch failed", { cause: coded("ECONNREFUSED") }),
  missing: () => coded("ENOENT"),
  range: () => new RangeError("bad"),
  text: () => "only text",
  nothing: () => undefined,
  odd: () => ({ get code() { throw new Error("no"); } }),
  long: () => new Error("x".repeat(20_000_000)),
};

worker.task("fails", (payload) => {
  throw ERRORS[payload]();
});

worker.task("fails-async", async (payload) => {
  await null;
  throw ERRORS[payload]();
});

worker.task("misuse", async (payload, ctx) => {
  const said = [];
  for (const call of [
    () => ctx.progress(0.5),
    () => ctx.progress(1, -1),
    () => ctx.log("loud", "x"),
    () => ctx.file("a"),
    () => ctx.step("", () => 1),
    () => new RateLimited("x"),
    () => new Transient("x", { retryAfterMs: NaN }),
    () => worker.task("x"),
    () => worker.task("echo", () => {}),
    () => { ctx.id = "another"; },
  ]) {
    try {
      await call();
    } catch (error) {
      said.push(error.message);
    }
  }
  return said;
});

worker.task("outside", (payload, ctx) =>
  ["../x", "/etc/passwd", "."].map((name) => {
    try {
      return ctx.file(name);
    } catch (error) {
      return error.message;
    }
  }));

worker.task("returns", (payload) => {
  const round = {};
  round.itself = round;
  return {
    big: 1n, round, half: "\ud800", function: () => {},
    large: "x".repeat(MAX_FRAME_BYTES), wide: "ü".repeat(MAX_FRAME_BYTES / 2),
    fits: "x".repeat(MAX_FRAME_BYTES - 200), backslash: "\\ud800 😀",
  }[payload];
});

worker.task("prints", () => {
  console.log('{"type":"result","ok":true}\nnot JSON');
  console.error("on stderr");
  process.stdout.write("no end of line");
  return "printed";
});

worker.task("children", () => {
  const look = "console.log(JSON.stringify([process.env.OSTLER_FD ?? null, require('fs').readlinkSync('/proc/self/exe')]))";
  const [variable] = JSON.parse(execFileSync(process.execPath, ["-e", look], { encoding: "utf8" }));
  const descriptors = execFileSync("ls", ["-l", "/proc/self/fd"], { encoding: "utf8" });
  return { variable, sockets: descriptors.match(/ 3 -> socket/g), own: process.env.OSTLER_FD ?? null };
});

let late;
worker.task("speaks-later", (payload, ctx) => {
  late = async () => {
    ctx.log("info", "too late");
    ctx.progress(1);
    return ctx.step("late", () => 1).catch((error) => error.message);
  };
});

worker.task("lets-it-speak", () => late());

if (process.argv.includes("any")) worker.task((payload, ctx) => ctx.kind);

await worker.run();
console.log("after the run");

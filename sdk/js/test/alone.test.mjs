// Handlers without a node: `worker.test`, as users call it in tests of their own. And what the package says of itself.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import sdk, { Cancelled, Partial, Permanent, Transient, Worker } from "../index.js";
import { Driver } from "./driver.mjs";

const SDK = fileURLToPath(new URL("..", import.meta.url));

function converter() {
  const worker = new Worker();
  worker.fetched = 0;
  worker.task("convert", async (payload, ctx) => {
    if (!payload.url) throw new Permanent("there is no url");
    const pages = await ctx.step("fetched", () => {
      worker.fetched += 1;
      return 7;
    });
    ctx.progress(1, 2, "half");
    ctx.log("info", `attempt ${ctx.attempt}`);
    if (ctx.attempt === 1) throw new Transient("the disk is full");
    await ctx.stepOrWarn("announced", () => Promise.reject(new Error("no listeners")));
    ctx.file("out.pdf");
    return { pages, folder: ctx.folder, at: new Date(0) };
  });
  return worker;
}

describe("without a node", { timeout: 60_000 }, () => {
  test("a handler can be tried attempt by attempt", async () => {
    const worker = converter();
    const steps = {};
    await assert.rejects(worker.test("convert", { url: "x" }, { steps }), Transient);
    assert.deepEqual(steps, { fetched: 7 });
    const options = { steps, attempt: 2, folder: "/tasks/t1", timeoutMs: 60_000 };
    assert.deepEqual(await worker.test("convert", { url: "x" }, options), {
      output: { pages: 7, folder: "/tasks/t1", at: "1970-01-01T00:00:00.000Z" },
      steps: { fetched: 7, announced: null },
      progress: [{ done: 1, total: 2, note: "half" }],
      logs: [{ level: "info", message: "attempt 2" }],
      files: ["out.pdf"],
      warnings: [{ step: "announced", message: "Error: no listeners" }],
      conversation: [],
      submitted: [],
      queries: [],
      dropped: [],
    });
    assert.equal(worker.fetched, 1, "a step that was kept is not done again");
  });

  test("what a handler throws comes out", async () => {
    await assert.rejects(converter().test("convert", {}), /there is no url/);
    await assert.rejects(converter().test("paint"), /no handler for the kind "paint"; it has: convert/);
  });

  test("a gateway gives the answers of the test, and an error of its class is thrown", async () => {
    const worker = new Worker();
    worker.task("run", async (payload, ctx) => {
      const session = await ctx.gateway().createSession();
      const plan = await session.runQuery(`Plan ${payload.prompt}`, { maxIterations: 3 });
      const report = await session.runQuery("Report.");
      const own = await ctx.task();
      return [plan.text, report.text, session.id, own.payload.prompt, await ctx.run("later", { pool: "runs", id: "job_1" })];
    });
    const tested = await worker.test("run", { prompt: "it" }, { answers: ["a plan", { n: 1 }] });
    assert.deepEqual(tested.output, ["a plan", '{"n":1}', "test-session-1", "it", "test-1"]);
    assert.deepEqual(tested.queries[0], { session: 1, input: "Plan it", options: { max_iterations: 3 } });
    assert.deepEqual(tested.submitted[0].payload, { prompt: "later" });
    assert.equal(tested.submitted[0].key, "job_1");
    await assert.rejects(worker.test("run", {}, { answers: [new Transient("away")] }), Transient);
    await assert.rejects(worker.test("run", {}), /the pool has no gateway/);
  });

  test("a stream has the events of the test, and then its answer", async () => {
    const worker = new Worker();
    worker.task("run", async (payload, ctx) => {
      const session = await ctx.gateway().createSession();
      const seen = [];
      for await (const event of session.stream("Plan", { maxIterations: 2 })) seen.push(event);
      for await (const event of session.stream("Report")) {
        seen.push(event.text);
        break;
      }
      return seen;
    });
    const events = [{ type: "message", role: "assistant", text: "Hm." }, { type: "usage", input_tokens: 3, model: null }];
    const tested = await worker.test("run", null, { answers: ["a plan", "a report"], events: [events, events] });
    assert.deepEqual(tested.output, [
      { type: "message", role: "assistant", text: "Hm." },
      { type: "usage", usage: { inputTokens: 3 } },
      { type: "result", output: "a plan", text: "a plan", sessionId: "test-session-1" },
      "Hm.",
    ]);
    assert.deepEqual(tested.queries[0], { session: 1, input: "Plan", options: { max_iterations: 2 } });
    assert.deepEqual(tested.dropped, [2], "the stream that was left early");
    await assert.rejects(worker.test("run", null, { answers: [new Transient("away")], events: [events] }), Transient);
  });

  test("conversations and other tasks are recorded", async () => {
    const worker = new Worker();
    worker.task("ask", { attempts: 5, timeout: "30s" }, async (payload, ctx) => {
      await ctx.session("s-1");
      await ctx.prompt("Review it.");
      await ctx.message("Done.");
      await ctx.toolResult("c1", null, { error: true });
      await ctx.usage({ model: "m", inputTokens: 3 });
      const child = await ctx.submit("mail", { to: payload }, { key: "one", delayMs: 5 });
      return [child, (await ctx.task("known")).output, (await ctx.task("unknown")) ?? null];
    });
    const tested = await worker.test("ask", "ada", { tasks: [{ id: "known", state: "completed", output: 7 }] });
    assert.deepEqual(tested.output, ["test-1", 7, null]);
    assert.deepEqual(tested.conversation, [
      { type: "session", session: "s-1" },
      { type: "prompt", text: "Review it." },
      { type: "message", text: "Done.", role: "assistant" },
      { type: "tool_result", call: "c1", error: true },
      { type: "usage", model: "m", input_tokens: 3 },
    ]);
    const submitted = { kind: "mail", payload: { to: "ada" }, queue: undefined, key: "one", delayMs: 5, id: undefined };
    assert.deepEqual(tested.submitted, [submitted]);
  });

  test("a wrong option or a wrong call says what would be right", async () => {
    const worker = new Worker();
    for (const [options, says] of [
      [{ attempts: 0 }, /attempts of a task must be a whole number from 1, and is 0/],
      [{ timeout: "soon" }, /timeout of a task is a time such as "30s", or milliseconds, and not 'soon'/],
      [{ backoff: "wild" }, /"fixed", "linear" or "exponential"/],
      [{ retries: 3 }, /a task has no option 'retries'; there are: attempts/],
    ]) {
      assert.throws(() => worker.task("x", options, () => {}), says);
    }
    worker.task("role", (payload, ctx) => ctx.message("x", payload));
    await assert.rejects(worker.test("role", "robot"), /"user", "assistant" or "system", and not 'robot'/);
    worker.task("usage", (payload, ctx) => ctx.usage(payload));
    await assert.rejects(worker.test("usage", { inputTokens: -1 }), /inputTokens of ctx.usage .* is -1/);
  });

  test("a cancel can be tried too", async () => {
    const worker = new Worker();
    worker.task("wait", (payload, ctx) => sleep(3_600_000, null, { signal: ctx.signal }));
    worker.task("check", (payload, ctx) => ctx.check());
    const abort = new AbortController();
    const tried = worker.test("wait", null, { signal: abort.signal });
    abort.abort();
    await assert.rejects(tried, { name: "AbortError" });
    await assert.rejects(worker.test("check", null, { signal: abort.signal }), Cancelled);
  });

  test("every public name is in the types", () => {
    const types = readFileSync(join(SDK, "index.d.ts"), "utf8");
    for (const name of Object.keys(sdk)) assert.match(types, new RegExp(`export (class|const) ${name}\\b`));
  });

  test("no type takes the place of one that TypeScript or Node.js has", () => {
    const types = readFileSync(join(SDK, "index.d.ts"), "utf8");
    const declared = [...types.matchAll(/export (?:declare )?(?:abstract )?(?:class|interface|type|enum) (\w+)/g)].map(([, name]) => name);
    assert.ok(declared.includes("PartialError") && declared.includes("TaskErrorOptions"), declared.join());
    const utilities =
      "Partial Required Readonly Record Pick Omit Exclude Extract NonNullable Parameters ReturnType InstanceType Awaited " +
      "NoInfer Uppercase Lowercase Capitalize Uncapitalize ThisType PropertyKey PromiseLike ArrayLike Iterable ErrorOptions";
    // `Worker` is a class of browsers and of node:worker_threads, but no global of Node.js.
    const taken = new Set([...utilities.split(" "), ...Object.getOwnPropertyNames(globalThis)]);
    assert.deepEqual(declared.filter((name) => taken.has(name)), []);
    // A value only: what was written as `new Partial(…)` goes on, and `Partial<T>` is TypeScript's.
    assert.equal(Partial, sdk.PartialError);
    assert.match(types, /export const Partial: typeof PartialError;/);
  });

  test("the version is the same everywhere", () => {
    const { version } = JSON.parse(readFileSync(join(SDK, "package.json"), "utf8"));
    assert.ok(readFileSync(join(SDK, "index.js"), "utf8").includes(`const VERSION = "${version}";`));
  });

  test("the examples of the page run", async (t) => {
    const page = readFileSync(join(SDK, "README.md"), "utf8");
    const blocks = [...page.matchAll(/```js\n(.*?)```/gs)].map(([, block]) => block).filter((block) => !/ostler\/(client|testing)/.test(block));
    assert.ok(blocks.length > 2);
    const folder = mkdtempSync(join(tmpdir(), "ostler-js-"));
    t.after(() => rmSync(folder, { recursive: true }));
    mkdirSync(join(folder, "node_modules"));
    symlinkSync(SDK, join(folder, "node_modules", "ostler"));
    for (const [at, block] of blocks.entries()) {
      const program = join(folder, `block-${at}.mjs`);
      writeFileSync(program, block);
      const node = new Driver(program);
      t.after(() => node.close());
      // For those that run a worker.
      node.say({ type: "hello", protocol: 1 });
      node.say({ type: "stop" });
      const { code, err } = await node.end();
      assert.equal(code, 0, `${block}\n${err}`);
    }
  });
});

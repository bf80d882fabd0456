// A real worker process, driven over a real socket pair, frame by frame.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Driver, HANDLERS } from "./driver.mjs";

const MAX_FRAME_BYTES = 16 * 1024 * 1024;
// Nothing comes near it, on a busy machine neither.
const options = { timeout: 60_000 };

// Tests that a worker survives share one: so each of them is also the next task of a used worker.
function withOneWorker() {
  const shared = {};
  before(async () => {
    shared.node = new Driver();
    await shared.node.greet();
  });
  after(() => shared.node.close());
  return shared;
}

describe("tasks", options, () => {
  const shared = withOneWorker();

  test("a handler sees its task, and what it returns is the output", async () => {
    const { node } = shared;
    const about = node.give("echo", { ä: [1, null, "\u2028"] }, { attempt: 3, folder: "/tmp", timeout_ms: 1500, traceparent: "00-ab-cd-01" });
    const seen = [about.id, "echo", 3, "/tmp", 1500, false, "00-ab-cd-01"];
    const output = { payload: { ä: [1, null, "\u2028"] }, seen, inTime: true };
    assert.deepEqual(await node.hear(), { type: "result", ...about, ok: true, output });
    assert.equal((await node.result("echo-async", 7)).output, 7);
  });

  test("what a node leaves out is nothing", async () => {
    shared.node.say({ type: "task", id: "bare", token: 1, kind: "echo" });
    const output = { payload: null, seen: ["bare", "echo", 1, null, null, false, null], inTime: false };
    assert.deepEqual((await shared.node.hear()).output, output);
    assert.equal((await shared.node.result("nothing")).output, null);
  });

  test("progress, logs and files are said in order", async () => {
    assert.deepEqual((await shared.node.do("notes", null, { folder: "/tasks/t1" })).slice(0, -1), [
      { type: "progress", done: 1 },
      { type: "progress", done: 40, total: 100, note: "pages" },
      { type: "log", level: "warn", message: "half \ufffd a name" },
      { type: "file", path: "report.pdf" },
      { type: "file", path: "sub/b.txt" },
    ]);
  });

  test("a flood of notes is cut, and the gap is marked", async () => {
    const { node } = shared;
    const lines = 1000;
    const about = node.give("floods", lines);
    // Until then the node does not read.
    while (!node.out.includes("flooded")) await once(node.process.stdout, "data");
    const said = [];
    for (let frame; frame?.type !== "result"; ) {
      frame = await node.hear();
      if (frame.type === "log") said.push(frame.message);
      if (frame.type === "step") node.say({ type: "saved", ...about, step: frame.name });
    }
    assert.ok(said.length < lines / 2, `${said.length} lines`);
    assert.match(said.at(-2), /^\d+ notes were dropped/);
    assert.equal(said.at(-1), "the last");
    assert.equal(said.length - 2 + Number.parseInt(said.at(-2), 10), lines);
  });

  test("misuse is an error that says what would be right", async () => {
    const said = (await shared.node.result("misuse")).output;
    const words = ["done of ctx.progress", "is -1", '"warn"', "no folder", "name the step", "afterMs", "NaN", "name the kind"];
    assert.equal(said.length, 10, said.join("\n"));
    [...words, '"echo"', "read only"].forEach((word, at) => assert.ok(said[at].includes(word), said[at]));
  });

  test("a file outside of the folder is refused", async () => {
    for (const sentence of (await shared.node.result("outside", null, { folder: "/tasks/t1" })).output) {
      assert.match(sentence, /inside of the task's folder, \/tasks\/t1/);
    }
  });

  test("a kind without a handler is a permanent error with the kinds there are", async () => {
    const error = await shared.node.error("paint");
    assert.equal(error.class, "permanent");
    assert.match(error.message, /no handler for the kind "paint"; it has: aborts-itself, children, echo, echo-async/);
  });

  test("unknown types and fields are ignored", async () => {
    shared.node.say({ type: "weather", sunny: true });
    shared.node.say({ nothing: "at all" });
    assert.equal((await shared.node.result("echo", 1, { colour: "red" })).output.payload, 1);
  });

  test("frames may come in any pieces", async () => {
    const { node } = shared;
    const frame = Buffer.from(`${JSON.stringify({ type: "task", id: "pieces", token: 9, kind: "echo-async", payload: "ß" })}\n`);
    for (const byte of frame) await new Promise((sent) => node.socket.write(Buffer.from([byte]), sent));
    assert.equal((await node.hear()).output, "ß");
  });

  test("a large payload comes whole", async () => {
    const payload = "x".repeat(MAX_FRAME_BYTES - 1000);
    assert.equal((await shared.node.result("echo-async", payload)).output, payload);
  });

  test("children inherit neither the socket nor its number", async () => {
    assert.deepEqual((await shared.node.result("children")).output, { variable: null, sockets: null, own: null });
  });

  test("messages after the result are not sent", async () => {
    await shared.node.result("speaks-later");
    const output = 'the step "late" comes too late: the attempt is over';
    assert.deepEqual(await shared.node.do("lets-it-speak"), [{ type: "result", ok: true, output }]);
  });
});

describe("steps", options, () => {
  const shared = withOneWorker();

  test("a step is sent, and comes back as JSON has it", async () => {
    const fetched = { at: "1970-01-01T00:00:00.000Z" };
    assert.deepEqual(await shared.node.do("steps", { by: "ab" }), [
      { type: "step", name: "fetched", value: fetched },
      { type: "step", name: "extra", value: 2 },
      // A step that came to nothing is done all the same.
      { type: "step", name: "nothing", value: null },
      { type: "result", ok: true, output: [fetched, 2, null] },
    ]);
  });

  test("a step of an earlier attempt is not done again", async () => {
    const said = await shared.node.do("steps", {}, { attempt: 2, steps: { fetched: "kept", extra: null } });
    assert.deepEqual(said[0], { type: "step", name: "nothing", value: null });
    assert.deepEqual(said[1].output, ["kept", null, null]);
  });

  test("a step that the task can do without is a warning, and is not tried again", async () => {
    const said = await shared.node.do("steps", {});
    assert.deepEqual(said[1], { type: "step", name: "extra", value: null });
    assert.equal(said[2].type, "step_failed");
    assert.match(said[2].message, /^TypeError: Cannot read properties of undefined/);
    assert.equal(said.at(-1).output[1], null);
  });

  test("steps can be done at once", async () => {
    assert.deepEqual((await shared.node.result("steps-at-once")).output, [1, 2, 3]);
  });

  test("an error names the innermost step it came out of", async () => {
    const error = await shared.node.error("step-fails");
    assert.deepEqual([error.step, error.message], ["move", "RangeError: too far"]);
  });

  test("the same name twice is a permanent error", async () => {
    const error = await shared.node.error("step-twice");
    assert.deepEqual([error.class, error.step], ["permanent", "one"]);
    assert.match(error.message, /twice in one attempt/);
    // Also when an earlier attempt has done it.
    assert.match((await shared.node.error("step-twice", null, { steps: { one: 1 } })).message, /twice/);
  });

  test("a step that cannot be sent is a permanent error", async () => {
    for (const [payload, words] of [["big", /cannot be written as JSON: .*BigInt/], ["large", /the step "wrong" has 16777/]]) {
      const error = await shared.node.error("step-wrong", payload);
      assert.deepEqual([error.class, error.step], ["permanent", "wrong"]);
      assert.match(error.message, words);
    }
  });

  test("a step is done only when it is saved", async () => {
    const { node } = shared;
    const about = node.give("waits-for-saved");
    assert.equal((await node.hear()).type, "step");
    // Answers that are not its own.
    node.say({ type: "saved", ...about, step: "two" });
    node.say({ type: "saved", ...about, token: 1, step: "one" });
    // If it went on by itself, its result would be a success.
    node.say({ type: "cancel", ...about, reason: "the test" });
    assert.deepEqual((await node.hear()).error, { message: "cancelled: the test" });
  });

  test("a lost lease is an error of its own", async () => {
    const { node } = shared;
    const about = node.give("waits-for-saved");
    await node.hear();
    node.say({ type: "lost", ...about });
    assert.equal((await node.hear()).message, "lost");
    assert.deepEqual((await node.hear()).error, { message: "the lease is lost: another node has the task" });
  });
});

describe("cancel", options, () => {
  const shared = withOneWorker();

  async function cancelled(kind, payload) {
    const { node } = shared;
    const about = node.give(kind, payload);
    assert.equal((await node.hear()).message, "begun");
    // Of other tasks.
    node.say({ type: "cancel", ...about, id: "another" });
    node.say({ type: "cancel", ...about, token: about.token - 1 });
    node.say({ type: "cancel", ...about, reason: "by hand" });
    const said = [];
    do said.push(await node.hear());
    while (said.at(-1).type !== "result");
    return said;
  }

  test("what waits with the signal is woken", async () => {
    const said = await cancelled("waits");
    assert.equal(said[0].message, "cleaned up");
    assert.deepEqual(said[1].error, { message: "cancelled: by hand" });
  });

  test("a handler that works sees the flag", async () => {
    assert.deepEqual((await cancelled("looks"))[0].error, { message: "cancelled: by hand" });
  });

  test("a handler that is done all the same has its result", async () => {
    assert.equal((await cancelled("looks", "goes on"))[0].output, "it was done already");
  });

  test("a step that was stopped did not fail", async () => {
    assert.deepEqual((await cancelled("warns-when-cancelled")).map(({ type }) => type), ["result"]);
  });

  test("a cancel that comes with the task is heard", async () => {
    for (const kind of ["waits", "echo"]) {
      const about = { id: "soon", token: 1 };
      const frames = [{ type: "task", ...about, kind }, { type: "cancel", ...about }];
      shared.node.socket.write(frames.map((frame) => `${JSON.stringify(frame)}\n`).join(""));
      assert.deepEqual((await shared.node.hear()).error, { message: "cancelled: no reason was given" });
    }
  });

  test("an abort of its own is an error like any other", async () => {
    assert.equal((await shared.node.error("aborts-itself")).message, "AbortError: my own");
  });
});

describe("errors", options, () => {
  const shared = withOneWorker();

  test("every class has its word", async () => {
    for (const [which, expected] of Object.entries({
      transient: { class: "transient", retry_after_ms: 2000, hint: "wait", details: "more", step: "move", message: "later" },
      partial: { class: "partial", step: "second" },
      permanent: { class: "permanent" },
      after: { class: "rate_limited", retry_after_ms: 250 },
      until: { class: "rate_limited", retry_after_ms: 0 },
      usage_limit: { class: "usage_limit", retry_after_ms: 60_000 },
      queue_stop: { class: "queue_stop" },
      unclassed: { class: undefined, hint: "ask" },
      timeout: { class: "transient", message: "TimeoutError: too slow" },
      connection: { class: "transient", message: "Error: gone" },
      fetch: { class: "transient" },
      missing: { class: undefined },
      range: { class: undefined, message: "RangeError: bad", hint: undefined, step: undefined, retry_after_ms: undefined },
      text: { class: undefined, message: "'only text'" },
      nothing: { class: undefined, message: "undefined" },
      odd: { class: undefined, message: "{ code: [Getter] }" },
    })) {
      for (const kind of ["fails", "fails-async"]) {
        const error = await shared.node.error(kind, which);
        for (const [name, value] of Object.entries(expected)) assert.equal(error[name], value, `${which}: ${name}`);
      }
    }
  });

  test("the stack and the cause are in the details", async () => {
    const { details } = await shared.node.error("fails", "fetch");
    assert.match(details, /^TypeError: fetch failed\n +at .*handlers\.mjs/);
    assert.match(details, /ECONNREFUSED/);
  });

  test("what a long error says is cut", async () => {
    const error = await shared.node.error("fails", "long");
    assert.ok(JSON.stringify(error).length < 200_000);
    assert.match(error.message, /^Error: x+…$/);
  });

  test("a result that cannot be sent is a permanent error", async () => {
    for (const [which, words] of Object.entries({
      big: /cannot be written as JSON: .*BigInt/,
      round: /cannot be written as JSON: .*circular/,
      half: /cannot be written as JSON: it has half of a character/,
      function: /cannot be written as JSON: a function is no JSON/,
      large: /the result has 16777/,
      wide: /the result has 16777/,
    })) {
      const error = await shared.node.error("returns", which);
      assert.equal(error.class, "permanent", which);
      assert.match(error.message, words);
    }
    assert.equal((await shared.node.result("returns", "fits")).output.length, MAX_FRAME_BYTES - 200);
    assert.equal((await shared.node.result("returns", "backslash")).output, "\\ud800 😀");
  });
});

describe("life", options, () => {
  async function start(t, ...args) {
    const node = new Driver(...args);
    t.after(() => node.close());
    return node;
  }

  test("it says who it is and what it can, and exits on request", async (t) => {
    const node = await start(t);
    const { kinds, ...ready } = await node.greet();
    assert.deepEqual(ready, { type: "ready", protocol: 1, sdk: "js/0.1.0" });
    assert.deepEqual(kinds, [...kinds].sort());
    assert.ok(kinds.includes("echo-async"));
    node.say({ type: "stop" });
    assert.equal(await node.hear(), undefined);
    const { code, out, err } = await node.end();
    assert.deepEqual([code, err], [0, ""]);
    assert.match(out, /half a lineafter the run\n$/);
  });

  test("with a handler for the rest it names no kinds", async (t) => {
    const node = await start(t, HANDLERS, "any");
    assert.ok(!("kinds" in (await node.greet())));
    assert.equal((await node.result("paint")).output, "paint");
    assert.equal((await node.result("echo-async", 1)).output, 1);
  });

  test("a task that runs is ended before a stop is obeyed", async (t) => {
    const node = await start(t);
    await node.greet();
    const about = node.give("waits-for-saved");
    await node.hear();
    node.say({ type: "stop" });
    node.say({ type: "saved", ...about, step: "one" });
    assert.equal((await node.hear()).output, "went on");
    assert.equal(await node.hear(), undefined);
    assert.equal((await node.end()).code, 0);
  });

  test("a cancel is heard after a stop", async (t) => {
    const node = await start(t);
    await node.greet();
    const about = node.give("waits");
    await node.hear();
    node.say({ type: "stop" });
    node.say({ type: "cancel", ...about });
    assert.deepEqual([(await node.hear()).type, (await node.hear()).type, await node.hear()], ["log", "result", undefined]);
    assert.equal((await node.end()).code, 0);
  });

  test("an idle worker ends when the node is gone", async (t) => {
    for (const done of [0, 1]) {
      const node = await start(t);
      await node.greet();
      for (let at = 0; at < done; at += 1) await node.do("echo");
      node.socket.destroy();
      assert.equal((await node.end()).code, 0);
    }
  });

  test("a busy worker ends at once when the node is gone", async (t) => {
    for (const kind of ["waits", "looks", "waits-for-saved"]) {
      const node = await start(t);
      await node.greet();
      node.give(kind);
      await node.hear();
      node.socket.destroy();
      const { code, err } = await node.end();
      assert.deepEqual([code, err], [1, "ostler: the node is gone; this worker exits, and another node will run its task\n"]);
    }
  });

  test("what is printed stays apart from frames", async (t) => {
    const node = await start(t);
    await node.greet();
    assert.deepEqual(await node.do("prints"), [{ type: "result", ok: true, output: "printed" }]);
    node.say({ type: "stop" });
    const { out, err } = await node.end();
    const noise = '{"type":"result","id":"noise"}\nhalf a line{"type":"result","ok":true}\nnot JSON\nno end of line';
    assert.equal(out, `${noise}after the run\n`);
    assert.equal(err, "on stderr\n");
  });

  test("what is no frame ends it with a sentence", async (t) => {
    for (const [line, words] of [
      ["pardon?\n", /SyntaxError/],
      ["null\n", /TypeError/],
      ['{"type":"task","id":"1"}\n', /without an id, a token or a kind/],
      ["x".repeat(MAX_FRAME_BYTES + 1), /a line of more than 16777216 bytes/],
    ]) {
      const node = await start(t);
      await node.greet();
      node.socket.write(line);
      const { code, err } = await node.end();
      assert.equal(code, 1);
      assert.match(err, /the node sent what is no frame of protocol 1: /);
      assert.match(err, words);
    }
  });

  test("another protocol is refused", async (t) => {
    const node = await start(t);
    node.say({ type: "hello", protocol: 2 });
    const { code, err } = await node.end();
    assert.equal(code, 1);
    assert.match(err, /the node speaks protocol 2, and this worker 1/);
  });

  test("without a node it says how it is used", () => {
    for (const [variable, words] of [
      [undefined, /OSTLER_FD is not set. Say in ostler.toml/],
      ["three", /OSTLER_FD should be the number of a socket that a node left open, and is "three"/],
      ["1", /it is no socket/],
      ["777", /EBADF/],
    ]) {
      const env = { ...process.env };
      delete env.OSTLER_FD;
      if (variable !== undefined) env.OSTLER_FD = variable;
      // Its stdout is no socket, as a pipe of Node.js would be.
      const how = { env, encoding: "utf8", stdio: ["ignore", "ignore", "pipe"], ...options };
      const { status, stderr } = spawnSync(process.execPath, [HANDLERS], how);
      assert.equal(status, 2);
      assert.match(stderr, /^ostler: /);
      assert.match(stderr, words);
    }
  });

  test("a worker without handlers is refused, and require works as import does", async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "ostler-js-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const program = join(folder, "empty.cjs");
    const sdk = fileURLToPath(new URL("..", import.meta.url));
    writeFileSync(program, `const { worker } = require(${JSON.stringify(sdk)});\nworker.run();\n`);
    const { code, err } = await (await start(t, program)).end();
    assert.equal(code, 2);
    assert.match(err, /this worker has no handler/);
  });
});

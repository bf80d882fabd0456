// A node for tests: starts a real worker process, and says and hears frames over a real socket pair. (Node.js makes the "pipes" of
// its children as Unix socket pairs.)

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

export const HANDLERS = fileURLToPath(new URL("handlers.mjs", import.meta.url));
const FD = 3;

export class Driver {
  #tasks = 0;

  constructor(...args) {
    const env = { ...process.env, OSTLER_FD: String(FD) };
    this.process = spawn(process.execPath, args.length ? args : [HANDLERS], { env, stdio: ["ignore", "pipe", "pipe", "pipe"] });
    this.socket = this.process.stdio[FD];
    this.socket.on("error", () => {}); // A worker that is gone is seen by its end.
    this.lines = linesOf(this.socket);
    this.out = "";
    this.err = "";
    this.process.stdout.setEncoding("utf8").on("data", (text) => (this.out += text));
    this.process.stderr.setEncoding("utf8").on("data", (text) => (this.err += text));
    this.closed = once(this.process, "close");
  }

  say(frame) {
    this.socket.write(`${JSON.stringify(frame)}\n`);
  }

  // The next frame; undefined: the worker is gone.
  async hear() {
    const { value, done } = await this.lines.next();
    return done ? undefined : JSON.parse(value);
  }

  async greet() {
    this.say({ type: "hello", protocol: 1, pool: "docs", worker: "w-1" });
    return this.hear();
  }

  // Gives the worker a task. What answers about it begins like this.
  give(kind, payload = null, more = {}) {
    this.#tasks += 1;
    const about = { id: `task-${this.#tasks}`, token: 2 + this.#tasks };
    this.say({ type: "task", ...about, kind, payload, attempt: 1, timeout_ms: 300_000, steps: {}, ...more });
    return about;
  }

  // Gives the worker a task, saves its steps, and hears all that it says, up to its result.
  async do(kind, payload, more) {
    const about = this.give(kind, payload, more);
    const said = [];
    for (;;) {
      const frame = await this.hear();
      assert.ok(frame, `the worker is gone: ${this.err}`);
      const { id, token, ...rest } = frame;
      assert.deepEqual({ id, token }, about, "a frame is about another task");
      said.push(rest);
      if (rest.type === "result") return said;
      if (rest.type === "step") this.say({ type: "saved", ...about, step: rest.name });
    }
  }

  async result(kind, payload, more) {
    return (await this.do(kind, payload, more)).at(-1);
  }

  async error(kind, payload, more) {
    const result = await this.result(kind, payload, more);
    assert.equal(result.ok, false);
    assert.ok(!("output" in result));
    return result.error;
  }

  // Waits until the worker has ended: its code, its stdout, its stderr.
  async end() {
    const [code] = await this.closed;
    return { code, out: this.out, err: this.err };
  }

  // Whatever the test left is ended.
  async close() {
    this.process.kill("SIGKILL");
    this.socket.destroy();
    await this.closed;
  }
}

// The lines that come. After an error there are none any more: a worker that is gone may reset its socket.
async function* linesOf(socket) {
  let parts = [];
  try {
    for await (const data of socket) {
      let from = 0;
      for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, from)) {
        yield Buffer.concat([...parts, data.subarray(from, end)]).toString();
        [parts, from] = [[], end + 1];
      }
      parts.push(data.subarray(from));
    }
  } catch {
    // It is gone.
  }
}

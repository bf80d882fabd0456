// Workers for Ostler, in JavaScript. This one file is all of it, and it needs nothing but Node.js.
//
//     import { worker } from "ostler";
//
//     worker.task("resize", async (payload, ctx) => {
//       const image = await ctx.step("fetched", () => fetchImage(payload.url));
//       …
//       return { width: 640 };
//     });
//
//     worker.run();
//
// A node starts this program (executor = "process") and gives it one task at a time, over a socket that it inherits. What a
// handler returns is the task's output, what it throws is the task's error, and what it prints is in the task's log.
//
// Read the file from the top: errors, what a handler sees, the worker, and then how it talks with the node. `index.d.ts` says
// what each public thing is for.
"use strict";

const fs = require("node:fs");
const net = require("node:net");
const path = require("node:path");
const { inspect } = require("node:util");

const VERSION = "0.1.0";
const PROTOCOL = 1;
// The protocol's bound for one line, its end included.
const MAX_FRAME_BYTES = 16 * 1024 * 1024;
// What an error says is cut here. Longer messages are no sentences.
const MAX_MESSAGE_CHARS = 16 * 1024;
const MAX_DETAILS_CHARS = 64 * 1024;
// While so much waits for the node to take it, progress and log lines are dropped. A handler that does not come up for air
// fills memory otherwise.
const MAX_WAITING_BYTES = 1024 * 1024;
const LEVELS = ["debug", "info", "warn", "error"];
// Errors of the system that may be over next time.
const TRANSIENT_CODES = new Set(
  ["ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "EPIPE", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "EAI_AGAIN"]
    .concat(["UND_ERR_SOCKET", "UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT"]),
);

// ---- what a handler throws ----

class TaskError extends Error {
  constructor(message, { retryAfterMs, step, hint, details, ...options } = {}) {
    super(message, options);
    this.name = new.target.name;
    this.retryAfterMs = retryAfterMs === undefined ? undefined : wait(retryAfterMs);
    this.step = step;
    this.hint = hint;
    this.details = details;
  }
}

class Transient extends TaskError {
  static className = "transient";
}

class PartialError extends TaskError {
  static className = "partial";
}

class Permanent extends TaskError {
  static className = "permanent";
}

class RateLimited extends TaskError {
  static className = "rate_limited";

  constructor(message, { afterMs, until, ...options } = {}) {
    if ((afterMs === undefined) === (until === undefined)) {
      throw new TypeError("RateLimited needs either afterMs (milliseconds) or until (a Date)");
    }
    super(message, { ...options, retryAfterMs: until === undefined ? afterMs : until.getTime() - Date.now() });
  }
}

class QueueStop extends TaskError {
  static className = "queue_stop";
}

class Stopped extends Error {
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

class Cancelled extends Stopped {}

class Lost extends Stopped {}

// ---- what a handler sees ----

class Context {
  #attempt;

  constructor(attempt, frame) {
    this.#attempt = attempt;
    this.id = frame.id;
    this.kind = frame.kind;
    this.attempt = frame.attempt ?? 1;
    this.folder = frame.folder ?? undefined;
    this.timeoutMs = frame.timeout_ms ?? undefined;
    this.signal = attempt.abort.signal;
    Object.freeze(this);
  }

  get cancelled() {
    return this.signal.aborted;
  }

  check() {
    this.signal.throwIfAborted();
  }

  timeLeftMs() {
    if (this.timeoutMs === undefined) return undefined;
    return Math.max(0, this.#attempt.began + this.timeoutMs - performance.now());
  }

  progress(done, total, note) {
    for (const [name, value] of Object.entries({ done, total: total ?? 0 })) {
      if (!Number.isSafeInteger(value) || value < 0) {
        throw new RangeError(`${name} of ctx.progress must be a whole number, not below 0, and is ${value}`);
      }
    }
    this.#attempt.note("progress", { done, total, note: note == null ? undefined : textOf(note) });
  }

  log(level, message) {
    if (!LEVELS.includes(level)) {
      throw new RangeError(`the level of a log line is "debug", "info", "warn" or "error", and not ${inspect(level)}`);
    }
    this.#attempt.note("log", { level, message: textOf(message) });
  }

  file(name) {
    if (this.folder === undefined) throw new RangeError(`ctx.file("${name}"): the task has no folder; submit it with one`);
    // The name decides, and not what links lead to: the folder itself may be reached by one.
    const inside = path.relative(this.folder, path.resolve(this.folder, name));
    if (inside === "" || inside.split(path.sep)[0] === "..") {
      throw new RangeError(`ctx.file("${name}"): it must be a file inside of the task's folder, ${this.folder}`);
    }
    this.#attempt.say("file", { path: textOf(inside) });
  }

  async step(name, work) {
    const kept = this.#attempt.begin(name);
    if (kept) return kept.value;
    try {
      return await this.#attempt.keep(name, await work());
    } catch (error) {
      this.#attempt.blame(name, error);
      throw error;
    }
  }

  async stepOrWarn(name, work) {
    const kept = this.#attempt.begin(name);
    if (kept) return kept.value;
    let done;
    try {
      done = await work();
    } catch (error) {
      // A step that was stopped did not fail.
      this.check();
      await this.#attempt.keep(name, null);
      this.#attempt.say("step_failed", { name, message: messageOf(error) });
      return null;
    }
    return this.#attempt.keep(name, done);
  }
}

// One attempt: what the handler says goes out by it, and what the node says comes in.
class Attempt {
  #link;
  #steps;
  #begun = new Set();
  // For each step that waits for its answer: how it goes on.
  #waiting = new Map();
  // The last error that came out of a step, and the step.
  #failed;
  #over = false;

  constructor(link, frame) {
    if (typeof frame.id !== "string" || typeof frame.kind !== "string" || !Number.isInteger(frame.token)) {
      throw new TypeError("a task without an id, a token or a kind");
    }
    this.#link = link;
    this.#steps = frame.steps ?? {};
    this.abort = new AbortController();
    this.began = performance.now();
    this.about = `"id":${encode(frame.id)},"token":${frame.token}`;
    this.key = keyOf(frame);
    this.kind = frame.kind;
    this.payload = frame.payload ?? null;
    this.context = new Context(this, frame);
  }

  // What goes out. Nothing does once the result is said: the node may have given this worker another task.

  say(type, fields) {
    const line = lineOf(type, this.about, fields);
    if (!this.#over) this.#link.send(line);
  }

  note(type, fields) {
    const line = lineOf(type, this.about, fields);
    if (!this.#over) this.#link.note(line, this.about);
  }

  end(result) {
    let line;
    try {
      line = lineOf("result", this.about, result);
    } catch (error) {
      line = lineOf("result", this.about, { ok: false, error: this.failure(error) });
    }
    this.#over = true;
    this.#link.done(this);
    this.#link.send(line);
  }

  // Steps.

  begin(name) {
    if (typeof name !== "string" || name === "") throw new TypeError('name the step: ctx.step("fetched", () => …)');
    this.abort.signal.throwIfAborted();
    if (this.#begun.has(name)) {
      throw new Permanent(`the step "${name}" is done twice in one attempt; each has its own name`, { step: name });
    }
    this.#begun.add(name);
    return Object.hasOwn(this.#steps, name) ? { value: this.#steps[name] } : undefined;
  }

  // Sends what a step came to. The promise is kept when that is durable.
  async keep(name, value) {
    this.abort.signal.throwIfAborted();
    if (this.#over) throw new Error(`the step "${name}" comes too late: the attempt is over`);
    let text;
    try {
      text = encode(value);
    } catch (error) {
      throw new Permanent(`the step "${name}" cannot be written as JSON: ${error.message}`, { step: name, cause: error });
    }
    await new Promise((resolve, reject) => {
      this.say("step", { name, value: new Raw(text) });
      this.#waiting.set(name, { resolve, reject });
      this.#link.sent?.(name, text);
    });
    return JSON.parse(text);
  }

  blame(name, error) {
    // The innermost step that it came out of.
    if (!this.#failed || this.#failed.error !== error) this.#failed = { error, name };
  }

  // What comes in.

  hear(frame) {
    if (frame.type === "saved") {
      const waiting = this.#waiting.get(frame.step);
      this.#waiting.delete(frame.step);
      waiting?.resolve();
    } else if (frame.type === "lost") {
      this.#halt(new Lost("the lease is lost: somebody else has the task"));
    } else if (frame.type === "cancel") {
      this.#halt(new Cancelled(String(frame.reason || "no reason was given")));
    }
  }

  #halt(stop) {
    this.abort.abort(stop);
    for (const { reject } of this.#waiting.values()) reject(stop);
    this.#waiting.clear();
  }

  failure(error) {
    try {
      return this.#failure(error);
    } catch {
      // It is so odd that it cannot be looked at.
      return { message: messageOf(error) };
    }
  }

  // The error as the node has it. One that nobody classed has no class: the pool decides.
  #failure(error) {
    const { signal } = this.abort;
    if (signal.aborted && (error instanceof Stopped || error?.name === "AbortError")) {
      return { message: messageOf(signal.reason) };
    }
    const known = error instanceof TaskError ? error : {};
    const isTransient = TRANSIENT_CODES.has(error?.code ?? error?.cause?.code) || error?.name === "TimeoutError";
    const step = known.step ?? (this.#failed?.error === error ? this.#failed?.name : undefined);
    return {
      class: known.constructor.className ?? (isTransient ? "transient" : undefined),
      message: messageOf(error),
      retry_after_ms: known.retryAfterMs,
      step: step && textOf(step),
      hint: known.hint && textOf(known.hint).slice(0, MAX_MESSAGE_CHARS),
      details: textOf(known.details ?? inspect(error)).slice(0, MAX_DETAILS_CHARS),
    };
  }
}

// ---- the worker ----

class Worker {
  // Under `undefined`: the handler of all other kinds.
  #handlers = new Map();

  task(kind, handler) {
    if (typeof kind === "function") [kind, handler] = [undefined, kind];
    if ((kind !== undefined && typeof kind !== "string") || typeof handler !== "function") {
      throw new TypeError('name the kind: worker.task("resize", async (payload, ctx) => …), or leave it out for all others');
    }
    if (this.#handlers.has(kind)) {
      throw new TypeError(`there are two handlers for ${kind === undefined ? "all other kinds" : `"${kind}"`}`);
    }
    this.#handlers.set(kind, handler);
    return handler;
  }

  run() {
    if (this.#handlers.size === 0) {
      refuse('this worker has no handler. Write one, worker.task("resize", async (payload, ctx) => …), before worker.run().');
    }
    const node = new Node(inheritedSocket(), this.#kinds(), (attempt) => this.#perform(attempt));
    return node.ended;
  }

  async test(kind, payload = null, { steps = {}, attempt = 1, timeoutMs, folder, signal } = {}) {
    const tested = { output: null, steps, progress: [], logs: [], files: [], warnings: [] };
    // The handler sees what it would get from a node, and not the very objects of the test.
    const given = JSON.parse(encode({ payload, steps }));
    const memory = new Memory(tested);
    const tried = new Attempt(memory, { id: "test", token: 1, kind, attempt, timeout_ms: timeoutMs, folder, ...given });
    memory.attempt = tried;
    const cancel = () => tried.hear({ type: "cancel", reason: "the test" });
    if (signal?.aborted) cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      tested.output = JSON.parse(await this.#output(tried));
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
    return tested;
  }

  // All kinds that it runs; undefined: any.
  #kinds() {
    return this.#handlers.has(undefined) ? undefined : [...this.#handlers.keys()].sort();
  }

  // One attempt, to its one result.
  async #perform(attempt) {
    let result;
    try {
      result = { ok: true, output: new Raw(await this.#output(attempt)) };
    } catch (error) {
      result = { ok: false, error: attempt.failure(error) };
    }
    attempt.end(result);
  }

  // Runs the handler. What it returns, as JSON.
  async #output(attempt) {
    const handler = this.#handlers.get(attempt.kind) ?? this.#handlers.get(undefined);
    if (!handler) {
      const known = this.#kinds().join(", ");
      throw new Permanent(`this worker has no handler for the kind "${attempt.kind}"; it has: ${known}`);
    }
    attempt.abort.signal.throwIfAborted();
    const output = await handler(attempt.payload, attempt.context);
    try {
      return encode(output);
    } catch (error) {
      const message = `what the handler of "${attempt.kind}" returned cannot be written as JSON: ${error.message}`;
      throw new Permanent(message, { cause: error });
    }
  }
}

// ---- who is at the other end ----

// The node, by the socket to it.
class Node {
  #socket;
  #kinds;
  #perform;
  #parts = [];
  #length = 0;
  // All that have no result yet.
  #live = new Map();
  // What was given is done one after the other.
  #last = Promise.resolve();
  #dropped = 0;
  #left = false;
  #leave;

  constructor(socket, kinds, perform) {
    this.#socket = socket;
    this.#kinds = kinds;
    this.#perform = perform;
    this.ended = new Promise((resolve) => {
      this.#leave = resolve;
    });
    socket.on("data", (data) => this.#listen(data));
    socket.on("end", () => this.#gone());
    socket.on("error", () => this.#gone());
    socket.on("close", () => this.#gone());
  }

  send(line) {
    if (!this.#left) this.#socket.write(line);
  }

  // Sends what the node can do without.
  note(line, about) {
    if (this.#socket.writableLength > MAX_WAITING_BYTES) {
      this.#dropped += 1;
      return;
    }
    if (this.#dropped > 0) {
      const message = `${this.#dropped} notes were dropped, because the node could not take them in time`;
      this.#dropped = 0;
      this.send(lineOf("log", about, { level: "warn", message }));
    }
    this.send(line);
  }

  done(attempt) {
    this.#live.delete(attempt.key);
  }

  #listen(data) {
    try {
      let from = 0;
      for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, from)) {
        const line = Buffer.concat([...this.#parts, data.subarray(from, end)]);
        [this.#parts, this.#length, from] = [[], 0, end + 1];
        this.#hear(JSON.parse(line.toString()));
      }
      this.#parts.push(data.subarray(from));
      this.#length += data.length - from;
      if (this.#length > MAX_FRAME_BYTES) throw new RangeError(`a line of more than ${MAX_FRAME_BYTES} bytes`);
    } catch (error) {
      die(`the node sent what is no frame of protocol ${PROTOCOL}: ${messageOf(error)}`);
    }
  }

  #hear(frame) {
    switch (frame.type) {
      case "task": {
        const attempt = new Attempt(this, frame);
        this.#live.set(attempt.key, attempt);
        this.#last = this.#last.then(() => this.#perform(attempt));
        break;
      }
      case "saved":
      case "lost":
      case "cancel":
        this.#live.get(keyOf(frame))?.hear(frame);
        break;
      case "stop":
        this.#last = this.#last.then(() => this.#end());
        break;
      case "hello":
        if (frame.protocol !== PROTOCOL) {
          die(`the node speaks protocol ${frame.protocol}, and this worker ${PROTOCOL}; install the SDK of its version`);
        }
        this.send(lineOf("ready", undefined, { protocol: PROTOCOL, sdk: `js/${VERSION}`, kinds: this.#kinds }));
        break;
      default: // Whatever else it says is for a later version.
    }
  }

  #end() {
    this.#left = true;
    // What was said is sent before the socket is closed.
    this.#socket.end(() => this.#socket.destroy());
    this.#leave();
  }

  // There is no node any more. An idle worker ends as if it were told to; a busy one works for nobody, and ends at once.
  #gone() {
    if (this.#left) return;
    if (this.#live.size > 0) die("the node is gone; this worker ends, and its task is somebody else's");
    this.#end();
  }
}

// In place of a node, in `Worker.test`: keeps what is said, and saves every step.
class Memory {
  #tested;

  constructor(tested) {
    this.#tested = tested;
  }

  send(line) {
    const frame = JSON.parse(line);
    const tested = this.#tested;
    if (frame.type === "step_failed") tested.warnings.push({ step: frame.name, message: frame.message });
    if (frame.type === "progress") tested.progress.push({ done: frame.done, total: frame.total, note: frame.note });
    if (frame.type === "log") tested.logs.push({ level: frame.level, message: frame.message });
    if (frame.type === "file") tested.files.push(frame.path);
  }

  note(line) {
    this.send(line);
  }

  sent(name, text) {
    this.#tested.steps[name] = JSON.parse(text);
    this.attempt.hear({ type: "saved", step: name });
  }

  done() {}
}

// The socket that the node left to this process. Node.js itself marks what it inherits close-on-exec when it starts.
function inheritedSocket() {
  const number = process.env.OSTLER_FD;
  delete process.env.OSTLER_FD;
  if (number === undefined) {
    const program = JSON.stringify(process.argv[1] ?? "worker.mjs");
    refuse(
      "this is a worker, and a node starts it: OSTLER_FD is not set. Say in ostler.toml\n\n" +
        `    [pool.NAME]\n    executor = "process"\n    command = ["node", ${program}]\n\n` +
        "and run `ostler up`. To try a handler without a node, call worker.test(kind, payload).",
    );
  }
  const wrong = (why) =>
    refuse(`OSTLER_FD should be the number of a socket that a node left open, and is "${number}": ${why}`);
  try {
    if (!/^\d+$/.test(number)) wrong("it is no number");
    if (!fs.fstatSync(Number(number)).isSocket()) wrong("it is no socket");
    return new net.Socket({ fd: Number(number), readable: true, writable: true });
  } catch (error) {
    return wrong(error.message);
  }
}

function refuse(sentence) {
  console.error(`ostler: ${sentence}`);
  process.exit(2);
}

// Ends the process at once: what runs in it does not count any more.
function die(sentence) {
  try {
    fs.writeSync(2, `ostler: ${sentence}\n`);
  } finally {
    process.exit(1);
  }
}

// ---- what is written ----

// JSON that is written already.
class Raw {
  constructor(text) {
    this.text = text;
  }
}

// The value as JSON that every reader takes. What JavaScript has no JSON for is refused; nothing at all is null.
function encode(value) {
  const text = value === undefined ? "null" : JSON.stringify(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} is no JSON`);
  // Halves of characters are the only thing that is written so.
  if (text.includes("\\ud") && /(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(text)) throw new TypeError("it has half of a character in it");
  return text;
}

// A frame as it is sent, without the fields that are undefined. Over the bound nothing is.
function lineOf(type, about, fields) {
  const parts = about === undefined ? [`"type":"${type}"`] : [`"type":"${type}"`, about];
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null) parts.push(`"${name}":${value instanceof Raw ? value.text : encode(value)}`);
  }
  const line = `{${parts.join(",")}}\n`;
  // A character has three bytes at most, so the count is left out where it cannot be over.
  if (line.length * 3 > MAX_FRAME_BYTES && Buffer.byteLength(line) > MAX_FRAME_BYTES) {
    const what = type === "step" ? `the step "${fields.name}"` : `the ${type}`;
    const hint = "write it to a file in the task's folder, and say ctx.file(path)";
    const message = `${what} has ${Buffer.byteLength(line)} bytes as JSON; at most ${MAX_FRAME_BYTES} can be sent`;
    throw new Permanent(message, { hint });
  }
  return line;
}

function keyOf(frame) {
  return `${frame.token} ${frame.id}`;
}

function messageOf(error) {
  let said = "(its message cannot be read)";
  try {
    if (error instanceof Cancelled) said = `cancelled: ${error.message}`;
    else if (error instanceof TaskError || error instanceof Stopped) said = String(error.message);
    else said = error instanceof Error ? String(error) : inspect(error);
  } catch {
    // It is what it was.
  }
  return textOf(said.length <= MAX_MESSAGE_CHARS ? said : `${said.slice(0, MAX_MESSAGE_CHARS - 1)}…`);
}

// Text that can be sent: what is no character becomes the sign for that.
function textOf(text) {
  return Buffer.from(String(text)).toString();
}

function wait(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) throw new TypeError(`a time to wait is milliseconds, and not ${inspect(ms)}`);
  return Math.max(0, Math.ceil(ms));
}

const worker = new Worker();

module.exports = {
  worker, Worker,
  TaskError, Transient, PartialError, Permanent, RateLimited, QueueStop,
  // Its name before. In TypeScript a class of that name takes the place of the built-in type.
  Partial: PartialError,
  Stopped, Cancelled, Lost,
};

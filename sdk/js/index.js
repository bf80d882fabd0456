// Worker SDK for Ostler, in one file without dependencies.
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
// A node starts this program (executor = "process") and sends it tasks over an inherited socket: one at a time, or as many at once
// as the pool's per_worker says. What a handler returns is the task's output, what it throws is the task's error, and what it prints
// goes to the task's log.
//
// Read the file from the top: errors, the context, the worker, and then the worker protocol. `index.d.ts` documents the public
// API.
"use strict";

const { AsyncLocalStorage } = require("node:async_hooks");
const { once } = require("node:events");
const fs = require("node:fs");
const net = require("node:net");
const path = require("node:path");
const { inspect } = require("node:util");

const VERSION = "0.1.0";
const PROTOCOL = 1;
// The protocol's limit for one line, including the newline.
const MAX_FRAME_BYTES = 16 * 1024 * 1024;
// Error messages and details are truncated at these lengths.
const MAX_MESSAGE_CHARS = 16 * 1024;
const MAX_DETAILS_CHARS = 64 * 1024;
// While more than this is buffered for the node, progress and log lines are dropped: a handler that never yields would fill
// memory otherwise.
const MAX_WAITING_BYTES = 1024 * 1024;
// A longer line of output is split.
const MAX_LINE_CHARS = 8 * 1024;
const LEVELS = ["debug", "info", "warn", "error"];
const ROLES = ["user", "assistant", "system"];
const BACKOFFS = ["fixed", "linear", "exponential"];
const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
// Error codes of the system and of undici that are transient.
const TRANSIENT_CODES = new Set(
  ["ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "EPIPE", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "EAI_AGAIN"]
    .concat(["UND_ERR_SOCKET", "UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT"]),
);

// ---- errors that a handler throws ----

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
      throw new TypeError(`${new.target.name} needs either afterMs (milliseconds) or until (a Date)`);
    }
    super(message, { ...options, retryAfterMs: until === undefined ? afterMs : until.getTime() - Date.now() });
  }
}

class UsageLimit extends RateLimited {
  static className = "usage_limit";
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

// ---- the context of a handler ----

class Context {
  #attempt;

  constructor(attempt, frame) {
    this.#attempt = attempt;
    this.id = frame.id;
    this.kind = frame.kind;
    this.attempt = frame.attempt ?? 1;
    this.folder = frame.folder ?? undefined;
    this.traceparent = frame.traceparent ?? undefined;
    this.previousSession = frame.previous_session ?? undefined;
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
    // Compare names without resolving links: the folder itself may be reached through one.
    const inside = path.relative(this.folder, path.resolve(this.folder, name));
    if (inside === "" || inside.split(path.sep)[0] === "..") {
      throw new RangeError(`ctx.file("${name}"): it must be a file inside of the task's folder, ${this.folder}`);
    }
    this.#attempt.say("file", { path: textOf(inside) });
  }

  secret(name) {
    const value = process.env[name];
    if (value === undefined) throw new QueueStop(`the pool has no secret "${name}"`, { hint: "add it to the pool's secrets" });
    return value;
  }

  // A conversation with a model. Nothing of it is left out: each call resolves when the node can take more.

  prompt(text) {
    return this.#attempt.record("prompt", { text: textOf(text) });
  }

  async message(text, role = "assistant") {
    if (!ROLES.includes(role)) {
      throw new RangeError(`the role of a message is "user", "assistant" or "system", and not ${inspect(role)}`);
    }
    await this.#attempt.record("message", { text: textOf(text), role });
  }

  thinking(text) {
    return this.#attempt.record("thinking", { text: textOf(text) });
  }

  toolCall(call, tool, input) {
    return this.#attempt.record("tool_call", { call: textOf(call), tool: textOf(tool), input });
  }

  toolResult(call, output, { error = false } = {}) {
    return this.#attempt.record("tool_result", { call: textOf(call), output, error: error || undefined });
  }

  async usage({ model, inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, reasoningTokens, costUsd, estimated } = {}) {
    const tokens = { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, reasoningTokens };
    for (const [name, value] of Object.entries(tokens)) {
      if (value !== undefined && (!Number.isSafeInteger(value) || value < 0)) {
        throw new RangeError(`${name} of ctx.usage must be a whole number, not below 0, and is ${value}`);
      }
    }
    if (costUsd !== undefined && !(Number.isFinite(costUsd) && costUsd >= 0)) {
      throw new RangeError(`costUsd of ctx.usage must be a number, not below 0, and is ${costUsd}`);
    }
    await this.#attempt.record("usage", {
      model: model == null ? undefined : textOf(model),
      input_tokens: inputTokens,
      output_tokens: outputTokens,
      cache_read_tokens: cacheReadTokens,
      cache_write_tokens: cacheWriteTokens,
      reasoning_tokens: reasoningTokens,
      cost_usd: costUsd,
      estimated: estimated || undefined,
    });
  }

  async session(id) {
    const session = textOf(id);
    await this.#attempt.ask(`session ${session}`, `the session "${session}"`, "session", { session });
  }

  async submit(kind, payload, { queue, key, delayMs, id } = {}) {
    if (typeof kind !== "string" || kind === "") throw new TypeError('name the kind: ctx.submit("resize", {…})');
    const delay = delayMs === undefined ? undefined : wait(delayMs);
    let text;
    try {
      text = encode(payload);
    } catch (error) {
      throw new Permanent(`the payload of ctx.submit cannot be written as JSON: ${error.message}`, { cause: error });
    }
    const fields = { kind, payload: new Raw(text), queue, key, delay_ms: delay, task: id };
    return (await this.#attempt.request("the task", "submit", fields)).task;
  }

  run(prompt, { pool, id, folder, maxIterations, model } = {}) {
    const payload = { prompt: textOf(prompt), max_iterations: maxIterations, model };
    const place = folder === undefined ? undefined : path.resolve(folder);
    return this.#submit("run", payload, { queue: pool, key: id, folder: place });
  }

  async #submit(kind, payload, fields) {
    return (await this.#attempt.request("the run", "submit", { kind, payload: new Raw(encode(payload)), ...fields })).task;
  }

  async task(id = this.id) {
    const { task } = await this.#attempt.request("the question", "lookup", { task: String(id) });
    if (!task) return undefined;
    const { queue, kind, payload, key, folder, attempts, failures, created_at_ms: at } = task;
    return {
      id: task.id,
      state: task.state,
      output: task.output ?? undefined,
      error: task.error ?? undefined,
      queue,
      kind,
      payload,
      key: key ?? undefined,
      folder: folder ?? undefined,
      attempts,
      failures,
      createdAt: at === undefined ? undefined : new Date(at),
    };
  }

  gateway() {
    return new Gateway(this.#attempt);
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
      // An attempt that must stop is not a failed step.
      this.check();
      await this.#attempt.keep(name, null);
      this.#attempt.say("step_failed", { name, message: messageOf(error) });
      return null;
    }
    return this.#attempt.keep(name, done);
  }
}

// The gateway of a pool: sessions with an agent.
class Gateway {
  #attempt;

  constructor(attempt) {
    this.#attempt = attempt;
  }

  async createSession({ userId, workspace } = {}) {
    const place = workspace === undefined ? undefined : path.resolve(workspace);
    const call = { gateway: "create_session", user_id: userId, workspace: place };
    return new GatewaySession(this.#attempt, await this.#attempt.gateway(call));
  }

  async resumeSession(id, { workspace } = {}) {
    const place = workspace === undefined ? undefined : path.resolve(workspace);
    const call = { gateway: "resume_session", id: String(id), workspace: place };
    return new GatewaySession(this.#attempt, await this.#attempt.gateway(call));
  }
}

class GatewaySession {
  #attempt;
  #number;

  constructor(attempt, { session, id }) {
    this.#attempt = attempt;
    this.#number = session;
    this.id = id;
  }

  async runQuery(input, options) {
    return this.#result(await this.#attempt.gateway(this.#call("run_query", input, options)));
  }

  async *stream(input, options) {
    const attempt = this.#attempt;
    const { query } = await attempt.gateway(this.#call("stream_query", input, options));
    let isOver = false;
    try {
      while (!isOver) {
        const answer = await attempt.gateway({ gateway: "next_events", query });
        for (const event of answer.events ?? []) yield eventOf(event);
        if (answer.events) continue;
        isOver = true;
        yield { type: "result", ...this.#result(answer) };
      }
    } finally {
      // A loop that was left early, or an error.
      if (!isOver) attempt.dropQuery(query);
    }
  }

  #call(gateway, input, { maxIterations, ...options } = {}) {
    const given = maxIterations === undefined ? options : { max_iterations: maxIterations, ...options };
    return { gateway, session: this.#number, input: textOf(input), options: given };
  }

  #result({ output, id }) {
    this.id = id;
    return { output, text: typeof output === "string" ? output : encode(output), sessionId: id };
  }
}

// An event of a query, as `index.d.ts` has it.
function eventOf({ type, ...fields }) {
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
  if (type !== "usage") return { type, ...given };
  const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  return { type, usage: Object.fromEntries(Object.entries(given).map(([name, value]) => [camel(name), value])) };
}

// The error for one of the gateway. Those without a class of their own here have its name.
function errorOf({ class: name, message, retry_after_ms: retryAfterMs, hint, details }) {
  const known = [Transient, PartialError, Permanent, QueueStop].find((kind) => kind.className === name) ?? TaskError;
  const options = { retryAfterMs: retryAfterMs ?? undefined, hint: hint ?? undefined, details: details ?? undefined };
  const error = new known(message ?? "the gateway gave no reason", options);
  error.className = name;
  return error;
}

// One attempt: sends the handler's frames, and handles the node's frames for it.
class Attempt {
  #link;
  #steps;
  #begun = new Set();
  // For each frame that waits for its answer: the functions that settle its promise.
  #waiting = new Map();
  #requests = 0;
  // The last error thrown by a step, and the step's name.
  #failed;
  // What it printed, up to the end of the line, by stream, if it shares the process.
  #printed = new Map();
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

  // Outgoing frames. None after the result: the node may have sent this worker another task.

  say(type, fields) {
    const line = lineOf(type, this.about, fields);
    if (!this.#over) this.#link.send(line);
  }

  note(type, fields) {
    const line = lineOf(type, this.about, fields);
    if (!this.#over) this.#link.note(line, this.about);
  }

  // Sends a part of a conversation. The promise resolves when the node can take more.
  async record(type, fields) {
    this.say(type, fields);
    await this.#link.room();
  }

  // Logs printed output, line by line.
  print(stream, text) {
    const lines = ((this.#printed.get(stream) ?? "") + text).split("\n");
    let rest = lines.pop();
    for (; rest.length > MAX_LINE_CHARS; rest = rest.slice(MAX_LINE_CHARS)) lines.push(rest.slice(0, MAX_LINE_CHARS));
    this.#printed.set(stream, rest);
    for (const line of lines) this.note("log", { level: "info", message: textOf(line) });
  }

  end(result) {
    for (const rest of this.#printed.values()) if (rest) this.note("log", { level: "info", message: textOf(rest) });
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

  // Sends a step's result. The promise resolves when it is durable.
  async keep(name, value) {
    let text;
    try {
      text = encode(value);
    } catch (error) {
      throw new Permanent(`the step "${name}" cannot be written as JSON: ${error.message}`, { step: name, cause: error });
    }
    await this.ask(`step ${name}`, `the step "${name}"`, "step", { name, value: new Raw(text) });
    return JSON.parse(text);
  }

  // Sends a frame with a number, and returns the answer.
  request(what, type, fields) {
    this.#requests += 1;
    return this.ask(`request ${this.#requests}`, what, type, { request: this.#requests, ...fields });
  }

  // Asks the gateway of the pool.
  async gateway(call) {
    if (!this.#link.gateway) throw new Permanent("the pool has no gateway", { hint: "set gateway in the pool's config" });
    let text;
    try {
      text = encode(call);
    } catch (error) {
      throw new Permanent(`what is asked of the gateway cannot be written as JSON: ${error.message}`, { cause: error });
    }
    const { refused, answer } = await this.request("the query", "call", { call: new Raw(text) });
    if (refused !== undefined) throw new Permanent(String(refused));
    if (answer.error) throw errorOf(answer.error);
    return answer;
  }

  // Gives a query up. Nothing waits for the answer.
  dropQuery(query) {
    this.#requests += 1;
    this.say("call", { request: this.#requests, call: { gateway: "drop_query", query } });
  }

  // Sends a frame, and returns the node's answer.
  async ask(key, what, type, fields) {
    this.abort.signal.throwIfAborted();
    if (this.#over) throw new Error(`${what} comes too late: the attempt is over`);
    const answer = await new Promise((resolve, reject) => {
      this.#waiting.set(key, { resolve, reject });
      try {
        this.say(type, fields);
      } catch (error) {
        this.#waiting.delete(key);
        reject(error);
      }
    });
    if (answer.type === "refused") {
      throw new (answer.class === "transient" ? Transient : Permanent)(answer.message ?? `${what} was refused`);
    }
    return answer;
  }

  blame(name, error) {
    // Keep the innermost step that threw it.
    if (!this.#failed || this.#failed.error !== error) this.#failed = { error, name };
  }

  // Incoming frames.

  hear(frame) {
    if (frame.type === "lost") {
      this.#halt(new Lost("the lease is lost: another node has the task"));
    } else if (frame.type === "cancel") {
      this.#halt(new Cancelled(String(frame.reason || "no reason was given")));
    } else {
      // By the name of the step, the id of the session, or the number of the request.
      const name = ["step", "session", "request"].find((name) => name in frame);
      const key = `${name} ${frame[name]}`;
      const waiting = this.#waiting.get(key);
      this.#waiting.delete(key);
      waiting?.resolve(frame);
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
      // Inspecting it throws.
      return { message: messageOf(error) };
    }
  }

  // The error object of a result frame. Without a class, the pool decides.
  #failure(error) {
    const { signal } = this.abort;
    if (signal.aborted && (error instanceof Stopped || error?.name === "AbortError")) {
      return { message: messageOf(signal.reason) };
    }
    const known = error instanceof TaskError ? error : {};
    const isTransient = TRANSIENT_CODES.has(error?.code ?? error?.cause?.code) || error?.name === "TimeoutError";
    const step = known.step ?? (this.#failed?.error === error ? this.#failed?.name : undefined);
    return {
      class: known.className ?? known.constructor.className ?? (isTransient ? "transient" : undefined),
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
  // The key `undefined` has the handler for all other kinds.
  #handlers = new Map();
  #options = {};

  task(kind, options, handler) {
    if (typeof kind === "function") [kind, options, handler] = [undefined, undefined, kind];
    else if (typeof options === "function") [options, handler] = [undefined, options];
    if ((kind !== undefined && typeof kind !== "string") || typeof handler !== "function") {
      throw new TypeError('name the kind: worker.task("resize", async (payload, ctx) => …), or leave it out for all others');
    }
    if (this.#handlers.has(kind)) {
      throw new TypeError(`there are two handlers for ${kind === undefined ? "all other kinds" : `"${kind}"`}`);
    }
    const given = optionsOf(options);
    if (given && kind === undefined) throw new TypeError('options belong to a kind: worker.task("resize", { attempts: 5 }, …)');
    if (given) this.#options[kind] = given;
    this.#handlers.set(kind, handler);
    return handler;
  }

  run() {
    if (this.#handlers.size === 0) {
      refuse('this worker has no handler. Write one, worker.task("resize", async (payload, ctx) => …), before worker.run().');
    }
    const ready = { kinds: this.#kinds(), options: Object.keys(this.#options).length > 0 ? this.#options : undefined };
    const node = new Node(inheritedSocket(), ready, (attempt) => this.#perform(attempt));
    return node.ended;
  }

  async test(kind, payload = null, { steps = {}, attempt = 1, timeoutMs, folder, signal, tasks = [], answers, events = [] } = {}) {
    const tested = { output: null, steps, progress: [], logs: [], files: [], warnings: [], conversation: [], submitted: [], queries: [], dropped: [] };
    // As from a node: a JSON copy, not the objects of the test.
    const given = JSON.parse(encode({ payload, steps }));
    const memory = new Memory(tested, tasks, answers, events);
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

  // All kinds with a handler; undefined: any kind.
  #kinds() {
    return this.#handlers.has(undefined) ? undefined : [...this.#handlers.keys()].sort();
  }

  // Runs one attempt and sends its result.
  async #perform(attempt) {
    let result;
    try {
      result = { ok: true, output: new Raw(await this.#output(attempt)) };
    } catch (error) {
      result = { ok: false, error: attempt.failure(error) };
    }
    attempt.end(result);
  }

  // Runs the handler and returns its output as JSON.
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

// ---- the connection to the node ----

// The socket to the node.
class Node {
  #socket;
  #ready;
  #perform;
  #parts = [];
  #length = 0;
  // Attempts without a result.
  #live = new Map();
  // Whether the pool has a gateway.
  gateway = false;
  // How many tasks the node may send at once.
  #slots = 1;
  // Runs tasks one after the other, if it is one.
  #last = Promise.resolve();
  // Those that run side by side.
  #running = new Set();
  #dropped = 0;
  #left = false;
  #leave;

  constructor(socket, ready, perform) {
    this.#socket = socket;
    this.#ready = ready;
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

  // Sends a frame that may be dropped.
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

  // Resolves when little is buffered.
  async room() {
    while (!this.#left && this.#socket.writableLength > MAX_WAITING_BYTES) await once(this.#socket, "drain");
  }

  done(attempt) {
    this.#live.delete(attempt.key);
  }

  #begin(attempt) {
    if (this.#slots === 1) {
      this.#last = this.#last.then(() => this.#perform(attempt));
      return;
    }
    const running = sharing.run(attempt, () => this.#perform(attempt)).finally(() => this.#running.delete(running));
    this.#running.add(running);
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
        this.#begin(attempt);
        break;
      }
      case "saved":
      case "submitted":
      case "found":
      case "refused":
      case "answer":
      case "lost":
      case "cancel":
        this.#live.get(keyOf(frame))?.hear(frame);
        break;
      case "stop":
        Promise.all([this.#last, ...this.#running]).then(() => this.#end());
        break;
      case "hello": {
        if (frame.protocol !== PROTOCOL) {
          die(`the node speaks protocol ${frame.protocol}, and this worker ${PROTOCOL}; install the SDK of its version`);
        }
        this.gateway = frame.gateway === true;
        this.#slots = Math.max(1, frame.per_worker ?? 1);
        if (this.#slots > 1) shareOutput();
        const per_worker = this.#slots > 1 ? this.#slots : undefined;
        this.send(lineOf("ready", undefined, { protocol: PROTOCOL, sdk: `js/${VERSION}`, per_worker, ...this.#ready }));
        break;
      }
      default: // Other types belong to later versions.
    }
  }

  #end() {
    this.#left = true;
    // Flush before closing the socket.
    this.#socket.end(() => this.#socket.destroy());
    this.#leave();
  }

  // The node is gone. An idle worker ends as after stop; a busy one exits at once, since its result would not count.
  #gone() {
    if (this.#left) return;
    if (this.#live.size > 0) die("the node is gone; this worker exits, and another node will run its task");
    this.#end();
  }
}

// The attempt whose handler runs, while several share the process. Everything that a handler starts inherits it.
const sharing = new AsyncLocalStorage();

// What a handler prints goes to the log of its own task.
function shareOutput() {
  for (const stream of [process.stdout, process.stderr]) {
    const write = stream.write.bind(stream);
    stream.write = (chunk, ...rest) => {
      const attempt = sharing.getStore();
      if (!attempt) return write(chunk, ...rest);
      attempt.print(stream, typeof chunk === "string" ? chunk : Buffer.from(chunk).toString());
      rest.find((done) => typeof done === "function")?.();
      return true;
    };
  }
}

// Replaces the node in `Worker.test`: records frames, and saves every step.
class Memory {
  #tested;
  #tasks;
  #answers;
  #events;
  #sessions = 0;
  // The queries that stream: what their next events are, and their answer.
  #streams = [];

  constructor(tested, tasks, answers, events) {
    this.#tested = tested;
    this.#tasks = tasks;
    this.gateway = answers !== undefined;
    this.#answers = [...(answers ?? [])];
    this.#events = [...events];
  }

  #answered({ gateway, session, input, options, id, query }) {
    if (gateway === "create_session" || gateway === "resume_session") {
      this.#sessions += 1;
      return { session: this.#sessions, id: id ?? `test-session-${this.#sessions}` };
    }
    if (gateway === "drop_query") {
      this.#tested.dropped.push(query);
      return {};
    }
    if (gateway === "next_events") {
      const { events, answer } = this.#streams[query - 1];
      return events.length > 0 ? { events: [events.shift()] } : answer;
    }
    this.#tested.queries.push({ session, input, options });
    const answer = this.#answer(session);
    if (gateway === "run_query") return answer;
    return { query: this.#streams.push({ events: [...(this.#events.shift() ?? [])], answer }) };
  }

  #answer(session) {
    const answer = this.#answers.length > 0 ? this.#answers.shift() : new Permanent("the test has no more answers");
    if (answer instanceof TaskError) {
      return { error: { class: answer.constructor.className, message: answer.message, retry_after_ms: answer.retryAfterMs } };
    }
    return { output: answer, id: `test-session-${session}` };
  }

  send(line) {
    const { id: _, token: __, ...frame } = JSON.parse(line);
    const { request, type } = frame;
    const tested = this.#tested;
    const answer = (answer) => this.attempt.hear({ request, ...answer });
    if (type === "step") {
      tested.steps[frame.name] = frame.value ?? null;
      this.attempt.hear({ type: "saved", step: frame.name });
    } else if (type === "step_failed") tested.warnings.push({ step: frame.name, message: frame.message });
    else if (type === "progress") tested.progress.push({ done: frame.done, total: frame.total, note: frame.note });
    else if (type === "log") tested.logs.push({ level: frame.level, message: frame.message });
    else if (type === "file") tested.files.push(frame.path);
    else if (type === "submit") {
      const { kind, payload, queue, key, delay_ms: delayMs, task: id, folder } = frame;
      tested.submitted.push({ kind, payload: payload ?? null, queue, key, delayMs, id, ...(folder && { folder }) });
      answer({ type: "submitted", task: id ?? `test-${tested.submitted.length}` });
    } else if (type === "lookup") {
      const { context, kind, payload } = this.attempt;
      const own = { id: context.id, state: "running", kind, payload, attempts: context.attempt };
      answer({ type: "found", task: this.#tasks.find((task) => task.id === frame.task) ?? (frame.task === own.id ? own : undefined) });
    } else if (type === "call") {
      answer({ type: "answer", answer: this.#answered(frame.call) });
    } else {
      tested.conversation.push(frame);
      if (type === "session") this.attempt.hear({ type: "saved", session: frame.session });
    }
  }

  async room() {}

  note(line) {
    this.send(line);
  }

  done() {}
}

// The socket inherited from the node. Node.js marks inherited descriptors close-on-exec when it starts.
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

// Exits the process at once: results of running handlers no longer count.
function die(sentence) {
  try {
    fs.writeSync(2, `ostler: ${sentence}\n`);
  } finally {
    process.exit(1);
  }
}

// ---- encoding ----

// Already encoded JSON.
class Raw {
  constructor(text) {
    this.text = text;
  }
}

// Encodes strict JSON. Values without a JSON form are refused; undefined is null.
function encode(value) {
  const text = value === undefined ? "null" : JSON.stringify(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} is no JSON`);
  // JSON.stringify writes only lone surrogates this way.
  if (text.includes("\\ud") && /(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(text)) throw new TypeError("it has half of a character in it");
  return text;
}

// Encodes a frame, without the fields that are undefined or null. Throws `Permanent` if it is too large.
function lineOf(type, about, fields) {
  const parts = about === undefined ? [`"type":"${type}"`] : [`"type":"${type}"`, about];
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null) parts.push(`"${name}":${value instanceof Raw ? value.text : encode(value)}`);
  }
  const line = `{${parts.join(",")}}\n`;
  // A UTF-16 unit has at most three bytes, so most lines need no exact count.
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
    // Keep the default.
  }
  return textOf(said.length <= MAX_MESSAGE_CHARS ? said : `${said.slice(0, MAX_MESSAGE_CHARS - 1)}…`);
}

// Valid UTF-8: lone surrogates become replacement characters.
function textOf(text) {
  return Buffer.from(String(text)).toString();
}

// The options of a kind, as the node takes them.
function optionsOf(options) {
  if (options === undefined) return undefined;
  const { attempts, timeout, backoff, base, max, jitter, maxCrashes, ...others } = options;
  const [other] = Object.keys(others);
  if (other !== undefined) {
    const known = "attempts, timeout, backoff, base, max, jitter, maxCrashes";
    throw new TypeError(`a task has no option ${inspect(other)}; there are: ${known}`);
  }
  for (const [name, value] of Object.entries({ attempts, maxCrashes })) {
    if (value !== undefined && (!Number.isSafeInteger(value) || value < 1)) {
      throw new RangeError(`${name} of a task must be a whole number from 1, and is ${inspect(value)}`);
    }
  }
  if (backoff !== undefined && !BACKOFFS.includes(backoff)) {
    throw new RangeError(`backoff of a task is "fixed", "linear" or "exponential", and not ${inspect(backoff)}`);
  }
  if (jitter !== undefined && typeof jitter !== "boolean") throw new TypeError(`jitter of a task is true or false, and not ${inspect(jitter)}`);
  const times = { timeout_ms: msOf("timeout", timeout), base_ms: msOf("base", base), max_ms: msOf("max", max) };
  const given = { attempts, backoff, jitter, max_crashes: maxCrashes, ...times };
  return Object.values(given).some((value) => value !== undefined) ? given : undefined;
}

// A duration in milliseconds: a text such as "30s", or the number itself.
function msOf(name, time) {
  if (time === undefined) return undefined;
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(time) ?? [];
  const ms = Math.ceil(typeof time === "number" ? time : Number(number) * UNITS_MS[unit]);
  if (!Number.isSafeInteger(ms) || ms < 1) {
    throw new RangeError(`${name} of a task is a time such as "30s", or milliseconds, and not ${inspect(time)}`);
  }
  return ms;
}

function wait(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) throw new TypeError(`a time to wait is milliseconds, and not ${inspect(ms)}`);
  return Math.max(0, Math.ceil(ms));
}

const worker = new Worker();

module.exports = {
  worker, Worker,
  TaskError, Transient, PartialError, Permanent, RateLimited, UsageLimit, QueueStop,
  // Former name. In TypeScript a class of this name would shadow the built-in type.
  Partial: PartialError,
  Stopped, Cancelled, Lost,
};

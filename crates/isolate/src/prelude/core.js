// The core of the prelude: console, timers, `ctx`, and the entry function that Rust calls.
//
// A script may replace every builtin. So what is used after a module has run is taken from the builtins here, before.
(function (host, part, outputLimit) {
  "use strict";
  const { stringify, parse } = JSON;
  const { apply, ownKeys } = Reflect;
  const { defineProperty, freeze, getPrototypeOf } = Object;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const get = uncurry(Map.prototype.get);
  const set = uncurry(Map.prototype.set);
  const remove = uncurry(Map.prototype.delete);
  const then = uncurry(Promise.prototype.then);
  const slice = uncurry(String.prototype.slice);
  const wellFormed = uncurry(String.prototype.toWellFormed);
  const charCodeAt = uncurry(String.prototype.charCodeAt);
  const fromCharCode = String.fromCharCode;
  const isView = ArrayBuffer.isView;
  const { Error, TypeError, EvalError, Promise: NativePromise, String: toText, Number: toNumber, Uint8Array, ArrayBuffer: Buffer } =
    globalThis;
  const MAX_TEXT = 16384;

  // A text that can leave the isolate. Others have lone surrogates.
  const text = (value) => wellFormed(toText(value));
  const record = (fields) => ({ __proto__: null, ...fields });

  // ---- code from strings ----

  const functions = [function () {}, async function () {}, function* () {}, async function* () {}];
  for (let i = 0; i < functions.length; i++) {
    const prototype = getPrototypeOf(functions[i]);
    const refuse = function Function() {
      throw new EvalError("code from strings is not allowed");
    };
    defineProperty(refuse, "prototype", { value: prototype, writable: false });
    defineProperty(prototype, "constructor", { value: refuse, writable: false, enumerable: false, configurable: true });
    if (i === 0) defineProperty(globalThis, "Function", { value: refuse, writable: true, enumerable: false, configurable: true });
  }
  defineProperty(globalThis, "eval", {
    value: freeze(() => {
      throw new EvalError("code from strings is not allowed");
    }),
    writable: true,
    enumerable: false,
    configurable: true,
  });

  // ---- what a task has no use for ----

  // Shared memory needs a second thread; call sites would show the functions of this prelude.
  for (const name of ["SharedArrayBuffer", "Atomics", "WebAssembly", "performance", "DOMException"]) delete globalThis[name];
  for (const name of ["prepareStackTrace", "captureStackTrace", "stackTraceLimit"]) delete Error[name];

  // ---- errors ----

  // A thrown value as text. Getters and proxies of the script run here, under its limits.
  const describe = (value) => {
    const described = record({ name: "", message: "", stack: "" });
    try {
      if (value !== null && (typeof value === "object" || typeof value === "function")) {
        const { name, message, stack } = value;
        if (typeof name === "string") described.name = text(slice(name, 0, MAX_TEXT));
        if (typeof message === "string") described.message = text(slice(message, 0, MAX_TEXT));
        if (typeof stack === "string") described.stack = text(slice(stack, 0, MAX_TEXT));
        if (described.name === "" && described.message === "") described.message = text(slice(inspect(value), 0, MAX_TEXT));
      } else {
        described.message = text(slice(typeof value === "symbol" ? "a symbol" : toText(value), 0, MAX_TEXT));
      }
    } catch {
      described.name = "Error";
      described.message = "an error that cannot be described";
    }
    return stringify(described);
  };

  // ---- console ----

  const inspect = (value) => {
    if (typeof value === "string") return value;
    try {
      if (value instanceof Error) return toText(value.stack ? `${value}\n${value.stack}` : value);
      if (typeof value === "object" && value !== null) return stringify(value) ?? toText(value);
      if (typeof value === "symbol") return "a symbol";
      return toText(value);
    } catch {
      return "[not printable]";
    }
  };
  const print = (level, values) => {
    let line = "";
    for (let i = 0; i < values.length; i++) line += (i === 0 ? "" : " ") + inspect(values[i]);
    host("log", text(level + slice(line, 0, MAX_TEXT + 1)));
  };
  const log = (level) => (...values) => print(level, values);
  const console = { debug: log("d"), log: log("i"), info: log("i"), warn: log("w"), error: log("e"), trace: log("d") };

  // ---- timers ----

  let timers = new Map();
  // An interval gets a new timer each time, and keeps its first id for the script: the first id by the current one.
  let armed = new Map();
  const arm = (callback, delay, rest, repeats) => {
    if (typeof callback !== "function") throw new TypeError("a timer needs a function");
    let milliseconds = toNumber(delay);
    if (!(milliseconds >= 1)) milliseconds = repeats ? 1 : 0;
    if (milliseconds > 2147483647) milliseconds = 2147483647;
    milliseconds -= milliseconds % 1;
    const id = toNumber(host("timer", toText(milliseconds)));
    const timer = record({ callback, rest, milliseconds: repeats ? milliseconds : undefined, id });
    set(timers, id, timer);
    return id;
  };
  const disarm = (id) => {
    const timer = typeof id === "number" ? get(timers, id) : undefined;
    if (timer === undefined) return;
    remove(timers, id);
    if (timer.id !== id) remove(armed, timer.id);
    host("clear", toText(timer.id));
  };
  const fire = (id) => {
    const key = get(armed, id) ?? id;
    const timer = get(timers, key);
    if (timer === undefined) return;
    remove(armed, id);
    if (timer.milliseconds === undefined) remove(timers, key);
    else {
      timer.id = toNumber(host("timer", toText(timer.milliseconds)));
      set(armed, timer.id, key);
    }
    apply(timer.callback, undefined, timer.rest);
  };

  // ---- calls that the host answers later ----

  let waiting = new Map();
  const ask = (question) =>
    new NativePromise((resolve, reject) => {
      set(waiting, toNumber(host("ask", stringify(question))), record({ resolve, reject }));
    });
  const answered = (call, answer) => {
    const caller = get(waiting, call);
    if (caller === undefined) return;
    remove(waiting, call);
    const sort = answer[0];
    const rest = slice(answer, 1);
    if (sort === "e") caller.reject(new Error(rest));
    else caller.resolve(sort === "j" ? parse(rest) : sort === "b" ? bytesOf(rest) : undefined);
  };

  // Bytes cross as text with one character for each.
  const bytesOf = (binary) => {
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = charCodeAt(binary, i);
    return bytes;
  };
  const binaryOf = (bytes) => {
    let binary = "";
    for (let i = 0; i < bytes.length; i++) binary += fromCharCode(bytes[i]);
    return binary;
  };
  const viewOf = (data) => {
    if (data instanceof Buffer) return new Uint8Array(data);
    if (isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    throw new TypeError("bytes are an ArrayBuffer or a view of one");
  };

  // ---- globals of the other parts ----

  const tools = record({
    host, ask, arm, disarm, text, record, bytesOf, binaryOf, viewOf, uncurry, stringify, parse, global: globalThis,
    part: (name) => load(name),
  });
  const parts = new Map();
  const load = (name) => {
    let made = get(parts, name);
    if (made === undefined) {
      made = part(name)(tools);
      set(parts, name, made);
    }
    return made;
  };
  const define = (name, value) =>
    defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
  const late = (from, names) => {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      defineProperty(globalThis, name, {
        get() {
          const value = load(from)[name];
          define(name, value);
          return value;
        },
        set(value) {
          define(name, value);
        },
        enumerable: false,
        configurable: true,
      });
    }
  };
  define("console", console);
  define("setTimeout", function setTimeout(callback, delay, ...rest) { return arm(callback, delay, rest, false); });
  define("setInterval", function setInterval(callback, delay, ...rest) { return arm(callback, delay, rest, true); });
  define("clearTimeout", function clearTimeout(id) { disarm(id); });
  define("clearInterval", function clearInterval(id) { disarm(id); });
  late("abort", ["AbortController", "AbortSignal"]);
  late("clone", ["structuredClone"]);
  late("crypto", ["crypto"]);
  late("fetch", ["fetch", "Headers", "Request", "Response"]);
  late("text", ["TextEncoder", "TextDecoder", "atob", "btoa"]);
  late("url", ["URL", "URLSearchParams"]);

  // ---- the function ----

  let handler;
  const loaded = (namespace) => {
    const exported = namespace.default;
    if (typeof exported === "function") {
      handler = exported;
      return host("loaded", "");
    }
    if (exported !== null && typeof exported === "object" && typeof exported.fetch === "function") {
      handler = (payload, ctx) => load("fetch").serve(exported, payload, ctx);
      return host("loaded", "");
    }
    return host("fault", "the module has no default export that is a function, or an object with a function fetch");
  };

  // The number of the current call: what an earlier call left behind in this isolate cannot speak for it.
  let current = 0;
  let cancelled = false;
  let abort;

  const context = (info, run) => {
    const check = () => {
      if (run !== current) throw new Error("the attempt of this ctx is over");
    };
    const asking = (question) => {
      check();
      return ask(question);
    };
    let controller;
    const step = async (name, work) => {
      if (typeof name !== "string" || name === "") throw new TypeError('name the step: ctx.step("fetched", () => …)');
      if (typeof work !== "function") throw new TypeError(`the step "${name}" needs a function`);
      const saved = await asking(record({ ask: "begin_step", name: text(name) }));
      if (saved !== undefined) return saved;
      const value = await work();
      const json = stringify(value) ?? "null";
      await asking(record({ ask: "save_step", name: text(name), value: text(json) }));
      // What a later attempt would get.
      return parse(json);
    };
    return freeze({
      task: info.task,
      queue: info.queue,
      kind: info.kind,
      attempt: info.attempt,
      deadline: info.deadline,
      get signal() {
        if (controller === undefined) {
          controller = new (load("abort").AbortController)();
          if (run === current) abort = () => controller.abort();
          if (cancelled && run === current) controller.abort();
        }
        return controller.signal;
      },
      step,
      progress(done, total, note) {
        check();
        const count = (value) => (value === undefined || value === null ? null : toNumber(value));
        host("progress", stringify(record({ done: count(done), total: count(total), note: note === undefined ? null : text(note) })));
      },
      log(...values) {
        check();
        print("i", values);
      },
      async file(path, data) {
        const bytes = typeof data === "string" ? new (load("text").TextEncoder)().encode(data) : viewOf(data);
        await asking(record({ ask: "write_file", path: text(path), bytes: binaryOf(bytes) }));
      },
      secret(name) {
        check();
        return host("secret", text(name));
      },
    });
  };

  const returned = (value) => {
    const json = stringify(value);
    if (json === undefined) host("nothing", "");
    else if (json.length > outputLimit) host("oversize", "");
    else host("output", json);
  };
  const call = (payload, info) => {
    current += 1;
    cancelled = false;
    abort = undefined;
    if (current > 1) {
      // What an earlier call left behind.
      timers = new Map();
      armed = new Map();
      waiting = new Map();
    }
    const run = current;
    const ctx = context(parse(info), run);
    const report = (error) => host("threw", describe(error));
    // Only this call may report: a function of an earlier one could still return.
    const only = (act) => (value) => (run === current ? act(value) : undefined);
    const work = new NativePromise((resolve) => resolve(handler(parse(payload), ctx)));
    then(then(work, only(returned)), undefined, only(report));
  };

  return function enter(op, first, second) {
    switch (op) {
      case "load":
        then(then(first, () => loaded(second)), undefined, (error) => host("threw", describe(error)));
        return undefined;
      case "call":
        return call(first, second);
      case "timer":
        return fire(toNumber(first));
      case "answer":
        return answered(toNumber(first), second);
      case "abort":
        cancelled = true;
        if (abort !== undefined) abort();
        return undefined;
      case "describe":
        return describe(first);
    }
  };
})

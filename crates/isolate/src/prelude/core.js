// The core of the prelude: what every isolate executes before a function's modules. It is executed for each isolate, so it is short:
// the parts make everything else, at its first use.
//
// A script may replace every builtin. What the core uses afterwards it takes from them first; the parts find what is there when they
// are executed, so a script that replaces builtins changes what its own globals do.
(function (host, part) {
  "use strict";
  const { stringify, parse } = JSON;
  const { defineProperty, getPrototypeOf } = Object;
  const { Promise, Proxy, Reflect, EvalError, Error } = globalThis;
  const then = Function.prototype.call.bind(Promise.prototype.then);

  // One descriptor for all definitions, and no iterators: this runs for each isolate.
  const descriptor = { __proto__: null, enumerable: false, configurable: true };
  const hide = (object, key, value) =>
    defineProperty(object, key, { __proto__: null, value, writable: true, enumerable: false, configurable: true });

  // Code from strings is refused, by all four constructors of functions.
  const refused = () => {
    throw new EvalError("code from strings is not allowed");
  };
  const functions = [refused, async () => {}, function* () {}, async function* () {}];
  for (let i = 0; i < 4; i++) {
    const prototype = getPrototypeOf(functions[i]);
    const constructor = function Function() {
      refused();
    };
    constructor.prototype = prototype;
    hide(prototype, "constructor", constructor);
  }
  hide(globalThis, "Function", refused.constructor);
  hide(globalThis, "eval", refused);

  // Shared memory needs a second thread; call sites would show the functions of the prelude.
  delete globalThis.SharedArrayBuffer;
  delete globalThis.Atomics;
  delete globalThis.WebAssembly;
  delete Error.prepareStackTrace;
  delete Error.captureStackTrace;
  delete Error.stackTraceLimit;

  // `run` is the number of the current call: what an earlier call left behind in this isolate cannot speak for it.
  const state = { __proto__: null, run: 0, cancelled: false, abort: undefined, failed: undefined };
  const made = { __proto__: null };
  const load = (name) => (made[name] ??= part(name)({ __proto__: null, host, state, part: load }));
  const late = (from, names) => {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      const define = (value) => {
        hide(globalThis, name, value);
        return value;
      };
      descriptor.get = () => define(load(from)[name]);
      descriptor.set = define;
      defineProperty(globalThis, name, descriptor);
    }
  };
  late("abort", ["AbortController", "AbortSignal"]);
  late("clone", ["structuredClone"]);
  late("console", ["console"]);
  late("crypto", ["crypto"]);
  late("fetch", ["fetch", "Headers", "Request", "Response"]);
  late("text", ["TextEncoder", "TextDecoder", "atob", "btoa"]);
  late("timers", ["setTimeout", "setInterval", "clearTimeout", "clearInterval"]);
  late("url", ["URL", "URLSearchParams"]);

  // The real `ctx` is made when a function first looks at it: every trap of this proxy goes to it.
  const context = (run, info) => {
    let real;
    const trap = (name) => (_, key, ...rest) => {
      real ??= load("ctx").context(parse(info), run);
      return Reflect[name](real, key, ...rest);
    };
    return new Proxy({}, new Proxy({}, { get: (_, name) => trap(name) }));
  };

  let handler;
  const loaded = ({ default: exported }) => {
    if (typeof exported === "function") handler = exported;
    else if (typeof exported === "object" && typeof exported?.fetch === "function")
      handler = (payload, ctx) => load("fetch").serve(exported, payload, ctx);
    else return host("fault", "the module has no default export that is a function, or an object with a function fetch");
    return host("loaded", "");
  };
  const threw = (error) => host("threw", load("errors").describe(error));
  const call = (payload, info) => {
    const run = (state.run += 1);
    state.cancelled = false;
    state.abort = undefined;
    state.failed = undefined;
    const returned = (value) => {
      // Only this call may report: a function of an earlier one could still return.
      if (run !== state.run) return;
      const json = stringify(value);
      if (json === undefined) host("nothing", "");
      else host("output", json);
    };
    const work = new Promise((resolve) => resolve(handler(parse(payload), context(run, info))));
    then(then(work, returned), undefined, (error) => (run === state.run ? threw(error) : undefined));
  };

  return function enter(op, first, second) {
    switch (op) {
      case "load":
        then(then(first, () => loaded(second)), undefined, threw);
        return undefined;
      case "call":
        return call(first, second);
      case "timer":
        return load("timers").fire(+first);
      case "answer":
        return load("calls").answered(+first, second);
      case "abort":
        state.cancelled = true;
        return state.abort?.();
      case "describe":
        return load("errors").describe(first);
    }
  };
})

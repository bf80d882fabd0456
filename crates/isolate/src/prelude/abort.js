// AbortController and AbortSignal. An abort without a reason is an Error with the name AbortError.
(function ({ part }) {
  const { record } = part("tools");
  const { arm } = part("timers");
  const { Error, TypeError, Set } = globalThis;
  const key = {};
  const named = (name, message) => {
    const error = new Error(message);
    error.name = name;
    return error;
  };

  class AbortSignal {
    #aborted = false;
    #reason;
    #listeners = new Set();
    onabort = null;

    constructor(own) {
      if (own !== key) throw new TypeError("Illegal constructor");
    }
    get aborted() {
      return this.#aborted;
    }
    get reason() {
      return this.#reason;
    }
    throwIfAborted() {
      if (this.#aborted) throw this.#reason;
    }
    addEventListener(type, listener, options) {
      if (type !== "abort" || listener === null || listener === undefined) return;
      for (const known of this.#listeners) if (known.listener === listener) return;
      this.#listeners.add({ listener, once: typeof options === "object" && options !== null && !!options.once });
    }
    removeEventListener(type, listener) {
      if (type !== "abort") return;
      for (const known of this.#listeners) if (known.listener === listener) this.#listeners.delete(known);
    }
    static abort(reason) {
      const signal = new AbortSignal(key);
      signal.#abort(reason === undefined ? named("AbortError", "This operation was aborted") : reason);
      return signal;
    }
    static timeout(milliseconds) {
      const signal = new AbortSignal(key);
      arm(() => signal.#abort(named("TimeoutError", "The operation timed out")), milliseconds, [], false);
      return signal;
    }
    static any(signals) {
      const joined = new AbortSignal(key);
      for (const signal of signals) {
        if (signal.aborted) {
          joined.#abort(signal.reason);
          break;
        }
        signal.addEventListener("abort", () => joined.#abort(signal.reason), { once: true });
      }
      return joined;
    }
    #abort(reason) {
      if (this.#aborted) return;
      this.#aborted = true;
      this.#reason = reason;
      const event = record({ type: "abort", target: this });
      const listeners = [...this.#listeners];
      if (typeof this.onabort === "function") this.onabort(event);
      for (const known of listeners) {
        if (known.once) this.#listeners.delete(known);
        if (typeof known.listener === "function") known.listener(event);
        else known.listener.handleEvent(event);
      }
    }
    static of(own) {
      if (own !== key) throw new TypeError("Illegal call");
      const signal = new AbortSignal(key);
      return { signal, abort: (reason) => signal.#abort(reason) };
    }
  }
  const { of } = AbortSignal;
  delete AbortSignal.of;

  class AbortController {
    #own = of(key);
    get signal() {
      return this.#own.signal;
    }
    abort(reason) {
      this.#own.abort(reason === undefined ? named("AbortError", "This operation was aborted") : reason);
    }
  }
  return record({ AbortController, AbortSignal });
})

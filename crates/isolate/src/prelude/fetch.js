// fetch, Headers, Request and Response. The host sends requests; a body arrives in pieces, and is read once.
(function ({ part }) {
  const { record, text, viewOf, binaryOf, uncurry } = part("tools");
  const { ask } = part("calls");
  const { TypeError, Symbol, Uint8Array, ArrayBuffer, Map, Promise } = globalThis;
  const { TextEncoder, TextDecoder } = part("text");
  const { URL, URLSearchParams } = part("url");
  const toLowerCase = uncurry(String.prototype.toLowerCase);
  const toUpperCase = uncurry(String.prototype.toUpperCase);
  const METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];
  const REDIRECTS = ["follow", "error", "manual"];
  const NO_BODY = [204, 205, 304];

  class Headers {
    #list = new Map();
    // Cookies have commas of their own, so they are not joined.
    #cookies = [];

    constructor(init) {
      if (init === undefined || init === null) return;
      const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
      for (const [name, value] of pairs) this.append(name, value);
    }
    append(name, value) {
      const known = this.get(name);
      const cookies = this.#cookies;
      this.set(name, known === null ? value : `${known}, ${value}`);
      if (toLowerCase(text(name)) === "set-cookie") this.#cookies = [...cookies, text(value)];
    }
    getSetCookie() {
      return [...this.#cookies];
    }
    set(name, value) {
      const key = toLowerCase(text(name));
      if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(key)) throw new TypeError(`"${key}" is not the name of a header`);
      const line = text(value).trim();
      if (/[\r\n\0]/.test(line)) throw new TypeError(`the header "${key}" has more than one line`);
      this.#list.set(key, line);
      if (key === "set-cookie") this.#cookies = [line];
    }
    get(name) {
      return this.#list.get(toLowerCase(text(name))) ?? null;
    }
    has(name) {
      return this.#list.has(toLowerCase(text(name)));
    }
    delete(name) {
      this.#list.delete(toLowerCase(text(name)));
      if (!this.has("set-cookie")) this.#cookies = [];
    }
    forEach(callback, receiver) {
      for (const [name, value] of this) callback.call(receiver, value, name, this);
    }
    *entries() {
      for (const name of [...this.#list.keys()].sort()) yield [name, this.#list.get(name)];
    }
    *keys() {
      for (const [name] of this) yield name;
    }
    *values() {
      for (const [, value] of this) yield value;
    }
    [Symbol.iterator]() {
      return this.entries();
    }
  }

  // The pieces of a body, read once: by `for await`, or by a reader. `next` returns a promise of the next piece, and of undefined at the
  // end; `close` gives the rest up.
  class BodyStream {
    #next;
    #close;
    #used = false;
    #over = false;

    constructor(next, close) {
      this.#next = next;
      this.#close = close;
    }
    get locked() {
      return this.#used;
    }
    async #read() {
      if (this.#over) return undefined;
      const piece = await this.#next();
      if (piece === undefined) this.#over = true;
      return piece;
    }
    #take() {
      if (this.#used) throw new TypeError("the body was read before");
      this.#used = true;
    }
    async #end() {
      if (this.#over) return;
      this.#over = true;
      this.#close?.();
    }
    getReader() {
      this.#take();
      return {
        read: async () => {
          const value = await this.#read();
          return { done: value === undefined, value };
        },
        cancel: () => this.#end(),
        releaseLock() {},
      };
    }
    async cancel() {
      this.#take();
      return this.#end();
    }
    async *[Symbol.asyncIterator]() {
      this.#take();
      try {
        for (let piece = await this.#read(); piece !== undefined; piece = await this.#read()) yield piece;
      } finally {
        await this.#end();
      }
    }
  }

  // A body as a stream, with the type that it implies.
  const extract = (body) => {
    if (body === undefined || body === null) return {};
    if (body instanceof BodyStream) return { stream: body };
    if (typeof body === "object" && typeof body[Symbol.asyncIterator] === "function") {
      const pieces = body[Symbol.asyncIterator]();
      const next = async () => {
        const { done, value } = await pieces.next();
        return done ? undefined : typeof value === "string" ? new TextEncoder().encode(value) : viewOf(value);
      };
      return { stream: new BodyStream(next, () => pieces.return?.()) };
    }
    let bytes, type;
    if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) bytes = viewOf(body).slice();
    else {
      bytes = new TextEncoder().encode(text(body));
      type = body instanceof URLSearchParams ? "application/x-www-form-urlencoded;charset=UTF-8" : "text/plain;charset=UTF-8";
    }
    let left = bytes.length === 0 ? undefined : bytes;
    const next = async () => {
      const piece = left;
      left = undefined;
      return piece;
    };
    return { stream: new BodyStream(next), type };
  };

  class Body {
    #stream;

    constructor(stream) {
      this.#stream = stream;
    }
    get bodyUsed() {
      return this.#stream?.locked ?? false;
    }
    get body() {
      return this.#stream ?? null;
    }
    async bytes() {
      const pieces = [];
      let size = 0;
      if (this.#stream !== undefined)
        for await (const piece of this.#stream) {
          pieces.push(piece);
          size += piece.length;
        }
      const bytes = new Uint8Array(size);
      let at = 0;
      for (const piece of pieces) {
        bytes.set(piece, at);
        at += piece.length;
      }
      return bytes;
    }
    async arrayBuffer() {
      return (await this.bytes()).buffer;
    }
    async text() {
      return new TextDecoder().decode(await this.bytes());
    }
    async json() {
      return JSON.parse(await this.text());
    }
  }

  class Request extends Body {
    constructor(input, init = {}) {
      const from = input instanceof Request ? input : undefined;
      const { stream, type } = extract(init.body);
      // A request that is made from another one takes its body over.
      super(stream ?? from?.body ?? undefined);
      const method = text(init.method ?? from?.method ?? "GET");
      this.method = METHODS.includes(toUpperCase(method)) ? toUpperCase(method) : method;
      if (this.body !== null && (this.method === "GET" || this.method === "HEAD")) throw new TypeError(`${this.method} has no body`);
      this.url = from?.url ?? new URL(input).href;
      this.headers = new Headers(init.headers ?? from?.headers);
      this.redirect = text(init.redirect ?? from?.redirect ?? "follow");
      if (!REDIRECTS.includes(this.redirect)) throw new TypeError(`redirect is "follow", "error" or "manual", not "${this.redirect}"`);
      this.signal = init.signal ?? from?.signal ?? null;
      if (type !== undefined && !this.headers.has("content-type")) this.headers.set("content-type", type);
    }
  }

  class Response extends Body {
    constructor(body, init = {}) {
      const { stream, type } = extract(body);
      super(stream);
      this.status = init.status ?? 200;
      this.statusText = text(init.statusText ?? "");
      this.url = "";
      this.redirected = false;
      this.headers = new Headers(init.headers);
      if (type !== undefined && !this.headers.has("content-type")) this.headers.set("content-type", type);
    }
    get ok() {
      return this.status >= 200 && this.status <= 299;
    }
    static json(value, init = {}) {
      const response = new Response(JSON.stringify(value), init);
      if (!new Headers(init.headers).has("content-type")) response.headers.set("content-type", "application/json");
      return response;
    }
  }

  // The host knows a response by the number of its request, so that one can be given up before it answers.
  let requests = 0;
  const fetch = async function fetch(input, init) {
    const request = new Request(input, init);
    const { method, url, headers, redirect, signal } = request;
    signal?.throwIfAborted();
    const body = request.body === null ? null : binaryOf(await request.bytes());
    signal?.throwIfAborted();
    const response = (requests = (requests + 1) >>> 0);
    const close = () => {
      ask(record({ ask: "fetch_close", response })).then(undefined, () => {});
    };
    // What waits for the host, and stops waiting when the signal is aborted.
    let interrupt;
    const abort = () => {
      close();
      interrupt?.(signal.reason);
    };
    const waiting = (question) =>
      new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason);
        interrupt = reject;
        ask(record(question)).then(resolve, (error) => reject(new TypeError(error.message)));
      });
    const over = () => signal?.removeEventListener("abort", abort);
    const asked = async (question) => {
      try {
        return await waiting(question);
      } catch (error) {
        over();
        throw error;
      }
    };
    signal?.addEventListener("abort", abort, { once: true });
    const head = await asked({ ask: "fetch", response, method, url, headers: [...headers], body, redirect });
    const next = async () => {
      const piece = await asked({ ask: "fetch_body", response });
      if (piece === undefined) over();
      return piece;
    };
    const stream = new BodyStream(next, () => {
      over();
      close();
    });
    const answer = new Response(method === "HEAD" || NO_BODY.includes(head.status) ? null : stream, head);
    answer.statusText = head.status_text;
    answer.url = head.url;
    answer.redirected = head.redirected;
    return answer;
  };

  // A handler as Workers have it: the payload is a request, and the output a response.
  const serve = async (handler, payload, ctx) => {
    const { url = "http://localhost/", method, headers, body } = payload ?? {};
    const response = await handler.fetch(new Request(url, { method, headers, body, signal: ctx.signal }), ctx);
    if (!(response instanceof Response)) throw new TypeError("fetch returned no Response");
    return { status: response.status, headers: Object.fromEntries(response.headers), body: await response.text() };
  };
  return record({ fetch, Headers, Request, Response, serve });
})

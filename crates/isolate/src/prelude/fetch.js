// fetch, Headers, Request and Response. The host sends requests; a body arrives in pieces, and is read once.
(function ({ part }) {
  const { record, text, viewOf, binaryOf, uncurry } = part("tools");
  const { ask } = part("calls");
  const { TypeError, Symbol, Uint8Array, Map, Promise } = globalThis;
  const { TextEncoder, TextDecoder } = part("text");
  const { URL, URLSearchParams } = part("url");
  const toLowerCase = uncurry(String.prototype.toLowerCase);
  const toUpperCase = uncurry(String.prototype.toUpperCase);
  const METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

  class Headers {
    #list = new Map();

    constructor(init) {
      if (init === undefined || init === null) return;
      const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
      for (const [name, value] of pairs) this.append(name, value);
    }
    append(name, value) {
      const known = this.get(name);
      this.set(name, known === null ? value : `${known}, ${value}`);
    }
    set(name, value) {
      const key = toLowerCase(text(name));
      if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(key)) throw new TypeError(`"${key}" is not the name of a header`);
      const line = text(value).trim();
      if (/[\r\n\0]/.test(line)) throw new TypeError(`the header "${key}" has more than one line`);
      this.#list.set(key, line);
    }
    get(name) {
      return this.#list.get(toLowerCase(text(name))) ?? null;
    }
    has(name) {
      return this.#list.has(toLowerCase(text(name)));
    }
    delete(name) {
      this.#list.delete(toLowerCase(text(name)));
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

  // A body as bytes, with the type that it implies.
  const extract = (body) => {
    if (body === undefined || body === null) return { bytes: undefined, type: undefined };
    if (body instanceof URLSearchParams)
      return { bytes: new TextEncoder().encode(`${body}`), type: "application/x-www-form-urlencoded;charset=UTF-8" };
    if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return { bytes: viewOf(body).slice(), type: undefined };
    return { bytes: new TextEncoder().encode(text(body)), type: "text/plain;charset=UTF-8" };
  };

  class Body {
    #next;
    #used = false;

    // `next` returns a promise of the next piece, and of undefined at the end.
    constructor(next) {
      this.#next = next;
    }
    get bodyUsed() {
      return this.#used;
    }
    // The pieces of the body, in order, for `for await`.
    get body() {
      if (this.#next === undefined) return null;
      const take = () => this.#take();
      return {
        async *[Symbol.asyncIterator]() {
          const next = take();
          for (let piece = await next(); piece !== undefined; piece = await next()) yield piece;
        },
      };
    }
    #take() {
      if (this.#used) throw new TypeError("the body was read before");
      this.#used = true;
      return this.#next ?? (async () => undefined);
    }
    async bytes() {
      const next = this.#take();
      const pieces = [];
      let size = 0;
      for (let piece = await next(); piece !== undefined; piece = await next()) {
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
  const once = (bytes) => {
    if (bytes === undefined) return undefined;
    let left = bytes;
    return async () => {
      const piece = left;
      left = undefined;
      return piece === undefined || piece.length === 0 ? undefined : piece;
    };
  };

  class Request extends Body {
    #bytes;
    constructor(input, init = {}) {
      const from = input instanceof Request ? input : undefined;
      const { bytes, type } = extract(init.body);
      const body = bytes ?? from?.#bytes;
      super(once(body));
      this.#bytes = body;
      const method = text(init.method ?? from?.method ?? "GET");
      this.method = METHODS.includes(toUpperCase(method)) ? toUpperCase(method) : method;
      if (body !== undefined && (this.method === "GET" || this.method === "HEAD")) throw new TypeError(`${this.method} has no body`);
      this.url = from?.url ?? new URL(input).href;
      this.headers = new Headers(init.headers ?? from?.headers);
      this.signal = init.signal ?? from?.signal ?? null;
      if (type !== undefined && !this.headers.has("content-type")) this.headers.set("content-type", type);
    }
    static bytes(request) {
      return request.#bytes;
    }
  }
  const sent = Request.bytes;
  delete Request.bytes;

  class Response extends Body {
    constructor(body, init = {}, next) {
      const { bytes, type } = extract(body);
      super(next ?? once(bytes));
      this.status = init.status ?? 200;
      this.statusText = text(init.statusText ?? "");
      this.url = "";
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

  const fetch = async function fetch(input, init) {
    const request = new Request(input, init);
    const { signal } = request;
    signal?.throwIfAborted();
    const body = sent(request);
    const asked = ask(
      record({ ask: "fetch", method: request.method, url: request.url, headers: [...request.headers], body: body === undefined ? null : binaryOf(body) }),
    );
    const aborted = (promise) =>
      signal ? Promise.race([promise, new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }))]) : promise;
    const head = await aborted(asked);
    const next = () => aborted(ask(record({ ask: "fetch_body", response: head.response })));
    const response = new Response(null, { status: head.status, headers: head.headers }, next);
    response.url = head.url;
    return response;
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

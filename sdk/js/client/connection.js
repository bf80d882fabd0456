// Requests to one node: addresses, tokens, sockets, and which requests are sent again.
"use strict";

const fs = require("node:fs");
const http = require("node:http");
const https = require("node:https");

const { OstlerError, QueueFull, Unauthorized, Unreachable, errorOf } = require("./errors.js");
const { Backoff, msOf, pause } = require("./times.js");

const DEFAULT_URL = "http://127.0.0.1:7700";
const DEFAULT_TIMEOUT_MS = 30_000;
const API = "/api/v1/";
const UNIX = "unix:";
// The line of a token file that is used.
const OWNER = "owner";

const MAX_SOCKETS = 16;
// A wait or a stream holds its socket for long, so they have sockets of their own: other calls go on.
const MAX_WAITING_SOCKETS = 32;
const MAX_STREAM_SOCKETS = 256;
const MAX_ANSWER_BYTES = 256 * 1024 * 1024;

const MAX_TRIES = 5;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2000;
// A longer Retry-After is cut to this.
const MAX_RETRY_AFTER_MS = 30_000;
// A node that restarts, or another one behind the same proxy, may answer these requests.
const RETRIED = new Set([502, 503, 504]);
const TOO_MANY_REQUESTS = 429;

class Connection {
  #address;
  #agents;
  #token;
  #tokenFile;
  #closed = false;

  constructor({ url, token, tokenFile, timeout } = {}) {
    this.#address = addressOf(url ?? (process.env.OSTLER_SERVER || DEFAULT_URL));
    this.#token = token ?? (tokenFile === undefined ? process.env.OSTLER_TOKEN || undefined : undefined);
    this.#tokenFile = this.#token === undefined ? tokenFile : undefined;
    this.timeoutMs = msOf("timeout", timeout ?? DEFAULT_TIMEOUT_MS);
    const { Agent } = this.#address.transport;
    this.#agents = {
      call: new Agent({ keepAlive: true, maxSockets: MAX_SOCKETS }),
      // A node closes a socket that was idle for long. If a change is sent on it at that moment, nothing tells whether it was made;
      // so changes that cannot be sent again get a new socket each.
      change: new Agent({ maxSockets: MAX_SOCKETS }),
      wait: new Agent({ keepAlive: true, maxSockets: MAX_WAITING_SOCKETS }),
      stream: new Agent({ maxSockets: MAX_STREAM_SOCKETS }),
    };
  }

  get url() {
    return this.#address.url;
  }

  // Whether some waits have no socket now.
  get isCrowded() {
    return Object.keys(this.#agents.wait.requests).length > 0;
  }

  // The JSON of an answer; undefined if it has none. GETs, and requests with an idempotency key, are sent again if the answer is lost.
  async call(method, path, { query, body, text, idempotencyKey, signal, waitMs, repeatable = method === "GET" || idempotencyKey !== undefined } = {}) {
    const sent = text ?? (body === undefined ? undefined : JSON.stringify(body));
    const headers = { accept: "application/json" };
    if (sent !== undefined) headers["content-type"] = "application/json";
    if (idempotencyKey !== undefined) headers["idempotency-key"] = idempotencyKey;
    const agent = waitMs !== undefined ? "wait" : repeatable ? "call" : "change";
    const request = { method, path, query, headers, sent, signal, agent, timeoutMs: this.timeoutMs + (waitMs ?? 0), repeatable };
    const { status, text: answer } = await this.#repeatedly(request, (response) => this.#whole(response, request));
    if (status >= 400) throw errorOf(status, answer);
    if (answer === "") return undefined;
    try {
      return JSON.parse(answer);
    } catch (cause) {
      const message = `what answers at ${this.url} is no node of Ostler: its answer is no JSON`;
      throw new OstlerError(message, { code: "no_json", status, cause });
    }
  }

  // An answer that comes piece by piece; undefined: there is nothing to read. A stream that is silent for `idleMs` is cut.
  async stream(path, { query, headers, signal, idleMs }) {
    const request = { method: "GET", path, query, headers, signal, agent: "stream", timeoutMs: this.timeoutMs, repeatable: true };
    const { status, text, response } = await this.#repeatedly(request, async (response) => {
      const { statusCode: status } = response;
      if (status === 200) return { status, response };
      return this.#whole(response, request);
    });
    if (status >= 400) throw errorOf(status, text);
    response?.setTimeout(idleMs, () => response.destroy(new Error(`nothing came for ${idleMs} ms`)));
    return response;
  }

  // Why a stream was cut, as an error of the client.
  lost(cause) {
    return new Unreachable(`the connection to ${this.url} was lost: ${cause?.message ?? "it was closed"}`, { cause });
  }

  close() {
    this.#closed = true;
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }

  async #repeatedly(request, read) {
    const backoff = new Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS);
    let readToken = false;
    for (let tries = 1; ; tries += 1) {
      const last = !request.repeatable || tries >= MAX_TRIES;
      let named;
      try {
        const answer = await this.#once(request, read);
        if (answer.status === 401 && this.#tokenFile !== undefined && !readToken) {
          // Nothing was done. The file may have another token by now.
          [readToken, this.#token] = [true, undefined];
          continue;
        }
        named = retryAfterMs(answer.headers);
        if (last || !isRetried(answer, named)) return answer;
      } catch (error) {
        if (last || !(error instanceof Unreachable)) throw error;
      }
      await pause(named ?? backoff.next(), request.signal);
    }
  }

  #once({ method, path, query, headers, sent, signal, agent, timeoutMs, repeatable }, read) {
    if (this.#closed) throw new OstlerError("the client is closed", { code: "closed" });
    signal?.throwIfAborted();
    const { transport, options } = this.#address;
    const token = this.#readToken();
    const all = { ...headers, ...(token !== undefined && { authorization: `Bearer ${token}` }) };
    if (sent !== undefined) all["content-length"] = Buffer.byteLength(sent);
    return new Promise((resolve, reject) => {
      let timer;
      let connected = false;
      const fail = (cause) => {
        clearTimeout(timer);
        if (signal?.aborted) reject(signal.reason);
        else if (this.#closed) reject(new OstlerError("the client was closed before the answer came", { code: "closed", cause }));
        else if (cause instanceof OstlerError) reject(cause);
        else reject(this.#unreachable(cause, connected && !repeatable));
      };
      const target = this.#address.base + (path.startsWith("/") ? path : API + path) + queryOf(query);
      const request = transport.request({ ...options, method, path: target, headers: all, agent: this.#agents[agent], signal });
      // The time begins with a socket: until then the request waits for others of this client.
      request.on("socket", (socket) => {
        timer = setTimeout(() => request.destroy(new Error(`there was no answer within ${timeoutMs} ms`)), timeoutMs);
        if (!socket.connecting) connected = true;
        else socket.once("connect", () => (connected = true));
      });
      request.on("error", fail);
      request.on("response", (response) => {
        response.on("error", () => {}); // Seen by the reader.
        Promise.resolve(read(response)).then((answer) => {
          clearTimeout(timer);
          resolve({ ...answer, headers: response.headers });
        }, fail);
      });
      request.end(sent);
    });
  }

  async #whole(response) {
    const parts = [];
    let bytes = 0;
    for await (const part of response) {
      bytes += part.length;
      if (bytes > MAX_ANSWER_BYTES) {
        throw new OstlerError(`the answer has more than ${MAX_ANSWER_BYTES} bytes`, { code: "too_large", status: response.statusCode });
      }
      parts.push(part);
    }
    return { status: response.statusCode, text: Buffer.concat(parts).toString() };
  }

  #readToken() {
    if (this.#token === undefined && this.#tokenFile !== undefined) this.#token = ownerOf(this.#tokenFile);
    return this.#token;
  }

  #unreachable(cause, unknown) {
    const why = cause.message || cause.code;
    const advice = unknown
      ? "look before you send it again: the change may have been made"
      : "start a node there with `ostler up`, or name another one with url or OSTLER_SERVER";
    return new Unreachable(`${this.url} cannot be reached: ${why}; ${advice}`, { cause, details: { address: this.url } });
  }
}

// How long the node says to wait, if it does.
function retryAfterMs({ "retry-after": text }) {
  const ms = text === undefined ? Number.NaN : Number(text) * 1000;
  return ms >= 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : undefined;
}

// A full queue is reported at once: the caller decides whether to wait for it.
function isRetried({ status, text = "" }, named) {
  if (status === TOO_MANY_REQUESTS) return named !== undefined && !(errorOf(status, text) instanceof QueueFull);
  return RETRIED.has(status);
}

function addressOf(url) {
  if (url.startsWith(UNIX)) {
    const socketPath = url.slice(UNIX.length).replace(/^\/\/(?=\/)/, "");
    if (socketPath === "") throw new TypeError(`the address of a node is http://HOST:PORT or unix:PATH, and not ${url}`);
    return { url, base: "", transport: http, options: { socketPath, host: "localhost" } };
  }
  let parsed;
  try {
    parsed = new URL(url);
  } catch (cause) {
    throw new TypeError(`the address of a node is http://HOST:PORT or unix:PATH, and not ${url}`, { cause });
  }
  const transport = { "http:": http, "https:": https }[parsed.protocol];
  if (transport === undefined) throw new TypeError(`the address of a node is http://HOST:PORT or unix:PATH, and not ${url}`);
  // Without the brackets of an IPv6 address, which only a URL has.
  const host = parsed.hostname.replace(/^\[(.*)\]$/, "$1");
  const base = parsed.pathname.replace(/\/+$/, "");
  return { url: parsed.origin + base, base, transport, options: { host, port: parsed.port || undefined } };
}

function queryOf(query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}

function ownerOf(file) {
  let text;
  try {
    text = fs.readFileSync(file, "utf8");
  } catch (cause) {
    const message = `the token file cannot be read: ${cause.message}; \`ostler up\` makes it beside its store`;
    throw new Unauthorized(message, { code: "unauthorized", cause });
  }
  const lines = text.split("\n").map((line) => line.trim().split(/\s+/));
  const token = lines.find(([name, access, token]) => name === OWNER && access !== undefined && token !== undefined)?.[2];
  if (token === undefined) throw new Unauthorized(`${file} has no line of ${OWNER}`, { code: "unauthorized" });
  return token;
}

module.exports = { Connection };

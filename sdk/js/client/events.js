// Server-sent events: reads a stream, and goes on after a cut where it was.
"use strict";

const { StringDecoder } = require("node:string_decoder");

const { OstlerError } = require("./errors.js");
const { Patience } = require("./patience.js");

// The node sends a comment every 15 seconds if it has nothing else.
const MAX_SILENCE_MS = 45_000;
// An event of a node is smaller than a frame of a worker, 16 MiB, even with every character escaped.
const MAX_EVENT_CHARS = 128 * 1024 * 1024;
// The parts of the overview; a node may send more.
const LIVE_SECTIONS = ["stats", "queues", "nodes", "workers"];

// The events of one task, each once, up to its end.
async function* follow(connection, path, { query, after, signal }) {
  const patience = new Patience();
  let last = after;
  for (;;) {
    try {
      // The header of a browser that comes back: the node then answers with 204 if everything was sent.
      const headers = { accept: "text/event-stream", ...(last > 0 && { "last-event-id": String(last) }) };
      const response = await connection.stream(path, { query, headers, signal, idleMs: MAX_SILENCE_MS });
      if (response === undefined) return;
      patience.answered();
      for await (const { name, id, data } of eventsOf(connection, response, signal)) {
        patience.answered();
        if (name === "end") return;
        const number = Number(id);
        // A proxy may repeat what it has buffered.
        if (!(number > last)) continue;
        last = number;
        yield JSON.parse(data);
      }
      throw connection.lost();
    } catch (error) {
      await patience.after(error, signal);
    }
  }
}

// The overview: its whole newest state, again after each change. After a cut only what has changed meanwhile is sent.
async function* live(connection, { signal }) {
  const patience = new Patience();
  let state = {};
  let last;
  for (;;) {
    try {
      const headers = { accept: "text/event-stream", ...(last !== undefined && { "last-event-id": last }) };
      const response = await connection.stream("live", { headers, signal, idleMs: MAX_SILENCE_MS });
      patience.answered();
      for await (const { name, id, data } of eventsOf(connection, response, signal)) {
        patience.answered();
        if (name === "reset") {
          // Another start of the node, which sends everything anew.
          [state, last] = [{}, undefined];
          continue;
        }
        last = id ?? last;
        if (!LIVE_SECTIONS.includes(name)) continue;
        state = { ...state, [name]: JSON.parse(data) };
        if (LIVE_SECTIONS.every((section) => section in state)) yield state;
      }
      throw connection.lost();
    } catch (error) {
      await patience.after(error, signal);
    }
  }
}

// Whole events only: one that was cut comes again.
async function* eventsOf(connection, response, signal) {
  let event = { data: [] };
  for await (const line of linesOf(connection, response, signal)) {
    if (line === "") {
      if (event.data.length > 0) yield { ...event, data: event.data.join("\n") };
      event = { data: [] };
      continue;
    }
    const colon = line.indexOf(":");
    const [field, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
    if (field === "data") event.data.push(value);
    else if (field === "id") event.id = value;
    else if (field === "event") event.name = value;
  }
}

// The lines of an answer. The last one counts only with its newline.
async function* linesOf(connection, response, signal) {
  const decoder = new StringDecoder("utf8");
  // Pieces of a line that has not ended, joined once: a long line comes in many pieces.
  let parts = [];
  let chars = 0;
  try {
    for await (const piece of response) {
      const lines = decoder.write(piece).split("\n");
      for (const text of lines.slice(0, -1)) {
        yield (parts.join("") + text).replace(/\r$/, "");
        [parts, chars] = [[], 0];
      }
      parts.push(lines.at(-1));
      chars += lines.at(-1).length;
      if (chars > MAX_EVENT_CHARS) throw new OstlerError(`a line has more than ${MAX_EVENT_CHARS} characters`, { code: "too_large" });
    }
  } catch (error) {
    signal?.throwIfAborted();
    throw error instanceof OstlerError ? error : connection.lost(error);
  } finally {
    response.destroy();
  }
  if (chars > 0) throw connection.lost();
}

module.exports = { MAX_SILENCE_MS, follow, linesOf, live };

// Waits for tasks by long polls: one request waits at the node until the task ends, for a bounded time, and is then sent again.
"use strict";

const { NotFinished } = require("./errors.js");
const { Patience } = require("./patience.js");
const { Deadline, msOf, pause } = require("./times.js");

// How long to wait if the caller does not say.
const DEFAULT_WAIT_MS = 3_600_000;
// The node's limit for one request is a minute; some proxies close a silent connection earlier.
const MAX_POLL_MS = 25_000;
// The first poll of a wait, and each one while more waits than sockets are under way: they take turns then.
const SHORT_POLL_MS = 2000;
// A node that stops answers a poll early. The next one must not follow at once.
const EARLY_PAUSE_MS = 250;
// Polls of one `asCompleted` at the same time.
const MAX_POLLS = 8;
// With more tasks than polls, the polls take turns. Each task is looked at about this often,
const MAX_TURN_MS = 4000;
// but no poll is shorter than this, so that a hundred thousand tasks do not keep a node busy.
const MIN_POLL_MS = 40;
// Between two looks at a job, or at an action on many tasks.
const FIRST_LOOK_MS = 50;
const LONGEST_LOOK_MS = 1000;
const ENDED = new Set(["completed", "failed", "cancelled"]);

// The state of a task, after at most `ms`.
async function poll(connection, path, { query, ms, signal, patience }) {
  for (;;) {
    const began = performance.now();
    try {
      const options = ms > 0 ? { query: { ...query, wait: `${ms}ms` }, waitMs: ms } : { query };
      const task = await connection.call("GET", path, { ...options, signal });
      patience.answered();
      const early = ms / 2 - (performance.now() - began);
      if (!ENDED.has(task.state) && early > 0) await pause(Math.min(early, EARLY_PAUSE_MS), signal);
      return task;
    } catch (error) {
      await patience.after(error, signal);
    }
  }
}

// The task when it has ended, or its newest state when the time is up.
async function waitUntil(connection, path, { query, timeout, signal }) {
  const deadline = new Deadline(msOf("the timeout of a wait", timeout ?? DEFAULT_WAIT_MS));
  const patience = new Patience();
  for (let longest = SHORT_POLL_MS; ; longest = connection.isCrowded ? SHORT_POLL_MS : MAX_POLL_MS) {
    const ms = Math.min(deadline.leftMs(), longest);
    const task = await poll(connection, path, { query, ms, signal, patience });
    if (ENDED.has(task.state) || deadline.leftMs() === 0) return task;
  }
}

async function* asCompleted(connection, paths, { query, timeout, signal }) {
  const deadline = new Deadline(msOf("the timeout of a wait", timeout ?? DEFAULT_WAIT_MS));
  const patience = new Patience();
  // Ends the polls that are under way when the caller stops reading.
  const stop = new AbortController();
  const abort = () => stop.abort(signal.reason);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", abort, { once: true });
  // A set keeps its order, and the next one is taken without moving the others.
  const waiting = new Set(paths);
  const polls = new Map();
  // The first look at each of many does not wait: some may have ended long ago.
  let firstLooks = waiting.size > MAX_POLLS ? waiting.size : 0;
  const start = (path) => {
    waiting.delete(path);
    const left = waiting.size + polls.size + 1;
    const turn = left <= MAX_POLLS ? MAX_POLL_MS : Math.max(MIN_POLL_MS, Math.floor((MAX_TURN_MS * MAX_POLLS) / left));
    const ms = firstLooks > 0 ? 0 : Math.min(deadline.leftMs(), turn);
    if (firstLooks > 0) firstLooks -= 1;
    const polled = poll(connection, path, { query, ms, signal: stop.signal, patience }).then((task) => ({ path, task }));
    polled.catch(() => {}); // Seen by the race, unless the caller has stopped.
    polls.set(path, polled);
  };
  try {
    while (waiting.size > 0 || polls.size > 0) {
      for (const path of waiting) {
        if (polls.size >= MAX_POLLS) break;
        start(path);
      }
      const { path, task } = await Promise.race(polls.values());
      polls.delete(path);
      if (ENDED.has(task.state)) yield { path, task };
      else if (deadline.leftMs() > 0) waiting.add(path);
      else throw notFinished(task, waiting.size + polls.size);
    }
  } finally {
    signal?.removeEventListener("abort", abort);
    stop.abort();
  }
}

function notFinished(task, others = 0) {
  const more = others > 0 ? `, and neither have up to ${others} others` : "";
  return new NotFinished(`task ${task.id} has not finished: it is ${task.state}${more}`, task);
}

// Asks again and again, with longer pauses, until what is asked about is over.
async function until(ask, isOver, { timeout, signal, onProgress, what }) {
  const deadline = new Deadline(msOf("the timeout of a wait", timeout ?? DEFAULT_WAIT_MS));
  const patience = new Patience();
  let delay = FIRST_LOOK_MS;
  for (;;) {
    try {
      const seen = await ask();
      patience.answered();
      onProgress?.(seen);
      if (isOver(seen)) return seen;
      if (deadline.leftMs() === 0) throw new NotFinished(`${what} has not finished: it is ${seen.state}`, seen);
    } catch (error) {
      await patience.after(error, signal);
    }
    await pause(Math.min(delay, deadline.leftMs()), signal);
    delay = Math.min(2 * delay, LONGEST_LOOK_MS);
  }
}

module.exports = { ENDED, asCompleted, notFinished, until, waitUntil };

// Durations, deadlines, and pauses that a signal ends.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { inspect } = require("node:util");

const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
// Node.js fires timers beyond this at once.
const MAX_TIMER_MS = 2 ** 31 - 1;

// A duration in milliseconds: a text such as "30s", or the number itself.
function msOf(name, time) {
  const [, number, unit] = typeof time === "string" ? (/^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(time) ?? []) : [];
  const ms = Math.ceil(typeof time === "number" ? time : Number(number) * UNITS_MS[unit]);
  if (!Number.isSafeInteger(ms) || ms < 0) {
    throw new RangeError(`${name} is a time such as "30s", or milliseconds, and not ${inspect(time)}`);
  }
  return Math.min(ms, MAX_TIMER_MS);
}

// Waits. Rejects with the reason of the signal when that is aborted.
async function pause(ms, signal) {
  try {
    await sleep(ms, undefined, { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}

// The time until a deadline, by a clock that is never set.
class Deadline {
  #end;

  constructor(ms) {
    this.#end = performance.now() + ms;
  }

  leftMs() {
    return Math.max(0, Math.ceil(this.#end - performance.now()));
  }
}

// Delays that double, up to the longest. Half of each is random, so that many clients do not come back at once.
class Backoff {
  #delay;

  constructor(firstMs, longestMs) {
    [this.first, this.longest] = [firstMs, longestMs];
    this.reset();
  }

  reset() {
    this.#delay = this.first;
  }

  next() {
    const delay = this.#delay;
    this.#delay = Math.min(2 * delay, this.longest);
    return delay / 2 + (Math.random() * delay) / 2;
  }
}

module.exports = { Backoff, Deadline, msOf, pause };

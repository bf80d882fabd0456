// For calls that take long: a node may restart meanwhile, and the call goes on.
"use strict";

const { OstlerError, Unreachable } = require("./errors.js");
const { Backoff, Deadline, pause } = require("./times.js");

// How long a node may be away.
const MAX_AWAY_MS = 120_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2000;

class Patience {
  #away;
  #backoff = new Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS);

  answered() {
    this.#away = new Deadline(MAX_AWAY_MS);
    this.#backoff.reset();
  }

  // Waits before the next try. Throws the error if trying again does not help, or if the node has never answered: then the address may
  // be wrong, and the caller wants to know at once.
  async after(error, signal) {
    const isAway = error instanceof Unreachable || (error instanceof OstlerError && error.status >= 502);
    if (!isAway || this.#away === undefined || this.#away.leftMs() === 0) throw error;
    await pause(this.#backoff.next(), signal);
  }
}

module.exports = { Patience };

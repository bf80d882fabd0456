// Jobs: many items for a pool, with a pilot and a budget.
"use strict";

const { randomUUID } = require("node:crypto");

const { MAX_SILENCE_MS, linesOf } = require("./events.js");
const { until } = require("./waiting.js");

const ENDED = new Set(["completed", "failed", "cancelled"]);

class Jobs {
  #connection;

  constructor(connection) {
    this.#connection = connection;
  }

  create(pool, items, { signal, idempotencyKey = randomUUID(), ...fields } = {}) {
    const body = { ...fields, pool, items: [...items] };
    return this.#connection.call("POST", "jobs", { body, idempotencyKey, signal });
  }

  list({ limit, before, signal } = {}) {
    return this.#connection.call("GET", "jobs", { query: { limit, before }, signal });
  }

  show(job, { signal } = {}) {
    return this.#connection.call("GET", pathOf(job), { signal });
  }

  approve(job, options) {
    return this.#act(job, "approve", options);
  }

  reject(job, options) {
    return this.#act(job, "reject", options);
  }

  pause(job, options) {
    return this.#act(job, "pause", options);
  }

  resume(job, options) {
    return this.#act(job, "resume", options);
  }

  cancel(job, options) {
    return this.#act(job, "cancel", options);
  }

  retryFailed(job, options) {
    return this.#act(job, "retry-failed", options);
  }

  setConcurrency(job, items, { signal } = {}) {
    return this.#act(job, "concurrency", { items, signal });
  }

  add(job, items, { signal } = {}) {
    return this.#act(job, "items", { items: [...items], signal });
  }

  remove(job, { signal } = {}) {
    return this.#connection.call("DELETE", pathOf(job), { signal });
  }

  // Not read again after a cut: the caller has handled the first ones already.
  async *results(job, { signal } = {}) {
    const headers = { accept: "application/x-ndjson" };
    const response = await this.#connection.stream(`${pathOf(job)}/results`, { headers, signal, idleMs: MAX_SILENCE_MS });
    for await (const line of linesOf(this.#connection, response, signal)) yield JSON.parse(line);
  }

  wait(job, { timeout, signal, onProgress } = {}) {
    return until(() => this.show(job, { signal }), isOver, { timeout, signal, onProgress, what: `job ${job}` });
  }

  waitPilot(job, { timeout, signal, onProgress } = {}) {
    const isTried = (seen) => isOver(seen) || (seen.pilot != null && ended(seen.tasks) >= seen.pilot);
    return until(() => this.show(job, { signal }), isTried, { timeout, signal, onProgress, what: `the pilot of job ${job}` });
  }

  #act(job, action, { signal, ...body } = {}) {
    return this.#connection.call("POST", `${pathOf(job)}/${action}`, { body, signal });
  }
}

function pathOf(job) {
  return `jobs/${encodeURIComponent(job)}`;
}

function ended({ completed, failed, cancelled }) {
  return completed + failed + cancelled;
}

// After a rejected pilot nothing is left to run, whatever the state is called.
function isOver({ state, items, tasks }) {
  return ENDED.has(state) || ended(tasks) >= items;
}

module.exports = { Jobs };

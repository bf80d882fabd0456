// Client for Ostler's HTTP API, without dependencies: submit tasks, follow them, collect their results, and act on them.
//
//     import { Client } from "ostler/client";
//
//     const client = new Client();
//     const { id } = await client.submit("shell", "run", { script: "echo hello" });
//     console.log(await client.result(id, { wait: "5m" }));
//
// What comes back is the JSON of the API, which is that of the command line with --json; options with underscores are fields of the
// API, too. `client.d.ts` documents them all.
"use strict";

const { randomUUID } = require("node:crypto");

const { Connection } = require("./client/connection.js");
const {
  OstlerError, Invalid, Unauthorized, Forbidden, NotFound, Conflict, QueueFull, Unreachable,
  TaskFailed, TaskCancelled, NotFinished,
} = require("./client/errors.js");
const { follow, live } = require("./client/events.js");
const { Jobs } = require("./client/jobs.js");
const { submitMany } = require("./client/submitting.js");
const { asCompleted, ENDED, notFinished, until, waitUntil } = require("./client/waiting.js");

// The kind of a prompt for a pool of agents.
const RUN_KIND = "run";

class Client {
  #connection;

  constructor(options = {}) {
    this.#connection = new Connection(options);
    this.jobs = new Jobs(this.#connection);
  }

  get url() {
    return this.#connection.url;
  }

  async close() {
    this.#connection.close();
  }

  // Any operation of the API. A path without a slash in front is one below /api/v1/.
  request(method, path, { query, body, idempotencyKey, signal } = {}) {
    return this.#connection.call(method.toUpperCase(), path, { query, body, idempotencyKey, signal });
  }

  // ---- submit ----

  submit(queue, kind, payload, { signal, idempotencyKey, ...fields } = {}) {
    // A task with an id of its own is made once anyway, and the API takes no key beside it.
    const key = idempotencyKey ?? (fields.id == null ? randomUUID() : undefined);
    const body = { ...fields, queue, kind, payload };
    return this.#connection.call("POST", "tasks", { body, idempotencyKey: key, signal, repeatable: true });
  }

  submitMany(tasks, options) {
    return submitMany(this.#connection, tasks, options);
  }

  // A prompt for a pool of agents. `id` is any text of the caller: one more run with it is the same task.
  run(prompt, { pool, id, model, max_iterations, ...options }) {
    return this.submit(pool, RUN_KIND, { prompt, max_iterations, model }, { ...options, key: id });
  }

  // ---- wait and follow ----

  async result(id, { wait = 0, queue, signal } = {}) {
    const task = await waitUntil(this.#connection, resultOf(id), { query: { queue }, timeout: wait, signal });
    if (task.state === "completed") return task.output;
    if (task.state === "failed") throw new TaskFailed(task);
    if (task.state === "cancelled") throw new TaskCancelled(task);
    throw notFinished(task);
  }

  async wait(id, { timeout, queue, signal } = {}) {
    const task = await waitUntil(this.#connection, resultOf(id), { query: { queue }, timeout, signal });
    if (!ENDED.has(task.state)) throw notFinished(task);
    return task;
  }

  async waitMany(ids, options) {
    const [names, ended] = [[...ids], new Map()];
    for await (const [name, task] of this.#ended(names, options)) ended.set(name, task);
    return names.map((name) => ended.get(name));
  }

  async *asCompleted(ids, options) {
    for await (const [, task] of this.#ended(ids, options)) yield task;
  }

  async *#ended(ids, { timeout, queue, signal } = {}) {
    const names = new Map(Array.from(ids, (id) => [resultOf(id), id]));
    const options = { query: { queue }, timeout, signal };
    for await (const { path, task } of asCompleted(this.#connection, names.keys(), options)) yield [names.get(path), task];
  }

  follow(id, { after = 0, queue, raw, signal } = {}) {
    return follow(this.#connection, `${taskOf(id)}/events`, { query: { queue, raw, after: after || undefined }, after, signal });
  }

  taskEvents(id, { signal, ...query } = {}) {
    return this.#get(`${taskOf(id)}/log`, { query, signal });
  }

  // ---- look ----

  task(id, { queue, signal } = {}) {
    return this.#get(taskOf(id), { query: { queue }, signal });
  }

  tasks(filters) {
    return this.#pages("tasks", "tasks", filters);
  }

  taskPage({ signal, ...query } = {}) {
    return this.#get("tasks", { query, signal });
  }

  dead(filters) {
    return this.#pages("dead", "letters", filters);
  }

  deadLetter(id, { queue, signal } = {}) {
    return this.#get(letterOf(id), { query: { queue }, signal });
  }

  stats({ queue, signal } = {}) {
    return this.#get("stats", { query: { queue }, signal });
  }

  queues({ all, signal } = {}) {
    return this.#get("queues", { query: { all }, signal });
  }

  nodes(options) {
    return this.#get("nodes", options);
  }

  workers(options) {
    return this.#get("workers", options);
  }

  doctor(options) {
    return this.#get("doctor", options);
  }

  live({ signal } = {}) {
    return live(this.#connection, { signal });
  }

  // ---- act ----

  cancel(id, { queue, signal } = {}) {
    return this.#post(`${taskOf(id)}/cancel`, { query: { queue }, signal });
  }

  retry(id, { queue, signal, ...body } = {}) {
    // A copy is a new task, so a lost answer must not make two.
    const idempotencyKey = body.again === true ? randomUUID() : undefined;
    return this.#post(`${taskOf(id)}/retry`, { query: { queue }, body, idempotencyKey, signal });
  }

  replay(id, { queue, signal, ...body } = {}) {
    return this.#post(`${letterOf(id)}/replay`, { query: { queue }, body, signal });
  }

  drop(id, { queue, signal } = {}) {
    return this.#connection.call("DELETE", letterOf(id), { query: { queue }, signal });
  }

  pause(queue, { signal, ...body } = {}) {
    return this.#post(`${queueOf(queue)}/pause`, { body, signal });
  }

  resume(queue, { signal } = {}) {
    return this.#post(`${queueOf(queue)}/resume`, { signal });
  }

  // ---- act on many ----

  act(action, filter, { signal, ...options } = {}) {
    return this.#post("tasks/actions", { body: { ...options, action, filter }, signal });
  }

  actions(options) {
    return this.#get("tasks/actions", options);
  }

  action(id, options) {
    return this.#get(actionOf(id), options);
  }

  stopAction(id, { signal } = {}) {
    return this.#post(`${actionOf(id)}/stop`, { signal });
  }

  waitAction(id, { timeout, signal, onProgress } = {}) {
    const isOver = ({ state }) => state !== "running";
    return until(() => this.action(id, { signal }), isOver, { timeout, signal, onProgress, what: `the action ${id}` });
  }

  // ---- parts ----

  #get(path, { query, signal } = {}) {
    return this.#connection.call("GET", path, { query, signal });
  }

  #post(path, options) {
    return this.#connection.call("POST", path, options);
  }

  // An empty page with a cursor is not the end: the node looks at a bounded number of tasks for each page.
  async *#pages(path, field, { signal, ...query } = {}) {
    let { cursor } = query;
    do {
      const page = await this.#get(path, { query: { ...query, cursor }, signal });
      yield* page[field];
      ({ cursor } = page);
    } while (cursor != null);
  }
}

// The symbol by which `await using` closes it, on versions of Node.js that have it.
if (Symbol.asyncDispose) Client.prototype[Symbol.asyncDispose] = Client.prototype.close;

function taskOf(id) {
  return `tasks/${encodeURIComponent(id)}`;
}

function resultOf(id) {
  return `${taskOf(id)}/result`;
}

function letterOf(id) {
  return `dead/${encodeURIComponent(id)}`;
}

function queueOf(queue) {
  return `queues/${encodeURIComponent(queue)}`;
}

function actionOf(id) {
  return `tasks/actions/${encodeURIComponent(id)}`;
}

// By name, so that `import` finds them.
module.exports = {
  Client,
  OstlerError, Invalid, Unauthorized, Forbidden, NotFound, Conflict, QueueFull, Unreachable,
  TaskFailed, TaskCancelled, NotFinished,
};

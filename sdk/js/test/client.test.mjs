// What only a client has to do right: lost connections, lost answers, signals, and addresses. Against a real node.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { Client, Forbidden, Invalid, NotFinished, OstlerError, TaskFailed, Unauthorized, Unreachable } from "../client.js";
import { Node } from "./node.mjs";
import { Proxy } from "./proxy.mjs";

// A queue without a pool: its tasks wait.
const PARKED = "parked";

let node;
let client;
let proxy;
before(async () => {
  proxy = await Proxy.listen();
  node = await Node.start({ more: `\n[api]\nhosts = ["${proxy.host}"]\n` });
  const { hostname, port } = new URL(node.url);
  proxy.target = { host: hostname, port: Number(port) };
  client = node.client();
});
after(async () => {
  await client?.close();
  await proxy?.close();
  await node?.close();
});

// A client that asks through the proxy.
function proxied(t) {
  const through = node.client({ url: `http://${proxy.host}` });
  t.after(async () => {
    proxy.cut = () => undefined;
    await through.close();
  });
  return through;
}

async function all(iterator) {
  const values = [];
  for await (const value of iterator) values.push(value);
  return values;
}

// ---- follow ----

test("a stream of events that is cut again and again has no gap and nothing twice", async (t) => {
  const through = proxied(t);
  const lines = 80;
  const gate = path.join(node.folder, "gate");
  // The task goes on only when the first half of its lines was seen, so that the cuts are in a stream that is open.
  const say = (from, to) => `for i in $(seq ${from} ${to}); do printf 'line %s %0200d\\n' $i 0 >&2; sleep 0.01; done`;
  const script = `${say(1, lines / 2)}; while [ ! -e ${gate} ]; do sleep 0.05; done; ${say(lines / 2 + 1, lines)}`;
  const { id } = await client.submit("shell", "run", { script });
  let budget = 2000;
  let cuts = 0;
  // Cuts in the middle of an event, wherever that is.
  proxy.cut = (bytes) => {
    if (bytes.length <= budget) {
      budget -= bytes.length;
      return undefined;
    }
    const passed = budget;
    [budget, cuts] = [2000 + 997 * cuts, cuts + 1];
    return passed;
  };
  const seen = [];
  for await (const event of through.follow(id)) {
    seen.push(event);
    if (event.data.includes(`line ${lines / 2} `)) fs.writeFileSync(gate, "");
  }
  assert.ok(cuts >= 3, `the stream was cut ${cuts} times`);
  assert.deepEqual(seen.map(({ number }) => number), seen.map((_, place) => place + 1));
  const said = seen.filter(({ kind }) => kind === "log").flatMap(({ data }) => data.split("\n"));
  assert.deepEqual(said.map((line) => line.split(" ")[1]), Array.from({ length: lines }, (_, place) => `${place + 1}`));
});

test("a stream of events goes on after a restart of the node", async () => {
  const own = await Node.start();
  const reader = own.client();
  try {
    const { id } = await reader.submit(PARKED, "run", null);
    const stop = new AbortController();
    const events = reader.follow(id, { signal: stop.signal });
    const next = events.next();
    await own.kill();
    await own.up();
    await reader.cancel(id);
    const { value } = await next;
    assert.equal(value.state, "cancelled");
    assert.equal((await events.next()).done, true);
  } finally {
    await reader.close();
    await own.close();
  }
});

test("the overview goes on after a restart of the node", async () => {
  const own = await Node.start();
  const reader = own.client();
  const queued = async (live, wanted) => {
    for (;;) {
      const { value } = await live.next();
      assert.deepEqual(Object.keys(value).sort(), ["nodes", "queues", "stats", "workers"]);
      if (value.stats.tasks.queued === wanted) return;
    }
  };
  try {
    const live = reader.live();
    await queued(live, 0);
    await reader.submit(PARKED, "run", null);
    await queued(live, 1);
    await own.kill();
    await own.up();
    await reader.submit(PARKED, "run", null);
    await queued(live, 2);
    await live.return();
  } finally {
    await reader.close();
    await own.close();
  }
});

test("a reader that stops early leaves no connection behind", async (t) => {
  const through = proxied(t);
  const { id } = await client.submit("shell", "run", { script: "echo one >&2; sleep 600" });
  for await (const event of through.follow(id)) {
    assert.equal(event.number, 1);
    break;
  }
  await through.close();
  while (proxy.sockets.size > 0) await once(proxy.sockets.values().next().value, "close");
  await client.cancel(id);
});

// ---- submit ----

test("chunks whose answers are lost are sent again, and nothing is made twice", async (t) => {
  const through = proxied(t);
  const queue = "lost-answers";
  let lost = 0;
  // The first two answers to anything are lost whole: the node has made the tasks by then.
  proxy.cut = () => (lost < 2 ? ((lost += 1), 0) : undefined);
  const tasks = Array.from({ length: 1100 }, (_, n) => ({ queue, kind: "run", payload: { n } }));
  const submitted = await through.submitMany(tasks);
  assert.equal(lost, 2);
  assert.equal(submitted.length, tasks.length);
  assert.ok(submitted.every(({ result }) => result === "created"));
  const made = await all(client.tasks({ queue, limit: 1000 }));
  assert.deepEqual(made.map(({ id }) => id).sort(), submitted.map(({ id }) => id).sort());
  // In their order: the ids are those of the tasks that were given.
  assert.deepEqual((await client.task(submitted[789].id)).payload, { n: 789 });
});

test("one task whose answer is lost is made once, with an id of its own or without", async (t) => {
  const through = proxied(t);
  for (const options of [{}, { id: "01ARZ3NDEKTSV4RRFFQ69G5FAV" }]) {
    const queue = `lost-answer-${Object.keys(options).length}`;
    let lost = 0;
    proxy.cut = () => (lost < 1 ? ((lost += 1), 0) : undefined);
    const { id } = await through.submit(queue, "run", null, options);
    assert.equal(lost, 1);
    assert.deepEqual((await all(client.tasks({ queue }))).map((task) => task.id), [id]);
  }
});

test("a change without a key is not sent again, and the error says that it may have been made", async (t) => {
  const through = proxied(t);
  proxy.cut = () => 0;
  const before = proxy.connections;
  await assert.rejects(through.pause("unsure"), (error) => error instanceof Unreachable && /may have been made/.test(error.message));
  assert.equal(proxy.connections, before + 1);
});

test("a failed submission of many says what was submitted before", async () => {
  const tasks = Array.from({ length: 700 }, (_, n) => ({ queue: "half", kind: "run", priority: n === 600 ? 1000 : 0 }));
  await assert.rejects(client.submitMany(tasks), (error) => {
    assert.ok(error instanceof Invalid);
    assert.deepEqual(error.details, { field: "tasks[100].priority" });
    assert.equal(error.submitted.length, 500);
    return true;
  });
});

test("tasks from a generator, large and small, some with ids, are all submitted in their order", async () => {
  const queue = "generated";
  const big = "x".repeat(600 * 1024);
  const ids = ["01ARZ3NDEKTSV4RRFFQ69G5FB1", "01ARZ3NDEKTSV4RRFFQ69G5FB2"];
  async function* tasks() {
    for (let n = 0; n < 8; n += 1) yield { queue, kind: "run", payload: { n, big }, ...(n >= 3 && n < 5 && { id: ids[n - 3] }) };
  }
  const submitted = await client.submitMany(tasks());
  assert.deepEqual(submitted.slice(3, 5).map(({ id }) => id), ids);
  for (const [n, { id }] of submitted.entries()) assert.equal((await client.task(id)).payload.n, n);
});

test("a prompt for a pool of agents is one task for each id of the caller", async () => {
  const { id } = await client.run("Tidy up", { pool: PARKED, id: "tidy", model: "m-1", priority: 5 });
  assert.deepEqual(await client.run("Tidy up", { pool: PARKED, id: "tidy" }), { id, result: "existing" });
  const { queue, kind, key, payload, priority } = await client.task(id);
  assert.deepEqual({ queue, kind, key, payload, priority }, { queue: PARKED, kind: "run", key: "tidy", payload: { prompt: "Tidy up", model: "m-1" }, priority: 5 });
});

// ---- wait ----

test("tasks come back as they complete, each once", async () => {
  const tasks = Array.from({ length: 40 }, (_, n) => ({ queue: "shell", kind: "run", payload: { script: `echo ${n}` } }));
  const submitted = await client.submitMany(tasks);
  const ended = await all(client.asCompleted(submitted.map(({ id }) => id), { timeout: "2m" }));
  assert.deepEqual(ended.map(({ output }) => Number(output)).sort((a, b) => a - b), tasks.map((_, n) => n));
});

test("those that have ended come back while many others wait", async () => {
  const waiting = await client.submitMany(Array.from({ length: 300 }, () => ({ queue: PARKED, kind: "run" })));
  const { id } = await client.submit("shell", "run", { script: "echo done" });
  const ids = [...waiting.map((task) => task.id), id];
  for await (const task of client.asCompleted(ids, { timeout: "1m" })) {
    assert.equal(task.id, id);
    break;
  }
  await assert.rejects(all(client.asCompleted(ids.slice(0, 20), { timeout: 100 })), NotFinished);
});

test("more waits than sockets take turns, and other calls go on", async () => {
  const submitted = await client.submitMany(Array.from({ length: 60 }, () => ({ queue: "many-waits", kind: "run" })));
  const waits = submitted.map(({ id }) => client.wait(id, { timeout: "1m" }));
  await client.stats();
  const { cutoff } = await client.act("cancel", { queue: "many-waits" }, { preview: true });
  const { id } = await client.act("cancel", { queue: "many-waits" }, { cutoff });
  await client.waitAction(id);
  assert.ok((await Promise.all(waits)).every(({ state }) => state === "cancelled"));
});

test("the error of a failed task has its class and its exit code", async () => {
  const { id } = await client.submit("shell", "run", { script: "echo no >&2; exit 7" });
  await assert.rejects(client.result(id, { wait: "30s" }), (error) => {
    assert.ok(error instanceof TaskFailed && error instanceof OstlerError);
    assert.deepEqual([error.taskClass, error.details.exit_code, error.task.id], ["transient", 7, id]);
    return true;
  });
});

// ---- signals ----

test("a signal ends a wait, a stream, an iterator and a request, with its reason", async (t) => {
  const { id } = await client.submit(PARKED, "run", null);
  const reason = new Error("enough");
  // A node may answer a plain request before the signal comes. This server never does.
  const silent = http.createServer(() => {}).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const unanswered = new Client({ url: `http://127.0.0.1:${silent.address().port}`, token: "none" });
  t.after(async () => {
    await unanswered.close();
    silent.close();
    silent.closeAllConnections();
  });
  const ends = {
    wait: (signal) => client.wait(id, { signal }),
    result: (signal) => client.result(id, { wait: "1m", signal }),
    follow: (signal) => all(client.follow(id, { signal })),
    asCompleted: (signal) => all(client.asCompleted([id], { signal })),
    waitMany: (signal) => client.waitMany([id], { signal }),
    stats: (signal) => unanswered.stats({ signal }),
  };
  for (const [name, start] of Object.entries(ends)) {
    const stop = new AbortController();
    const ended = assert.rejects(start(stop.signal), (error) => error === reason, name);
    setImmediate(() => stop.abort(reason));
    await ended;
    await assert.rejects(start(AbortSignal.abort(reason)), (error) => error === reason, `${name}, aborted before`);
  }
});

// ---- addresses and tokens ----

test("what cannot be reached is named, with what to do", async () => {
  const lonely = new Client({ url: "http://127.0.0.1:1", token: "a-token-of-some-node" });
  await assert.rejects(lonely.stats(), (error) => {
    assert.ok(error instanceof Unreachable);
    assert.match(error.message, /^http:\/\/127\.0\.0\.1:1 cannot be reached: .*ECONNREFUSED.*; start a node there with `ostler up`/);
    return true;
  });
  await assert.rejects(all(lonely.follow("01ARZ3NDEKTSV4RRFFQ69G5FAV")), Unreachable);
  assert.throws(() => new Client({ url: "ftp://127.0.0.1" }), /http:\/\/HOST:PORT or unix:PATH/);
});

test("a token that is wrong or may only look is refused, and one that was replaced in its file is read again", async () => {
  await assert.rejects(node.client({ token: "not-a-token-of-this-node" }).stats(), Unauthorized);
  await assert.rejects(node.client({ token: node.token("viewer") }).pause("q"), Forbidden);
  await assert.rejects(node.client({ tokenFile: path.join(node.folder, "nowhere") }).stats(), /cannot be read.*ostler up/);
  const copy = path.join(node.folder, "copy.token");
  const right = fs.readFileSync(node.tokenFile, "utf8");
  fs.writeFileSync(copy, right);
  const reader = node.client({ tokenFile: copy });
  await reader.stats();
  // As after a rotation: what the client has in memory is wrong, and the file is right.
  fs.writeFileSync(copy, right.replaceAll(node.token("owner"), "not-a-token-of-this-node"));
  const other = node.client({ tokenFile: copy });
  await assert.rejects(other.stats(), Unauthorized);
  fs.writeFileSync(copy, right);
  await other.stats();
});

test("a path before all paths belongs to the address, and the environment names both address and token", async (t) => {
  const own = await Node.start({ more: '\n[api]\nbase_path = "/ostler"\n' });
  t.after(() => own.close());
  for (const [name, value] of [["OSTLER_SERVER", `${own.url}/ostler/`], ["OSTLER_TOKEN", own.token("owner")]]) {
    process.env[name] = value;
    t.after(() => delete process.env[name]);
  }
  const caller = new Client();
  assert.equal(caller.url, `${own.url}/ostler`);
  const { id } = await caller.submit("shell", "run", { script: "echo one >&2; exit 1" });
  assert.equal((await all(caller.follow(id)))[0].data, "one");
  await caller.close();
});

test("after a restart the next call is answered", async () => {
  const own = await Node.start({ listen: "unix:FOLDER/api.sock" });
  const caller = own.client();
  try {
    const { id } = await caller.submit(PARKED, "run", null);
    await own.kill();
    const answer = caller.task(id);
    await own.up();
    assert.equal((await answer).state, "queued");
  } finally {
    await caller.close();
    await own.close();
  }
});

// ---- the page ----

test("the worker and the client at the top of the page run", async (t) => {
  const sdk = fileURLToPath(new URL("..", import.meta.url));
  const page = fs.readFileSync(path.join(sdk, "README.md"), "utf8");
  const named = [...page.matchAll(/```js\n(\/\/ (\w+\.mjs),.*?)```/gs)].map(([, text, name]) => [name, text]);
  assert.deepEqual(named.map(([name]) => name), ["worker.mjs", "client.mjs"]);
  const config = 'store = "sqlite:jobs.db"\n[pool.texts]\nexecutor = "process"\ncommand = ["node", "worker.mjs"]\n';
  const prepare = (folder) => {
    for (const [name, text] of named) fs.writeFileSync(path.join(folder, name), text);
    fs.mkdirSync(path.join(folder, "node_modules"));
    fs.symlinkSync(sdk, path.join(folder, "node_modules", "ostler"));
  };
  const own = await Node.start({ config, prepare });
  t.after(() => own.close());
  const env = { ...process.env, OSTLER_SERVER: own.url };
  const { stdout } = await promisify(execFile)(process.execPath, ["client.mjs"], { cwd: own.folder, env });
  assert.equal(stdout, "counting\n4\n");
});

// ---- answers that are not those of a node ----

test("an answer that asks to come again is followed, and one that is no JSON is refused", async () => {
  const answers = [
    [503, { "retry-after": "0" }, "{}"],
    [429, { "retry-after": "0" }, "{}"],
    [502, {}, "<html>"],
    [200, {}, '{"fine":true}'],
    [200, {}, "<html>"],
    [404, {}, "<html>"],
    [429, {}, '{"error":{"code":"busy","message":"later","details":null}}'],
  ];
  let asked = 0;
  const server = http.createServer((request, response) => {
    const [status, headers, body] = answers[asked];
    asked += 1;
    response.writeHead(status, headers).end(body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const caller = new Client({ url: `http://127.0.0.1:${server.address().port}`, token: "a-token-of-some-node" });
  try {
    assert.deepEqual(await caller.stats(), { fine: true });
    assert.equal(asked, 4);
    await assert.rejects(caller.stats(), (error) => error.code === "no_json");
    await assert.rejects(caller.stats(), (error) => error.name === "NotFound" && error.code === "http_404");
    await assert.rejects(caller.stats(), (error) => error.code === "busy" && error.status === 429);
    assert.equal(asked, answers.length);
  } finally {
    await caller.close();
    server.close();
  }
});

test("a server that never answers is left after the timeout", async () => {
  const server = http.createServer(() => {}).listen(0, "127.0.0.1");
  await once(server, "listening");
  const caller = new Client({ url: `http://127.0.0.1:${server.address().port}`, token: "a-token-of-some-node", timeout: 20 });
  await assert.rejects(caller.stats(), (error) => error instanceof Unreachable && /no answer within 20 ms/.test(error.message));
  await caller.close();
  await assert.rejects(async () => caller.stats(), /the client is closed/);
  server.closeAllConnections();
  server.close();
});

// A node for tests: `ostler up` in a folder of its own, with a client.
"use strict";

const { spawn } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { createInterface } = require("node:readline");

const { Client } = require("./client.js");

// How long a node may take to exit once it was asked to. Then it is killed, with all that it has started.
const MAX_EXIT_MS = 20_000;
// Variables that would lead a node, or its client, to another store.
const ELSEWHERE = ["OSTLER_STORE", "OSTLER_SERVER", "OSTLER_TOKEN", "OSTLER_LISTEN", "XDG_STATE_HOME"];

class RunningNode {
  constructor(folder, child, url, own) {
    this.folder = folder;
    this.pid = child.pid;
    this._process = child;
    this.url = url;
    this._own = own;
    // Beside the store.
    const token = fs.readdirSync(folder).find((name) => name.endsWith(".token"));
    this.client = new Client({ url, tokenFile: token && path.join(folder, token) });
  }

  get log() {
    return fs.readFileSync(path.join(this.folder, "node.log"), "utf8");
  }

  async close() {
    await this.client.close();
    await stop(this._process);
    if (this._own) fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

async function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  const killing = setTimeout(() => child.kill("SIGKILL"), MAX_EXIT_MS);
  await exited;
  clearTimeout(killing);
}

// The store, unless the config has one, in front of the first table.
function top(config) {
  const before = config.trimStart().startsWith("[") ? "" : config.split("\n[")[0];
  return /^\s*store\s*=/m.test(before) ? "" : 'store = "sqlite:ostler.db"\n';
}

async function startNode(t, config, { folder, program = process.env.OSTLER_PROGRAM ?? "ostler", env = {} } = {}) {
  const place = folder === undefined ? fs.mkdtempSync(path.join(os.tmpdir(), "ostler-")) : path.resolve(folder);
  const file = path.join(place, "ostler.toml");
  fs.writeFileSync(file, `${top(config)}${config}\n`);
  const variables = Object.fromEntries(Object.entries(process.env).filter(([name]) => !ELSEWHERE.includes(name)));
  const log = fs.openSync(path.join(place, "node.log"), "w");
  const child = spawn(program, ["up", "--config", file, "--listen", "127.0.0.1:0"], {
    env: { ...variables, ...env },
    stdio: ["ignore", "pipe", log],
  });
  fs.closeSync(log);
  const failed = once(child, "error").then(([error]) => Promise.reject(error));
  failed.catch(() => {});
  const line = await Promise.race([firstLine(child.stdout), failed]);
  if (line === undefined) throw new Error(`the node did not start: ${fs.readFileSync(path.join(place, "node.log"), "utf8")}`);
  const node = new RunningNode(place, child, `http://${JSON.parse(line).listen}`, folder === undefined);
  t?.after(() => node.close());
  return node;
}

async function firstLine(stream) {
  for await (const line of createInterface({ input: stream })) {
    stream.resume();
    return line;
  }
  return undefined;
}

module.exports = { RunningNode, startNode };

// A real node for tests of the client: `ostler up` in a folder of its own, on a Unix socket or a free port of this machine.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";

import { Client } from "../client.js";

// The tests of the program name it. By hand: OSTLER_PROGRAM=target/debug/ostler npm test
const PROGRAM = process.env.OSTLER_PROGRAM ?? "ostler";

export const CONFIG = `
store = "sqlite:jobs.db"
name = "tests"

[pool.shell]
executor = "command"
command = ["sh", "-c", "{{ payload.script }}"]
retry = { attempts = 1 }
max_workers = 4
`;

export class Node {
  static async start({ config = CONFIG, listen = "127.0.0.1:0", more = "", prepare } = {}) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ostler-js-"));
    // The URL of a store on a server, with a schema for this node.
    const store = process.env.OSTLER_TEST_STORE;
    const placed = store === undefined ? config : config.replace(/^store = .*$/m, `store = "${store}"`);
    fs.writeFileSync(path.join(folder, "ostler.toml"), placed + more);
    prepare?.(folder);
    const node = new Node();
    Object.assign(node, { folder, listen: listen.replace("FOLDER", folder) });
    await node.up();
    // Beside the store, or in the state folder of the user if the store is on a server.
    const files = fs.readdirSync(folder, { recursive: true });
    node.tokenFile = path.join(folder, files.find((name) => name.endsWith(".token")));
    return node;
  }

  // Starts the program, and reads its address from the line that says that it is ready.
  async up() {
    const { OSTLER_TOKEN, OSTLER_SERVER, OSTLER_STORE, OSTLER_LISTEN, XDG_STATE_HOME, ...env } = process.env;
    const stdio = ["ignore", "pipe", "pipe"];
    this.process = spawn(PROGRAM, ["up", "--listen", this.listen], { cwd: this.folder, env: { ...env, HOME: this.folder }, stdio });
    this.log = "";
    this.process.stderr.setEncoding("utf8").on("data", (text) => (this.log += text));
    this.closed = once(this.process, "close");
    for await (const line of createInterface(this.process.stdout)) {
      const said = JSON.parse(line);
      if (said.event !== "ready") continue;
      this.listen = said.listen;
      this.process.stdout.resume();
      this.url = said.listen.startsWith("unix:") ? said.listen : `http://${said.listen}`;
      return;
    }
    assert.fail(`the node did not start: ${this.log}`);
  }

  token(name) {
    const lines = fs.readFileSync(this.tokenFile, "utf8").split("\n").map((line) => line.split(" "));
    return lines.find(([known]) => known === name)[2];
  }

  client(options) {
    return new Client({ url: this.url, tokenFile: this.tokenFile, ...options });
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.closed;
  }

  async close() {
    await this.kill();
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

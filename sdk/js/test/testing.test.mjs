// The helper for tests with a real node, as the README shows it.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { startNode } from "../testing.js";

const SDK = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");

test("the test of the page passes, with the worker of the page", (t) => {
  const page = fs.readFileSync(path.join(SDK, "README.md"), "utf8");
  const blocks = [...page.matchAll(/```js\n(.*?)```/gs)].map(([, block]) => block);
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ostler-js-"));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  fs.mkdirSync(path.join(folder, "node_modules"));
  fs.symlinkSync(SDK, path.join(folder, "node_modules", "ostler"));
  fs.writeFileSync(path.join(folder, "worker.mjs"), blocks.find((block) => block.startsWith("// worker.mjs")));
  fs.writeFileSync(path.join(folder, "texts.test.mjs"), blocks.find((block) => block.includes("ostler/testing")));
  const { NODE_TEST_CONTEXT, ...env } = process.env;
  const ran = spawnSync(process.execPath, ["--test", "texts.test.mjs"], { cwd: folder, env, encoding: "utf8" });
  assert.equal(ran.status, 0, ran.stdout + ran.stderr);
  assert.match(ran.stdout, /pass 1/);
});

test("a node that does not start says why, and one is gone when it is closed", async () => {
  await assert.rejects(startNode(undefined, "[pool.x]\nexecutor = \"nothing\""), /the node did not start: .*"nothing" does not exist/s);
  const node = await startNode(undefined, '[pool.shell]\nexecutor = "command"\ncommand = ["echo", "{{ payload }}"]');
  const { id } = await node.client.submit("shell", "run", "hello");
  assert.equal(await node.client.result(id, { wait: "1m" }), "hello");
  await node.close();
  assert.throws(() => process.kill(node.pid, 0), { code: "ESRCH" });
  assert.ok(!fs.existsSync(node.folder));
});

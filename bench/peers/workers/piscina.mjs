// A pool of Node.js threads: the round trip of one call, and calls per second.
//
//     node piscina.mjs FOLDER CALLS WORKERS      FOLDER has piscina installed

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [folder, calls, workers] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const require = createRequire(join(folder, "package.json"));
const { Piscina } = require("piscina");
const { version } = JSON.parse(readFileSync(join(folder, "node_modules/piscina/package.json"), "utf8"));

const filename = fileURLToPath(new URL("noop.mjs", import.meta.url));
const pool = new Piscina({ filename, minThreads: workers, maxThreads: workers, concurrentTasksPerWorker: 1 });
const WARM = 100;
await Promise.all(Array.from({ length: WARM * workers }, (_, n) => pool.run({ n })));
const took = [];
for (let n = 0; n < calls; n++) {
  const began = process.hrtime.bigint();
  await pool.run({ n });
  took.push(Number(process.hrtime.bigint() - began));
}
const began = process.hrtime.bigint();
await Promise.all(Array.from({ length: calls }, (_, n) => pool.run({ n })));
const rate = calls / (Number(process.hrtime.bigint() - began) / 1e9);
took.sort((a, b) => a - b);
console.log(JSON.stringify({ version, p50_us: took[calls >> 1] / 1000, per_second: rate }));
await pool.destroy();

// Drains no-op jobs with graphile-worker, with its local queue and batched completion on, as its performance page recommends.
// Usage: drain.mjs SOCKET_FOLDER USER DATABASE JOBS. Prints one line of JSON: its version, and jobs per second.
import { readFileSync } from "node:fs";
import pg from "pg";
import { Logger, run, runMigrations } from "graphile-worker";

const [host, user, database, jobs] = process.argv.slice(2);
const wanted = Number(jobs);
const WARM_UP = Math.min(wanted, 5000);
const LOCAL_QUEUE = 500;
const AT_ONCE = 24;
const LONGEST_MS = 600_000;

const pool = new pg.Pool({ host, user, database, max: AT_ONCE + 1 });
pool.on("error", (error) => { throw error; });
pool.on("connect", (client) => client.on("error", (error) => { throw error; }));
const preset = {
  worker: {
    concurrentJobs: AT_ONCE,
    maxPoolSize: AT_ONCE + 1,
    localQueue: { size: LOCAL_QUEUE },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: new Logger(() => () => {}),
  },
};
const payload = { url: "https://example.org/a", size: 128, tenant: "acme" };

async function enqueue(count) {
  const text = "select count(*) from graphile_worker.add_jobs(array(select "
    + "row('noop', $2::json, null, null, null, null, null, null)::graphile_worker.job_spec from generate_series(1, $1::int)))";
  await pool.query(text, [count, JSON.stringify(payload)]);
}

// Enqueues all jobs, then measures the time until the database has none left.
async function drain(count) {
  await enqueue(count);
  await pool.query("vacuum analyze graphile_worker._private_jobs");
  const begun = process.hrtime.bigint();
  let ran = 0;
  let all;
  const allRan = new Promise((resolve) => { all = resolve; });
  const taskList = { noop: () => { ran += 1; if (ran === count) all(); } };
  const runner = await run({ pgPool: pool, taskList, preset, noHandleSignals: true });
  await Promise.race([allRan, new Promise((_, no) => setTimeout(no, LONGEST_MS, new Error("too slow")).unref())]);
  const left = () => pool.query("select 1 from graphile_worker._private_jobs limit 1").then((found) => found.rowCount);
  while (await left()) await new Promise((next) => setImmediate(next));
  const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
  await runner.stop();
  return count / seconds;
}

await runMigrations({ pgPool: pool, preset });
await drain(WARM_UP);
const rate = await drain(wanted);
await pool.end();
const { version } = JSON.parse(readFileSync(new URL("node_modules/graphile-worker/package.json", import.meta.url)));
console.log(JSON.stringify({ version, node: process.version, rate }));
process.exit(0);

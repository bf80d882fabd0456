// Drains no-op jobs with pg-boss, through its batch calls: fetch and complete.
// Usage: drain.mjs SOCKET_FOLDER USER DATABASE JOBS. Prints one line of JSON: its version, and jobs per second.
import { readFileSync } from "node:fs";
import { PgBoss } from "pg-boss";

const [host, user, database, jobs] = process.argv.slice(2);
const wanted = Number(jobs);
const WARM_UP = Math.min(wanted, 5000);
const QUEUE = "noop";
const BATCH = 500;
const INSERT = 5000;
const AT_ONCE = 2;

const boss = new PgBoss({ host, user, database, max: AT_ONCE + 2, supervise: false, schedule: false });
boss.on("error", (error) => { throw error; });
const data = { url: "https://example.org/a", size: 128, tenant: "acme" };

async function enqueue(count) {
  for (let done = 0; done < count; done += INSERT) {
    const batch = Array.from({ length: Math.min(INSERT, count - done) }, () => ({ data }));
    await boss.insert(QUEUE, batch);
  }
}

async function fetchAndComplete() {
  let done = 0;
  for (;;) {
    const batch = await boss.fetch(QUEUE, { batchSize: BATCH });
    if (batch.length === 0) return done;
    await boss.complete(QUEUE, batch.map((job) => job.id));
    done += batch.length;
  }
}

async function drain(count) {
  await enqueue(count);
  await boss.getDb().executeSql("vacuum analyze pgboss.job_common");
  const begun = process.hrtime.bigint();
  const done = await Promise.all(Array.from({ length: AT_ONCE }, fetchAndComplete));
  const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
  const sum = done.reduce((all, one) => all + one, 0);
  if (sum !== count) throw new Error(`pg-boss completed ${sum} of ${count}`);
  return count / seconds;
}

await boss.start();
await boss.createQueue(QUEUE);
await drain(WARM_UP);
const rate = await drain(wanted);
await boss.stop({ graceful: false });
const { version } = JSON.parse(readFileSync(new URL("node_modules/pg-boss/package.json", import.meta.url)));
console.log(JSON.stringify({ version, node: process.version, rate }));
process.exit(0);

// A program in TypeScript that uses the client. The compiler checks it: a line that must be wrong says so.

import { Client, type BulkProgress, type Job, NotFinished, type Submitted, TaskFailed, type Waited } from "ostler/client";

await using client = new Client({ url: "unix:/run/api.sock", tokenFile: "jobs.db.token", timeout: "10s" });

const { id }: Submitted = await client.submit("mail", "send", { to: "ada" }, { key: "k", in: "5m", signal: AbortSignal.timeout(1000) });
// @ts-expect-error: there is no such option
await client.submit("mail", "send", {}, { retries: 3 });
// @ts-expect-error: one of many tasks needs a queue
await client.submitMany([{ kind: "send" }]);

async function* generated() {
  yield { queue: "mail", kind: "send", payload: 1 };
}
for (const { id, result } of await client.submitMany(generated())) {
  if (id !== null) console.log(id.length, result === "created");
}

const text: string = await client.result<string>(id, { wait: "1m" });
const ended: Waited[] = await client.waitMany([id], { timeout: 5000 });
for await (const { state, output } of client.asCompleted([id])) console.log(state === "completed", output);
for await (const event of client.follow(id, { after: 3 })) console.log(event.number + 1, event.data.length);
for await (const { stats, queues } of client.live({ signal: AbortSignal.timeout(1000) })) console.log(stats, queues.length);
for await (const task of client.tasks({ state: "failed", where: "payload.n=1", oldest: true })) console.log(task.failures);
// @ts-expect-error: there is no such state
client.tasks({ state: "done" });

const { cutoff, tasks } = await client.act("replay", { queue: "mail" }, { preview: true });
const progress: BulkProgress = await client.act("replay", { queue: "mail" }, { cutoff });
// @ts-expect-error: an action needs the cut-off of its preview
await client.act("replay", { queue: "mail" }, {});
await client.waitAction(progress.id, { onProgress: ({ done }) => console.log(done, tasks) });

const { id: job } = await client.jobs.create("words", ["a", { word: "b" }], { pilot: 1, max_cost: "$5" });
const seen: Job = await client.jobs.waitPilot(job);
for await (const { output } of client.jobs.results(job)) console.log(output ?? "", seen.tasks.completed);

try {
  await client.result(id);
} catch (error) {
  if (error instanceof TaskFailed) console.log(error.taskClass, error.task.id, error.code);
  if (error instanceof NotFinished) console.log(error.task.state, text, ended.length);
}

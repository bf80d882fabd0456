// A program in TypeScript, as users write it. The compiler checks it: a line that must be wrong says so.

import { type Context, type GatewaySession, PartialError, type QueryResult, type TaskInfo, type Tested, Transient, Worker, worker } from "ostler";

interface Order {
  number: number;
}

// TypeScript's own names mean what they always do.
const order: Partial<Order> = {};
const names: Record<string, Readonly<Order>> = {};

worker.task<Order, string>("plain", { attempts: 5, timeout: "30s", backoff: "fixed", jitter: true }, async (payload, ctx) => {
  const fetched: number = await ctx.step("fetched", () => payload.number);
  const extra: number | null = await ctx.stepOrWarn("extra", () => 1);
  await ctx.session("s-1");
  await ctx.message("Hello", "user");
  // @ts-expect-error: there is no such role
  await ctx.message("Hello", "robot");
  await ctx.toolResult("c1", { any: ["JSON"] }, { error: true });
  await ctx.usage({ model: "m", inputTokens: fetched, costUsd: 0.5 });
  const child: string = await ctx.submit("child", { n: extra }, { queue: "q", key: "k", delayMs: 60_000 });
  const found: TaskInfo | undefined = await ctx.task(child);
  const session: GatewaySession = await ctx.gateway().createSession({ userId: "u" });
  const { text }: QueryResult = await session.runQuery("Hello", { maxIterations: 3, model: "m" });
  await ctx.run(text, { pool: "runs", id: "job_1" });
  // @ts-expect-error: an input is a text
  await session.runQuery(1);
  for await (const event of session.stream("Hello", { maxIterations: 3 })) {
    if (event.type === "result") ctx.log("info", event.sessionId);
    else if (event.type === "usage") ctx.log("info", `${event.usage.inputTokens}`);
    else if (event.type === "tool_call") ctx.log("info", event.tool);
    // @ts-expect-error: only the answer has an output
    else if (event.type === "message") ctx.log("info", event.output);
  }
  if (ctx.cancelled) throw new PartialError("half of it", { step: "fetched" });
  return found?.state ?? "gone";
});

worker.task("any", (payload, ctx: Context) => {
  if (payload.late) throw new Transient("later", { retryAfterMs: 5 });
  return ctx.id;
});

// @ts-expect-error: there is no such option
worker.task("wrong", { retries: 3 }, () => null);
// @ts-expect-error: there is no such backoff
worker.task("wrong", { backoff: "wild" }, () => null);

const tested: Tested = await new Worker().test("plain", { number: 1 }, { tasks: [{ id: "x", state: "failed", error: "no" }] });
console.log(order, names, tested.conversation[0]?.type, tested.submitted[0]?.queue);

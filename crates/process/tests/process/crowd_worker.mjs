// A worker of the tests that runs many tasks at once. What it does is its payload.

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { worker } from "../../../../sdk/js/index.js";

let inside = 0;
let open;
const everyone = new Promise((resolve) => {
  open = resolve;
});

const WAYS = {
  echo: (how) => how,
  // Returns when this many are in it at once.
  async barrier(how) {
    inside += 1;
    if (inside === how) open();
    await everyone;
    return process.pid;
  },
  async wait(how, ctx) {
    ctx.log("info", "waiting");
    await sleep(3_600_000, null, { signal: ctx.signal });
  },
  async deaf(how, ctx) {
    ctx.log("info", "waiting");
    await once(process, "never");
  },
  die: (how) => process.exit(how),
  async print(how) {
    for (const part of ["one", "two"]) {
      console.log(part, how);
      await sleep(0);
    }
    process.stderr.write(`no end of line ${how}`);
  },
  async converse(how, ctx) {
    await ctx.session(`s-${how}`);
    await ctx.prompt(`prompt ${how}`);
    await ctx.message(`question ${how}`, "user");
    await ctx.thinking(`thought ${how}`);
    await ctx.toolCall(`c-${how}`, "Read", { path: how });
    const done = await ctx.step("one", () => how);
    await ctx.toolResult(`c-${how}`, [how], { error: true });
    await ctx.message(`answer ${how}`);
    await ctx.usage({ model: "m", inputTokens: 3, outputTokens: 4, costUsd: 0.25 });
    return done;
  },
  async submit(how, ctx) {
    const first = await ctx.submit("child", how);
    const given = { queue: "other", key: "one", delayMs: 1500, id: "01JC8Z0Q4M9T7N3V5X1B2D6F8H" };
    const second = await ctx.submit("child", how, given);
    const found = await ctx.task(first);
    const said = await ctx.submit("full").catch((error) => `${error.name}: ${error.message}`);
    return [first, second, found.state, found.output ?? null, found.error ?? null, (await ctx.task(second)) ?? null, said];
  },
};

worker.task("k", { attempts: 5, timeout: "30s" }, (payload, ctx) => WAYS[payload.do](payload.how, ctx));

worker.run();

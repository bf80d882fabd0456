// A worker in JavaScript: counts the words of a text.
//
// In ostler.toml:   [pool.texts]
//                   executor = "process"
//                   command = ["node", "examples/worker.mjs"]
// Then:             ostler submit texts count --payload '{"text":"to be or not"}' --wait

import { Permanent, worker } from "ostler";

worker.task("count", async (payload, ctx) => {
  const { text } = payload ?? {};
  if (typeof text !== "string") {
    throw new Permanent("the payload has no text", { hint: 'submit it with {"text":"…"}' });
  }
  // On disk before the next line: if this process is killed now, the next attempt has the words and does not split again.
  const words = await ctx.step("split", () => text.split(/\s+/).filter(Boolean));
  for (const done of words.keys()) {
    ctx.check();
    ctx.progress(done + 1, words.length);
  }
  console.log("counted", words.length);
  return { words: words.length };
});

worker.run();

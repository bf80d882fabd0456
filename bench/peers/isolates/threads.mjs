// Node's worker threads, with a memory limit: a new one for each call, or one for all.
//
//     node threads.mjs new|one FUNCTION MILLIS

import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { PAYLOAD, expression, measure } from "./common.mjs";

const [mode, name, millis] = process.argv.slice(2);
const code = `
  const call = (${expression(name)});
  const { parentPort } = require("node:worker_threads");
  parentPort.on("message", (text) => parentPort.postMessage(JSON.stringify(call(JSON.parse(text)))));`;
const start = () => new Worker(code, { eval: true, resourceLimits: { maxOldGenerationSizeMb: 64 } });
const ask = async (worker) => {
  worker.postMessage(PAYLOAD);
  const [answer] = await once(worker, "message");
  return answer;
};
const kept = start();
const call = async () => {
  if (mode === "one") return ask(kept);
  const worker = start();
  const answer = await ask(worker);
  await worker.terminate();
  return answer;
};
console.log(JSON.stringify({ version: process.version, ...(await measure(Number(millis), call)) }));
await kept.terminate();

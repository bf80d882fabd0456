// What the peers share: the functions, the payload, and how calls are timed.

import { readFileSync } from "node:fs";

export const PAYLOAD = '{"name":"ostler","items":[1,2,3,4,5]}';

/// The text of a function, as an expression.
export function expression(name) {
  const text = readFileSync(new URL(`functions/${name}.js`, import.meta.url), "utf8");
  return text.replace("export default", "").trim().replace(/;$/, "");
}

/// Calls until the time is over: the median, the 99th percentile, and calls per second, of CPU time if it is one thread's work.
export async function measure(millis, call) {
  const took = [];
  for (let n = 0; n < 50; n++) await call();
  const [began, cpu] = [performance.now(), process.cpuUsage()];
  while (performance.now() - began < millis) {
    const start = process.hrtime.bigint();
    await call();
    took.push(Number(process.hrtime.bigint() - start) / 1000);
  }
  const wall = (performance.now() - began) / 1000;
  const used = process.cpuUsage(cpu);
  const rate = (seconds) => took.length / seconds;
  const result = { per_second: rate(wall), per_cpu_second: rate((used.user + used.system) / 1e6) };
  took.sort((a, b) => a - b);
  const at = (share) => took[Math.min(took.length - 1, Math.floor(took.length * share))];
  return { p50_us: at(0.5), p99_us: at(0.99), ...result };
}

// Calls a second of CPU time in node's vm, to compare with speed.rs: node crates/isolate/tests/isolate/speed.mjs
// The same function and payload. A vm has no limits, no modules and no globals of the prelude.
import vm from "node:vm";

const source =
  "async (payload, ctx) => ({ name: payload.name.toUpperCase(), total: payload.items.reduce((a, b) => a + b, 0) })";
const payload = '{"name":"ostler","items":[1,2,3,4,5]}';
const expected = '{"name":"OSTLER","total":15}';
const MEASURED_MS = 2000;

const fresh = () => vm.runInContext(`(${source})`, vm.createContext({}));
const kept = fresh();
for (const [name, handler] of [["fresh", fresh], ["one context", () => kept]]) {
  const cpu = process.cpuUsage();
  const until = performance.now() + MEASURED_MS;
  let calls = 0;
  while (performance.now() < until) {
    const output = JSON.stringify(await handler()(JSON.parse(payload), {}));
    if (output !== expected) throw new Error(output);
    calls += 1;
  }
  const { user, system } = process.cpuUsage(cpu);
  const seconds = (user + system) / 1e6;
  console.log(`node ${process.version} vm, ${name}: ${Math.round(calls / seconds)} calls/s, ${((seconds * 1e6) / calls).toFixed(1)} us each`);
}

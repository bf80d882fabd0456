// Contexts of Node's vm: a new one for each call, or one for all. The only limit is a timeout.
//
//     node vm.mjs new|one FUNCTION MILLIS

import vm from "node:vm";
import { PAYLOAD, expression, measure } from "./common.mjs";

const [mode, name, millis] = process.argv.slice(2);
const script = new vm.Script(`JSON.stringify((${expression(name)})(JSON.parse(payload)))`);
const context = () => vm.createContext({ payload: PAYLOAD });
const kept = context();
const call = () => script.runInContext(mode === "new" ? context() : kept, { timeout: 1000 });
console.log(JSON.stringify({ version: process.version, ...(await measure(Number(millis), call)) }));

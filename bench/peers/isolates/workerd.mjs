// workerd, which has no limits: the function behind an HTTP handler, called over one connection of Node's client.
//
//     node workerd.mjs FOLDER FUNCTION MILLIS      FOLDER has workerd installed

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PAYLOAD, expression, measure } from "./common.mjs";

const [folder, name, millis] = process.argv.slice(2);
const { version } = JSON.parse(readFileSync(join(folder, "node_modules/workerd/package.json"), "utf8"));
const port = await new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});
const place = mkdtempSync(join(tmpdir(), "ostler-workerd-"));
writeFileSync(
  join(place, "worker.js"),
  `const call = (${expression(name)});
  export default { async fetch(request) { return new Response(JSON.stringify(call(await request.json()))); } };`,
);
writeFileSync(
  join(place, "config.capnp"),
  `using Workerd = import "/workerd/workerd.capnp";
  const config :Workerd.Config = (
    services = [ (name = "main", worker = .worker) ],
    sockets = [ (name = "http", address = "127.0.0.1:${port}", http = (), service = "main") ]
  );
  const worker :Workerd.Worker = (
    modules = [ (name = "worker", esModule = embed "worker.js") ],
    compatibilityDate = "2025-01-01"
  );`,
);
const program = spawn(join(folder, "node_modules/.bin/workerd"), ["serve", join(place, "config.capnp")], { stdio: "ignore" });
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const call = () =>
  new Promise((resolve, reject) => {
    const request = http.request({ host: "127.0.0.1", port, method: "POST", agent }, (response) => {
      let text = "";
      response.on("data", (piece) => (text += piece)).on("end", () => resolve(text));
    });
    request.on("error", reject).end(PAYLOAD);
  });
try {
  for (let tries = 0; ; tries++) {
    try {
      await call();
      break;
    } catch (error) {
      if (tries > 200) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  console.log(JSON.stringify({ version, ...(await measure(Number(millis), call)) }));
} finally {
  program.kill("SIGKILL");
  agent.destroy();
  rmSync(place, { recursive: true, force: true });
}

// Pages of other sites, in a browser that is logged in: nothing changes, and nothing is read. And hostile texts in every field that a
// submitter controls: they stay texts.
import { createServer } from "node:http";
import { Visitor, api, figure, finish, launch, must, problems, told, until, views } from "./kit.mjs";

const { base } = told;
const port = new URL(base).port;
const browser = await launch("--host-resolver-rules=MAP evil.test 127.0.0.1");
const visitor = await Visitor.logIn(browser);
const { context } = visitor;

await finish(browser, [attacks, hostileTexts]);

// ---- attacks ----

// What a page of another site tries. It returns what it could read.
async function attack({ target, id }) {
  const read = [];
  const keep = async (name, answer) => {
    const text = await answer.text().catch(() => "");
    read.push(`${name} ${answer.type} ${answer.status}: ${text}`);
  };
  const json = { "content-type": "application/json" };
  const form = { "content-type": "application/x-www-form-urlencoded" };
  const reading = ["/api/v1/tasks", `/api/v1/tasks/${id}`, "/tasks", "/", "/api/v1/audit", "/api/v1/session", "/metrics", "/api/v1/openapi.json"];
  const changing = [
    ["POST", `/api/v1/tasks/${id}/cancel`, "{}", json],
    ["POST", "/api/v1/queues/mail/pause", "{}", json],
    ["PUT", "/api/v1/queues/mail", '{"concurrency":1}', json],
    ["DELETE", `/api/v1/dead/${id}`, "", {}],
    ["POST", "/api/v1/tasks", '{"queue":"mail","kind":"planted"}', { "content-type": "text/plain" }],
    ["POST", "/do/tasks.cancel", `p%3Aid=${id}&confirmed=yes`, form],
    ["POST", "/do/queues.pause", "p%3Aqueue=mail&confirmed=yes", form],
    ["POST", "/mcp", '{"jsonrpc":"2.0","id":1,"method":"tools/list"}', { ...json, accept: "application/json, text/event-stream" }],
  ];
  for (const mode of ["cors", "no-cors"]) {
    for (const path of reading) {
      await fetch(target + path, { mode, credentials: "include", signal: AbortSignal.timeout(15000) }).then((answer) => keep(`${mode} ${path}`, answer), () => {});
    }
    for (const [method, path, body, headers] of changing) {
      if (mode === "no-cors" && method !== "POST") continue;
      const settings = { method, mode, credentials: "include", headers: mode === "no-cors" ? { "content-type": headers["content-type"]?.includes("form") ? headers["content-type"] : "text/plain" } : headers, signal: AbortSignal.timeout(15000) };
      if (body) settings.body = body;
      await fetch(target + path, settings).then((answer) => keep(`${mode} ${method} ${path}`, answer), () => {});
    }
  }
  const loads = (make) =>
    new Promise((done) => {
      const node = make(done);
      if (node) document.body.append(node);
      setTimeout(() => done("nothing"), 8000);
    });
  const element = (name, set) => (done) => {
    const node = document.createElement(name);
    node.onload = () => done("loaded");
    node.onerror = () => done("refused");
    set(node);
    return node;
  };
  const [image, script, stream] = await Promise.all([
    loads(element("img", (node) => (node.src = `${target}/assets/icon.svg`))),
    loads(element("script", (node) => (node.src = `${target}/api/v1/tasks`))),
    loads((done) => {
      const source = new EventSource(`${target}/api/v1/live`, { withCredentials: true });
      for (const name of ["message", "stats", "queues", "nodes", "workers", "reset"]) {
        source.addEventListener(name, (event) => {
          source.close();
          read.push(`stream: ${event.data}`);
          done("read");
        });
      }
      source.onerror = () => {
        source.close();
        done("refused");
      };
    }),
  ]);
  const frame = document.createElement("iframe");
  frame.src = `${target}/tasks`;
  document.body.append(frame);
  await new Promise((done) => (frame.onload = done));
  let framed = "";
  try {
    framed = frame.contentDocument?.body?.innerText ?? "";
  } catch {
    framed = "";
  }
  read.push(`frame: ${framed}`);
  // Forms are sent with the cookies of a navigation.
  for (const [action, fields] of [
    ["/do/tasks.cancel", { "p:id": id, confirmed: "yes" }],
    ["/do/queues.pause", { "p:queue": "mail", confirmed: "yes" }],
    ["/do/prune", { confirmed: "yes" }],
    ["/logout/form", {}],
  ]) {
    const box = document.createElement("iframe");
    box.name = `into-${action}`;
    document.body.append(box);
    const sent = document.createElement("form");
    Object.assign(sent, { method: "post", target: box.name });
    sent.setAttribute("action", target + action);
    for (const [name, value] of Object.entries(fields)) {
      const input = document.createElement("input");
      Object.assign(input, { name, value });
      sent.append(input);
    }
    document.body.append(sent);
    const answered = new Promise((done) => (box.onload = done));
    sent.submit();
    await answered;
  }
  return { read, image, script, stream };
}

// What may not change, and what may not be read.
async function everything() {
  const parts = ["tasks?limit=200", "queues", "stats", "schedules", "audit"].map((part) => api("GET", `/api/v1/${part}`));
  return JSON.stringify(await Promise.all(parts));
}

async function attacks() {
  const secret = "kept-from-strangers";
  const { id } = await api("POST", "/api/v1/tasks", { queue: "mail", kind: secret, payload: { secret } });
  const other = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<!doctype html><body>a page"));
  await new Promise((go) => other.listen(0, "127.0.0.1", go));
  const elsewhere = other.address().port;
  // A rebound name: the page came from a stranger's server under this name and port, and now the name leads to the node.
  await context.route((url) => url.pathname === "/stranger.html", (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html><body>a page" }));
  const from = [
    ["a rebound name", `http://evil.test:${port}/stranger.html`, `http://evil.test:${port}`],
    ["a rebound name, by address", `http://evil.test:${port}/stranger.html`, base],
    ["another port of the machine", `http://127.0.0.1:${elsewhere}/`, base],
    ["another site", `http://evil.test:${elsewhere}/`, base],
  ];
  const before = await everything();
  const session = async (page) => (await page.evaluate(async (root) => (await fetch(`${root}/api/v1/session`)).status, base)) === 200;
  for (const [name, address, target] of from) {
    const page = await context.newPage();
    page.on("dialog", (dialog) => problems.push(dialog.message()));
    await page.goto(address);
    const { read, stream, script } = await page.evaluate(attack, { target, id });
    const leak = read.find((text) => text.includes(secret) || text.includes('"queued"') || /As of|"state"/.test(text));
    must(!leak, `${name} has read ${leak}`);
    must(stream !== "read" && script !== "loaded", `${name}: stream ${stream}, script ${script}`);
    await page.close();
    must((await everything()) === before, `${name} has changed something`);
    must(await session(visitor.page), `${name} has logged the reader out`);
  }
  // The same page from the right origin reads and changes: the attacks above would have been seen.
  const own = await context.newPage();
  await own.goto(`${base}/stranger.html`);
  const { read, stream } = await own.evaluate(attack, { target: base, id });
  must(read.some((text) => text.includes(secret)) && stream === "read", `the node's own page reads: stream ${stream}`);
  const after = await api("GET", `/api/v1/tasks/${id}`);
  must(after.state === "cancelled", `the node's own page cancels: ${after.state}`);
  must((await api("GET", "/api/v1/queues/mail")).paused !== null, "the node's own page pauses");
  must(!(await session(own)), "the node's own page logs out");
  await own.close();
  other.close();
  figure(`${from.length} strangers tried ${read.length} reads, forms, frames, images, scripts and streams: no change, no byte; the own page did both`);
}

// ---- hostile texts ----

async function hostileTexts() {
  const reader = await Visitor.logIn(browser);
  await reader.context.addInitScript(() => {
    globalThis.hit = () => console.error("a text was run");
    document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  const outside = [];
  reader.context.on("request", (request) => new URL(request.url()).origin !== base && outside.push(request.url()));
  const page = await reader.open("/");
  const tasks = told.tasks.filter((id) => !id.startsWith("job:"));
  const job = told.tasks.find((id) => id.startsWith("job:")).slice(4);
  const lists = ["/tasks?state=failed", "/tasks?queue=a%2Fb.c%3Fd", "/cost?by=model", "/cost?by=queue", `/jobs/${job}`];
  const places = [...views, ...lists, ...tasks.flatMap((id, n) => (n % 4 ? [`/tasks/${id}`] : [`/tasks/${id}`, `/tasks/${id}/transcript`]))];
  let elements = 0;
  for (const place of places) {
    const answer = await page.goto(base + place);
    must(answer.status() === 200, `${place}: ${answer.status()}`);
    elements += await page.evaluate(made, place);
  }
  // Each of them once more, merged into itself by a live update.
  for (const place of ["/", "/tasks", "/dead", `/jobs/${job}`, `/tasks/${tasks[3]}`]) {
    await page.goto(base + place);
    const first = await page.locator("#asof time").getAttribute("datetime");
    await until("an update is merged", async () => (await page.locator("#asof time").getAttribute("datetime")) > first);
    elements += await page.evaluate(made, place);
  }
  // A link with such a text leads to the task it names.
  await page.goto(`${base}/tasks?queue=${encodeURIComponent("a/b.c?d")}`);
  must((await page.locator("#rows tr").count()) > 10, "the queue a/b.c?d is listed");
  must(outside.length === 0, `requests elsewhere: ${outside}`);
  figure(`300 hostile texts on ${places.length} pages with ${elements} elements: no dialog, no error, no report, no attribute`);
  await reader.context.close();
}

// Runs in the page: what a text has made of itself. Returns the number of elements.
function made(place) {
  const known = /^(accept|accesskey|action|aria-[a-z]+|autocomplete|checked|class|content|crossorigin|charset|cols|colspan|data-[a-z-]+|datetime|disabled|download|for|form|formaction|height|hidden|high|href|id|lang|low|max|maxlength|method|min|name|open|optimum|pattern|placeholder|points|rel|required|role|rows|scope|selected|spellcheck|src|step|tabindex|title|type|value|viewBox|width|d|fill|stroke|stroke-width|preserveAspectRatio|x|y|x1|x2|y1|y2|cx|cy|r|vector-effect|focusable|inputmode|xmlns)$/;
  const all = document.querySelectorAll("*");
  for (const node of all) {
    const where = `${place}: ${node.outerHTML.slice(0, 200)}`;
    for (const { name, value } of node.attributes) {
      if (!known.test(name)) throw new Error(`the attribute ${name}: ${where}`);
      if (/^(href|src|action|formaction)$/.test(name) && !new URL(value, location).href.startsWith(location.origin)) throw new Error(`a link elsewhere: ${where}`);
      if (/^(id|name)$/.test(name) && value === "hit") throw new Error(`an element of a text: ${where}`);
    }
    if (/^(iframe|img|object|embed|base|style|audio|video|math)$/i.test(node.localName)) throw new Error(`an element of a text: ${where}`);
  }
  if (document.scripts.length !== 1) throw new Error(`${place} has ${document.scripts.length} scripts`);
  const text = document.body.innerText;
  const control = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/.exec(text);
  if (control) throw new Error(`${place} shows the character ${control[0].charCodeAt(0).toString(16)} at ${text.slice(Math.max(0, control.index - 40), control.index + 10)}`);
  return all.length;
}

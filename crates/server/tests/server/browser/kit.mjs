// What scenarios share: the browser, a page whose faults are collected, the API, and the lines to the test that started it (driver.rs).
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [modules] = process.argv.slice(2);
export const told = JSON.parse(process.argv[3]);
export const packages = createRequire(modules + "/x.js");
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

export const views = ["/", "/tasks", "/dead", "/jobs", "/nodes", "/schedules", "/cost"];
// What no page may do: open a dialog, fail in a script, or break its policy.
export const problems = [];

export function must(fine, what) {
  if (!fine) throw new Error(typeof what === "function" ? what() : what);
}

// A machine that runs many other tests may be this slow. Long forms of scenarios run alone, and are held to the aims.
const MOST_MS = 30000;

export function inTime(what, took, aim) {
  const most = told.rounds > 1 ? aim : MOST_MS;
  must(took <= most, `${what}: ${took} ms, of at most ${most}`);
}

export async function order(words) {
  console.log(`order ${words}`);
  return (await lines.next()).value;
}

export const figure = (words) => console.log(`figure ${words}`);

export async function ask(method, path, body, headers = {}) {
  const sent = { authorization: `Bearer ${told.token}`, "content-type": "application/json", ...headers };
  return fetch(told.base + path, { method, headers: sent, body: body && JSON.stringify(body) });
}

export async function api(method, path, body) {
  const answer = await ask(method, path, body);
  must(answer.ok, `${method} ${path}: ${answer.status}`);
  return answer.json();
}

export const launch = (...args) =>
  packages("playwright-core").chromium.launch({
    executablePath: process.env.OSTLER_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", ...args],
  });

// Waits until a function of the test's own side says so; a page has its own waits.
export async function until(what, isSo, most = 60000) {
  const end = Date.now() + most;
  for (;;) {
    const found = await isSo();
    if (found) return found;
    must(Date.now() < end, `not in time: ${what}`);
    await new Promise((go) => setTimeout(go, 20));
  }
}

export class Visitor {
  // A profile of its own, logged in by a link.
  static async logIn(browser, settings = {}, token = told.token) {
    const visitor = new Visitor(await browser.newContext({ viewport: { width: 1280, height: 800 }, ...settings }));
    visitor.context.setDefaultTimeout(60000);
    const made = await ask("POST", "/api/v1/login-links", undefined, { authorization: `Bearer ${token}` });
    must(made.ok, `a login link: ${made.status}`);
    const page = await visitor.openLogin((await made.json()).path);
    await page.waitForURL((url) => !url.pathname.includes("login"));
    visitor.page = page;
    return visitor;
  }

  constructor(context) {
    this.context = context;
  }

  // The path of a login link has the path of the pages before it.
  openLogin(path) {
    return this.open(path, new URL(told.base).origin);
  }

  async open(path, base = told.base) {
    const page = await this.context.newPage();
    watch(page);
    if (path !== undefined) await page.goto(base + path);
    return page;
  }
}

export function watch(page) {
  // A refused login and a node that is away are part of scenarios; everything else is a fault.
  page.on("console", (message) => message.type() === "error" && !/401|ERR_|Failed to load/.test(message.text()) && problems.push(`${page.url()}: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(`${page.url()}: ${error}`));
  page.on("dialog", (dialog) => {
    problems.push(`${page.url()}: a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
}

export async function picture(page, name) {
  if (told.pictures) await page.screenshot({ path: `${told.pictures}/${name}.png` });
}

// Plays the parts of a scenario, each whatever the others found, and ends.
export async function finish(browser, parts = [], faults = []) {
  for (const part of parts) {
    const began = Date.now();
    await part().catch((error) => faults.push(`${part.name}: ${error.stack}`));
    console.error(`${part.name}: ${Date.now() - began} ms`);
  }
  faults.push(...problems);
  must(faults.length === 0, () => faults.join("\n"));
  await browser.close();
  console.log("done");
  process.exit(0);
}

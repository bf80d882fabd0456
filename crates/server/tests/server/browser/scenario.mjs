// The dashboard in a real browser: logs in by a link, watches a list, keeps a selection, cancels, mends a dead letter, and sees a restart.
// Started by browser.rs with the address of a server, a login link and a token; asks it for a restart by a line on standard output.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [modules, base, link, token, dead, pictures] = process.argv.slice(2);
const { chromium } = createRequire(modules + "/x.js")("playwright-core");
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const problems = [];

function must(fine, what) {
  if (!fine) throw new Error(what);
}

async function api(method, path, body) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) });
  must(answer.ok, `${path}: ${answer.status}`);
  return answer.json();
}

const browser = await chromium.launch({
  executablePath: process.env.OSTLER_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const context = await browser.newContext({ timezoneId: "Asia/Kolkata", viewport: { width: 1280, height: 800 } });
context.setDefaultTimeout(15000);

async function open(path) {
  const page = await context.newPage();
  // A refused login and a node that is away are part of the scenario; everything else is a fault.
  page.on("console", (message) => message.type() === "error" && !/401|ERR_|Failed to load/.test(message.text()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("dialog", (dialog) => problems.push(dialog.message()));
  await page.goto(base + path);
  return page;
}

async function picture(page, name) {
  if (pictures) await page.screenshot({ path: `${pictures}/${name}.png` });
}

// Login by the link: the text leaves the address.
const page = await open(link);
await page.waitForURL((url) => !url.pathname.includes("login"));
must(!page.url().includes("#"), "the token is still in the address");
await page.locator("#live.on").waitFor();
await picture(page, "overview");

// The list is live: a task that is submitted elsewhere appears.
await page.goto(base + "/tasks");
await page.locator("#live.on").waitFor();
const first = (await api("POST", "/api/v1/tasks", { queue: "mail", kind: "fresh", payload: { n: 1 } })).id;
await page.locator(`tr[data-key="${first}"]`).waitFor();
const shown = await page.locator("tbody time").first();
must((await shown.textContent()).includes("5:30"), "times are in the zone of the reader: " + (await shown.textContent()));
must((await shown.getAttribute("title")).endsWith("Z"), "with UTC as the title");

// A selection survives updates, and the list does not move under the hand.
await page.locator(`tr[data-key="${first}"] input[type=checkbox]`).check();
await page.locator("input[name=text]").fill("half a wo");
await page.locator("input[name=text]").focus();
const before = await page.locator("#rows tr").count();
for (let n = 0; n < 5; n += 1) await api("POST", "/api/v1/tasks", { queue: "mail", kind: "later" });
await page.locator("#fresh:not([hidden])").waitFor();
await page.locator("#fresh", { hasText: "5 new" }).waitFor();
must((await page.locator("#rows tr").count()) === before, "the rows moved");
must(await page.locator(`tr[data-key="${first}"] input[type=checkbox]`).isChecked(), "the selection is lost");
must((await page.locator("input[name=text]").inputValue()) === "half a wo", "what was typed is lost");
must(await page.evaluate(() => document.activeElement.name === "text"), "the focus is lost");
await picture(page, "tasks");

// A question survives updates, and its answer cancels what was selected and no more.
await page.locator(".toolbar button", { hasText: "Cancel" }).click();
await page.locator("dialog[open]").waitFor();
await api("POST", "/api/v1/tasks", { queue: "mail", kind: "meanwhile" });
await page.locator("#fresh", { hasText: "6 new" }).waitFor();
must(await page.locator("dialog[open]").isVisible(), "an update closed the question");
await picture(page, "question");
await page.locator("dialog button", { hasText: "Yes" }).click();
await page.locator(".notice.done").waitFor();
must((await api("GET", `/api/v1/tasks/${first}`)).state === "cancelled", "it is not cancelled");
must((await api("GET", "/api/v1/tasks?state=cancelled")).tasks.length === 1, "others are cancelled too");

// A dead letter is mended; a number above 2^53 keeps every digit.
await page.goto(`${base}/tasks/${dead}`);
await page.locator("summary", { hasText: "Edit and replay" }).click();
const field = page.locator("#edited");
const text = await field.inputValue();
must(text.includes("9007199254740993") && text.includes("1.10"), "the payload has changed: " + text);
await picture(page, "task");
await field.fill(text.replace('"old"', '"new"'));
await page.locator("form.edit button").click();
await page.locator("dialog button", { hasText: "Yes" }).click();
await page.locator(".notice.done").waitFor();
const raw = await fetch(`${base}/api/v1/tasks/${dead}`, { headers: { authorization: `Bearer ${token}` } });
const kept = await raw.text();
must(kept.includes('{"n":9007199254740993,"x":1.10,"u":"\\u0000","who":"new"}'), kept);

// A conversation, with the tool call folded.
const talk = (await api("GET", "/api/v1/tasks?queue=review")).tasks[0].id;
await page.goto(`${base}/tasks/${talk}`);
must(!(await page.locator("#e3 pre").isVisible()), "a tool's result is folded");
await page.locator("#e3 summary").click();
must(await page.locator("#e3 pre").isVisible(), "it unfolds");
await page.locator("#conversation").scrollIntoViewIfNeeded();
await picture(page, "conversation");

// Any number of tabs on plain HTTP.
const tabs = [];
for (let n = 0; n < 12; n += 1) tabs.push(await open("/tasks"));
must(await tabs[11].locator("h1").isVisible(), "the twelfth tab hangs");
await api("POST", "/api/v1/tasks", { queue: "mail", kind: "seen-by-all" });
await tabs[0].getByText("seen-by-all").first().waitFor();
for (const tab of tabs) await tab.close();

// Narrow: nothing is wider than the screen. Dark as well.
await page.setViewportSize({ width: 360, height: 740 });
for (const path of ["/", "/tasks", `/tasks/${dead}`, "/dead", "/jobs", "/nodes", "/schedules", "/cost"]) {
  await page.goto(base + path);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  must(wide <= 360, `${path} is ${wide} pixels wide`);
  if (path === "/") await picture(page, "narrow");
}
await page.setViewportSize({ width: 1280, height: 800 });
await page.emulateMedia({ colorScheme: "dark" });
await page.goto(base + "/");
await page.locator("#live.on").waitFor();
await picture(page, "dark");

// Without script: list, filter and cancel work, with the question as a page.
const plain = await browser.newContext({ javaScriptEnabled: false, storageState: await context.storageState() });
const bare = await plain.newPage();
await bare.goto(base + "/tasks");
await bare.locator("select[name=state]").selectOption("queued");
await bare.locator("form.filters button").click();
const id = await bare.locator("#rows tr").first().getAttribute("data-key");
await bare.goto(`${base}/tasks/${id}`);
await bare.locator("#actions button", { hasText: "Cancel" }).click();
await bare.locator("button", { hasText: "Yes, go on" }).click();
await bare.locator(".notice.done").waitFor();
must((await api("GET", `/api/v1/tasks/${id}`)).state === "cancelled", "without script nothing is cancelled");

// A restart is seen, and how to log in again.
console.log("restart");
must((await lines.next()).value === "stopped", "the server stops");
await page.locator("#live.off", { hasText: "not connected since" }).waitFor();
console.log("start");
must((await lines.next()).value === "started", "the server starts");
await page.locator("#live.off", { hasText: "ostler open" }).waitFor();

must(problems.length === 0, problems.join("\n"));
await browser.close();
console.log("done");
process.exit(0);

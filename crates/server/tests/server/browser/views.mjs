// Every view of a furnished node: its weight, its barriers for people (axe-core), whether its text answers its question, by keys alone, at
// 400 % and in other zones. With a folder for pictures it also makes those of the README.
import { readFileSync } from "node:fs";
import { Visitor, api, figure, finish, launch, must, packages, picture, told, until, views } from "./kit.mjs";

const { base } = told;
const MOST = { bytes: 150 * 1024, requests: 6, script: 30 * 1024, nodes: 3000 };
// First paint at a quarter of the processor's speed, on a machine that runs other tests too.
const MOST_PAINT_MS = told.rounds > 1 ? 300 : 5000;
const LONG_PAINT_MS = told.rounds > 1 ? 1000 : 5000;
const CONTRAST = { type: "rule", values: ["color-contrast", "link-in-text-block"] };
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

const browser = await launch();
const visitor = await Visitor.logIn(browser);
const { context, page } = visitor;
const places = [...views, `/jobs/${told.job}`, `/tasks/${told.talk}`, `/tasks/${told.letter}`, `/tasks/${told.ready}`, `/tasks/${told.talk}/transcript`];

const faults = [];
await finish(browser, [answers, pictures, weights, longTranscript, barriers, zoomed, zones, keysAlone], faults);

// ---- answers ----

// The text of a page as a reader sees it: folds are opened, and nothing else is looked at.
async function textOf(path) {
  await page.goto(base + path);
  await page.locator("#live.on").waitFor();
  await openFolds(page);
  return (await page.locator("body").innerText()).replace(/[ \u00a0]+/g, " ");
}

// What a click on each fold does.
function openFolds(tab) {
  return tab.evaluate(() => document.querySelectorAll("details").forEach((node) => (node.open = true)));
}

// The cells of the first row that has these words.
function row(text, words) {
  const found = text.split("\n").find((line) => line.includes("\t") && line.includes(words));
  must(found, `no row has ${words}: ${text}`);
  return found.split("\t").map((cell) => cell.trim());
}

function says(text, question, ...parts) {
  const missing = parts.filter((part) => !(part instanceof RegExp ? part.test(text) : text.includes(part)));
  if (missing.length) faults.push(`${question} The page does not say ${missing.join(" | ")}:\n${text}`);
}

async function answers() {
  const overview = await textOf("/");
  says(overview, "What is wrong, and what mends it?", "paused, and 2 tasks wait: the database is moved tonight", "ostler resume reports", "Resume it");
  says(row(overview, "webhooks").join(" | "), "Which queue fails?", /\| 15 \|/);
  says(overview, "Which breaker is open, and until when?", /open\t.*20\d\d/, "ostler breaker reset webhooks");
  says(overview, "How much of an account is used?", /anthropic\t.*93 %/s, "near limit", "ostler account hold anthropic");
  says(overview, "What is left of a budget?", /\$0\.42\s*\$1\.00/, "As of", "live");

  const list = await textOf("/tasks?text=mirror");
  says(list, "Which task met the busy mirror, and when does it go on?", told.retry.slice(-8), "mirrors", /waits: retry.*until .*20\d\d/s, "transient the mirror is busy", `ostler ls --text mirror`);

  const waits = await textOf(`/tasks/${told.retry}`);
  says(waits, "Why does it wait, and until when?", "Its last attempt failed (transient: the mirror is busy)", /may start at .*20\d\d/, `ostler retry ${told.retry}`);
  const held = await textOf(`/tasks/${told.ready}`);
  says(held, "Why does it wait?", "The queue reports is paused (the database is moved tonight)", "ostler resume reports");
  const failed = await textOf(`/tasks/${told.letter}`);
  says(failed, "Why did it fail?", "It failed for good", "connection refused by 10.0.0.0", `ostler dead replay ${told.letter}`, "Edit and replay");
  const talk = await textOf(`/tasks/${told.talk}`);
  says(talk, "What does the agent do, where, and for how long?", "Review the change of the parser.", "src/parse.rs", "The parser accepts an empty line.", "pid 4211", "85.0 MiB", "token 1");

  const jobs = await textOf("/jobs");
  says(row(jobs, "paused").join(" | "), "How far is the job, and what does it wait for?", "its pilot waits for approval", "2 of 5", "letters");
  const job = await textOf(`/jobs/${told.job}`);
  says(job, "What did the pilot cost, against which budget, and what were its results?", "The pilot of 2 items has ended: 0 failed, at a cost of $0.20", "3 more items wait", /\$0\.20 of \$2\.00/, "2 items run before the others are approved", "a.txt", "b.txt", `ostler job approve ${told.job}`);

  const dead = await textOf("/dead");
  says(dead, "How many causes are there?", "15 tasks have failed for good, by 2 causes", /12 webhooks · deliver · permanent/, "connection refused by 10.0.0", /3 webhooks · deliver · permanent/, "no such customer", /ostler dead replay --queue webhooks .*--text 'connection refused by'/);

  const nodes = await textOf("/nodes");
  says(nodes, "Which node is that?", "alive runner", "stable-1, pid ", "version 0.1.0", /up since .*20\d\d/, "ostler drain ");
  says(row(nodes, "busy").join(" | "), "What does the worker do?", "review-1", "4211", "85.0 MiB", "17", "2", told.talk.slice(-8));
  says(nodes, "How is a pool steered?", "ostler recycle --any review", "ostler resize review ", "ostler pause review");

  const schedules = await textOf("/schedules");
  says(row(schedules, "active").join(" | "), "When does it run, and what?", "nightly", "0 3 * * * Europe/Berlin", /20\d\d/, "render in reports");
  says(row(schedules, "paused").join(" | "), "And the other?", "ping", "every 10 min");

  const cost = await textOf("/cost?by=model");
  says(cost, "What was spent, on which model?", "$0.62", /opus\s+\$0\.62\s+3\s+3600\s+1020/, "ostler cost --by model");
}

// ---- pictures ----

async function pictures() {
  if (!told.pictures) return;
  for (const [name, path] of [["overview", "/"], ["tasks", "/tasks"], ["task", `/tasks/${told.letter}`], ["conversation", `/tasks/${told.talk}`]]) {
    await page.goto(base + path);
    await page.locator("#live.on").waitFor();
    if (name === "conversation") {
      await page.locator(".event.tool_result summary").click();
      await page.locator("#conversation").evaluate((node) => node.scrollIntoView());
    }
    await picture(page, name);
  }
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(base + "/");
  await page.locator("#live.on").waitFor();
  await picture(page, "dark");
  await page.emulateMedia({ colorScheme: "light" });
}

// ---- weight ----

// Loads a page with an empty cache on a processor at a quarter of its speed.
async function weigh(path, most = MOST, paint = MOST_PAINT_MS) {
  const tab = await visitor.open();
  const session = await context.newCDPSession(tab);
  await session.send("Network.enable");
  await session.send("Network.setCacheDisabled", { cacheDisabled: true });
  await session.send("Emulation.setCPUThrottlingRate", { rate: 4 });
  const kinds = new Map();
  const weight = { bytes: 0, requests: 0, script: 0, nodes: 0, paint: 0 };
  session.on("Network.requestWillBeSent", ({ requestId, request, type }) => {
    must(request.url.startsWith(base), `${path} asks ${request.url}`);
    // A page that is fetched again is an update of it.
    if (type === "XHR") return;
    kinds.set(requestId, type);
    weight.requests += 1;
  });
  session.on("Network.dataReceived", ({ requestId, dataLength }) => {
    if (!kinds.has(requestId)) return;
    weight.bytes += dataLength;
    if (kinds.get(requestId) === "Script") weight.script += dataLength;
  });
  await tab.goto(base + path);
  await tab.locator("#live.on").waitFor();
  weight.nodes = await tab.evaluate(() => document.querySelectorAll("*").length);
  weight.paint = Math.round(
    await tab.evaluate(
      () =>
        new Promise((done) => {
          const look = (list) => list.getEntriesByName("first-contentful-paint")[0]?.startTime;
          const found = look(performance);
          if (found) done(found);
          else new PerformanceObserver((list) => look(list) && done(look(list))).observe({ type: "paint", buffered: true });
        }),
    ),
  );
  for (const [name, bound] of Object.entries(most)) must(weight[name] <= bound, `${path}: ${weight[name]} ${name}, of at most ${bound}`);
  must(weight.script > 1000, `${path} has no script: nothing was weighed`);
  must(weight.paint < paint, `${path} is painted after ${weight.paint} ms`);
  await tab.close();
  return weight;
}

async function weights() {
  const all = [];
  for (const path of places) all.push(await weigh(path));
  const most = (name) => Math.max(...all.map((weight) => weight[name]));
  const paints = all.map((weight) => weight.paint).sort((a, b) => a - b);
  figure(`${all.length} views: at most ${most("bytes")} bytes, ${most("requests")} requests, ${most("script")} bytes of script, ${most("nodes")} nodes; first paint at 4 x CPU throttle: median ${paints[paints.length >> 1]} ms, at most ${paints.at(-1)} ms`);
}

async function longTranscript() {
  const long = `/tasks/${told.long}`;
  // A hundred events of two kilobytes are shown whole.
  const most = { ...MOST, bytes: 400 * 1024 };
  const all = [await weigh(long, most, LONG_PAINT_MS), await weigh(`${long}/transcript?after=8122`, most, LONG_PAINT_MS)];
  const tab = await visitor.open(`${long}/transcript?after=8122#e8123`);
  await tab.waitForFunction(() => document.querySelector("#e8123:target"));
  must(await tab.locator("#e8123").evaluate((node) => node.getBoundingClientRect().top < innerHeight && node.getBoundingClientRect().bottom > 0), "#e8123 is in sight");
  must((await tab.locator("#e8123").innerText()).includes("message 8123 "), "it is the right event");
  await tab.close();
  figure(`a transcript of 10,000 events, 20 MB: ${all.map((weight) => `${weight.bytes} bytes, ${weight.nodes} nodes, first paint ${weight.paint} ms`).join("; in its middle ")}`);
}

// ---- barriers ----

async function barriers() {
  const axe = readFileSync(packages.resolve("axe-core/axe.min.js"), "utf8");
  // The policy of the pages would keep the rules out as well.
  const state = await context.storageState();
  const guest = await browser.newContext({ bypassCSP: true, storageState: state });
  const stranger = await browser.newContext({ bypassCSP: true });
  const plain = await browser.newContext({ bypassCSP: true, storageState: state });
  const found = [];
  let checks = 0;
  const check = async (tab, name, rules = RULES) => {
    checks += 1;
    const { violations } = await tab.evaluate((runOnly) => globalThis.axe.run(document, { runOnly, resultTypes: ["violations"] }), rules);
    for (const { id, nodes } of violations) found.push(`${name}: ${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary.replace(/\s+/g, " ").slice(0, 240)}`).join(" // ")}`);
  };
  const inAllLooks = async (tab, name) => {
    await tab.evaluate(axe);
    await openFolds(tab);
    for (const colorScheme of ["light", "dark"]) {
      for (const width of [1280, 360]) {
        await tab.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        await tab.setViewportSize({ width, height: 800 });
        // The dark scheme has other colours and nothing else.
        await check(tab, `${name}, ${colorScheme}, ${width} px`, colorScheme === "dark" ? CONTRAST : RULES);
      }
    }
  };
  const tab = await guest.newPage();
  for (const path of [...places, "/tasks?where=nothing", "/tasks/absent"]) {
    await tab.goto(base + path);
    // What the script adds is looked at too.
    if (path !== "/tasks/absent") await tab.locator("#live.on").waitFor();
    await inAllLooks(tab, path);
  }
  await tab.goto(`${base}/tasks/${told.talk}`);
  await tab.locator("#actions button", { hasText: "Cancel" }).click();
  await tab.locator("dialog[open]").waitFor();
  await inAllLooks(tab, "a question");
  const login = await stranger.newPage();
  await login.goto(`${base}/tasks`);
  await inAllLooks(login, "the login");
  // The question as a page: the form is sent past the script.
  const asked = await plain.newPage();
  await asked.goto(`${base}/tasks/${told.letter}`);
  await asked.locator("form.edit").evaluate((form) => {
    form.elements["j:payload"].value = "{broken";
    HTMLFormElement.prototype.submit.call(form);
  });
  await asked.locator("#question").waitFor();
  await inAllLooks(asked, "a question as a page, with a fault");
  // The rules see something: a page with a field without a name is refused.
  await asked.evaluate(() => document.querySelector("main").append(document.createElement("input")));
  const before = found.length;
  await check(asked, "control");
  must(found.splice(before).some((text) => text.includes("label")), "a field without a label is found");
  must(found.length === 0, () => `${found.length} violations:\n${found.join("\n")}`);
  figure(`axe-core ${packages("axe-core/package.json").version}: ${checks} checks of views in two schemes and two widths, 0 violations of WCAG 2.2 AA`);
  for (const one of [guest, stranger, plain]) await one.close();
}

// ---- zoom ----

// 1280 pixels at 400 % are 320.
async function zoomed() {
  await page.setViewportSize({ width: 320, height: 256 });
  for (const path of places) {
    await page.goto(base + path);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    must(wide <= 320, `${path} is ${wide} pixels wide at 400 %`);
    await openFolds(page);
    const cut = await page.evaluate(() =>
      [...document.querySelectorAll("main button, main input:not([type=hidden]), main select, main textarea, nav a")]
        .filter((node) => node.getClientRects().length && !node.closest(".scroll"))
        .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
        .map((node) => node.outerHTML.slice(0, 120)),
    );
    must(cut.length === 0, `${path} at 400 %: out of sight: ${cut}`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
}

// ---- zones ----

async function zones() {
  // Newfoundland's clocks go forward on 14 March 2027 at 2:00, which is 5:30 UTC.
  const times = { before: "2027-03-14T05:00:00Z", after: "2027-03-14T06:00:00Z" };
  for (const [name, at] of Object.entries(times)) await api("PUT", `/api/v1/schedules/${name}`, { queue: "reports", kind: "render", at });
  const state = await context.storageState();
  for (const [timezoneId, before, after] of [
    ["America/St_Johns", /1:30:00.*(GMT-3:30|NST)/, /3:30:00.*(GMT-2:30|NDT)/],
    ["Asia/Kolkata", /10:30:00.*(GMT\+5:30|IST)/, /11:30:00.*(GMT\+5:30|IST)/],
  ]) {
    const there = await browser.newContext({ timezoneId, storageState: state, permissions: ["clipboard-read", "clipboard-write"] });
    const tab = await there.newPage();
    await tab.goto(`${base}/schedules`);
    await tab.locator("#live.on").waitFor();
    for (const [name, shown] of [["before", before], ["after", after]]) {
      const time = tab.locator(`tr[data-key="${name}"] td[data-label="Next run"] time`);
      const text = await time.textContent();
      must(shown.test(text), `${timezoneId}, ${name} the change: ${text}`);
      must(Date.parse(await time.getAttribute("title")) === Date.parse(times[name]) && (await time.getAttribute("title")).endsWith("Z"), "UTC is the title");
      await time.click();
      const exact = await time.getAttribute("datetime");
      must(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(exact), exact);
      await until("a time is copied as RFC 3339", async () => (await tab.evaluate(() => navigator.clipboard.readText())) === exact);
    }
    await there.close();
  }
  for (const name of Object.keys(times)) await api("DELETE", `/api/v1/schedules/${name}`);
}

// ---- keys ----

async function keysAlone() {
  const tab = await visitor.open("/");
  await tab.locator("#live.on").waitFor();
  await tab.evaluate(() => addEventListener("mousedown", () => console.error("the mouse was used"), true));
  const press = (...keys) => keys.reduce((before, key) => before.then(() => tab.keyboard.press(key)), Promise.resolve());
  // Goes on with Tab until the focus is there.
  const goTo = async (what, isThere, key = "Tab") => {
    for (let n = 0; n < 200; n += 1) {
      if (await tab.evaluate(isThere)) {
        must(await tab.evaluate(() => document.activeElement.matches(":focus-visible")), `the focus is not seen on ${what}`);
        return;
      }
      await press(key);
    }
    throw new Error(`no key leads to ${what}`);
  };
  // A link over the navigation to the content.
  await press("Tab");
  must((await tab.evaluate(() => document.activeElement.textContent)).includes("Skip"), "the first stop skips the navigation");
  await press("Enter");
  must(await tab.evaluate(() => document.activeElement.id === "main"), "it leads to the content");
  // A list, a filter, a task.
  await press("g", "t");
  await tab.waitForURL(/\/tasks$/);
  await tab.locator("#live.on").waitFor();
  await press("/");
  await tab.keyboard.type("the mirror");
  await press("Enter");
  await tab.waitForURL(/text=the\+mirror/);
  await tab.locator("#live.on").waitFor();
  await press("j", "Enter");
  await tab.waitForURL(new RegExp(told.retry));
  await tab.locator("#live.on").waitFor();
  // It is cancelled: the question takes the focus to its harmless answer.
  await goTo("Cancel", () => document.activeElement.textContent.trim() === "Cancel");
  await press("Enter");
  await tab.locator("dialog[open]").waitFor();
  must((await tab.evaluate(() => document.activeElement.textContent)) === "No", "the question begins with No");
  await press("Escape");
  must((await tab.locator("dialog[open]").count()) === 0, "Escape closes it");
  must((await api("GET", `/api/v1/tasks/${told.retry}`)).state === "queued", "Escape does nothing else");
  await goTo("Cancel", () => document.activeElement.textContent.trim() === "Cancel");
  await press("Enter");
  await tab.locator("dialog[open]").waitFor();
  await goTo("Yes", () => document.activeElement.textContent.startsWith("Yes"), "Shift+Tab");
  await press("Enter");
  await tab.locator(".notice.done").waitFor();
  must((await api("GET", `/api/v1/tasks/${told.retry}`)).state === "cancelled", "it is cancelled");
  // Three dead letters are selected and replayed.
  await tab.goto(`${base}/tasks?state=failed&text=customer`);
  await tab.locator("#live.on").waitFor();
  await press("j", "x", "j", "x");
  must((await tab.locator("#rows :checked").count()) === 2, "x selects");
  await goTo("Replay", () => document.activeElement.textContent === "Replay", "Shift+Tab");
  await press("Enter");
  if (await tab.locator("dialog[open]").count()) {
    await goTo("Yes", () => document.activeElement.textContent.startsWith("Yes"), "Shift+Tab");
    await press("Enter");
  }
  await tab.locator(".notice.done").waitFor();
  must((await api("GET", "/api/v1/tasks?state=failed&text=customer")).tasks.length === 1, "two of three are replayed");
  // A dead letter is mended.
  await tab.goto(`${base}/tasks/${told.letter}`);
  await tab.locator("#live.on").waitFor();
  await goTo("Edit and replay", () => document.activeElement.textContent === "Edit and replay");
  await press("Enter");
  await goTo("the payload", () => document.activeElement.id === "edited");
  await press("Control+a");
  await tab.keyboard.type('{"mended":true}');
  await goTo("Replay with this payload", () => document.activeElement.textContent.startsWith("Replay with"));
  await press("Enter");
  await tab.locator("dialog[open]").waitFor();
  await goTo("Yes", () => document.activeElement.textContent.startsWith("Yes"), "Shift+Tab");
  await press("Enter");
  await tab.locator(".notice.done").waitFor();
  const mended = await api("GET", `/api/v1/tasks/${told.letter}`);
  must(mended.state === "queued" && mended.payload.mended === true, "it is mended");
  await tab.close();
}

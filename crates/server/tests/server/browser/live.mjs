// What live updates must not disturb, any number of tabs, and whether the live page is the same as a fresh one.
import { Visitor, api, figure, finish, inTime, launch, must, order, told, until } from "./kit.mjs";

const { base, rounds } = told;
const MERGES = rounds > 1 ? 1000 : 60;
const TABS = 13;
const STAMPS = 20;
const browser = await launch();
const visitor = await Visitor.logIn(browser);
const { context } = visitor;

await finish(browser, [handsStayFree, conversationHasNoHole, thirteenTabs, tabsWithoutLocks, liveEqualsFresh]);

// ---- hands ----

async function handsStayFree() {
  const { page, context: own } = await Visitor.logIn(browser);
  // The clock of this context is run by hand: a second of it is an update, and a thousand of them need no thousand seconds.
  await page.clock.install();
  await page.goto(`${base}/tasks?queue=mail`);
  await page.locator("#rows tr").first().waitFor();
  let merged = 0;
  page.on("response", (answer) => answer.request().resourceType() === "xhr" && answer.url().includes("/tasks") && (merged += 1));
  const update = async (count) => {
    for (let n = 0; n < count; n += 1) {
      const before = merged;
      await until("the page is fetched again", async () => {
        if (merged > before) return true;
        await page.clock.runFor(1000);
        return merged > before;
      });
    }
  };
  const boxes = page.locator("#rows input[type=checkbox]");
  const picked = [];
  for (const at of [0, 2, 3, 7, 11]) {
    await boxes.nth(at).check();
    picked.push(await boxes.nth(at).getAttribute("value"));
    await order("ends 100");
    await update(MERGES / 20);
  }
  await page.evaluate(() => scrollTo(0, 240));
  const words = "half a wo";
  const field = page.locator("input[name=text]");
  await field.focus({ preventScroll: true });
  for (const letter of words) {
    await page.keyboard.type(letter);
    await update(1);
  }
  await page.evaluate(() => document.activeElement.setSelectionRange(2, 4));
  await page.evaluate(() => scrollTo(0, 240));
  // Where a ticked row is on the screen: a notice above the list may come, and the browser scrolls along with it.
  const place = () => boxes.nth(11).evaluate((box) => Math.round(box.getBoundingClientRect().top));
  const before = await place();
  must((await order("complete 5")) === "5", "tasks of the list end meanwhile");
  await api("POST", "/api/v1/tasks", { queue: "mail", kind: "meanwhile" });
  await order("ends 500");
  await update(MERGES / 4);
  const state = await page.evaluate(() => {
    const { name, value, selectionStart, selectionEnd } = document.activeElement;
    return [name, value, selectionStart, selectionEnd].join();
  });
  must(state === `text,${words},2,4`, `focus, text and cursor: ${state}`);
  must(Math.abs((await place()) - before) <= 2, `a ticked row has moved from ${before} to ${await place()}`);
  const checked = () => page.evaluate(() => [...document.querySelectorAll("#rows :checked")].map((box) => box.value).sort().join());
  must((await checked()) === [...picked].sort().join(), "the selection is lost");
  await page.locator(".toolbar button", { hasText: "Cancel" }).first().click();
  await page.locator("dialog[open]").waitFor();
  await update(MERGES / 4);
  must(await page.locator("dialog[open] button", { hasText: "No" }).evaluate((node) => node === document.activeElement), "the focus has left the question");
  must((await page.locator("dialog[open]").textContent()).includes("5 tasks are selected"), "the question changed");
  must((await checked()) === [...picked].sort().join(), "the selection is lost under the question");
  const sent = page.waitForRequest((request) => request.method() === "POST" && request.url().includes("/do/"));
  await page.locator("dialog button", { hasText: "Yes" }).click();
  const ids = new URLSearchParams((await sent).postData()).getAll("p:id");
  must(ids.sort().join() === picked.sort().join(), `the post has ${ids}`);
  await page.locator(".notice.done").waitFor();
  figure(`${merged} updates, and focus, text, cursor, scroll, five ids and a question stayed`);
  await own.close();
}

// ---- a conversation that grows ----

async function conversationHasNoHole() {
  const tab = await visitor.open(`/tasks/${told.chat}`);
  await tab.locator("#live.on").waitFor();
  const numbers = () => tab.locator("#events > li").evaluateAll((all) => all.map((event) => Number(event.id.slice(1))));
  const isWhole = (all) => all.every((number, n) => n === 0 || number === all[n - 1] + 1);
  // The number of the last event is known: `say N` writes one call of a tool and N lines.
  let last = 0;
  const say = async (lines) => {
    await order(`say ${lines}`);
    last += lines + 1;
    await tab.locator(`#e${last}`).waitFor();
    const all = await numbers();
    must(isWhole(all) && all.at(-1) === last, () => `a hole: ${all}`);
    return all;
  };
  must((await say(5)).length === 6, "the first events are shown");
  await tab.locator("#e1 summary").click();
  // More at once than a page has, as after a cut or for a tab that was hidden.
  const all = await say(250);
  must(all[0] === 1, `it begins at ${all[0]}`);
  must(await tab.locator("#e1 pre").isVisible(), "a fold that was opened has closed");
  // Older events go behind the link, and the link leads to those right before the first.
  await tab.evaluate(() => scrollTo(0, document.body.scrollHeight));
  for (const lines of [150, 150, 999]) await say(lines);
  const [first] = await numbers();
  must((await numbers()).length <= 300, `${(await numbers()).length} events are kept`);
  await tab.locator("a[rel=prev]").click();
  await tab.locator(`#e${first - 1}`).waitFor();
  figure(`a conversation that grew by up to 1,000 events at once had no hole, and 300 events at most`);
  await tab.close();
}

// ---- tabs ----

async function thirteenTabs() {
  await visitor.page.close();
  await oneStreamFor(visitor, TABS, "tabs");
}

// Browsers have Web Locks only for TLS and loopback: elsewhere a note says which tab leads.
async function tabsWithoutLocks() {
  const apart = await Visitor.logIn(browser);
  await apart.context.addInitScript(() => Object.defineProperty(Navigator.prototype, "locks", { value: undefined }));
  await apart.page.close();
  await oneStreamFor(apart, 4, "tabs without locks");
  await apart.context.close();
}

async function oneStreamFor(visitor, count, queue) {
  const { context } = visitor;
  const address = `/tasks?queue=${encodeURIComponent(queue)}`;
  const streams = new Set();
  context.on("request", (request) => request.resourceType() === "eventsource" && request.url().endsWith("/api/v1/live") && streams.add(request));
  for (const end of ["requestfinished", "requestfailed"]) context.on(end, (request) => streams.delete(request));
  const tabs = [];
  let took = 0;
  for (let n = 0; n < count; n += 1) {
    const began = Date.now();
    const tab = await visitor.open(address);
    await tab.locator("#live.on").waitFor();
    took = Date.now() - began;
    tabs.push(tab);
  }
  inTime("the last tab", took, 1000);
  must(streams.size === 1, `${streams.size} streams of the overview are open`);
  const [stream] = streams;
  const leading = stream.frame().page();
  streams.delete(stream);
  await leading.close();
  const others = tabs.filter((tab) => tab !== leading);
  const closed = Date.now();
  await until("another tab leads", () => streams.size === 1);
  await api("POST", "/api/v1/tasks", { queue, kind: "seen-by-all" });
  for (const tab of others) await tab.getByText("seen-by-all").first().waitFor();
  const again = Date.now() - closed;
  inTime("another tab leads", again, 3000);
  must(streams.size === 1, `${streams.size} streams of the overview are open`);
  figure(`${queue}: tab ${count} of one profile was live after ${took} ms; ${again} ms after the leading one was closed the other ${others.length} showed a change`);
  for (const tab of others) await tab.close();
}

// ---- live and fresh ----

async function liveEqualsFresh() {
  // The list shows what is stamped; the ends of the load would push it to later pages.
  const places = ["/", "/tasks?queue=stamps", `/tasks/${told.letter}`, "/nodes"];
  const pages = [];
  for (const place of places) pages.push(await visitor.open(place));
  const list = pages[1];
  await list.locator("#live.on").waitFor();
  await list.evaluate(() => {
    globalThis.seen = {};
    new MutationObserver(() => {
      for (const cell of document.querySelectorAll("td[data-label=Kind]")) {
        if (cell.textContent.startsWith("stamp-")) globalThis.seen[cell.textContent] ??= Date.now();
      }
    }).observe(document.getElementById("main"), { childList: true, subtree: true, characterData: true });
  });
  const sent = {};
  let loaded = 0;
  const end = Date.now() + (rounds > 1 ? 60000 : 0);
  for (let n = 0; n < STAMPS || Date.now() < end; n += 1) {
    const kind = `stamp-${n}`;
    await api("POST", "/api/v1/tasks", { queue: "stamps", kind });
    sent[kind] = Date.now();
    const many = rounds > 1 ? 1000 : 50;
    await order(`ends ${many}`);
    loaded += many;
    // Not in step with the page.
    await new Promise((go) => setTimeout(go, 130 + ((n * 97) % 300)));
  }
  const newest = `stamp-${Object.keys(sent).length - 1}`;
  await list.waitForFunction((kind) => globalThis.seen[kind], newest, { timeout: 60000 });
  const seen = await list.evaluate(() => globalThis.seen);
  const late = Object.keys(seen).map((kind) => Math.max(0, seen[kind] - sent[kind])).sort((a, b) => a - b);
  const at = (share) => late[Math.min(late.length - 1, Math.floor(late.length * share))];
  inTime("a change is seen, p95", at(0.95), 1000);
  inTime("a change is seen, p99", at(0.99), 2000);
  figure(`under ${loaded} ends, ${late.length} of ${Object.keys(sent).length} changes were seen on their own: p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, p99 ${at(0.99)} ms, at most ${late.at(-1)} ms`);
  // Everything has ended: each page is fetched once more, and then equals a fresh one.
  const ended = new Date().toISOString();
  await api("POST", "/api/v1/tasks", { queue: "stamps", kind: "the-last" });
  for (const [n, page] of pages.entries()) {
    await page.waitForFunction((ended) => document.querySelector("#asof time").dateTime > ended, ended, { timeout: 60000 });
    if (n === 1) await page.getByText("the-last").first().waitFor();
    const live = await text(page);
    await page.reload();
    await page.locator("#live.on").waitFor();
    const fresh = await text(page);
    must(live === fresh, () => `${places[n]}, live and fresh:\n${differing(live, fresh)}`);
  }
  for (const page of pages) await page.close();
}

// The text that a page shows, without what changes as time passes.
function text(page) {
  return page.evaluate(() => {
    const main = document.getElementById("main").cloneNode(true);
    for (const cell of main.querySelectorAll("[data-label='Ended / min'], [data-label='Oldest waits'], [data-label=Up], [data-label=Elapsed], [hidden], #facts .quiet, #queues > p")) cell.remove();
    return [...main.querySelectorAll("h1, h2, h3, p, li, dt, dd, td, th")].map((node) => node.textContent.replace(/\s+/g, " ").trim()).filter(Boolean).join("\n");
  });
}

function differing(one, other) {
  const [ones, others] = [one.split("\n"), other.split("\n")];
  const at = ones.findIndex((line, n) => line !== others[n]);
  return `- ${ones.slice(at, at + 3).join(" / ")}\n+ ${others.slice(at, at + 3).join(" / ")}`;
}

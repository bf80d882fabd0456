// The dashboard in a real browser: logs in by a link, watches a list, keeps a selection, cancels, mends a dead letter, and sees a restart.
import { Visitor, api, ask, figure, finish, inTime, launch, must, order, told, views } from "./kit.mjs";

const { base, dead } = told;
const browser = await launch();

// Login by the link: the text leaves the address.
const visitor = await Visitor.logIn(browser, { timezoneId: "Asia/Kolkata" });
const { page, context } = visitor;
must(!page.url().includes("#"), "the token is still in the address");
await page.locator("#live.on").waitFor();

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

// A question survives updates, and its answer cancels what was selected and no more.
await page.locator(".toolbar button", { hasText: "Cancel" }).click();
await page.locator("dialog[open]").waitFor();
await api("POST", "/api/v1/tasks", { queue: "mail", kind: "meanwhile" });
await page.locator("#fresh", { hasText: "6 new" }).waitFor();
must(await page.locator("dialog[open]").isVisible(), "an update closed the question");
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
await field.fill(text.replace('"old"', '"new"'));
await page.locator("form.edit button").click();
await page.locator("dialog button", { hasText: "Yes" }).click();
await page.locator(".notice.done").waitFor();
const kept = await (await ask("GET", `/api/v1/tasks/${dead}`)).text();
must(kept.includes('{"n":9007199254740993,"x":1.10,"u":"\\u0000","who":"new"}'), kept);

// The keys lead from an error page too.
await page.goto(base + "/tasks/absent");
await page.keyboard.press("g");
await page.keyboard.press("n");
await page.waitForURL(/\/nodes$/);

// A conversation, with the tool call folded.
await page.goto(`${base}/tasks/${told.talk}`);
const folded = page.locator(".event.tool_result").first();
must(!(await folded.locator("pre").isVisible()), "a tool's result is folded");
await folded.locator("summary").click();
must(await folded.locator("pre").isVisible(), "it unfolds");
await page.locator("#conversation").scrollIntoViewIfNeeded();

// Narrow: nothing is wider than the screen. Dark as well.
await page.setViewportSize({ width: 360, height: 740 });
for (const path of [...views, `/tasks/${dead}`]) {
  await page.goto(base + path);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  must(wide <= 360, `${path} is ${wide} pixels wide`);
}
await page.setViewportSize({ width: 1280, height: 800 });
await page.goto(base + "/");
await page.locator("#live.on").waitFor();

// Without script: list, filter, task, replay and cancel work, with the question as a page.
const plain = await browser.newContext({ javaScriptEnabled: false, storageState: await context.storageState() });
const bare = await plain.newPage();
async function press(state, button, after) {
  await bare.goto(base + "/tasks");
  await bare.locator("select[name=state]").selectOption(state);
  await bare.locator("input[name=queue]").fill(state === "failed" ? "webhooks" : "mail");
  await bare.locator("form.filters button").click();
  const row = bare.locator("#rows tr").first();
  const id = await row.getAttribute("data-key");
  await row.locator("a.id").click();
  await bare.locator("#actions button", { hasText: button }).click();
  const yes = bare.locator("button", { hasText: "Yes, go on" });
  if (await yes.count()) await yes.click();
  await bare.locator(".notice.done").waitFor();
  must((await api("GET", `/api/v1/tasks/${id}`)).state === after, `without script, ${button} does nothing`);
}
await press("queued", "Cancel", "cancelled");
await press("failed", "Replay", "queued");

// A visitor who may only look: no view has a button but that to log out, and what a button would post is refused.
const reader = await Visitor.logIn(browser, {}, told.read);
for (const path of [...views, `/tasks/${first}`, `/tasks/${dead}`, `/tasks/${told.talk}`]) {
  await reader.page.goto(base + path);
  await reader.page.locator("#live.on").waitFor();
  must((await reader.page.locator(".who").innerText()).includes("may only look"), `${path} does not say that the visitor may only look`);
  const forms = await reader.page.locator("form[method=post]").evaluateAll((all) => all.map((form) => form.getAttribute("action")));
  must(forms.length === 1 && forms[0].endsWith("logout/form"), `${path} has the forms ${forms} for a reader`);
  must((await reader.page.locator("main input[type=checkbox], main [data-danger]").count()) === 0, `${path} has a button for a reader`);
}
const waiting = (await api("GET", "/api/v1/tasks?state=queued&limit=1")).tasks[0].id;
const refused = await reader.page.evaluate(async ([root, id]) => {
  const answer = await fetch(`${root}/do/tasks.cancel`, { method: "POST", body: new URLSearchParams({ "p:id": id, confirmed: "yes" }) });
  return answer.status;
}, [base, waiting]);
must(refused === 403 && (await api("GET", `/api/v1/tasks/${waiting}`)).state === "queued", `a reader cancels: ${refused}`);
await reader.page.locator(".who button", { hasText: "Log out" }).click();
await reader.page.locator("#login").waitFor();
// The form takes the token itself.
await reader.page.locator("#token").fill(told.read);
await reader.page.locator("#login button").click();
await reader.page.locator(".who", { hasText: "may only look" }).waitFor();
await reader.context.close();

// The node is killed with pages open. They say since when they are not connected, and how to log in again; one login makes all of them live,
// without a reload, and with every event and task that came meanwhile.
const list = await visitor.open("/tasks?queue=mail");
const talk = await visitor.open(`/tasks/${told.chat}`);
const open = [page, list, talk];
for (const tab of open) {
  await tab.locator("#live.on").waitFor();
  await tab.evaluate(() => (globalThis.wasOpen = true));
}
await order("say 3");
await talk.locator("#e4").waitFor();
await order("kill");
const killed = Date.now();
for (const tab of open) await tab.locator("#live.off", { hasText: "not connected since" }).waitFor();
const noticed = Date.now() - killed;
await order("say 150");
const meanwhile = await order("enqueue");
await order("start");
const up = Date.now();
for (const tab of open) await tab.locator("#live.off", { hasText: "ostler open" }).waitFor();
const asked = Date.now() - up;
const again = await visitor.openLogin((await api("POST", "/api/v1/login-links")).path);
await again.locator("#live.on").waitFor();
const loggedIn = Date.now();
for (const tab of open) await tab.locator("#live.on").waitFor();
await list.locator(`tr[data-key="${meanwhile}"]`).waitFor();
await talk.locator("#e155").waitFor();
const live = Date.now() - loggedIn;
for (const tab of open) must(await tab.evaluate(() => globalThis.wasOpen), "a page was loaded anew");
const events = await talk.locator("#events > li").evaluateAll((all) => all.map((event) => event.id));
must(events.join() === Array.from({ length: 155 }, (_, n) => `e${n + 1}`).join(), `events are lost: ${events}`);
inTime("not connected, after a kill", noticed, 5000);
inTime("that a login is needed, after the restart", asked, 5000);
inTime("live again, after the login", live, 3000);
figure(`a node was killed: three pages said so after ${noticed} ms, asked for a login ${asked} ms after its restart, and were live again ${live} ms after the login of one, with every event`);

await finish(browser);

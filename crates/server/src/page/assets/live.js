// Pages, made live. The server renders; this fetches the page's own address again when a stream of the API reports a change, and merges
// the new document into the old one. What a hand is on stays: the selection, inputs, focus, open folds and questions.

const status = document.getElementById("live");
const MIN_GAP = 400; // between the starts of two fetches
const MAX_GAP = 5000; // without a report
const SETTLE = 20; // reports of one change come together
const SILENCE = 3000; // between two attempts to connect again
const SESSION_GAP = 2000; // between two questions whether there is a session again
const NOTE = "ostler-live"; // who leads
const NOTE_TTL = 3000;
const NOTE_RENEWAL = 1000;
const NEWEST = 100; // events of a page
const BEFORE = 10; // events that are shown before the one of an address
const KEPT = 300; // events of a page that follows a task; older ones are behind a link
const HELD = 3 * KEPT; // events at which even those in sight are dropped

// ---- times: in the zone of the reader, with UTC as the title ----

const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const zoned = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
// The name of the zone changes with its clocks.
const zone = (at) => zoned.formatToParts(at).find((part) => part.type === "timeZoneName")?.value ?? "";

function localize(within) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.textContent = "clock" in time.dataset ? zoned.format(at) : `${full.format(at)} ${zone(at)}`;
    time.title = time.dateTime;
  }
}

// ---- merging ----

const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.key || null : null);
const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !kept(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!kept(old, name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

// What the reader has set: open folds, and the values of inputs.
const kept = (node, name) =>
  (name === "open" && (node.nodeName === "DETAILS" || node.nodeName === "DIALOG")) ||
  ((name === "value" || name === "checked" || name === "selected") && /^(INPUT|OPTION)$/.test(node.nodeName) && node.type !== "hidden");

function merge(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  attributes(old, fresh);
  if (/^(TEXTAREA|SELECT|DIALOG)$/.test(old.nodeName) || old.id === "fresh") return;
  if (old.id === "events") return mergeEvents(old, fresh);
  const list = "list" in old.dataset;
  const held = list && handsOn(old) ? new Set([...old.children].map(keyOf)) : null;
  const known = new Map();
  for (const child of old.childNodes) if (keyOf(child)) known.set(keyOf(child), child);
  let place = old.firstChild;
  let waiting = 0;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    let match = key ? known.get(key) : null;
    if (match && match.nodeName !== child.nodeName) match = null;
    if (held) {
      // The list does not move under the hand: rows change in place, and new ones wait behind a button.
      if (match) merge(match, child);
      else if (key) waiting += 1;
      continue;
    }
    if (!match && !key && place && same(place, child)) match = place;
    if (match) {
      if (match === place) place = place.nextSibling;
      else old.insertBefore(match, place);
      merge(match, child);
    } else {
      old.insertBefore(document.importNode(child, true), place);
    }
  }
  if (held) {
    offer(waiting);
    return;
  }
  if (list) offer(0);
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

const handsOn = (list) => scrollY > 80 || list.querySelector(":checked") !== null || document.querySelector("dialog[open]") !== null;

function offer(count) {
  const box = document.getElementById("fresh");
  if (!box) return;
  box.hidden = count === 0;
  box.firstElementChild.textContent = `${count} new`;
}

// The events of a task are appended: the new document has the newest hundred, and the old one may have more.
function mergeEvents(old, fresh) {
  for (const child of [...fresh.children]) {
    const there = document.getElementById(child.id);
    if (there) merge(there, child);
    else old.append(document.importNode(child, true));
  }
  // The oldest go first, up to one that is in sight.
  while (old.children.length > KEPT && (old.children.length > HELD || !inSight(old.firstElementChild))) old.firstElementChild.remove();
  const earlier = old.parentElement.querySelector("a[rel=prev]");
  const first = numberOf(old.firstElementChild);
  if (!earlier || !first) return;
  earlier.href = `${fresh.dataset.transcript}?after=${Math.max(0, first - 1 - NEWEST)}`;
  earlier.parentElement.hidden = first === 1;
}

const numberOf = (event) => Number(event?.id.slice(1) ?? 0);

function inSight(node) {
  const { top, bottom } = node.getBoundingClientRect();
  return (bottom > 0 && top < innerHeight) || node.contains(document.activeElement);
}

// The new document has the newest events only. If more came since the last one, because many came at once or because this tab was hidden,
// those between are fetched first: a conversation has no hole. More than a page keeps make it begin anew.
async function fillGap(fresh) {
  const [old, now] = [document.getElementById("events"), fresh.getElementById("events")];
  if (!old?.firstElementChild || !now) return true;
  const upTo = Number(now.dataset.after);
  const between = [];
  let last = numberOf(old.lastElementChild);
  if (upTo - last > KEPT) {
    old.replaceChildren();
    return true;
  }
  while (last < upTo) {
    const { page } = await fetchPage(`${now.dataset.transcript}?after=${last}`);
    if (!page) return false;
    const events = [...(page.getElementById("events")?.children ?? [])];
    if (events.length === 0) break;
    between.push(...events.filter((event) => numberOf(event) <= upTo));
    last = numberOf(events.at(-1));
  }
  now.prepend(...between);
  return true;
}

function mergePage(fresh) {
  localize(fresh);
  for (const id of ["main", "asof"]) {
    const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
    if (!old || !now) continue;
    merge(old, now);
  }
  count();
}

// ---- fetching the page again ----

let nextAt = 0;
let timer = 0;
let fetching = false;
let again = false;

function refresh() {
  if (document.hidden) return;
  if (fetching) {
    again = true;
    return;
  }
  clearTimeout(timer);
  timer = setTimeout(load, Math.max(SETTLE, nextAt - Date.now()));
}

// A page as a document; with the status 0 if the node does not answer, and without a document if that is no page.
function fetchPage(address) {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.responseType = "document";
    request.timeout = 10000;
    request.open("GET", address);
    request.onload = () => {
      const isPage = request.getResponseHeader("content-type")?.startsWith("text/html");
      done({ status: request.status, page: isPage ? request.response : null });
    };
    request.onerror = request.ontimeout = () => done({ status: 0, page: null });
    request.send();
  });
}

async function load() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  const began = Date.now();
  try {
    const { status: code, page } = await fetchPage(location.pathname + location.search);
    if (code === 401) return loggedOut();
    const whole = page !== null && (await fillGap(page));
    if (stopped) return;
    if (whole) {
      mergePage(page);
      connected();
    } else if (code === 0) cut();
  } finally {
    fetching = false;
  }
  next(began);
}

function next(began) {
  // At least half of the time is left to the node and to the reader, however long a page takes.
  const took = Date.now() - began;
  nextAt = began + Math.max(MIN_GAP, 2 * took);
  clearTimeout(timer);
  timer = setTimeout(load, again ? Math.max(SETTLE, nextAt - Date.now()) : MAX_GAP);
  again = false;
}

// ---- the state of the connection ----

let since = null;

function connected() {
  since = null;
  status.textContent = "live";
  status.className = "live on";
}

function cut() {
  since ??= new Date();
  status.textContent = `not connected since ${zoned.format(since)}`;
  status.className = "live off";
}

function loggedOut() {
  stop();
  cut();
  status.textContent = `not connected since ${zoned.format(since)}: the node was restarted or your session is over. Log in again: ostler open`;
  if (!document.hidden) question = setTimeout(check, SESSION_GAP);
}

// Asks for the session: a stream does not say why it is refused, and a page that was logged out goes on once another tab has logged in.
let question = 0;

function check() {
  clearTimeout(question);
  if (document.hidden) return;
  fetch(status.dataset.root + "api/v1/session").then(
    (answer) => {
      if (answer.status === 401) loggedOut();
      else if (answer.ok && stopped && !document.hidden) start();
    },
    () => {
      if (stopped) question = setTimeout(check, SESSION_GAP);
    },
  );
}

// ---- the stream: one for all tabs of a browser ----

const api = status ? status.dataset.root + "api/v1/live" : "";
const channel = typeof BroadcastChannel === "function" ? new BroadcastChannel("ostler" + location.host) : null;
const REPORTS = ["stats", "queues", "nodes", "workers", "changes", "reset"];
let source = null;
let stopped = true;
let letGo = null;

// A page fetches itself again after reports about what it shows.
function reported(name) {
  if (name === "reset" || status.dataset.reports.split(" ").includes(name)) refresh();
}

function open() {
  source = new EventSource(api);
  const own = source;
  for (const name of REPORTS) {
    own.addEventListener(name, () => {
      reported(name);
      channel?.postMessage(name);
    });
  }
  own.onopen = () => {
    if (since) refresh();
    else connected();
    channel?.postMessage("connected");
  };
  own.onerror = () => {
    if (stopped || own !== source) return;
    cut();
    channel?.postMessage("cut");
    check();
    if (own.readyState === EventSource.CLOSED) setTimeout(() => !stopped && own === source && open(), SILENCE);
  };
}

function start() {
  if (!stopped) return;
  stopped = false;
  clearTimeout(question);
  // One tab leads, and the others listen to it: browsers allow six connections to a host.
  if (!channel) open();
  else if (navigator.locks) leadByLock();
  else leadByNote();
  refresh();
}

function leadByLock() {
  const giveUp = new AbortController();
  letGo = () => giveUp.abort();
  navigator.locks
    .request("ostler-live", { signal: giveUp.signal }, () => {
      if (stopped) return undefined;
      open();
      return new Promise((resolve) => (letGo = resolve));
    })
    .catch(() => {});
}

// Browsers have locks only for TLS and loopback. Elsewhere the tab that leads renews a note that all can read. Of two that write it at
// once the last one leads: each looks again before it opens the stream.
function leadByNote() {
  const me = crypto.getRandomValues(new Uint32Array(2)).join("");
  const read = () => (localStorage.getItem(NOTE) ?? "").split(" ");
  const look = () => {
    const [leader, until] = read();
    if (leader === me && !source) open();
    if (leader === me || !(Number(until) > Date.now())) localStorage.setItem(NOTE, `${me} ${Date.now() + NOTE_TTL}`);
    else if (source) {
      source.close();
      source = null;
    }
  };
  const ticks = setInterval(look, NOTE_RENEWAL);
  addEventListener("storage", look);
  look();
  letGo = () => {
    clearInterval(ticks);
    removeEventListener("storage", look);
    if (read()[0] === me) localStorage.removeItem(NOTE);
  };
}

function stop() {
  stopped = true;
  clearTimeout(timer);
  clearTimeout(question);
  source?.close();
  source = null;
  letGo?.();
  letGo = null;
}

// ---- hands: selection, questions, copies, keys ----

function count() {
  const list = document.getElementById("list");
  if (!list) return;
  const picked = list.querySelectorAll("input[name='p:id']:checked").length;
  const label = list.querySelector(".toolbar span");
  if (label) label.textContent = picked ? `With the ${picked} selected:` : "With the selected:";
}

let lastPicked = null;
document.addEventListener("click", (event) => {
  const box = event.target.closest?.("input[type=checkbox][name='p:id']");
  if (box) {
    const all = [...document.querySelectorAll("input[name='p:id']")];
    const [from, to] = [all.indexOf(lastPicked), all.indexOf(box)];
    if (event.shiftKey && from >= 0) {
      for (const one of all.slice(Math.min(from, to), Math.max(from, to))) one.checked = box.checked;
    }
    lastPicked = box;
    count();
  }
  const line = event.target.closest?.("code.cmd");
  if (line) copy(line, line.textContent);
  // A time is copied as it is in the API, unless it is a part of a link or a button.
  const time = event.target.closest?.("time[datetime]");
  if (time && !time.closest("a, button, summary, label")) copy(time, time.dateTime);
  if (event.target.closest?.("#fresh")) {
    for (const one of document.querySelectorAll("input[name='p:id']:checked")) one.checked = false;
    scrollTo({ top: 0 });
    count();
    load();
  }
});

function copy(node, text) {
  const copied = () => {
    node.classList.add("copied");
    setTimeout(() => node.classList.remove("copied"), 900);
  };
  // Browsers have a clipboard only for TLS and loopback; elsewhere the selection is copied, or stays for the reader's own keys.
  const bySelection = () => {
    const shown = document.createElement("span");
    shown.textContent = text;
    node.after(shown);
    getSelection().selectAllChildren(shown);
    const done = document.execCommand("copy");
    shown.remove();
    if (done) copied();
    else getSelection().selectAllChildren(node);
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(copied, bySelection);
  else bySelection();
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const asker = event.submitter?.dataset.danger ? event.submitter : form.dataset.danger ? form : null;
  if (!asker || form.id === "question" || form.elements.confirmed) return;
  // All that match: the server counts them first, on a page of its own.
  if (event.submitter?.hasAttribute("form") || form.action.endsWith("/do/tasks.act")) return;
  const ids = form.id === "list" ? [...form.querySelectorAll("input[name='p:id']:checked")].map((box) => box.value) : null;
  if (ids?.length === 0) return;
  event.preventDefault();
  let command = form.querySelector("code.cmd")?.textContent ?? asker.dataset.cmd ?? "";
  if (ids) command = command.replace("ID", ids.slice(0, 5).join(" ") + (ids.length > 5 ? " …" : ""));
  for (const [word, field] of [["MIN", "n:min"], ["MAX", "n:max"]]) {
    if (form.elements[field]) command = command.replace(word, form.elements[field].value);
  }
  ask(asker, event.submitter?.textContent ?? "Go on", ids?.length ?? null, command, () => {
    const yes = document.createElement("input");
    yes.type = "hidden";
    yes.name = "confirmed";
    yes.value = "yes";
    form.append(yes);
    form.requestSubmit(event.submitter);
  });
});

function add(name, text, parent) {
  const node = document.createElement(name);
  node.textContent = text;
  parent.append(node);
  return node;
}

function ask(asker, label, picked, command, go) {
  const dialog = document.createElement("dialog");
  add("h2", `${label.trim()}?`, dialog);
  add("p", `${asker.dataset.about}.`, dialog);
  if (picked !== null) add("p", picked === 1 ? "One task is selected." : `${picked} tasks are selected.`, dialog);
  if (command) add("code", command, dialog).className = "cmd";
  const answers = add("p", "", dialog);
  answers.className = "answers";
  const yes = add("button", "Yes, go on", answers);
  yes.className = asker.dataset.danger === "destructive" ? "button bad" : "button";
  const no = add("button", "No", answers);
  no.className = "button plain";
  yes.onclick = () => {
    dialog.close();
    go();
  };
  no.onclick = () => dialog.close();
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
  no.focus();
}

const KEYS = [
  ["/", "search"],
  ["j  k", "the next and the previous line of a list"],
  ["Enter", "open it"],
  ["x", "select it; shift and a click select a range"],
  ["g o", "overview"],
  ["g t", "tasks"],
  ["g d", "dead letters"],
  ["g j", "jobs"],
  ["g n", "nodes and workers"],
  ["g s", "schedules"],
  ["g c", "cost"],
  ["?", "these keys"],
];

function help() {
  const dialog = document.createElement("dialog");
  dialog.id = "keys";
  add("h2", "Keys", dialog);
  const list = add("dl", "", dialog);
  list.className = "facts";
  for (const [key, what] of KEYS) {
    add("kbd", key, add("dt", "", list));
    add("dd", what, list);
  }
  const close = add("button", "Close", dialog);
  close.className = "button";
  close.onclick = () => dialog.close();
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
}

const ways = { o: "", t: "tasks", d: "dead", j: "jobs", n: "nodes", s: "schedules", c: "cost" };
let afterG = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input,textarea,select,dialog")) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  } else if (event.key === "?") help();
  else if (event.key === "g") afterG = Date.now();
  else if (Date.now() - afterG < 1500 && event.key in ways) location.href = document.body.dataset.root + ways[event.key];
  else if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("main tbody a, main .group a")];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
  } else if (event.key === "x") document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]")?.click();
});

// An event that is not on this page has its place in the transcript.
function seek() {
  const wanted = /^#e(\d+)$/.exec(location.hash)?.[1];
  const list = document.getElementById("events");
  if (!wanted || !list || document.getElementById(`e${wanted}`)) return;
  const place = new URL(`${list.dataset.transcript}?after=${Math.max(0, wanted - 1 - BEFORE)}${location.hash}`, location.href);
  // On that page already: there is no such event.
  if (place.pathname + place.search !== location.pathname + location.search) location.replace(place);
}

localize(document);
if (status) {
  channel?.addEventListener("message", ({ data }) => {
    if (document.hidden) return;
    if (data === "login") check();
    else if (stopped) return;
    else if (data === "cut") cut();
    else if (data === "connected" && !since) connected();
    else if (since) refresh();
    else reported(data);
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && !document.hidden && start());
  addEventListener("hashchange", seek);
  seek();
  if (!document.hidden) start();
}

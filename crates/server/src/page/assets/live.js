// Pages, made live. The server renders; this fetches the page's own address again when a stream of the API reports a change, and merges
// the new document into the old one. What a hand is on stays: the selection, inputs, focus, open folds and questions.

const status = document.getElementById("live");
const MIN_GAP = 1000; // between two fetches
const MAX_GAP = 15000; // without a report
const SILENCE = 3000; // between two attempts to connect again

// ---- times: in the zone of the reader, with UTC as the title ----

const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const zoned = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
const zone = zoned.formatToParts(0).find((part) => part.type === "timeZoneName")?.value ?? "";

function localize(within) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.textContent = "clock" in time.dataset ? zoned.format(at) : `${full.format(at)} ${zone}`;
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

let last = 0;
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
  timer = setTimeout(load, Math.max(0, last + MIN_GAP - Date.now()));
}

function load() {
  const request = new XMLHttpRequest();
  request.responseType = "document";
  request.timeout = 10000;
  request.open("GET", location.pathname + location.search);
  fetching = true;
  last = Date.now();
  const done = (ok) => {
    fetching = false;
    if (ok && request.status === 401) return loggedOut();
    if (ok && request.response && request.getResponseHeader("content-type")?.startsWith("text/html")) {
      mergePage(request.response);
      connected();
    }
    clearTimeout(timer);
    timer = setTimeout(load, again ? MIN_GAP : MAX_GAP);
    again = false;
  };
  request.onload = () => done(true);
  request.onerror = request.ontimeout = () => {
    cut();
    done(false);
  };
  request.send();
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
}

// ---- streams: one of the overview for all tabs of a browser, and one of a task while it is visible ----

const api = status ? status.dataset.root + "api/v1/live" : "";
const channel = typeof BroadcastChannel === "function" ? new BroadcastChannel("ostler" + location.host) : null;
let sources = [];
let stopped = false;
let letGo = null;

function open(address) {
  const source = new EventSource(address);
  const report = () => {
    refresh();
    if (address === api) channel?.postMessage("changed");
  };
  for (const name of ["message", "stats", "queues", "nodes", "workers", "reset"]) source.addEventListener(name, report);
  source.addEventListener("end", () => {
    source.close();
    refresh();
  });
  source.onopen = () => {
    if (since) refresh();
    else connected();
    if (address === api) channel?.postMessage("connected");
  };
  source.onerror = () => {
    if (stopped) return;
    cut();
    if (address === api) channel?.postMessage("cut");
    check();
    if (source.readyState === EventSource.CLOSED) {
      sources = sources.filter((one) => one !== source);
      setTimeout(() => !stopped && !document.hidden && sources.push(open(address)), SILENCE);
    }
  };
  return source;
}

// A stream does not say why it is refused.
function check() {
  fetch(status.dataset.root + "api/v1/session").then(
    (answer) => answer.status === 401 && loggedOut(),
    () => {},
  );
}

function start() {
  stopped = false;
  const own = status.dataset.stream;
  if (!own.endsWith("api/v1/live")) sources.push(open(own));
  if (channel && navigator.locks) {
    // One tab leads, and the others listen to it: browsers allow six connections to a host.
    const giveUp = new AbortController();
    letGo = () => giveUp.abort();
    navigator.locks
      .request("ostler-live", { signal: giveUp.signal }, () => {
        if (stopped) return undefined;
        const source = open(api);
        sources.push(source);
        return new Promise((resolve) => {
          letGo = () => {
            source.close();
            resolve();
          };
        });
      })
      .catch(() => {});
  } else {
    sources.push(open(api));
  }
  refresh();
}

function stop() {
  stopped = true;
  clearTimeout(timer);
  for (const source of sources) source.close();
  sources = [];
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
  if (line && navigator.clipboard) {
    navigator.clipboard.writeText(line.textContent).then(() => {
      line.classList.add("copied");
      setTimeout(() => line.classList.remove("copied"), 900);
    });
  }
  if (event.target.closest?.("#fresh")) {
    for (const one of document.querySelectorAll("input[name='p:id']:checked")) one.checked = false;
    scrollTo({ top: 0 });
    count();
    load();
  }
});

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
  ask(asker, event.submitter?.textContent ?? "Go on", ids?.length ?? null, command, () => {
    const yes = document.createElement("input");
    yes.type = "hidden";
    yes.name = "confirmed";
    yes.value = "yes";
    form.append(yes);
    form.requestSubmit(event.submitter);
  });
});

function ask(asker, label, picked, command, go) {
  const dialog = document.createElement("dialog");
  const add = (name, text, parent = dialog) => {
    const node = document.createElement(name);
    node.textContent = text;
    parent.append(node);
    return node;
  };
  add("h2", `${label.trim()}?`);
  add("p", `${asker.dataset.about}.`);
  if (picked !== null) add("p", picked === 1 ? "One task is selected." : `${picked} tasks are selected.`);
  if (command) add("code", command).className = "cmd";
  const answers = add("p", "");
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
  } else if (event.key === "g") afterG = Date.now();
  else if (Date.now() - afterG < 1500 && event.key in ways) location.href = status.dataset.root + ways[event.key];
  else if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("main tbody a, main .group a")];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
  } else if (event.key === "x") document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]")?.click();
});

localize(document);
if (status) {
  channel?.addEventListener("message", (event) => {
    if (document.hidden || stopped) return;
    if (event.data === "cut") cut();
    else if (event.data === "changed" || since) refresh();
    else connected();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && !document.hidden && start());
  if (!document.hidden) start();
}

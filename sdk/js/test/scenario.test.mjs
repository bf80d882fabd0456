// The scenario that the clients of all languages run, against a real node. sdk/scenario.json says how its steps are read.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";

import * as sdk from "../client.js";
import { Node } from "./node.mjs";

const { config, steps } = JSON.parse(fs.readFileSync(new URL("../../scenario.json", import.meta.url), "utf8"));
// Times of the scenario are seconds, and those of this client milliseconds or texts.
const TIMES = ["wait", "timeout"];
const WAITS = ["wait", "wait_action", "jobs.wait", "jobs.wait_pilot"];

let node;
let clients;
before(async () => {
  node = await Node.start({ config: config.join("\n") });
  clients = {
    owner: node.client(),
    viewer: node.client({ token: node.token("viewer") }),
    wrong: node.client({ token: "not-a-token-of-this-node" }),
    anonymous: new sdk.Client({ url: node.url }),
    unreachable: new sdk.Client({ url: `unix:${path.join(node.folder, "nothing.sock")}`, token: "any-token-of-any-node" }),
  };
});
after(async () => {
  for (const client of Object.values(clients ?? {})) await client.close();
  await node?.close();
});

test("the scenario of all clients", async (t) => {
  const saved = {};
  for (const step of steps) {
    await t.test(step.about, async () => {
      const { call, args = [], options = {}, save, expect, raises, client = "owner" } = filled(step, saved);
      const done = perform(clients[client], call, args, options);
      if (raises) {
        const error = await done.then(
          (value) => assert.fail(`it returned ${JSON.stringify(value)}`),
          (error) => error,
        );
        fits(error, raises);
        return;
      }
      const value = await done;
      if (save) saved[save] = value;
      check(value, expect, call);
    });
  }
});

async function perform(client, call, args, options) {
  const names = call.split(".").map(camel);
  const method = names.at(-1);
  const object = names.slice(0, -1).reduce((object, name) => object[name], client);
  const named = Object.fromEntries(Object.entries(options).map(([name, value]) => [own(name), time(name, value)]));
  const given = [...args];
  if (WAITS.includes(call) && given.length > 1) named.timeout = 1000 * given.pop();
  // Those without a payload or other arguments take only options.
  const returned = object[method](...given, named);
  if (returned?.[Symbol.asyncIterator] === undefined) return returned;
  const all = [];
  for await (const value of returned) all.push(value);
  return all;
}

function camel(name) {
  return name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
}

// Options of the API keep their names; those of the client are in camelCase.
function own(name) {
  return name === "idempotency_key" ? camel(name) : name;
}

function time(name, value) {
  return TIMES.includes(name) && typeof value === "number" ? 1000 * value : value;
}

// A copy in which the saved values stand for their names.
function filled(value, saved) {
  if (typeof value === "string" && /^\$[a-z]/.test(value)) {
    return value.slice(1).split(".").reduce((part, name) => part[name], saved);
  }
  if (Array.isArray(value)) return value.map((part) => filled(part, saved));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, filled(part, saved)]));
}

function fits(error, { error: name, task_class: taskClass, ...fields }) {
  assert.ok(error instanceof sdk[name], `it threw ${error.name} instead of ${name}: ${error.stack}`);
  if (taskClass !== undefined) assert.equal(error.taskClass, taskClass);
  for (const [field, pattern] of Object.entries(fields)) check(error[field], pattern, `error.${field}`);
}

function matches(value, pattern) {
  try {
    check(value, pattern, "");
    return true;
  } catch {
    return false;
  }
}

function check(value, pattern, at) {
  const shown = `${at} is ${JSON.stringify(value)} and should be ${JSON.stringify(pattern)}`;
  if (pattern === null || pattern === undefined) return assert.ok(value === null || value === undefined || pattern === undefined, shown);
  if (typeof pattern !== "object") return assert.equal(value, pattern, shown);
  if (Array.isArray(pattern)) {
    assert.equal(value?.length, pattern.length, shown);
    return pattern.forEach((part, place) => check(value[place], part, `${at}[${place}]`));
  }
  const [[word, wanted] = []] = Object.entries(pattern);
  switch (word) {
    case "$any":
      return assert.ok(value !== null && value !== undefined, shown);
    case "$length":
      return assert.equal(value.length, wanted, shown);
    case "$contains":
      return assert.ok(value.some((part) => matches(part, wanted)), shown);
    case "$first":
      return check(value[0], wanted, `${at}[0]`);
    case "$text":
      return assert.ok(value.includes(wanted), shown);
    case "$one_of":
      return assert.ok(wanted.includes(value), shown);
    default:
      assert.ok(value !== null && typeof value === "object", shown);
      for (const [name, part] of Object.entries(pattern)) check(value[name], part, `${at}.${name}`);
  }
}

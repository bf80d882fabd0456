// Submits many tasks in chunks, each of which is one transaction and is made once, however often it is sent.
"use strict";

const { randomUUID } = require("node:crypto");

// The API's limits are 10,000 tasks and 64 MiB. Smaller chunks leave room for others in between.
const MAX_CHUNK_TASKS = 500;
const MAX_CHUNK_BYTES = 1024 * 1024;

async function submitMany(connection, tasks, { idempotencyKey = randomUUID(), signal } = {}) {
  const submitted = [];
  let number = 0;
  try {
    for await (const chunk of chunksOf(tasks)) {
      // A task with an id of its own is made once anyway, and the API takes no key beside it.
      const key = chunk.hasIds ? undefined : `${idempotencyKey}/${number}`;
      number += 1;
      const text = `{"tasks":[${chunk.texts.join(",")}]}`;
      const answer = await connection.call("POST", "tasks", { text, idempotencyKey: key, signal, repeatable: true });
      for (const { id, result } of answer.tasks) submitted.push({ id: id ?? null, result });
    }
  } catch (error) {
    // The chunks before are enqueued: the caller may want to know.
    if (error instanceof Error) error.submitted = submitted;
    throw error;
  }
  return submitted;
}

async function* chunksOf(tasks) {
  let chunk = { texts: [], bytes: 0, hasIds: false };
  for await (const task of tasks) {
    const [text, hasIds] = [JSON.stringify(task), task.id != null];
    const bytes = Buffer.byteLength(text);
    const isFull = chunk.texts.length >= MAX_CHUNK_TASKS || chunk.bytes + bytes > MAX_CHUNK_BYTES || chunk.hasIds !== hasIds;
    if (isFull && chunk.texts.length > 0) {
      yield chunk;
      chunk = { texts: [], bytes: 0, hasIds };
    }
    chunk.hasIds = hasIds;
    chunk.texts.push(text);
    chunk.bytes += bytes;
  }
  if (chunk.texts.length > 0) yield chunk;
}

module.exports = { submitMany };

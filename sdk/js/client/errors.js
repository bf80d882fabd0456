// Errors of the client. A class for each thing that a program handles in its own way; `code` is that of the API and never changes.
"use strict";

class OstlerError extends Error {
  constructor(message, { code, status, details, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.status = status;
    this.details = details ?? null;
  }
}

class Invalid extends OstlerError {}

class Unauthorized extends OstlerError {}

class Forbidden extends OstlerError {}

class NotFound extends OstlerError {}

class Conflict extends OstlerError {}

class QueueFull extends OstlerError {}

// No answer: nothing listens there, or the connection was lost.
class Unreachable extends OstlerError {
  constructor(message, { cause, details } = {}) {
    super(message, { code: "unreachable", cause, details });
  }
}

// A task that has no output: `task` has its state and error, as the API shows them.
class Unsuccessful extends OstlerError {
  constructor(message, code, task) {
    super(message, { code, details: task.error });
    this.task = task;
    this.taskClass = task.error?.class ?? null;
  }
}

class TaskFailed extends Unsuccessful {
  constructor(task) {
    super(task.error?.message ?? `task ${task.id} has failed`, "task_failed", task);
  }
}

class TaskCancelled extends Unsuccessful {
  constructor(task) {
    super(task.error?.message ?? `task ${task.id} was cancelled`, "task_cancelled", task);
  }
}

// What was waited for has not ended in time. `task` is the newest state of it: a task, a job, or an action on many tasks.
class NotFinished extends OstlerError {
  constructor(message, task) {
    super(message, { code: "not_finished" });
    this.task = task;
  }
}

const BY_STATUS = new Map([
  [400, Invalid],
  [401, Unauthorized],
  [403, Forbidden],
  [404, NotFound],
  [409, Conflict],
  [413, Invalid],
]);

// The error that an answer has. A proxy may answer with another body than a node.
function errorOf(status, text) {
  let said;
  try {
    said = JSON.parse(text).error;
  } catch {
    // Not from a node.
  }
  const { code = `http_${status}`, message = `the answer has the status ${status}`, details } = said ?? {};
  const Class = code === "queue_full" ? QueueFull : (BY_STATUS.get(status) ?? OstlerError);
  return new Class(message, { code, status, details });
}

module.exports = {
  OstlerError, Invalid, Unauthorized, Forbidden, NotFound, Conflict, QueueFull, Unreachable,
  TaskFailed, TaskCancelled, NotFinished, errorOf,
};

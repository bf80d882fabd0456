/** Workers for Ostler: handlers by kind, run one task at a time for a node. */

/** What JSON can hold. */
export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

export type Level = "debug" | "info" | "warn" | "error";

/** Runs tasks of one kind. What it returns is the task's output, as JSON; what it throws is the task's error. */
export type Handler<Payload = any, Output = unknown> = (payload: Payload, ctx: Context) => Output | Promise<Output>;

/** Handlers by kind, and the loop that runs them. A program needs one: `worker`. */
export class Worker {
  /** This function runs tasks of this kind. */
  task<Payload = any, Output = unknown>(kind: string, handler: Handler<Payload, Output>): Handler<Payload, Output>;
  /** This function runs the tasks that no other function runs. */
  task<Payload = any, Output = unknown>(handler: Handler<Payload, Output>): Handler<Payload, Output>;
  /**
   * Runs tasks until the node says stop; then the promise is kept. Call it at the end of the program, once its handlers are there.
   * Close what keeps the process alive after `await worker.run()`.
   */
  run(): Promise<void>;
  /** Runs a handler once without a node, for unit tests. What it throws comes out of here. */
  test(kind: string, payload?: unknown, options?: TestOptions): Promise<Tested>;
}

/** The worker of this program. */
export const worker: Worker;

export interface TestOptions {
  /** Steps of earlier attempts; what this one keeps is added. Give the same object again to be the next attempt. */
  steps?: Record<string, unknown>;
  attempt?: number;
  timeoutMs?: number;
  folder?: string;
  /** Aborted: the attempt is cancelled. */
  signal?: AbortSignal;
}

/** What a handler did in `worker.test`, as a node would have kept it. */
export interface Tested {
  output: any;
  steps: Record<string, any>;
  progress: { done: number; total?: number; note?: string }[];
  logs: { level: Level; message: string }[];
  files: string[];
  /** Steps that failed in `stepOrWarn`. */
  warnings: { step: string; message: string }[];
}

/** What a handler sees of the attempt that it runs. */
export interface Context {
  /** The task's id. */
  readonly id: string;
  /** What sort of work it is. */
  readonly kind: string;
  /** The number of the attempt, counted from one. */
  readonly attempt: number;
  /** The folder to work in, if the task has one. */
  readonly folder?: string;
  /** How many milliseconds the attempt may take. */
  readonly timeoutMs?: number;
  /** Aborted when the attempt is to end; its reason is a `Cancelled` or a `Lost`. Hand it on to whatever waits. */
  readonly signal: AbortSignal;
  /** Whether the attempt is to end. */
  readonly cancelled: boolean;
  /** Throws `Cancelled` or `Lost` if the attempt is to end. */
  check(): void;
  /** How many milliseconds are left of the timeout; not less than none. */
  timeLeftMs(): number | undefined;
  /** Says how far the work is, in whole numbers. */
  progress(done: number, total?: number, note?: string): void;
  /** Writes a line into the task's log. What is printed is there too. */
  log(level: Level, message: string): void;
  /** Says that the task made this file, inside of its folder. */
  file(path: string): void;
  /**
   * Does a step of the task, once: what it came to is durable before the promise is kept, and a later attempt gets it back instead
   * of doing it again. Each step of a handler has a name of its own.
   *
   * What comes back is what JSON made of it, the first time too: a `Date` comes back as a string, `undefined` as `null`.
   */
  step<T>(name: string, work: () => T | Promise<T>): Promise<T>;
  /**
   * Does a step that the task can do without: if it throws, that is a warning on the task, and `null` comes back. It is not tried
   * again by a later attempt.
   */
  stepOrWarn<T>(name: string, work: () => T | Promise<T>): Promise<T | null>;
}

export interface TaskErrorOptions {
  /** The step that failed; known by itself inside of `ctx.step`. */
  step?: string;
  /** What might help. */
  hint?: string;
  /** More for whoever looks closer; the stack, if it is not given. */
  details?: string;
  cause?: unknown;
}

/** An error that says what should follow. Throw one of its kinds. */
export class TaskError extends Error {
  /** `retryAfterMs`: not before so many milliseconds. */
  constructor(message: string, options?: TaskErrorOptions & { retryAfterMs?: number });
  readonly retryAfterMs?: number;
  readonly step?: string;
  readonly hint?: string;
  readonly details?: string;
}

/** May work next time: tried again with backoff, until no try is left. */
export class Transient extends TaskError {}

/** Part of it is done, and its steps are kept; the rest may work next time. */
export class PartialError extends TaskError {}

/** @deprecated It is `PartialError`. This is a value and no type, so that `Partial<T>` stays what it is everywhere. */
export const Partial: typeof PartialError;

/** Will never work: invalid input, not found, forbidden. A dead letter at once. */
export class Permanent extends TaskError {}

/** Too many requests. The task waits so many milliseconds, or until then, and no try is used up. */
export class RateLimited extends TaskError {
  constructor(message: string, options: TaskErrorOptions & ({ afterMs: number } | { until: Date }));
}

/** Nothing of this sort can work now: bad credentials, no quota. The queue pauses with the reason; no try is used up. */
export class QueueStop extends TaskError {}

/** The attempt is to end now. Let it pass. */
export class Stopped extends Error {}

/** Somebody cancelled the task, its time is up, or the node drains. The message has the reason. */
export class Cancelled extends Stopped {}

/** The lease is lost: somebody else speaks for the task now, and nothing that this attempt says counts. */
export class Lost extends Stopped {}

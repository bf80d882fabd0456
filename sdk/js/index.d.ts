/** Worker SDK for Ostler: handlers by kind, which a node gives tasks. */

/** Any JSON value. */
export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

export type Level = "debug" | "info" | "warn" | "error";

export type Role = "user" | "assistant" | "system";

/** A text with a unit, such as "30s", "5m" or "500ms", or a number of milliseconds. */
export type Duration = string | number;

/** Defaults for tasks of a kind. The node's config and the task's own options win. */
export interface TaskOptions {
  /** How many attempts may fail. */
  attempts?: number;
  /** The timeout of an attempt. */
  timeout?: Duration;
  backoff?: "fixed" | "linear" | "exponential";
  /** The delay after the first failure. */
  base?: Duration;
  /** The longest delay. */
  max?: Duration;
  jitter?: boolean;
  /** At this many crashes of its worker the task is quarantined. */
  maxCrashes?: number;
}

/** Runs tasks of one kind. What it returns is the task's output, as JSON; what it throws is the task's error. */
export type Handler<Payload = any, Output = unknown> = (payload: Payload, ctx: Context) => Output | Promise<Output>;

/** Handlers by kind, and the loop that runs them. A program uses one: `worker`. */
export class Worker {
  /** Registers a handler for tasks of this kind. */
  task<Payload = any, Output = unknown>(kind: string, handler: Handler<Payload, Output>): Handler<Payload, Output>;
  /** The same, with options for tasks of this kind. */
  task<Payload = any, Output = unknown>(
    kind: string,
    options: TaskOptions,
    handler: Handler<Payload, Output>,
  ): Handler<Payload, Output>;
  /** Registers a handler for all kinds that have no other handler. */
  task<Payload = any, Output = unknown>(handler: Handler<Payload, Output>): Handler<Payload, Output>;
  /**
   * Runs tasks until the node sends stop; then the promise resolves. Call it at the end of the program, after registering the
   * handlers. Close whatever keeps the process alive after `await worker.run()`.
   */
  run(): Promise<void>;
  /** Runs a handler once without a node, for unit tests. Rejects with what the handler throws. */
  test(kind: string, payload?: unknown, options?: TestOptions): Promise<Tested>;
}

/** The worker of this program. */
export const worker: Worker;

export interface TestOptions {
  /** Steps of earlier attempts; the ones that this attempt saves are added. Pass the same object to run the next attempt. */
  steps?: Record<string, unknown>;
  attempt?: number;
  timeoutMs?: number;
  folder?: string;
  /** Cancels the attempt when aborted. */
  signal?: AbortSignal;
  /** What `ctx.task` finds. */
  tasks?: TaskInfo[];
  /** The answers of the gateway, one after the other; an error of this module is thrown. */
  answers?: unknown[];
  /** The events of its streams, one list for each, such as `{ type: "message", text: "…" }`. */
  events?: { type: string; [name: string]: unknown }[][];
}

/** What a handler did in `worker.test`, as a node would have recorded it. */
export interface Tested {
  output: any;
  steps: Record<string, any>;
  progress: { done: number; total?: number; note?: string }[];
  logs: { level: Level; message: string }[];
  files: string[];
  /** Steps that failed in `stepOrWarn`. */
  warnings: { step: string; message: string }[];
  /** Prompts, messages, thinking, tool calls and results, sessions and usage, as frames with their `type`. */
  conversation: { type: string; [name: string]: any }[];
  /** Tasks that were submitted. */
  submitted: ({ kind: string; payload: any } & SubmitOptions)[];
  /** What was asked of the gateway. */
  queries: { session: number; input: string; options?: Record<string, any> }[];
  /** Streams that were left early, by their numbers from 1. */
  dropped: number[];
}

export interface SubmitOptions {
  /** Defaults to this task's queue. */
  queue?: string;
  /** A key that only one task of the queue has. */
  key?: string;
  /** When it is due, in milliseconds from now. */
  delayMs?: number;
  /** Its id: 26 letters and digits. */
  id?: string;
}

/** Another task, as it is now. */
export interface TaskInfo {
  id: string;
  state: "queued" | "claimed" | "running" | "completed" | "failed" | "cancelled";
  /** Its output, if it has completed. */
  output?: any;
  /** The message of its last failure. */
  error?: string;
  queue?: string;
  kind?: string;
  /** Its input. Left out if it does not fit into a frame. */
  payload?: any;
  /** Its unique key: the id of a run. */
  key?: string;
  folder?: string;
  /** Attempts that were started. */
  attempts?: number;
  /** Attempts that failed. */
  failures?: number;
  createdAt?: Date;
}

export interface RunOptions {
  /** The pool that runs it. */
  pool?: string;
  /** An id of your own, any text. */
  id?: string;
  /** The folder in which the agent works. */
  folder?: string;
  /** Model requests, over all attempts. */
  maxIterations?: number;
  model?: string;
}

/**
 * Sessions with an agent. A later attempt gets the sessions of the earlier one, in the order in which it creates them, and the answers
 * that it had: only what was not answered is asked again, in the same session.
 */
export interface Gateway {
  /** Creates a session. `userId` defaults to `worker_` and the task's id, `workspace` to the task's folder. */
  createSession(options?: { userId?: string; workspace?: string }): Promise<GatewaySession>;
  /** Goes on in a session that another task has created. */
  resumeSession(id: string, options?: { workspace?: string }): Promise<GatewaySession>;
}

/** A session, in which queries see what was said before. */
export interface GatewaySession {
  /** The id by which the gateway knows the session. */
  readonly id: string;
  /**
   * Asks, and resolves to the answer. What the agent says and does meanwhile is in the task's log, and its cost in the attempt's. The
   * options win over the settings of the gateway. Rejects with a `TaskError` of the class of the cause: one that is not caught ends the
   * attempt with that class.
   */
  runQuery(input: string, options?: QueryOptions): Promise<QueryResult>;
  /**
   * Asks, and yields what the agent says and does as it arrives; the last item is the answer, of the type `"result"`. It is asked when the
   * first item is. A loop that is left early gives the query up. While nothing is read, the agent waits. Throws like `runQuery`, after the
   * events that came before. A query that was answered in an earlier attempt has no events.
   */
  stream(input: string, options?: QueryOptions): AsyncGenerator<QueryEvent | ({ type: "result" } & QueryResult), void, undefined>;
}

export interface QueryOptions {
  maxIterations?: number;
  model?: string;
  [name: string]: unknown;
}

/** What an agent says or does during a query. */
export type QueryEvent =
  | { type: "message"; role: Role; text: string }
  | { type: "thinking"; text: string }
  /** `call` joins the call of a tool and its result. */
  | { type: "tool_call"; call: string; tool: string; input: any }
  | { type: "tool_result"; call: string; tool?: string; output: string; error: boolean }
  /** What was spent since the last such event. The attempt counts it by itself. */
  | { type: "usage"; usage: Usage }
  /** What it does beside the conversation, such as a new try. */
  | { type: "status"; text: string }
  | { type: "warning"; text: string };

export interface QueryResult {
  /** A text, or the value that a schema asked for. */
  output: any;
  /** The answer as text; of a value, its JSON. */
  text: string;
  /** The session that it was given in. */
  sessionId: string;
}

/** What a model was paid for. */
export interface Usage {
  model?: string;
  inputTokens?: number;
  outputTokens?: number;
  cacheReadTokens?: number;
  cacheWriteTokens?: number;
  reasoningTokens?: number;
  costUsd?: number;
  /** Whether it is a guess. */
  estimated?: boolean;
}

/** The context of a handler. */
export interface Context {
  /** The task's id. */
  readonly id: string;
  /** The task's kind. */
  readonly kind: string;
  /** The number of the attempt, from 1. */
  readonly attempt: number;
  /** The task's folder, if it has one. */
  readonly folder?: string;
  /** The W3C trace context that the task was submitted with, if it was. */
  readonly traceparent?: string;
  /** The last session that an earlier attempt reported, to resume it. */
  readonly previousSession?: string;
  /** The attempt's timeout in milliseconds. */
  readonly timeoutMs?: number;
  /** Aborted when the attempt must stop; its reason is a `Cancelled` or a `Lost`. Pass it to everything that waits. */
  readonly signal: AbortSignal;
  /** Whether the attempt must stop. */
  readonly cancelled: boolean;
  /** Throws `Cancelled` or `Lost` if the attempt must stop. */
  check(): void;
  /** The milliseconds left of the timeout; not below 0. */
  timeLeftMs(): number | undefined;
  /** Reports progress, in whole numbers. */
  progress(done: number, total?: number, note?: string): void;
  /** Writes a line to the task's log. Printed output goes there too. */
  log(level: Level, message: string): void;
  /** Records a file that the task created in its folder. */
  file(path: string): void;
  /** The value of one of the pool's secrets, a variable of the environment. Throws `QueueStop` if the pool has none of this name. */
  secret(name: string): string;
  /** Records the rendered prompt. Nothing of a conversation is left out: await each call, so that a slow store holds you back. */
  prompt(text: string): Promise<void>;
  /** Records a message. The role defaults to `"assistant"`. */
  message(text: string, role?: Role): Promise<void>;
  /** Records a model's reasoning. */
  thinking(text: string): Promise<void>;
  /** Records that a model calls a tool. `call` joins the call and its result; `input` is any JSON. */
  toolCall(call: string, tool: string, input?: unknown): Promise<void>;
  /** Records the result of a tool: a text, or any JSON. */
  toolResult(call: string, output?: unknown, options?: { error?: boolean }): Promise<void>;
  /** Records what a model was paid for since the last such call. The attempt has the sum, by model. */
  usage(usage: Usage): Promise<void>;
  /**
   * Records the id by which a later attempt can resume the conversation. It is durable when the promise resolves: call it before
   * the request that it names.
   */
  session(id: string): Promise<void>;
  /**
   * Submits another task, to this task's queue unless another is given. Resolves to its id when it is durable. A later attempt that
   * submits the same again gets the same task, and so does one with the same `key` or `id`.
   */
  submit(kind: string, payload?: unknown, options?: SubmitOptions): Promise<string>;
  /**
   * Gives a prompt to a pool of agents, this task's own unless another is given. Resolves to the id of its task. `id` is an id of your
   * own, any text: the same again is the same task.
   */
  run(prompt: string, options?: RunOptions): Promise<string>;
  /** Looks up a task, or this one without an id; undefined if there is none with this id. */
  task(id?: string): Promise<TaskInfo | undefined>;
  /** The gateway of the pool: sessions with an agent, in which several things are asked one after the other. */
  gateway(): Gateway;
  /**
   * Runs a step once: its result is durable before the promise resolves, and a later attempt gets the result back instead of
   * repeating the step. Each step of a handler has its own name.
   *
   * The value has been through JSON, the first time too: a `Date` comes back as a string, `undefined` as `null`.
   */
  step<T>(name: string, work: () => T | Promise<T>): Promise<T>;
  /**
   * Runs an optional step: if it throws, the task gets a warning, and the promise resolves to `null`. A later attempt does not
   * repeat it.
   */
  stepOrWarn<T>(name: string, work: () => T | Promise<T>): Promise<T | null>;
}

export interface TaskErrorOptions {
  /** The step that failed; set automatically inside `ctx.step`. */
  step?: string;
  /** What might help. */
  hint?: string;
  /** Defaults to the stack. */
  details?: string;
  cause?: unknown;
}

/** An error with a class that decides what follows. Throw one of its subclasses. */
export class TaskError extends Error {
  /** `retryAfterMs`: the least delay before the next attempt, in milliseconds. */
  constructor(message: string, options?: TaskErrorOptions & { retryAfterMs?: number });
  readonly retryAfterMs?: number;
  readonly step?: string;
  readonly hint?: string;
  readonly details?: string;
}

/** May succeed next time: retried with backoff, while attempts are left. */
export class Transient extends TaskError {}

/** Part of the work is done, and its steps are kept; the rest may succeed next time. */
export class PartialError extends TaskError {}

/** @deprecated Use `PartialError`. A value and not a type, so that it does not shadow `Partial<T>`. */
export const Partial: typeof PartialError;

/** Will never succeed: invalid input, not found, forbidden. A dead letter at once. */
export class Permanent extends TaskError {}

/** Too many requests. The task waits `afterMs` milliseconds, or until `until`; no attempt is used up. */
export class RateLimited extends TaskError {
  constructor(message: string, options: TaskErrorOptions & ({ afterMs: number } | { until: Date }));
}

/**
 * The allowance of the account is used up. Nothing that uses the account of this queue starts for `afterMs` milliseconds, or until
 * `until`; no attempt is used up.
 */
export class UsageLimit extends RateLimited {}

/** No task of this queue can succeed now: bad credentials, no quota. The queue pauses with the reason; no attempt is used up. */
export class QueueStop extends TaskError {}

/** The attempt must stop. Do not catch it. */
export class Stopped extends Error {}

/** The task was cancelled, its time is up, or the node drains. The message has the reason. */
export class Cancelled extends Stopped {}

/** The lease is lost: another node has the task, and nothing that this attempt sends counts. */
export class Lost extends Stopped {}

/// <reference lib="esnext.disposable" />

/**
 * Client for Ostler's HTTP API. What comes back is the JSON of the API, which is that of the command line with `--json`; options
 * with underscores are fields of the API.
 */

import type { Duration, Json } from "./index.js";

export type { Duration, Json };

export interface ClientOptions {
  /** `http://HOST:PORT`, with a path if the node has one, or `unix:/path/api.sock`. Else OSTLER_SERVER, else http://127.0.0.1:7700. */
  url?: string;
  /** Else the one in `tokenFile`, else OSTLER_TOKEN. */
  token?: string;
  /** The file that a node makes beside its store: the token of `owner` is used. */
  tokenFile?: string;
  /** For one answer; 30 seconds unless it is given. Waits take as long as they are told to. */
  timeout?: Duration;
}

/** Every call takes a signal; what it rejects with is the reason of the signal. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** What a node shows of its system. */
export interface LiveState {
  stats: any;
  queues: any[];
  nodes: any[];
  workers: any[];
}

/** For a task that is named by `key:K`: the queue of the key. */
export interface KeyOptions extends CallOptions {
  queue?: string;
}

export interface WaitOptions extends CallOptions {
  /** How long to wait in all; an hour unless it is given. After that the wait rejects with `NotFinished`. */
  timeout?: Duration;
}

export interface ProgressOptions<View> extends WaitOptions {
  /** Is called with each look. */
  onProgress?: (seen: View) => void;
}

export type State = "queued" | "claimed" | "running" | "completed" | "failed" | "cancelled";

/** The fields of `ostler submit`. */
export interface TaskFields {
  /** From -100 to 100; each point is a minute's head start. */
  priority?: number;
  /** Run after this delay, such as "5m". */
  in?: string;
  /** Run at this time. */
  at?: string;
  /** A ULID that the caller makes: submitting it again changes nothing. */
  id?: string;
  /** A unique key: while another task in the queue has it, nothing is enqueued. */
  key?: string;
  key_for?: string;
  key_until?: "removed" | "end";
  if_taken?: "keep" | "replace" | "reject";
  /** The timeout of one attempt, such as "5m". */
  timeout?: string;
  attempts?: number;
  folder?: string;
  /** The W3C trace context, for the programs that run it. */
  traceparent?: string;
  /** Cancel the task instead of starting it after this time. */
  not_after?: string;
  /** Start no attempt later than this from now. */
  deadline?: string;
  limit_key?: string;
  cost?: number;
  /** Run after these tasks: ids, or `key:K`. */
  after?: string[];
  if_failed?: "cancel" | "run" | "wait";
}

export interface NewTask extends TaskFields {
  queue: string;
  kind: string;
  payload?: unknown;
}

/** A request under the same key is made once, also after a restart; a client makes a key for each call otherwise. */
export interface IdempotencyOptions extends CallOptions {
  idempotencyKey?: string;
}

export type SubmitResult = "created" | "existing" | "replaced" | "rejected" | "queue_full" | "id_taken" | "no_such_task";

export interface Submitted {
  id: string;
  result: SubmitResult;
}

/** One of many tasks; without an id if nothing was enqueued. */
export interface SubmittedOne {
  id: string | null;
  result: SubmitResult;
}

export interface TaskErrorView {
  class: string;
  message: string;
  hint?: string | null;
  details?: string | null;
  step?: string | null;
  exit_code?: number | null;
}

export interface Waited {
  id: string;
  state: State;
  output?: any;
  error?: TaskErrorView | null;
}

/** A task in a list. */
export interface TaskSummary {
  id: string;
  queue: string;
  kind: string;
  state: State;
  priority: number;
  key?: string | null;
  created_at: string;
  run_at?: string | null;
  runs: number;
  failures: number;
  error?: TaskErrorView | null;
  waits_for?: string | null;
  /** What the running attempt has reported. */
  progress?: { done: number; total?: number | null; note?: string | null } | null;
}

/** A whole task; docs/openapi.json has all fields. */
export interface Task extends TaskSummary {
  payload: any;
  output?: any;
  attempts: { number: number; state: string; started_at: string; finished_at?: string | null; [field: string]: any }[];
  steps: Record<string, any>;
  [field: string]: any;
}

export interface DeadLetter extends TaskSummary {
  [field: string]: any;
}

/** What happened to a task, numbered from 1. Each kind has fields of its own. */
export interface TaskEvent {
  number: number;
  at: string;
  kind: string;
  data: string;
  token: number;
  level?: string | null;
  [field: string]: any;
}

export interface Filter {
  state?: State;
  queue?: string;
  kind?: string;
  /** With this text in the payload, the key or the error. */
  text?: string;
  /** With this value in the payload, such as `payload.tenant=acme`. */
  where?: string;
  class?: string;
  failed_since?: string;
  failed_until?: string;
  ended_since?: string;
  ended_until?: string;
  stale?: boolean;
}

export interface ListOptions extends Filter, CallOptions {
  /** Tasks of one request, up to 1000. An iterator goes on to the end. */
  limit?: number;
  cursor?: string;
  oldest?: boolean;
}

export interface ActionResult {
  id: string;
  result: string;
  /** The copy that was enqueued. */
  copy?: string | null;
  [field: string]: any;
}

export type BulkActionName = "cancel" | "retry" | "replay" | "drop";

export interface BulkPreview {
  action: string;
  tasks: number;
  cutoff: string;
}

export interface BulkProgress {
  id: string;
  action: string;
  cutoff: string;
  state: "running" | "done" | "failed" | "stopped";
  done: number;
  results: Record<string, number>;
  error?: string | null;
}

export interface TaskCounts {
  queued: number;
  claimed: number;
  running: number;
  completed: number;
  failed: number;
  cancelled: number;
}

export interface JobFields {
  name?: string;
  kind?: string;
  /** What the payload of each item has besides, such as a model. */
  options?: Record<string, unknown>;
  /** How many items run before the others are approved. */
  pilot?: number;
  concurrency?: number;
  attempts?: number;
  timeout?: string;
  /** At most this much money, such as "$5". */
  max_cost?: string;
  folder?: string;
}

export interface Job {
  id: string;
  name: string;
  state: "running" | "unfinished" | "paused" | "completed" | "failed" | "cancelled";
  items: number;
  tasks: TaskCounts;
  pilot?: number | null;
  cost_usd?: number | null;
  [field: string]: any;
}

export interface JobAction {
  id: string;
  done: string;
  tasks: number;
}

export interface JobResult {
  number: number;
  item: string;
  task: string;
  state: State;
  output?: string | null;
  error?: string | null;
  exit_code?: number | null;
  files: string[];
  runs: number;
  cost_usd?: number | null;
  started_at?: string | null;
  duration_ms?: number | null;
  stderr?: string | null;
  command?: string | null;
  [field: string]: any;
}

/** Jobs, by id or name. */
export interface Jobs {
  /** Creates a job from texts or objects, for a pool of a running node. */
  create(pool: string, items: Iterable<unknown>, options?: JobFields & IdempotencyOptions): Promise<JobAction>;
  /** The newest jobs; `before`: of those older than this id, as that of the last job of a page. */
  list(options?: { limit?: number; before?: string } & CallOptions): Promise<Job[]>;
  show(job: string, options?: CallOptions): Promise<Job>;
  /** Lets the items that wait for the pilot run. */
  approve(job: string, options?: CallOptions): Promise<JobAction>;
  /** Cancels the items that wait for the pilot. */
  reject(job: string, options?: CallOptions): Promise<JobAction>;
  pause(job: string, options?: CallOptions): Promise<JobAction>;
  resume(job: string, options?: { max_cost?: string } & CallOptions): Promise<JobAction>;
  cancel(job: string, options?: CallOptions): Promise<JobAction>;
  retryFailed(job: string, options?: { from_scratch?: boolean } & CallOptions): Promise<JobAction>;
  setConcurrency(job: string, items: number, options?: CallOptions): Promise<JobAction>;
  add(job: string, items: Iterable<unknown>, options?: CallOptions): Promise<JobAction>;
  remove(job: string, options?: CallOptions): Promise<JobAction>;
  /** The results of all items, in their order. */
  results(job: string, options?: CallOptions): AsyncGenerator<JobResult, void, undefined>;
  /** Waits until no item is left to run. A pilot that is not approved is waited for. */
  wait(job: string, options?: ProgressOptions<Job>): Promise<Job>;
  /** Waits until as many items have ended as the pilot has. */
  waitPilot(job: string, options?: ProgressOptions<Job>): Promise<Job>;
}

/** A program needs one: it keeps its connections, and can be used for many calls at once. */
export class Client {
  constructor(options?: ClientOptions);

  readonly url: string;
  readonly jobs: Jobs;

  /** Closes the connections; calls under way reject. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;

  /** Any operation of the API. A path without a slash in front is below `/api/v1/`. */
  request<Answer = any>(
    method: string,
    path: string,
    options?: { query?: Record<string, string | number | boolean | null | undefined>; body?: unknown } & IdempotencyOptions,
  ): Promise<Answer>;

  /** Submits a task. If the answer is lost the request is sent again, and makes one task. */
  submit(queue: string, kind: string, payload?: unknown, options?: TaskFields & IdempotencyOptions): Promise<Submitted>;
  /**
   * Submits many tasks in chunks, each of which is one transaction and is made once. If a chunk is refused, `submitted` of the error
   * has the tasks of the chunks before.
   */
  submitMany(tasks: Iterable<NewTask> | AsyncIterable<NewTask>, options?: IdempotencyOptions): Promise<SubmittedOne[]>;
  /** Gives a prompt to a pool of agents. One more run with the same `id`, any text, is the same task. */
  run(
    prompt: string,
    options: { pool: string; id?: string; model?: string; max_iterations?: number } & Omit<TaskFields, "id" | "key"> & IdempotencyOptions,
  ): Promise<Submitted>;

  /** The output of a task, after at most `wait`. Rejects with `TaskFailed`, `TaskCancelled` or `NotFinished`. */
  result<Output = any>(id: string, options?: { wait?: Duration } & KeyOptions): Promise<Output>;
  /** Waits for the end of a task, whatever that is. */
  wait(id: string, options?: WaitOptions & KeyOptions): Promise<Waited>;
  /** Waits for all of them, and returns their ends in the order of the ids. */
  waitMany(ids: Iterable<string>, options?: WaitOptions & KeyOptions): Promise<Waited[]>;
  /** Tasks as they end, in any order, each once. */
  asCompleted(ids: Iterable<string>, options?: WaitOptions & KeyOptions): AsyncGenerator<Waited, void, undefined>;
  /** The events of a task as they come, each once, up to its end. A cut connection, or a restart of the node, is not noticed. */
  follow(id: string, options?: { after?: number; raw?: boolean } & KeyOptions): AsyncGenerator<TaskEvent, void, undefined>;
  /** One page of the events so far. */
  taskEvents(
    id: string,
    options?: { after?: number; raw?: boolean } & KeyOptions,
  ): Promise<{ events: TaskEvent[]; after: number | null }>;

  task(id: string, options?: KeyOptions): Promise<Task>;
  /** All tasks that match, from all pages. */
  tasks(filters?: ListOptions): AsyncGenerator<TaskSummary, void, undefined>;
  /** One page. An empty page with a cursor is not the end. */
  taskPage(filters?: ListOptions): Promise<{ tasks: TaskSummary[]; cursor: string | null }>;
  dead(filters?: Omit<ListOptions, "state">): AsyncGenerator<DeadLetter, void, undefined>;
  deadLetter(id: string, options?: KeyOptions): Promise<DeadLetter>;
  stats(options?: KeyOptions): Promise<any>;
  /** Queues; with `all` those of jobs too. */
  queues(options?: { all?: boolean } & CallOptions): Promise<any[]>;
  nodes(options?: CallOptions): Promise<any[]>;
  workers(options?: CallOptions): Promise<any[]>;
  /**
   * The overview as it changes, without an end: each time whole and the newest. After a cut, or a restart of the node, it goes on with
   * what is true then.
   */
  live(options?: CallOptions): AsyncGenerator<LiveState, void, undefined>;
  /** What is wrong, with advice. */
  doctor(options?: CallOptions): Promise<{ severity: string; code: string; sentence: string; advice: string }[]>;

  /** Cancels a waiting task, and asks a running one to stop. */
  cancel(id: string, options?: KeyOptions): Promise<ActionResult>;
  /** Requeues a failed or cancelled task, makes a waiting one due, or with `again` enqueues a copy. */
  retry(id: string, options?: { from_scratch?: boolean; again?: boolean; payload?: unknown } & KeyOptions): Promise<ActionResult>;
  /** Runs a dead letter again. */
  replay(id: string, options?: { from_scratch?: boolean; payload?: unknown } & KeyOptions): Promise<ActionResult>;
  /** Removes a dead letter for good. */
  drop(id: string, options?: KeyOptions): Promise<ActionResult>;
  /** Starts nothing of a queue until it is resumed. */
  pause(queue: string, options?: { reason?: string } & CallOptions): Promise<{ queue: string; paused?: string | null }>;
  resume(queue: string, options?: CallOptions): Promise<{ queue: string; paused?: string | null }>;

  /** Counts the tasks that match, and names the cut-off for the action. */
  act(action: BulkActionName, filter: Filter, options: { preview: true } & CallOptions): Promise<BulkPreview>;
  /** Acts on all tasks that matched at the cut-off of a preview. */
  act(
    action: BulkActionName,
    filter: Filter,
    options: { cutoff: string; from_scratch?: boolean } & CallOptions,
  ): Promise<BulkProgress>;
  /** The actions that this node knows. */
  actions(options?: CallOptions): Promise<BulkProgress[]>;
  action(id: string, options?: CallOptions): Promise<BulkProgress>;
  /** Stops an action between two batches. */
  stopAction(id: string, options?: CallOptions): Promise<BulkProgress>;
  waitAction(id: string, options?: ProgressOptions<BulkProgress>): Promise<BulkProgress>;
}

/** What a client throws. `code` is for programs and never changes. */
export class OstlerError extends Error {
  readonly code: string;
  /** Of the answer; undefined if there was none. */
  readonly status: number | undefined;
  readonly details: any;
}

/** A value is wrong; `details.field` names it. */
export class Invalid extends OstlerError {}

/** There is no token, or a wrong one. */
export class Unauthorized extends OstlerError {}

/** The token may only look. */
export class Forbidden extends OstlerError {}

export class NotFound extends OstlerError {}

/** The state of things does not allow it. */
export class Conflict extends OstlerError {}

/** The queue has as many waiting tasks as it may have. */
export class QueueFull extends OstlerError {}

/** Nothing answers there, or the connection was lost. */
export class Unreachable extends OstlerError {}

/** `details` is the error of the task. */
export class TaskFailed extends OstlerError {
  readonly task: Waited;
  /** Such as "permanent" or "timeout". */
  readonly taskClass: string | null;
}

export class TaskCancelled extends OstlerError {
  readonly task: Waited;
  readonly taskClass: string | null;
}

/** What was waited for has not ended in time: a task, a job, or an action on many tasks. */
export class NotFinished extends OstlerError {
  readonly task: any;
}

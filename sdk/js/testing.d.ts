import type { Client } from "./client.js";

/** A running node, its client and its folder, in which the config and the store are. */
export class RunningNode {
  readonly client: Client;
  readonly folder: string;
  readonly pid: number;
  readonly url: string;
  /** What the node has written so far. */
  readonly log: string;
  /** Stops the node; for one that was started with a test, the end of the test does it. */
  close(): Promise<void>;
}

export interface NodeOptions {
  /** For the config, the store and the log; without it, a temporary one. */
  folder?: string;
  /** The program; `ostler` on the PATH, or as `OSTLER_PROGRAM` says. */
  program?: string;
  /** Further variables of the node; a pool passes on those of its `keep_env`. */
  env?: Record<string, string>;
}

/**
 * Starts a node with this config, and stops it when the test ends. `t` is the context of a test of `node:test`, or `undefined`. The
 * commands of its pools start in the folder of the caller.
 */
export function startNode(
  t: { after(work: () => Promise<void>): void } | undefined,
  config: string,
  options?: NodeOptions,
): Promise<RunningNode>;

// Types of the helper for tests, as a program uses it.

import { RunningNode, startNode } from "ostler/testing";

const node: RunningNode = await startNode(undefined, "", { folder: ".", env: { A: "b" } });
const id: string = (await node.client.submit("texts", "count")).id;
// @ts-expect-error A config is a text.
await startNode(undefined, { pool: id });
await node.close();

// A no-op worker, for the round-trip benchmark.

import { worker } from "../../../sdk/js/index.js";

worker.task("noop", (payload) => payload);
worker.run();

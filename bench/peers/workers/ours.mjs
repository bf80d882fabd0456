// A worker that does nothing, for the benchmark of round trips.

import { worker } from "../../../sdk/js/index.js";

worker.task("noop", (payload) => payload);
worker.run();

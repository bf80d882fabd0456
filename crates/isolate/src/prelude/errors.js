// Thrown values as text. Getters and proxies of the script run here, under its limits.
(function ({ state, part }) {
  const { text, record, uncurry } = part("tools");
  const { stringify } = JSON;
  const { Error, String } = globalThis;
  const slice = uncurry(String.prototype.slice);
  const { floor, min } = Math;
  const MAX_TEXT = 16384;
  const MAX_DELAY = 9007199254740991;

  // Any value as text, as `console` prints it.
  const inspect = (value) => {
    if (typeof value === "string") return value;
    try {
      if (value instanceof Error) return String(value.stack ? `${value}\n${value.stack}` : value);
      if (typeof value === "object" && value !== null) return stringify(value) ?? String(value);
      return typeof value === "symbol" ? "a symbol" : String(value);
    } catch {
      return "[not printable]";
    }
  };
  const short = (value) => text(slice(value, 0, MAX_TEXT));
  const describe = (value) => {
    const described = record({ name: "", message: "", stack: "" });
    try {
      if (value !== null && (typeof value === "object" || typeof value === "function")) {
        const { name, message, stack } = value;
        if (typeof name === "string") described.name = short(name);
        if (typeof message === "string") described.message = short(message);
        if (typeof stack === "string") described.stack = short(stack);
        // How a function classes its error, in the words of the SDK.
        const { retryAfterMs, hint } = value;
        const step = value.step ?? (state.failed?.error === value ? state.failed.step : undefined);
        const kind = value.class ?? value.constructor?.className;
        const labels = record({});
        if (typeof kind === "string") labels.class = short(kind);
        if (typeof retryAfterMs === "number" && retryAfterMs >= 0) labels.retry_after_ms = min(floor(retryAfterMs), MAX_DELAY);
        if (typeof step === "string") labels.step = short(step);
        if (typeof hint === "string") labels.hint = short(hint);
        described.labels = labels;
      }
      if (described.name === "" && described.message === "") described.message = short(inspect(value));
    } catch {
      described.name = "Error";
      described.message = "an error that cannot be described";
    }
    return stringify(described);
  };
  return record({ describe, inspect });
})

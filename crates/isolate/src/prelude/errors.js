// Thrown values as text. Getters and proxies of the script run here, under its limits.
(function ({ part }) {
  const { text, record, uncurry } = part("tools");
  const { stringify } = JSON;
  const { Error, String } = globalThis;
  const slice = uncurry(String.prototype.slice);
  const MAX_TEXT = 16384;

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

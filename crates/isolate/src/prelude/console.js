// console: lines for the log of the task.
(function ({ host, part }) {
  const { text, record, uncurry } = part("tools");
  const { inspect } = part("errors");
  const slice = uncurry(String.prototype.slice);
  // One more than the host keeps, so that it marks the cut.
  const MAX_LINE = 16385;

  const print = (level, values) => {
    let line = "";
    for (let i = 0; i < values.length; i++) line += (i === 0 ? "" : " ") + inspect(values[i]);
    host("log", text(level + slice(line, 0, MAX_LINE)));
  };
  const at = (level) => (...values) => print(level, values);
  const console = { debug: at("d"), log: at("i"), info: at("i"), warn: at("w"), error: at("e"), trace: at("d") };
  return record({ console, print });
})

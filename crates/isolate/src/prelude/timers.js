// Timers. The host knows when one is due; which function it calls is known here alone.
(function ({ host, state, part }) {
  const { record, uncurry } = part("tools");
  const { TypeError, Number, String, Map } = globalThis;
  const { apply } = Reflect;
  const get = uncurry(Map.prototype.get);
  const set = uncurry(Map.prototype.set);
  const remove = uncurry(Map.prototype.delete);
  const MAX_DELAY = 2147483647;

  // The timers of the current call, by the id that the script knows.
  let timers = new Map();
  // An interval gets a new timer each time, and keeps its first id for the script: the first id by the current one.
  let first = new Map();
  let run = state.run;
  const forget = () => {
    // The top level of a module and its first call belong together.
    if (run !== state.run && state.run > 1) {
      timers = new Map();
      first = new Map();
    }
    run = state.run;
  };

  const arm = (callback, delay, rest, repeats) => {
    if (typeof callback !== "function") throw new TypeError("a timer needs a function");
    forget();
    let milliseconds = Number(delay);
    if (!(milliseconds >= 1)) milliseconds = repeats ? 1 : 0;
    if (milliseconds > MAX_DELAY) milliseconds = MAX_DELAY;
    milliseconds -= milliseconds % 1;
    const id = Number(host("timer", String(milliseconds)));
    set(timers, id, record({ callback, rest, id, interval: repeats ? milliseconds : undefined }));
    return id;
  };
  const disarm = (id) => {
    forget();
    const timer = typeof id === "number" ? get(timers, id) : undefined;
    if (timer === undefined) return;
    remove(timers, id);
    remove(first, timer.id);
    host("clear", String(timer.id));
  };
  const fire = (id) => {
    forget();
    const key = get(first, id) ?? id;
    const timer = get(timers, key);
    if (timer === undefined) return;
    remove(first, id);
    if (timer.interval === undefined) remove(timers, key);
    else {
      timer.id = Number(host("timer", String(timer.interval)));
      set(first, timer.id, key);
    }
    apply(timer.callback, undefined, timer.rest);
  };
  return record({
    setTimeout: function setTimeout(callback, delay, ...rest) { return arm(callback, delay, rest, false); },
    setInterval: function setInterval(callback, delay, ...rest) { return arm(callback, delay, rest, true); },
    clearTimeout: function clearTimeout(id) { disarm(id); },
    clearInterval: function clearInterval(id) { disarm(id); },
    arm,
    fire,
  });
})

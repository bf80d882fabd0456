// Calls that the host answers later, as promises.
(function ({ host, state, part }) {
  const { record, uncurry, bytesOf } = part("tools");
  const { Promise, Map, Number, Error } = globalThis;
  const { stringify, parse } = JSON;
  const get = uncurry(Map.prototype.get);
  const set = uncurry(Map.prototype.set);
  const remove = uncurry(Map.prototype.delete);
  const slice = uncurry(String.prototype.slice);

  let waiting = new Map();
  let run = state.run;
  const ask = (question) =>
    new Promise((resolve, reject) => {
      // The host numbers the calls of each run from one.
      if (run !== state.run && state.run > 1) waiting = new Map();
      run = state.run;
      set(waiting, Number(host("ask", stringify(question))), record({ resolve, reject }));
    });
  const answered = (call, answer) => {
    const caller = run === state.run || state.run === 1 ? get(waiting, call) : undefined;
    if (caller === undefined) return;
    remove(waiting, call);
    const sort = answer[0];
    const rest = slice(answer, 1);
    if (sort === "e") caller.reject(new Error(rest));
    else caller.resolve(sort === "j" ? parse(rest) : sort === "b" ? bytesOf(rest) : undefined);
  };
  return record({ ask, answered });
})

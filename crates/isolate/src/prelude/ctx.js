// `ctx`: the attempt that a function runs. It refuses to act when its call is over.
(function ({ host, state, part }) {
  const { record, text, viewOf, binaryOf, uncurry } = part("tools");
  const { stringify, parse } = JSON;
  const { assign } = Object;
  const { TypeError, Error, Number, Set } = globalThis;
  const has = uncurry(Set.prototype.has);
  const add = uncurry(Set.prototype.add);

  const context = (info, run) => {
    const check = () => {
      if (run !== state.run) throw new Error("the attempt of this ctx is over");
    };
    const ask = (question) => {
      check();
      return part("calls").ask(record(question));
    };
    const count = (value) => (value === undefined || value === null ? null : Number(value));
    const begun = new Set();
    let controller;
    return record({
      task: info.task,
      queue: info.queue,
      kind: info.kind,
      attempt: info.attempt,
      deadline: info.deadline,
      get signal() {
        if (controller === undefined) {
          controller = new (part("abort").AbortController)();
          if (run === state.run) state.abort = () => controller.abort();
          if (run === state.run && state.cancelled) controller.abort();
        }
        return controller.signal;
      },
      async step(name, work) {
        if (typeof name !== "string" || name === "") throw new TypeError('name the step: ctx.step("fetched", () => …)');
        if (typeof work !== "function") throw new TypeError(`the step "${name}" needs a function`);
        if (has(begun, name)) {
          const twice = new Error(`the step "${name}" is done twice in one attempt; each has its own name`);
          throw assign(twice, record({ class: "permanent", step: name }));
        }
        add(begun, name);
        const saved = await ask({ ask: "begin_step", name: text(name) });
        if (saved !== undefined) return saved;
        let value;
        try {
          value = await work();
        } catch (error) {
          // The innermost step that threw it.
          if (run === state.run && state.failed?.error !== error) state.failed = record({ error, step: name });
          throw error;
        }
        const json = stringify(value) ?? "null";
        await ask({ ask: "save_step", name: text(name), value: json });
        // What a later attempt would get.
        return parse(json);
      },
      progress(done, total, note) {
        check();
        host("progress", stringify(record({ done: count(done), total: count(total), note: note === undefined ? null : text(note) })));
      },
      log(...values) {
        check();
        part("console").print("i", values);
      },
      async file(path, data) {
        const bytes = typeof data === "string" ? new (part("text").TextEncoder)().encode(data) : viewOf(data);
        await ask({ ask: "write_file", path: text(path), bytes: binaryOf(bytes) });
      },
      secret(name) {
        check();
        return host("secret", text(name));
      },
    });
  };
  return record({ context });
})

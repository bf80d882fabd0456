// structuredClone, for the values of the language. Functions, symbols and objects of other classes are refused.
(function ({ part }) {
  const { record } = part("tools");
  const { Error, Map, Set, Date, RegExp, ArrayBuffer, Array, Object, Boolean, Number, String, BigInt, DataView } = globalThis;
  const { keys, getPrototypeOf, defineProperty } = Object;
  const { toString } = Object.prototype;
  const { apply } = Reflect;
  const ERRORS = record({
    Error, EvalError: globalThis.EvalError, RangeError: globalThis.RangeError, ReferenceError: globalThis.ReferenceError,
    SyntaxError: globalThis.SyntaxError, TypeError: globalThis.TypeError, URIError: globalThis.URIError,
  });
  const refused = (what) => {
    const error = new Error(`${what} could not be cloned`);
    error.name = "DataCloneError";
    return error;
  };
  const put = (target, key, value) => defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });

  const copy = (value, seen) => {
    if (typeof value === "function" || typeof value === "symbol") throw refused(`a ${typeof value}`);
    if (typeof value !== "object" || value === null) return value;
    const known = seen.get(value);
    if (known !== undefined) return known;
    const keep = (made) => {
      seen.set(value, made);
      return made;
    };
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof Boolean || value instanceof Number || value instanceof String || value instanceof BigInt)
      return keep(Object(value.valueOf()));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (ArrayBuffer.isView(value)) {
      const buffer = copy(value.buffer, seen);
      const length = value instanceof DataView ? value.byteLength : value.length;
      return keep(new (getPrototypeOf(value).constructor)(buffer, value.byteOffset, length));
    }
    if (value instanceof Map) {
      const made = keep(new Map());
      for (const [key, entry] of [...value]) made.set(copy(key, seen), copy(entry, seen));
      return made;
    }
    if (value instanceof Set) {
      const made = keep(new Set());
      for (const entry of [...value]) made.add(copy(entry, seen));
      return made;
    }
    if (value instanceof Error) {
      const made = keep(new (ERRORS[value.name] ?? Error)(value.message));
      put(made, "stack", value.stack);
      if ("cause" in value) put(made, "cause", copy(value.cause, seen));
      return made;
    }
    const isArray = Array.isArray(value);
    const tag = apply(toString, value, []);
    if (!isArray && tag !== "[object Object]") throw refused(tag);
    const made = keep(isArray ? new Array(value.length) : {});
    for (const key of keys(value)) put(made, key, copy(value[key], seen));
    return made;
  };
  const structuredClone = function structuredClone(value) {
    return copy(value, new Map());
  };
  return record({ structuredClone });
})

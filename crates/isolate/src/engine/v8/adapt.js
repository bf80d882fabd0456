// What V8 needs before the core: it has no more globals than QuickJS, and no memory that is not counted.
(function () {
  "use strict";
  const { defineProperty } = Object;
  const { construct } = Reflect;
  const { ArrayBuffer } = globalThis;
  const hide = (object, key, value) =>
    defineProperty(object, key, { __proto__: null, value, writable: true, enumerable: false, configurable: true });

  // V8 would allocate resizable buffers past the allocator that counts them. Options of the constructor are ignored.
  const fixed = new Proxy(ArrayBuffer, {
    __proto__: null,
    construct: (target, list, newTarget) => construct(target, [list[0]], newTarget),
  });
  hide(ArrayBuffer.prototype, "constructor", fixed);
  hide(globalThis, "ArrayBuffer", fixed);

  // Locales need data that an isolate does not have: V8 aborts the process without them. There is one locale, as in QuickJS.
  delete globalThis.Intl;
  const { apply } = Reflect;
  const { String, Number, BigInt, Date, TypeError } = globalThis;
  const uncurry = (method) => (receiver, ...list) => apply(method, receiver, list);
  const methods = (prototype, replaced) => {
    for (const name of Object.keys(replaced)) hide(prototype, name, replaced[name]);
  };
  const text = (receiver) => {
    if (receiver === null || receiver === undefined) throw new TypeError("a text is needed");
    return String(receiver);
  };
  const normalize = uncurry(String.prototype.normalize);
  const upper = uncurry(String.prototype.toUpperCase);
  const lower = uncurry(String.prototype.toLowerCase);
  methods(String.prototype, {
    localeCompare(that) {
      const [a, b] = [normalize(text(this)), normalize(String(that))];
      return a < b ? -1 : a > b ? 1 : 0;
    },
    toLocaleUpperCase() {
      return upper(text(this));
    },
    toLocaleLowerCase() {
      return lower(text(this));
    },
  });
  const numberText = uncurry(Number.prototype.toString);
  const integerText = uncurry(BigInt.prototype.toString);
  methods(Number.prototype, {
    toLocaleString() {
      return numberText(this);
    },
  });
  methods(BigInt.prototype, {
    toLocaleString() {
      return integerText(this);
    },
  });
  const time = uncurry(Date.prototype.getTime);
  const parts = {};
  for (const name of ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds"]) parts[name] = uncurry(Date.prototype[`get${name}`]);
  const padded = (number, size) => {
    let digits = numberText(number < 0 ? -number : number);
    while (digits.length < size) digits = "0" + digits;
    return number < 0 ? "-" + digits : digits;
  };
  const dateText = (date) =>
    `${padded(parts.Month(date) + 1, 2)}/${padded(parts.Date(date), 2)}/${padded(parts.FullYear(date), 4)}`;
  const timeText = (date) => {
    const hours = parts.Hours(date);
    return `${padded(((hours + 11) % 12) + 1, 2)}:${padded(parts.Minutes(date), 2)}:${padded(parts.Seconds(date), 2)} ${hours < 12 ? "AM" : "PM"}`;
  };
  const valid = (date, print) => (time(date) === time(date) ? print(date) : "Invalid Date");
  methods(Date.prototype, {
    toLocaleString() {
      return valid(this, (date) => `${dateText(date)}, ${timeText(date)}`);
    },
    toLocaleDateString() {
      return valid(this, dateText);
    },
    toLocaleTimeString() {
      return valid(this, timeText);
    },
  });
})

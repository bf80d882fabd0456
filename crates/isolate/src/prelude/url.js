// URL and URLSearchParams. The host parses and sets the parts of a URL.
(function ({ host, part }) {
  const { record, text, uncurry } = part("tools");
  const { stringify, parse } = JSON;
  const { TypeError, String, Symbol, Array, encodeURIComponent, decodeURIComponent } = globalThis;
  const replaceAll = uncurry(String.prototype.replaceAll);
  const split = uncurry(String.prototype.split);
  const indexOf = uncurry(String.prototype.indexOf);
  const slice = uncurry(String.prototype.slice);
  const sort = uncurry(Array.prototype.sort);

  const ask = (url, base, name, value) =>
    parse(host("url", stringify(record({ url, base: base ?? null, set: name === undefined ? null : [name, value] }))));

  // application/x-www-form-urlencoded
  const encode = (value) => {
    let out = encodeURIComponent(value);
    for (const [from, to] of [["!", "%21"], ["'", "%27"], ["(", "%28"], [")", "%29"], ["~", "%7E"], ["%20", "+"]]) out = replaceAll(out, from, to);
    return out;
  };
  const { TextDecoder } = part("text");
  const decode = (value) => {
    const spaced = replaceAll(value, "+", " ");
    try {
      return decodeURIComponent(spaced);
    } catch {
      // A percent sign that begins no sequence stays; bytes that are not UTF-8 are replaced.
      const bytes = [];
      const raw = unescape(replaceAll(encodeURIComponent(spaced), "%25", "%"));
      for (let i = 0; i < raw.length; i++) bytes.push(raw.charCodeAt(i));
      return new TextDecoder().decode(new Uint8Array(bytes));
    }
  };

  class URLSearchParams {
    #list = [];
    #changed = () => {};

    constructor(init = "") {
      if (typeof init === "object" && init !== null) {
        if (typeof init[Symbol.iterator] === "function") {
          for (const pair of init) {
            const [name, value, ...more] = pair;
            if (value === undefined || more.length > 0) throw new TypeError("a parameter is a name and a value");
            this.#list.push([text(name), text(value)]);
          }
        } else for (const name of Object.keys(init)) this.#list.push([text(name), text(init[name])]);
      } else this.#read(text(init));
    }
    #read(query) {
      this.#list = [];
      for (const part of split(query[0] === "?" ? slice(query, 1) : query, "&")) {
        if (part === "") continue;
        const at = indexOf(part, "=");
        this.#list.push(at < 0 ? [decode(part), ""] : [decode(slice(part, 0, at)), decode(slice(part, at + 1))]);
      }
    }
    static bind(params, query, changed) {
      params.#read(query);
      params.#changed = changed;
    }
    get size() {
      return this.#list.length;
    }
    append(name, value) {
      this.#list.push([text(name), text(value)]);
      this.#changed();
    }
    delete(name, value) {
      this.#list = this.#list.filter((pair) => pair[0] !== text(name) || (value !== undefined && pair[1] !== text(value)));
      this.#changed();
    }
    get(name) {
      return this.#list.find((pair) => pair[0] === text(name))?.[1] ?? null;
    }
    getAll(name) {
      return this.#list.filter((pair) => pair[0] === text(name)).map((pair) => pair[1]);
    }
    has(name, value) {
      return this.#list.some((pair) => pair[0] === text(name) && (value === undefined || pair[1] === text(value)));
    }
    set(name, value) {
      const at = this.#list.findIndex((pair) => pair[0] === text(name));
      if (at < 0) this.#list.push([text(name), text(value)]);
      else {
        this.#list[at][1] = text(value);
        this.#list = this.#list.filter((pair, index) => index <= at || pair[0] !== text(name));
      }
      this.#changed();
    }
    sort() {
      sort(this.#list, (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
      this.#changed();
    }
    forEach(callback, receiver) {
      for (const [name, value] of this) callback.call(receiver, value, name, this);
    }
    *entries() {
      for (let i = 0; i < this.#list.length; i++) yield [this.#list[i][0], this.#list[i][1]];
    }
    *keys() {
      for (const [name] of this) yield name;
    }
    *values() {
      for (const [, value] of this) yield value;
    }
    [Symbol.iterator]() {
      return this.entries();
    }
    toString() {
      return this.#list.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
    }
  }
  const { bind } = URLSearchParams;
  delete URLSearchParams.bind;

  class URL {
    #parts;
    #params;

    constructor(url, base) {
      this.#parts = ask(text(url), base === undefined ? null : text(base));
    }
    static canParse(url, base) {
      return URL.parse(url, base) !== null;
    }
    static parse(url, base) {
      try {
        return new URL(url, base);
      } catch {
        return null;
      }
    }
    get searchParams() {
      if (this.#params === undefined) {
        this.#params = new URLSearchParams();
        this.#bind();
      }
      return this.#params;
    }
    #bind() {
      bind(this.#params, this.#parts.search, () => {
        this.#parts = ask(this.#parts.href, null, "search", this.#params.toString());
      });
    }
    #set(part, value) {
      this.#parts = ask(this.#parts.href, null, part, text(value));
      if (this.#params !== undefined && (part === "href" || part === "search")) this.#bind();
    }
    get origin() {
      return this.#parts.origin;
    }
    toString() {
      return this.#parts.href;
    }
    toJSON() {
      return this.#parts.href;
    }
    static of(url, part) {
      return url.#parts[part];
    }
    static put(url, part, value) {
      url.#set(part, value);
    }
  }
  const { of, put } = URL;
  delete URL.of;
  delete URL.put;
  for (const part of ["href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"]) {
    Object.defineProperty(URL.prototype, part, {
      get() {
        return of(this, part);
      },
      set(value) {
        put(this, part, value);
      },
      enumerable: true,
      configurable: true,
    });
  }
  return record({ URL, URLSearchParams });
})

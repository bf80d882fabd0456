// TextEncoder, TextDecoder (UTF-8 only), atob and btoa. In JavaScript, so that long texts count as CPU time and can be interrupted.
(function ({ part }) {
  const { record, text, viewOf, uncurry } = part("tools");
  const { TypeError, RangeError, Error, Uint8Array, String } = globalThis;
  const { fromCharCode } = String;
  const codePointAt = uncurry(String.prototype.codePointAt);
  const charCodeAt = uncurry(String.prototype.charCodeAt);
  const indexOf = uncurry(String.prototype.indexOf);
  const toLowerCase = uncurry(String.prototype.toLowerCase);
  const trim = uncurry(String.prototype.trim);
  const subarray = uncurry(Uint8Array.prototype.subarray);

  class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(input = "") {
      const source = text(input);
      let size = 0;
      for (let i = 0; i < source.length; i++) {
        const unit = charCodeAt(source, i);
        size += unit < 0x80 ? 1 : unit < 0x800 ? 2 : unit >= 0xd800 && unit <= 0xdfff ? 2 : 3;
      }
      const bytes = new Uint8Array(size);
      this.encodeInto(source, bytes);
      return bytes;
    }
    encodeInto(input, target) {
      const source = text(input);
      let read = 0;
      let written = 0;
      while (read < source.length) {
        const point = codePointAt(source, read);
        const size = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
        if (written + size > target.length) break;
        if (size === 1) target[written] = point;
        else {
          for (let i = size - 1, rest = point; i > 0; i--, rest >>= 6) target[written + i] = 0x80 | (rest & 0x3f);
          target[written] = (size === 2 ? 0xc0 : size === 3 ? 0xe0 : 0xf0) | (point >> (6 * (size - 1)));
        }
        written += size;
        read += size === 4 ? 2 : 1;
      }
      return { read, written };
    }
  }

  // The length of the sequence that starts at `at`: positive if it is complete and valid, 0 if it is cut off by the end, and
  // negative for the bytes to replace.
  const sequence = (bytes, at) => {
    const lead = bytes[at];
    if (lead < 0x80) return 1;
    const size = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    if (size === 0) return -1;
    for (let i = 1; i < size; i++) {
      if (at + i >= bytes.length) return 0;
      const low = i > 1 ? 0x80 : lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
      const high = i > 1 ? 0xbf : lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
      if (bytes[at + i] < low || bytes[at + i] > high) return -i;
    }
    return size;
  };

  class TextDecoder {
    #fatal;
    #ignoreBOM;
    #rest = new Uint8Array(0);
    #begun = false;

    constructor(label = "utf-8", options = {}) {
      const name = toLowerCase(trim(String(label)));
      if (name !== "utf-8" && name !== "utf8" && name !== "unicode-1-1-utf-8") throw new RangeError("only UTF-8 is supported");
      this.#fatal = !!options.fatal;
      this.#ignoreBOM = !!options.ignoreBOM;
    }
    get encoding() {
      return "utf-8";
    }
    get fatal() {
      return this.#fatal;
    }
    get ignoreBOM() {
      return this.#ignoreBOM;
    }
    decode(input, options = {}) {
      const stream = !!options.stream;
      let bytes = input === undefined ? new Uint8Array(0) : viewOf(input);
      if (this.#rest.length > 0) {
        const joined = new Uint8Array(this.#rest.length + bytes.length);
        joined.set(this.#rest);
        joined.set(bytes, this.#rest.length);
        bytes = joined;
      }
      this.#rest = new Uint8Array(0);
      let out = "";
      let at = 0;
      while (at < bytes.length) {
        const size = sequence(bytes, at);
        if (size === 0 && stream) {
          this.#rest = new Uint8Array(subarray(bytes, at));
          break;
        }
        if (size <= 0) {
          if (this.#fatal) throw new TypeError("The encoded data was not valid for encoding utf-8");
          out += "\ufffd";
          at += size === 0 ? bytes.length - at : -size;
          continue;
        }
        const lead = bytes[at];
        let point = size === 1 ? lead : lead & (size === 2 ? 0x1f : size === 3 ? 0x0f : 0x07);
        for (let i = 1; i < size; i++) point = (point << 6) | (bytes[at + i] & 0x3f);
        at += size;
        if (point === 0xfeff && !this.#begun && !this.#ignoreBOM) this.#begun = true;
        else if (point < 0x10000) out += fromCharCode(point);
        else out += fromCharCode(0xd800 + ((point - 0x10000) >> 10), 0xdc00 + ((point - 0x10000) & 0x3ff));
        this.#begun = true;
      }
      if (!stream) this.#begun = false;
      return out;
    }
  }

  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const invalid = (message) => {
    const error = new Error(message);
    error.name = "InvalidCharacterError";
    return error;
  };

  const btoa = function btoa(data) {
    const source = String(data);
    let out = "";
    for (let i = 0; i < source.length; i += 3) {
      let bits = 0;
      for (let j = 0; j < 3; j++) {
        const unit = i + j < source.length ? charCodeAt(source, i + j) : 0;
        if (unit > 0xff) throw invalid("btoa takes characters up to U+00FF");
        bits = (bits << 8) | unit;
      }
      const left = source.length - i;
      out += DIGITS[bits >> 18] + DIGITS[(bits >> 12) & 63] + (left > 1 ? DIGITS[(bits >> 6) & 63] : "=") + (left > 2 ? DIGITS[bits & 63] : "=");
    }
    return out;
  };

  const atob = function atob(data) {
    let source = "";
    for (const char of String(data)) if (char !== " " && char !== "\t" && char !== "\n" && char !== "\f" && char !== "\r") source += char;
    let end = source.length;
    if (end % 4 === 0) for (let i = 0; i < 2 && end > 0 && source[end - 1] === "="; i++) end -= 1;
    if (end % 4 === 1) throw invalid("The string to be decoded is not correctly encoded");
    let out = "";
    let bits = 0;
    let held = 0;
    for (let i = 0; i < end; i++) {
      const digit = indexOf(DIGITS, source[i]);
      if (digit < 0) throw invalid("The string to be decoded is not correctly encoded");
      bits = (bits << 6) | digit;
      held += 6;
      if (held >= 8) {
        held -= 8;
        out += fromCharCode((bits >> held) & 0xff);
        bits &= (1 << held) - 1;
      }
    }
    return out;
  };
  return record({ TextEncoder, TextDecoder, atob, btoa });
})

// crypto.getRandomValues and crypto.randomUUID, from the random numbers of the system.
(function ({ host, part }) {
  const { record, viewOf, uncurry } = part("tools");
  const { TypeError, String, Float32Array, Float64Array, DataView } = globalThis;
  const charCodeAt = uncurry(String.prototype.charCodeAt);
  const hex = "0123456789abcdef";
  const fill = (bytes) => {
    const random = host("random", String(bytes.length));
    for (let i = 0; i < bytes.length; i++) bytes[i] = charCodeAt(random, i);
  };
  const crypto = {
    getRandomValues(array) {
      if (!ArrayBuffer.isView(array) || array instanceof Float32Array || array instanceof Float64Array || array instanceof DataView)
        throw new TypeError("getRandomValues fills an array of integers");
      fill(viewOf(array));
      return array;
    },
    randomUUID() {
      const random = host("random", "16");
      let out = "";
      for (let i = 0; i < 16; i++) {
        let byte = charCodeAt(random, i);
        if (i === 6) byte = 0x40 | (byte & 0x0f);
        if (i === 8) byte = 0x80 | (byte & 0x3f);
        if (i === 4 || i === 6 || i === 8 || i === 10) out += "-";
        out += hex[byte >> 4] + hex[byte & 15];
      }
      return out;
    },
  };
  return record({ crypto });
})

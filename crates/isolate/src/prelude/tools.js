// What the other parts share: texts and bytes that can leave the isolate.
(function () {
  const { String, Uint8Array, ArrayBuffer, TypeError } = globalThis;
  const { fromCharCode } = String;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const wellFormed = uncurry(String.prototype.toWellFormed);
  const charCodeAt = uncurry(String.prototype.charCodeAt);

  const record = (fields) => ({ __proto__: null, ...fields });
  // Lone surrogates cannot leave.
  const text = (value) => wellFormed(String(value));

  // Bytes cross as text with one character for each.
  const bytesOf = (binary) => {
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = charCodeAt(binary, i);
    return bytes;
  };
  const binaryOf = (bytes) => {
    let binary = "";
    for (let i = 0; i < bytes.length; i++) binary += fromCharCode(bytes[i]);
    return binary;
  };
  const viewOf = (data) => {
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    throw new TypeError("bytes are an ArrayBuffer or a view of one");
  };
  return record({ record, text, uncurry, bytesOf, binaryOf, viewOf });
})

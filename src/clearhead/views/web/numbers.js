// Large arrays travel packed, as the bytes of float32, and become nested rows again on the page.

/** Every {"$float32": base64, "shape": [...]} inside becomes nested arrays whose last axis is a Float32Array. */
export function unpack(value) {
  if (Array.isArray(value)) return value.map(unpack);
  if (value === null || typeof value !== "object") return value;
  if (typeof value.$float32 === "string") {
    return nest(new Float32Array(bytesOf(value.$float32).buffer), value.shape, 0)[0];
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, unpack(item)]));
}

/** Weights of many heads are tens of megabytes: a plain loop is a hundred times faster than Uint8Array.from. */
function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const signs = atob(text),
    bytes = new Uint8Array(signs.length);
  for (let n = 0; n < bytes.length; n++) bytes[n] = signs.charCodeAt(n);
  return bytes;
}

function nest(flat, shape, offset) {
  if (shape.length === 1) return [flat.subarray(offset, offset + shape[0]), offset + shape[0]];
  const rows = [];
  for (let n = 0; n < shape[0]; n++) {
    const [row, next] = nest(flat, shape.slice(1), offset);
    rows.push(row);
    offset = next;
  }
  return [rows, offset];
}

/** The finding as JSON, whatever it is stored in. */
export function json(finding) {
  return JSON.stringify(finding, (key, value) => {
    if (key === "$zh") return undefined; // the figure's words, not the finding's numbers
    if (value instanceof Float32Array)
      return Array.from(value, (x) => (Number.isFinite(x) ? Number(x.toPrecision(9)) : null));
    return value;
  });
}

export function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${Array.from(row, cell).join(",")}\n`).join("");
}

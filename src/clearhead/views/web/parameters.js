// Where a model's parameters live: an area for each part, and the exact numbers beside it.

import { el, rove } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

// The last names of a tensor's path, and what a reader calls them; the hue says what kind of part it is.
const PARTS = {
  tokens: "token_embedding",
  positions: "positions",
  segments: "segments",
  query: "query",
  key: "key",
  value: "value",
  qkv: "qkv",
  key_value: "key_value",
  output: "output",
  up: "up",
  gate: "gate",
  down: "down",
};
const HUES = {
  embedding: "head7",
  positions: "head8",
  attention: "q",
  "cross-attention": "dec",
  "feed-forward": "enc",
  recurrent: "head4",
  norm: "head5",
  head: "head6",
  other: "head9",
};
const ROLES = { query: "q", key: "k", value: "v" };

const LETTER = 8.2,
  LINE = 17; // pixels that a letter of a name and a line of it take at most

const view = {
  /** part: the name of the pinned one */
  start: () => ({ part: null }),
  title: (c) => c.words("parameters_title", { total: amount(c.finding.total) }),
  reading: (c) =>
    c.words("parameters_reading", { total: scale.whole(c.finding.total) }) +
    (c.finding.pieces.some((piece) => piece.shared) ? ` ${c.words("parameters_shared_reading")}` : ""),
  body(c, box) {
    const parts = partsOf(c);
    const filled = parts.filter((part) => part.parameters > 0);
    const beside = c.width >= 1000;
    const space = beside ? c.width - 520 : c.width;
    box.append(
      el(
        "div",
        {
          class: "ch-columns",
          style: { "grid-template-columns": beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)" },
        },
        el("div", {}, map(c, filled, space), hues(c, filled)),
        list(c, parts),
      ),
    );
  },
  *table(finding) {
    yield ["stack", "part", "name", "shape", "count", "parameters", "shared"];
    for (const one of finding.pieces)
      yield [one.stack, one.part, one.name, one.shape.join(" × "), one.count, one.parameters, one.shared];
  },
};

export function amount(value) {
  const [size, sign] = value >= 1e9 ? [1e9, " B"] : value >= 1e6 ? [1e6, " M"] : value >= 1e4 ? [1e3, " K"] : [1, ""];
  return sign
    ? `${(value / size).toFixed(value / size < 9.95 ? 2 : value / size < 99.5 ? 1 : 0)}${sign}`
    : scale.whole(value);
}

/** Weights and biases of one matrix together, over all layers; all norms of a stack together. */
function partsOf(c) {
  const parts = new Map();
  for (const piece of c.finding.pieces) {
    const path = piece.name.split(".");
    const last = path.findLast((word) => !["weight", "bias", "*", "table"].includes(word) || path.length === 1);
    const layered = /(^|\.)layers\./.test(piece.name);
    const name =
      piece.part === "norm"
        ? layered
          ? "norm"
          : "norm_outside"
        : piece.part === "head"
          ? "head"
          : (PARTS[last] ?? last);
    const key = `${piece.stack}/${piece.part}/${name}`;
    if (!parts.has(key))
      parts.set(key, {
        key,
        stack: piece.stack,
        part: piece.part,
        name,
        parameters: 0,
        shared: 0,
        count: 0,
        layered,
        shapes: [],
      });
    const part = parts.get(key);
    part.parameters += piece.parameters;
    part.shared += piece.shared;
    part.count = Math.max(part.count, piece.count);
    part.shapes.push(piece);
  }
  return [...parts.values()];
}

function nameOf(c, part) {
  const known = ["norm", "norm_outside", "head", ...Object.values(PARTS)].includes(part.name);
  const own = known ? c.words(`parameters_${part.name}`) : part.name.replaceAll("_", " ");
  const kind = ["attention", "cross-attention", "feed-forward"].includes(part.part)
    ? c.words(`parameters_in_${part.part.replace("-", "_")}`, { name: own })
    : own;
  return part.stack === "encoder" || part.stack === "decoder" ? `${c.words(`side_${part.stack}`)} · ${kind}` : kind;
}

const groundOf = (c, part) => scale.ink(c, ROLES[part.name] ?? HUES[part.part], 0.34);

function tell(c, part) {
  const { total } = c.finding;
  const lines = [nameOf(c, part), `${scale.whole(part.parameters)} · ${scale.percent(part.parameters / total)}`];
  for (const one of part.shapes.slice(0, 6))
    lines.push(`${one.name}  ${one.count > 1 ? `${one.count} × ` : ""}(${one.shape.join(", ")})`);
  if (part.shared) lines.push(c.words("parameters_shared", { count: scale.whole(part.shared) }));
  return lines.join("\n");
}

/** A treemap: the areas are the numbers. */
function map(c, parts, space) {
  const high = Math.round(Math.max(280, Math.min(560, space * 0.62)));
  const ordered = [...parts].sort((a, b) => b.parameters - a.parameters);
  const cells = squarified(
    ordered.map((part) => part.parameters),
    space,
    high,
  );
  const nodes = ordered.map((part, n) => {
    const [x, y, w, h] = cells[n];
    const ground = groundOf(c, part);
    const rows = Math.ceil((nameOf(c, part).length * LETTER) / (w - 18)); // of the name
    const fits = w > 84 && h > 14 + rows * LINE;
    const lines = fits
      ? [
          el("b", {}, nameOf(c, part)),
          h > 14 + (rows + (w < 120 ? 2 : 1)) * LINE
            ? el("span", {}, `${amount(part.parameters)} · ${scale.percent(part.parameters / c.finding.total)}`)
            : "",
        ]
      : [];
    const cell = el(
      "button",
      {
        type: "button",
        class: `ch-area${fits ? "" : " ch-tiny"}${c.state.part === part.key ? " ch-on" : ""}`,
        "data-at": part.key,
        "aria-label": `${nameOf(c, part)} ${scale.whole(part.parameters)}`,
        "data-parameters": part.parameters,
        style: {
          left: `${x}px`,
          top: `${y}px`,
          width: `${Math.max(1, w - 2)}px`,
          height: `${Math.max(1, h - 2)}px`,
          background: scale.css(ground),
          color: scale.css(scale.onTop(c, ground)),
        },
        onclick: () => c.set({ part: c.state.part === part.key ? null : part.key }),
      },
      lines,
    );
    return c.tells(cell, () => tell(c, part));
  });
  rove(nodes, {
    release: () => c.set({ part: null }),
    pick: (n) => c.set({ part: c.state.part === ordered[n].key ? null : ordered[n].key }),
  });
  return el(
    "div",
    { class: "ch-map", style: { position: "relative", width: `${space}px`, height: `${high}px` } },
    nodes,
  );
}

/** Rectangles [x, y, width, height] whose areas are as the sizes (falling), each as near to a square as can be. */
export function squarified(sizes, width, height) {
  const total = sizes.reduce((a, b) => a + b, 0),
    cells = [];
  const areas = sizes.map((size) => (size / total) * width * height);
  let [x, y, w, h, n] = [0, 0, width, height, 0];
  while (n < areas.length) {
    const side = Math.min(w, h);
    let end = n,
      sum = 0,
      worst = Infinity;
    while (end < areas.length) {
      // a row grows while its cells get squarer
      const next = sum + areas[end],
        thick = next / side;
      const ratio = Math.max(
        ...areas.slice(n, end + 1).map((area) => Math.max(area / thick / thick, thick / (area / thick))),
      );
      if (ratio > worst) break;
      [worst, sum, end] = [ratio, next, end + 1];
    }
    const thick = sum / side;
    let along = 0;
    for (; n < end; n++) {
      const long = areas[n] / thick;
      cells.push(w >= h ? [x, y + along, thick, long] : [x + along, y, long, thick]);
      along += long;
    }
    if (w >= h) {
      x += thick;
      w -= thick;
    } else {
      y += thick;
      h -= thick;
    }
  }
  return cells;
}

function hues(c, parts) {
  const kinds = [...new Set(parts.map((part) => part.part))];
  const sum = (kind) => parts.filter((part) => part.part === kind).reduce((a, part) => a + part.parameters, 0);
  return el(
    "div",
    { class: "ch-keys ch-legend" },
    kinds.map((kind) =>
      el(
        "span",
        {},
        el("i", { style: { background: scale.css(scale.ink(c, HUES[kind], 0.6)) } }),
        `${c.words(`parameters_kind_${kind.replace("-", "_")}`)} ${scale.percent(sum(kind) / c.finding.total)}`,
      ),
    ),
  );
}

function list(c, parts) {
  const { total, layers } = c.finding;
  const wide = c.width >= 520;
  const rows = parts.map((part) => {
    const times = part.layered && part.count > 1 ? `${part.count} × ` : "";
    const each = part.layered && part.count > 1 && !part.shared ? scale.whole(part.parameters / part.count) : "";
    return c.tells(
      el(
        "tr",
        { class: c.state.part === part.key ? "ch-on-row" : "" },
        el("td", {}, nameOf(c, part)),
        wide && el("td", {}, each ? `${times}${each}` : ""),
        el("td", {}, part.parameters ? scale.whole(part.parameters) : c.words("parameters_tied")),
        el("td", {}, part.parameters ? scale.percent(part.parameters / total) : ""),
      ),
      () => tell(c, part),
    );
  });
  const head = el(
    "tr",
    {},
    el("th", {}, c.words("parameters_part")),
    wide && el("th", {}, c.words("parameters_each", { layers: Object.values(layers).join(" + ") })),
    el("th", {}, c.words("parameters_all")),
    el("th", {}, ""),
  );
  const foot = el(
    "tr",
    {},
    el("td", {}, c.words("parameters_total")),
    wide && el("td", {}, ""),
    el("td", { "data-total": total }, scale.whole(total)),
    el("td", {}, scale.percent(1)),
  );
  return el(
    "div",
    { style: { "overflow-x": "auto" } },
    el("table", { class: "ch-table ch-sizes" }, el("thead", {}, head), el("tbody", {}, rows), el("tfoot", {}, foot)),
  );
}

// How a model knows the order of words: its position vectors or biases, and how alike positions are.

import { effectColour } from "./ablation.js";
import { el } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const schemeOf = (c) => c.finding.schemes[Math.min(Number(c.state.scheme) || 0, c.finding.schemes.length - 1)];
const nameOf = (c, scheme) =>
  [scheme.side && c.words(`side_${scheme.side}`), c.words(`positions_${scheme.encoding.replace("-", "_")}`)]
    .filter(Boolean)
    .join(" · ");

const view = {
  /** scheme: its place in the finding, position: the pinned row, column: the pinned head of a bias */
  start: () => ({ scheme: 0, position: null, column: 0 }),
  title: (c) => c.words("positions_title"),
  reading: (c) =>
    `${c.words(`positions_reading_${schemeOf(c).encoding.replace("-", "_")}`)} ` +
    `${c.words(schemeOf(c).similarity ? "positions_reading_alike" : "positions_reading_bias")}`,
  controls: (c) =>
    c.finding.schemes.length < 2
      ? []
      : [
          c.choice(
            c.words("positions_scheme"),
            c.state.scheme,
            c.finding.schemes.map((scheme, n) => [n, nameOf(c, scheme)]),
            (n) => c.set({ scheme: Number(n), position: null, column: 0 }),
          ),
        ],
  body(c, box) {
    const scheme = schemeOf(c);
    const { rows, values, columns, module } = scheme;
    const beside = c.width >= 900;
    const byHead = columns === "head";
    const space = beside ? Math.floor((c.width - 40) * (byHead ? 0.42 : 0.58)) : c.width;
    const colour = effectColour(c, byHead ? values : usual(values));
    const names = rows.map(String),
      heads = Array.from(values[0], (_, k) => String(k));
    const vectors = heatmap(c, {
      rows: names,
      columns: heads,
      space,
      width: byHead ? [14, 44] : [0.2, 18],
      height: [2, Math.max(4, Math.min(18, 560 / rows.length))],
      rowTitle: "",
      columnTitle: c.words(byHead ? "head" : "positions_dimensions"),
      label: c.words("positions_title"),
      name: "vectors",
      sparse: 40,
      colour: (r, k) => colour.of(values[r][k]),
      tip: (r, k) =>
        `${c.words(rows[0] < 0 ? "positions_distance" : "position")} ${rows[r]} · ` +
        `${byHead ? c.words("head_n", { n: k }) : c.words("dimension", { d: k })} · ${scale.number(values[r][k])}`,
      picked: byHead ? { row: null, column: c.state.column } : { row: c.state.position, column: null },
      pick: (r, k) => c.set(byHead ? { column: k } : { position: c.state.position === r ? null : r }),
      release: () => c.set({ position: null }),
    });
    const left = el(
      "div",
      {},
      el("p", { class: "ch-name" }, nameOf(c, scheme), el("code", {}, module)),
      vectors,
      colour.legend(c.words(byHead ? "positions_added" : "positions_value")),
    );
    box.append(
      el(
        "div",
        {
          class: "ch-columns",
          style: { "grid-template-columns": beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)" },
        },
        left,
        byHead
          ? bias(c, scheme, beside ? c.width - space - 40 : c.width)
          : alike(c, scheme, beside ? c.width - space - 40 : c.width),
      ),
    );
  },
  *table(finding) {
    yield ["side", "encoding", "module", "position", "column", "value"];
    for (const scheme of finding.schemes)
      for (const [r, row] of scheme.values.entries())
        for (let k = 0; k < row.length; k++)
          yield [scheme.side, scheme.encoding, scheme.module, scheme.rows[r], k, row[k]];
  },
};

/** Without the few numbers that stand far out, which would leave all others pale: they get the full colour. */
function usual(values) {
  const sizes = values.flatMap((row) => Array.from(row, Math.abs)).sort((a, b) => a - b);
  const most = sizes[Math.floor(sizes.length * 0.995)] || sizes.at(-1);
  return values.map((row) => Array.from(row, (value) => Math.max(-most, Math.min(most, value))));
}

/** How alike the vectors of two positions are. */
function alike(c, { rows, similarity }, space) {
  const names = rows.map(String),
    most = Math.min(space, 620);
  const cells = heatmap(c, {
    rows: names,
    columns: names,
    space: most,
    square: true,
    width: [1, 26],
    height: [1, 26],
    label: c.words("positions_alike"),
    name: "alike",
    sparse: 26,
    colour: (r, k) => scale.signed(c, similarity[r][k]),
    tip: (r, k) => `${rows[r]} · ${rows[k]} · ${c.words("positions_cosine")} ${scale.number(similarity[r][k])}`,
    picked: { row: c.state.position, column: null },
    pick: (r) => c.set({ position: c.state.position === r ? null : r }),
    release: () => c.set({ position: null }),
  });
  return el(
    "div",
    {},
    el("p", { class: "ch-name" }, c.words("positions_alike")),
    cells,
    scale.legend(
      c.words("positions_cosine"),
      scale.steps(9, (t) => scale.signed(c, t), -1, 1),
      ["−1", "0", "1"],
    ),
  );
}

/** What one head adds to the score of a query (row) and a key (column): it depends on their distance alone. */
function bias(c, { rows, values, causal }, space) {
  const head = Math.min(c.state.column ?? 0, values[0].length - 1);
  const length = (rows.length + 1) / 2,
    names = Array.from({ length }, (_, n) => String(n));
  const colour = effectColour(c, values);
  const of = (q, k) => (causal && k > q ? null : values[k - q + length - 1][head]);
  const cells = heatmap(c, {
    rows: names,
    columns: names,
    space: Math.min(space, 560),
    square: true,
    width: [1, 26],
    height: [1, 26],
    label: c.words("positions_title"),
    name: "bias",
    sparse: 26,
    colour: (q, k) => (of(q, k) === null ? c.colour("paper") : colour.of(of(q, k))),
    tip: (q, k) =>
      `${c.words("query")} ${q} · ${c.words("key")} ${k} · ` +
      `${of(q, k) === null ? c.words("hidden") : scale.number(of(q, k))}`,
  });
  return el("div", {}, el("p", { class: "ch-name" }, c.words("head_n", { n: head })), cells);
}

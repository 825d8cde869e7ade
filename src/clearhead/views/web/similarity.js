// How alike two models, or two layers, see the same texts.

import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  start: () => ({ a: null, b: null }),
  title: (c) => (c.finding.a === c.finding.b ? c.words("similarity_title_one") : c.words("similarity_title", { a: c.finding.a, b: c.finding.b })),
  reading: (c) => c.words(c.finding.a === c.finding.b ? "similarity_reading_one" : "similarity_reading", { measure: c.finding.measure.toUpperCase(), a: c.finding.a, b: c.finding.b }),
  body(c, box) {
    const { a, b, layers_a, layers_b, values } = c.finding;
    const edge = Math.max(22, Math.min(44, (c.width - 120) / layers_b.length));
    const name = (layer) => (typeof layer === "string" && !/^\d+$/.test(layer) ? layer : c.words("layer_n", { n: layer }));
    box.append(heatmap(c, {
      rows: layers_a.map(name), columns: layers_b.map(String), upward: true, square: true, width: [22, edge], height: [22, 44], rowTitle: a === b ? "" : a, columnTitle: a === b ? c.words("layer") : `${b}, ${c.words("layer")}`, label: c.words("similarity_title_one"), name: "similarity",
      colour: (r, k) => scale.ink(c, "accent", values[r][k]), text: (r, k) => (scale.isNumber(values[r][k]) ? values[r][k].toFixed(2).replace(/^0/, "") : ""),
      tip: (r, k) => `${a} ${name(layers_a[r])} · ${b} ${name(layers_b[k])} · ${scale.number(values[r][k])}`,
      picked: { row: c.state.a, column: c.state.b }, pick: (r, k) => c.set(c.state.a === r && c.state.b === k ? { a: null, b: null } : { a: r, b: k }), release: () => c.set({ a: null, b: null }),
    }), scale.legend(c.finding.measure.toUpperCase(), scale.steps(9, (t) => scale.ink(c, "accent", t)), ["0", "0.5", "1"]));
  },
  *table(found) {
    yield ["layer_a", "layer_b", found.measure];
    for (const [r, one] of found.layers_a.entries()) for (const [k, other] of found.layers_b.entries()) yield [one, other, found.values[r][k]];
  },
};

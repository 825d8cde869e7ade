// How alike two models, or two layers, see the same texts.

import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { short } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** a, b: the pinned pair of layers (their places in the finding) */
  start: () => ({ a: null, b: null }),
  title: (c) =>
    c.finding.a === c.finding.b
      ? c.words("similarity_title_one")
      : c.words("similarity_title", { a: c.finding.a, b: c.finding.b }),
  reading(c) {
    const { a, b, count, shuffled_baseline, aligned } = c.finding;
    const alike = c.words(c.finding.measure === "cca" ? "similarity_cca" : "similarity_cka");
    const reading = c.words(a === b ? "similarity_reading_one" : "similarity_reading", {
      measure: measure(c),
      a,
      b,
      alike,
      count: scale.whole(count),
      baseline: scale.number(shuffled_baseline),
    });
    return aligned === "stretches" ? `${reading} ${c.words("similarity_averaged")}` : reading;
  },
  body(c, box) {
    const { a, b, layers_a, layers_b, values } = c.finding;
    const edge = Math.max(22, Math.min(54, (c.width - 120) / layers_b.length));
    const name = (layer) => (layer === 0 ? c.words("embedding") : c.words("layer_n", { n: layer }));
    box.append(
      heatmap(c, {
        rows: layers_a.map(name),
        columns: layers_b.map(String),
        upward: true,
        square: true,
        width: [22, edge],
        height: [22, 54],
        rowTitle: a === b ? "" : short(a, 9),
        columnTitle: a === b ? c.words("layer") : `${b}, ${c.words("layer")}`,
        label: view.title(c),
        name: "similarity",
        colour: (r, k) => scale.ink(c, "accent", values[r][k]),
        text: (r, k) =>
          scale.isNumber(values[r][k])
            ? values[r][k]
                .toFixed(2)
                .replace("-", "−")
                .replace(/^(−?)0\./, "$1.")
            : "",
        tip: (r, k) =>
          (a === b
            ? `${name(layers_a[r])} · ${name(layers_b[k])}`
            : `${a} ${name(layers_a[r])} · ${b} ${name(layers_b[k])}`) +
          ` · ${measure(c)} ${scale.number(values[r][k])}`,
        picked: { row: c.state.a, column: c.state.b },
        pick: (r, k) => c.set(c.state.a === r && c.state.b === k ? { a: null, b: null } : { a: r, b: k }),
        release: () => c.set({ a: null, b: null }),
      }),
      scale.legend(
        measure(c),
        scale.steps(9, (t) => scale.ink(c, "accent", t)),
        ["0", "0.5", "1"],
      ),
    );
  },
  *table(finding) {
    yield ["layer_a", "layer_b", finding.measure];
    for (const [r, one] of finding.layers_a.entries())
      for (const [k, other] of finding.layers_b.entries()) yield [one, other, finding.values[r][k]];
  },
};

function measure(c) {
  const name = c.finding.measure.toUpperCase();
  return c.finding.unbiased ? c.words("similarity_unbiased", { measure: name }) : name;
}

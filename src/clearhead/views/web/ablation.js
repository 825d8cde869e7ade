// What a head is good for: how the answer changes when it is silenced.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import { ranked } from "./guesses.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { chips } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** layer, head: the pinned head (its place in the finding) */
  start: () => ({ layer: null, head: null }),
  title: (c) => c.words("ablation_title"),
  reading: (c) =>
    c.words(scale.extent(c.finding.effect)[0] < 0 ? "ablation_reading_signed" : "ablation_reading", {
      metric: c.finding.metric,
    }),
  body(c, box) {
    const { layers, heads, effect, tokens, metric, strongest, position } = c.finding;
    const colour = effectColour(c, effect);
    box.append(chips(tokens, (n) => ({ class: n === position ? "ch-on" : "" })));
    const answers = [
      [c.words("ablation_before"), c.finding.before],
      [c.words("ablation_after_of", { layer: strongest[0], head: strongest[1] }), c.finding.after],
    ].filter(([, list]) => list.length);
    const beside = c.width >= 900 && answers.length > 0;
    const cells = heatmap(c, {
      rows: layers.map((layer) => c.words("layer_n", { n: layer })),
      columns: heads.map(String),
      upward: true,
      space: beside ? c.width - 360 : c.width,
      width: [20, 96],
      height: [20, 36],
      columnTitle: c.words("head"),
      label: c.words("ablation_title"),
      name: "heads",
      colour: (r, k) => colour.of(effect[r][k]),
      text: (r, k) => scale.like(effect[r][k], colour.most),
      tip: (r, k) =>
        `${c.words("layer_head", { layer: layers[r], head: heads[k] })} · ${c.words("effect")} ` +
        `${scale.number(effect[r][k])}`,
      picked: { row: c.state.layer, column: c.state.head },
      pick: (r, k) =>
        c.set(c.state.layer === r && c.state.head === k ? { layer: null, head: null } : { layer: r, head: k }),
      release: () => c.set({ layer: null, head: null }),
    });
    const lists = answers.map(([name, list]) =>
      el("div", {}, el("p", { class: "ch-name" }, name), ranked(c, list.slice(0, 6))),
    );
    box.append(
      el(
        "div",
        {
          class: "ch-columns ch-part",
          style: { "grid-template-columns": beside ? "max-content minmax(0, 1fr)" : "minmax(0, 1fr)" },
        },
        el("div", {}, cells, colour.legend(metric)),
        lists.length ? el("div", { style: { display: "grid", gap: "1rem" } }, lists) : "",
      ),
    );
  },
  *table(finding) {
    yield ["layer", "head", "effect"];
    for (const [r, layer] of finding.layers.entries())
      for (let k = 0; k < finding.effect[r].length; k++) yield [layer, finding.heads[k], finding.effect[r][k]];
  },
};

/** One-sided ink where nothing is below zero, else two sides with paper at zero; and the legend for it. */
export function effectColour(c, rows) {
  const [low, high] = scale.extent(rows);
  const most = Math.max(Math.abs(low), Math.abs(high), c.options.mostEffect ?? 0) || 1;
  if (low >= 0)
    return {
      most,
      of: (value) => scale.ink(c, "accent", (value || 0) / most),
      legend: (title) =>
        scale.legend(
          title,
          scale.steps(9, (t) => scale.ink(c, "accent", t)),
          ["0", scale.number(most)],
        ),
    };
  return {
    most,
    of: (value) => scale.signed(c, (value || 0) / most),
    legend: (title) =>
      scale.legend(
        title,
        scale.steps(9, (t) => scale.signed(c, t), -1, 1),
        [scale.number(-most), "0", scale.number(most)],
      ),
  };
}

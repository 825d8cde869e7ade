// Two or more candidates for one place, layer by layer: which one the model leans to, and since when.

import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import { layerName, rankLegend } from "./hidden_states.js";
import * as scale from "./scale.js";
import { plain, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  start: () => ({ layer: null, candidate: null }),
  title: (c) =>
    c.words("comparison_title", {
      list: c.finding.candidates.map((one) => `“${plain(one.text)}”`).join(c.words("or")),
    }),
  reading: (c) => c.words("comparison_reading"),
  body(c, box) {
    const { layers, candidates, ranks, probabilities } = c.finding;
    const ahead = ranks.map((row) => row.indexOf(Math.min(...row)));
    box.append(
      heatmap(c, {
        rows: layers.map((layer) => layerName(c, layer)),
        columns: candidates.map((one) => visible(one.text)),
        upward: true,
        width: [56, 480],
        height: [20, 28],
        label: c.words("comparison_reading"),
        name: "candidates",
        colour: (r, k) => scale.rank(c, ranks[r][k]),
        text: (r, k) => `${k === ahead[r] && candidates.length > 1 ? "▸ " : ""}${scale.whole(ranks[r][k])}`,
        tip: (r, k) =>
          `${layerName(c, layers[r])} · ${visible(candidates[k].text)} · ` +
          `${c.words("rank_n", { n: scale.whole(ranks[r][k]) })} · ${scale.percent(probabilities[r][k], 2)}`,
        picked: { row: c.state.layer, column: c.state.candidate },
        pick: (r, k) =>
          c.set(
            c.state.layer === r && c.state.candidate === k
              ? { layer: null, candidate: null }
              : { layer: r, candidate: k },
          ),
        release: () => c.set({ layer: null, candidate: null }),
      }),
      rankLegend(c),
    );
  },
  *table(finding) {
    yield ["layer", "candidate", "rank", "probability"];
    for (const [r, layer] of finding.layers.entries())
      for (const [k, one] of finding.candidates.entries())
        yield [layer, one.text, finding.ranks[r][k], finding.probabilities[r][k]];
  },
};

// When the model made up its mind: the best guess after every layer, and the rank of the final answer there.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { plain, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** layer, position: the pinned cell (their places in the finding) */
  start: () => ({ layer: null, position: null }),
  title(c) {
    const { position } = c.state;
    return position === null
      ? c.words("hidden_title")
      : c.words("hidden_title_of", { token: plain(c.finding.chosen[position].text) });
  },
  reading: (c) => c.words("hidden_reading"),
  body(c, box) {
    const { positions } = c.finding;
    // Like lines of text: as many columns as can be read side by side, then the next line. Long texts are colour only.
    const across =
      positions.length <= 72 ? Math.max(3, Math.floor((c.width - 90) / (c.width < 600 ? 76 : 84))) : positions.length;
    for (let first = 0; first < positions.length; first += across)
      box.append(band(c, first, Math.min(across, positions.length - first), across));
    box.append(rankLegend(c));
  },
  *table(finding) {
    yield ["layer", "position", "chosen", "rank", "probability", "best"];
    for (const [r, layer] of finding.layers.entries()) {
      for (const [k, position] of finding.positions.entries())
        yield [
          layer,
          position,
          finding.chosen[k].text,
          finding.ranks[r][k],
          finding.probabilities[r][k],
          finding.top[r][k][0][0],
        ];
    }
  },
};

function band(c, first, count, across) {
  const { layers, positions, chosen, ranks, probabilities, top, tokens, predicts } = c.finding;
  const own = Array.from({ length: count }, (_, n) => first + n);
  const wide = Math.min(480, (c.width - 84) / Math.min(across, Math.max(count, first ? across : 0)));
  const cells = heatmap(c, {
    rows: layers.map((layer) => layerName(c, layer)),
    columns: own.map((k) => visible(chosen[k].text)),
    upward: true,
    width: across === positions.length && count > 20 ? [5, wide] : [60, wide],
    height: [18, 27],
    columnTitle: first ? "" : c.words("chosen_token"),
    label: c.words("hidden_title"),
    name: `states${first}`,
    colour: (r, k) => scale.rank(c, ranks[r][own[k]]),
    text: (r, k) => [visible(top[r][own[k]][0][0]), scale.whole(ranks[r][own[k]])],
    tip(r, n) {
      const k = own[n];
      const where =
        `${layerName(c, layers[r])} · ${c.words(predicts === "next" ? "after" : "at_token")} ` +
        `${visible(textOf(tokens[positions[k]]))}`;
      const answer =
        `${visible(chosen[k].text)} · ${c.words("rank_n", { n: scale.whole(ranks[r][k]) })} · ` +
        `${scale.percent(probabilities[r][k], 1)}`;
      return `${where}\n${answer}\n${c.words("best_here")} ${top[r][k]
        .slice(0, 5)
        .map(([text, probability]) => `${visible(text)} ${scale.percent(probability, 1)}`)
        .join("  ")}`;
    },
    picked: own.includes(c.state.position) ? { row: c.state.layer, column: c.state.position - first } : null,
    pick: (r, n) =>
      c.set(
        c.state.layer === r && c.state.position === own[n]
          ? { layer: null, position: null }
          : { layer: r, position: own[n] },
      ),
    release: () => c.set({ layer: null, position: null }),
  });
  return el("div", { class: first ? "ch-part" : "" }, cells);
}

export const layerName = (c, layer) => (layer === 0 ? c.words("embedding") : c.words("layer_n", { n: layer }));
export const rankLegend = (c) =>
  scale.legend(
    c.words("rank"),
    [1, 3, 10, 30, 100, 300, 1000].map((place) => scale.rank(c, place)),
    ["1", "10", "100", "1,000+"],
  );

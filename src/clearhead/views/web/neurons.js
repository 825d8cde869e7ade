// What inner units answer to: their activations over the tokens, alike ones together.

import { effectColour } from "./ablation.js";
import { el } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { chips, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const nameOf = (neuron) => `${neuron[0]}·${neuron[1]}`;

const view = {
  /** neuron: the pinned row of the finding, token: the pinned column */
  start: () => ({ neuron: null, token: null }),
  title: (c) =>
    c.state.neuron === null
      ? c.words("neurons_title")
      : c.words("neurons_title_of", { neuron: nameOf(c.finding.neurons[c.state.neuron]) }),
  reading: (c) => c.words(c.finding.clusters ? "neurons_reading_clusters" : "neurons_reading"),
  body(c, box) {
    const { tokens, neurons, activations, clusters } = c.finding;
    const colour = effectColour(c, activations);
    const order = neurons.map((_, n) => n);
    if (clusters) order.sort((a, b) => clusters[a] - clusters[b] || a - b);
    const line = el("div", {});
    const paint = (n) => {
      const row = n === null ? null : activations[n],
        most = row ? Math.max(...Array.from(row, Math.abs), 1e-9) : 1;
      const own = row ? effectColour(c, [row]) : colour;
      const made = chips(tokens, (k) => {
        const ground = row ? own.of(row[k]) : c.colour("paper");
        return {
          style: { background: scale.css(ground), color: scale.css(scale.onTop(c, ground)) },
          class: c.state.token === k ? "ch-on" : "",
        };
      });
      if (row && most)
        [...made.querySelectorAll(".ch-tok")].forEach((mark, k) =>
          c.tells(
            mark,
            () =>
              `${visible(textOf(tokens[k]))} · ${c.words("neuron")} ${nameOf(neurons[n])} · ${scale.number(row[k])}`,
          ),
        );
      line.replaceChildren(made);
    };
    paint(c.state.neuron);
    const rows = order.map((n, place) =>
      clusters && (place === 0 || clusters[order[place - 1]] !== clusters[n])
        ? `[${clusters[n]}] ${nameOf(neurons[n])}`
        : nameOf(neurons[n]),
    );
    box.append(
      line,
      el(
        "div",
        { class: "ch-part" },
        heatmap(c, {
          rows,
          columns: tokens.map((token) => visible(textOf(token))),
          width: [5, 120],
          height: [5, 20],
          rowTitle: c.words("neuron_axis"),
          label: c.words("neurons_title"),
          name: "neurons",
          colour: (r, k) => colour.of(activations[order[r]][k]),
          tip: (r, k) =>
            `${c.words("neuron")} ` +
            `${nameOf(neurons[order[r]])}${clusters ? ` · ${c.words("cluster")} ${clusters[order[r]]}` : ""} · ` +
            `${visible(textOf(tokens[k]))} · ${scale.number(activations[order[r]][k])}`,
          seen: (r) => paint(r === null ? c.state.neuron : order[r]),
          picked: c.state.neuron === null ? null : { row: order.indexOf(c.state.neuron), column: null },
          pick: (r, k) =>
            c.set(c.state.neuron === order[r] ? { neuron: null, token: null } : { neuron: order[r], token: k }),
          release: () => c.set({ neuron: null, token: null }),
        }),
        colour.legend(c.words("activation")),
      ),
    );
  },
  *table(finding) {
    yield ["layer", "neuron", "cluster", "position", "token", "activation"];
    for (const [r, neuron] of finding.neurons.entries()) {
      for (const [k, token] of finding.tokens.entries())
        yield [...neuron, finding.clusters?.[r], k, textOf(token), finding.activations[r][k]];
    }
  },
};

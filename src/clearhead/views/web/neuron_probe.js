// Which neuron follows a property of the text: the best ones, and one of them on a text that did not choose it.

import { effectColour } from "./ablation.js";
import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { chips, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const TALL = 84; // pixels of the curves

const nameOf = (one) => `${one.layer}·${one.neuron}`;
const isCount = (finding) => finding.neurons[0]?.accuracy === null;

const view = {
  /** neuron: the row of the finding that is shown on the text */
  start: () => ({ neuron: 0 }),
  title: (c) => c.words("probe_title", { property: c.words(`probe_${c.finding.property}`) }),
  reading: (c) =>
    c.words(isCount(c.finding) ? "probe_reading_count" : "probe_reading", {
      total: scale.whole(c.finding.total),
      texts: scale.whole(c.finding.texts),
      tokens: scale.whole(c.finding.token_count),
    }),
  body(c, box) {
    box.append(list(c), el("div", { class: "ch-part" }, curves(c), words(c)));
  },
  *table(finding) {
    yield ["layer", "neuron", "property", "found", "correlation", "accuracy"];
    for (const one of finding.neurons)
      yield [one.layer, one.neuron, finding.property, one.found, one.correlation, one.accuracy];
  },
};

function list(c) {
  const rows = c.finding.neurons.map((one, n) => {
    const tip = [
      c.words("probe_tip", { r: scale.number(one.correlation), found: scale.number(one.found) }),
      one.accuracy === null ? "" : c.words("probe_right", { share: scale.percent(one.accuracy) }),
    ].filter(Boolean);
    const row = el(
      "button",
      {
        type: "button",
        "data-at": `choice${n}`,
        "aria-pressed": String(c.state.neuron === n),
        "aria-label": `${c.words("neuron")} ${nameOf(one)}, ${tip.join(", ")}`,
        onclick: () => c.set({ neuron: n }),
      },
      el("span", {}, `${c.words("neuron")} ${nameOf(one)}`),
      el("span", { class: "ch-share" }, scale.number(one.correlation)),
      el(
        "span",
        { class: "ch-track" },
        el("span", {
          class: "ch-bar",
          style: {
            width: `${Math.min(1, Math.abs(one.correlation)) * 100}%`,
            background: `var(--${one.correlation < 0 ? "minus" : "plus"})`,
          },
        }),
      ),
    );
    return c.tells(row, () => tip.join("\n"));
  });
  rove(rows, { start: c.state.neuron, pick: (n) => c.set({ neuron: n }) });
  return el("div", { class: "ch-ranked" }, rows);
}

/** The activation along the text and, dashed, the property, each from its least to its most. */
function curves(c) {
  const { values, activations } = c.finding;
  const wide = c.width;
  const x = (k) => ((k + 0.5) / values.length) * wide;
  const path = (row) => {
    const [low, high] = scale.extent([row]);
    let pen = "M";
    return Array.from(row, (value, k) => {
      if (!scale.isNumber(value)) {
        pen = "M";
        return "";
      }
      const above = ((value - low) / (high - low || 1)) * (TALL - 12);
      const point = `${pen}${x(k).toFixed(1)} ${(TALL - 6 - above).toFixed(1)}`;
      pen = "L";
      return point;
    }).join("");
  };
  const line = (row, style) => svg("path", { d: path(row), fill: "none", "stroke-linejoin": "round", ...style });
  return svg(
    "svg",
    { width: wide, height: TALL, class: "ch-over", style: { position: "static" }, role: "img", "aria-hidden": "true" },
    line(values, { stroke: "var(--soft)", "stroke-dasharray": "4 3" }),
    line(activations[c.state.neuron], { stroke: "var(--accent)", "stroke-width": 1.6 }),
  );
}

function words(c) {
  const { tokens, values, activations, neurons } = c.finding;
  const row = activations[c.state.neuron],
    colour = effectColour(c, [row]);
  const line = chips(tokens, (k) => {
    const ground = colour.of(row[k]);
    return {
      style: {
        background: scale.css(ground),
        color: scale.css(scale.onTop(c, ground)),
        ...(!isCount(c.finding) && values[k] > 0.5 ? { "box-shadow": "0 3px 0 var(--ink)" } : {}),
      },
    };
  });
  [...line.querySelectorAll(".ch-tok")].forEach((mark, k) =>
    c.tells(
      mark,
      () =>
        `${visible(textOf(tokens[k]))} · ${c.words("neuron")} ${nameOf(neurons[c.state.neuron])} · ` +
        `${scale.number(row[k])} · ${c.words(`probe_${c.finding.property}`)}: ${scale.number(values[k])}`,
    ),
  );
  return [line, colour.legend(c.words("activation"))];
}

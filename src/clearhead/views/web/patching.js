// Where an answer is decided: one inner tensor taken from another text, for every layer and position.

import { effectColour } from "./ablation.js";
import { el } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { chips, plain, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const answersOf = (found) => (found.answers ?? [found.answer, found.other]).map((one) => textOf(one ?? ""));

const view = {
  start: () => ({ layer: null, position: null }),
  title: (c) => c.words("patching_title", { answer: plain(answersOf(c.finding)[0]) }),
  reading: (c) => c.words("patching_reading", { tap: c.finding.tap, answer: plain(answersOf(c.finding)[0]), other: plain(answersOf(c.finding)[1]) }),
  body(c, box) {
    const { clean, corrupted, effect } = c.finding;
    const tokens = Array.isArray(clean) ? clean : c.finding.tokens, others = Array.isArray(corrupted) ? corrupted : c.finding.corrupted_tokens;
    const layers = c.finding.layers ?? Array.from(effect, (_, n) => n);
    const colour = effectColour(c, effect);
    const differs = (n) => tokens && others && textOf(tokens[n] ?? "") !== textOf(others[n] ?? "");
    const line = (name, list, answer) => el("div", { style: { "margin-top": ".5rem" } }, el("p", { class: "ch-name" }, c.words(name)),
      list ? chips(list, (n) => ({ class: differs(n) ? "ch-on" : "" })) : el("p", { class: "ch-say" }, name === "patching_clean" ? clean : corrupted),
      answer ? el("span", { style: { font: "14px var(--mono)", color: "var(--soft)" } }, "→ ", el("b", { style: { color: "var(--ink)" } }, visible(answer))) : "");
    box.append(line("patching_clean", tokens, answersOf(c.finding)[0]), line("patching_corrupted", others, answersOf(c.finding)[1]));
    box.append(el("div", { class: "ch-part" }, heatmap(c, {
      rows: layers.map((layer) => c.words("layer_n", { n: layer })), columns: (others ?? tokens ?? effect[0]).map((token, n) => (typeof token === "number" ? String(n) : visible(textOf(token)))), upward: true, width: [8, 72], height: [20, 30], columnTitle: c.words("position"), label: c.words("patching_title", { answer: "" }), name: "patching",
      colour: (r, k) => colour.of(effect[r][k]), text: (r, k) => scale.like(effect[r][k], colour.most),
      tip: (r, k) => `${c.words("layer_n", { n: layers[r] })} · ${c.words("position")} ${k}${tokens?.[k] ? ` · ${visible(textOf((others ?? tokens)[k]))}` : ""} · ${c.words("effect")} ${scale.number(effect[r][k])}`,
      picked: { row: c.state.layer, column: c.state.position }, pick: (r, k) => c.set(c.state.layer === r && c.state.position === k ? { layer: null, position: null } : { layer: r, position: k }), release: () => c.set({ layer: null, position: null }),
    }), colour.legend(c.words("effect"))));
  },
  *table(found) {
    yield ["layer", "position", "effect"];
    for (let r = 0; r < found.effect.length; r++) for (let k = 0; k < found.effect[r].length; k++) yield [found.layers?.[r] ?? r, k, found.effect[r][k]];
  },
};

// Where an answer is decided: one inner tensor taken from another text, for every layer and position or head.

import { effectColour } from "./ablation.js";
import { el } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { chips, plain, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const whole = (tokens, group) => group.map((n) => visible(tokens[n].text)).join(" ");

const view = {
  /** layer, column: the pinned cell (its place in the finding) */
  start: () => ({ layer: null, column: null }),
  title: (c) => c.words("patching_title", { answer: plain(c.finding.answers[0]) }),
  reading(c) {
    const { tap, by, answers, clean_score, corrupted_score } = c.finding;
    const [answer, other] = answers.map((one) => (one === null ? null : plain(one)));
    const metric = c.words(other === null ? "patching_score" : "patching_above", { answer, other });
    return c.words("patching_reading", {
      tap,
      metric,
      by: c.words(by === "head" ? "head" : "position"),
      clean: scale.number(clean_score),
      corrupted: scale.number(corrupted_score),
    });
  },
  body(c, box) {
    const { clean, corrupted, layers, positions, heads, effect, scores, by, clean_top, corrupted_top } = c.finding;
    const { layer, column } = c.state;
    const colour = effectColour(c, effect);
    const swapped = by === "position" && column !== null ? positions[column] : [];
    const line = (name, tokens, top) =>
      el(
        "div",
        { class: "ch-part" },
        el("p", { class: "ch-name" }, c.words(name)),
        chips(tokens, (n) => ({
          class: swapped.includes(n) ? "ch-on" : "",
          style:
            clean[n].id !== corrupted[n].id
              ? { "text-decoration": "underline", "text-underline-offset": ".25em", "font-weight": "600" }
              : {},
        })),
        el(
          "span",
          { style: { font: "14px var(--mono)", color: "var(--soft)" } },
          "→ ",
          el("b", { style: { color: "var(--ink)" } }, visible(top[0].token)),
          ` ${scale.percent(top[0].probability)}`,
        ),
      );
    box.append(line("patching_clean", clean, clean_top), line("patching_corrupted", corrupted, corrupted_top));
    const columns = by === "head" ? heads.map(String) : positions.map((group) => whole(corrupted, group));
    const place = (k) =>
      by === "head"
        ? c.words("head_n", { n: heads[k] })
        : `${c.words("position")} ${positions[k].join(", ")} · ` +
          `${columns[k]}${whole(clean, positions[k]) === columns[k] ? "" : ` ← ${whole(clean, positions[k])}`}`;
    box.append(
      el(
        "div",
        { class: "ch-part" },
        heatmap(c, {
          rows: layers.map((n) => c.words("layer_n", { n })),
          columns,
          upward: true,
          width: [8, 120],
          height: [20, 30],
          columnTitle: c.words(by === "head" ? "head" : "position"),
          label: view.title(c),
          name: "patching",
          colour: (r, k) => colour.of(effect[r][k]),
          text: (r, k) => scale.like(effect[r][k], colour.most),
          tip: (r, k) =>
            `${c.words("layer_n", { n: layers[r] })} · ${place(k)} · ${c.words("effect")} ` +
            `${scale.number(effect[r][k])} · ${c.words("score")} ${scale.number(scores[r][k])}`,
          picked: { row: layer, column },
          pick: (r, k) => c.set(layer === r && column === k ? { layer: null, column: null } : { layer: r, column: k }),
          release: () => c.set({ layer: null, column: null }),
        }),
        colour.legend(c.words("effect")),
      ),
    );
  },
  *table(finding) {
    yield ["layer", finding.by, "effect", "score"];
    for (const [r, layer] of finding.layers.entries())
      for (let k = 0; k < finding.effect[r].length; k++)
        yield [
          layer,
          finding.by === "head" ? finding.heads[k] : finding.positions[k].join(" "),
          finding.effect[r][k],
          finding.scores[r][k],
        ];
  },
};

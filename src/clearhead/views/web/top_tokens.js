// What excites one unit most: the places of a corpus where it was strongest, with the words around them.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { chips, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  title: (c) => c.words("top_title", { neuron: `${c.finding.layer}·${c.finding.neuron}` }),
  reading: (c) =>
    c.words("top_reading", {
      texts: scale.whole(c.finding.texts),
      tokens: scale.whole(c.finding.token_count),
      rate: scale.percent(c.finding.firing_rate),
    }),
  body(c, box) {
    const { contexts } = c.finding;
    const most = Math.max(...contexts.map((one) => one.activation), 1e-9);
    box.append(
      el(
        "div",
        {},
        contexts.map((one, n) => {
          const { tokens, activations: all, at } = one;
          const line = chips(tokens, (k) => {
            const ground = scale.ink(c, "accent", Math.max(0, all[k] / most) * 0.85);
            return {
              style: { background: scale.css(ground), color: scale.css(scale.onTop(c, ground)) },
              class: k === at ? "ch-on" : "",
            };
          });
          [...line.querySelectorAll(".ch-tok")].forEach((mark, k) =>
            c.tells(mark, () => `${visible(textOf(tokens[k]))} · ${scale.number(all[k])}`),
          );
          return el(
            "div",
            {
              style: {
                display: "grid",
                "grid-template-columns": "3.6rem minmax(0, 1fr)",
                gap: "1rem",
                "align-items": "baseline",
                "border-top": n ? "1px solid var(--hair)" : "0",
                padding: ".3rem 0",
              },
            },
            el("span", { style: { font: "13px var(--mono)", "text-align": "end" } }, scale.number(one.activation)),
            line,
          );
        }),
      ),
      scale.legend(
        c.words("activation"),
        scale.steps(8, (t) => scale.ink(c, "accent", t * 0.85)),
        ["0", scale.number(most)],
      ),
    );
  },
  *table(finding) {
    yield ["rank", "text", "position", "token", "activation", "context"];
    for (const [n, one] of finding.contexts.entries())
      yield [
        n + 1,
        one.text,
        one.position,
        textOf(one.tokens[one.at]),
        one.activation,
        one.tokens.map(textOf).join(""),
      ];
  },
};

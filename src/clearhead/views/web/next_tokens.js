// What may come next: the likeliest tokens with their probabilities; choosing one goes on.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import { ranked } from "./guesses.js";
import * as scale from "./scale.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** chosen: the id of the token that was picked; whoever shows the figure goes on from there */
  start: () => ({ chosen: null }),
  title: (c) => c.words("next_title"),
  reading(c) {
    const { candidates, entropy, vocabulary } = c.finding;
    const shown = candidates.reduce((sum, one) => sum + one.probability, 0);
    return c.words("next_reading", {
      count: candidates.length,
      shown: scale.percent(shown, 1),
      entropy: entropy.toFixed(1),
      many: scale.whole(2 ** entropy),
      vocabulary: scale.whole(vocabulary),
    });
  },
  body(c, box) {
    const { candidates, text, source } = c.finding;
    const chosen = candidates.find((one) => one.token_id === c.state.chosen);
    const line = el(
      "p",
      {
        class: "ch-say",
        style: {
          font: "17px/1.6 var(--serif)",
          color: "var(--ink)",
          "overflow-wrap": "anywhere",
          "white-space": "pre-wrap",
        },
      },
      source ? el("span", { style: { color: "var(--soft)" } }, `${source} → `) : "",
      text,
      chosen ? el("b", {}, chosen.token) : el("span", { style: { color: "var(--v)" } }, "▁"),
    );
    box.append(
      line,
      ranked(
        c,
        candidates.map((one) => ({
          token: one.token,
          probability: one.probability,
          tip:
            `${c.words("token_id", { id: one.token_id })} · ${scale.percent(one.probability, 3)} · ` +
            `${c.words("score")} ${scale.number(one.logit)}`,
        })),
        {
          picked: candidates.indexOf(chosen),
          pick: (n) => {
            c.set({ chosen: candidates[n].token_id });
            c.options.onPick?.(candidates[n]);
          },
        },
      ),
    );
  },
  *table(finding) {
    yield ["rank", "token", "token_id", "probability", "logit"];
    for (const [n, one] of finding.candidates.entries())
      yield [n + 1, one.token, one.token_id, one.probability, one.logit];
  },
};

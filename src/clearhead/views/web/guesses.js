// Candidates with their probabilities: a token, a number, and a bar against the best.

import { el, rove } from "./dom.js";
import { percent } from "./scale.js";
import { signed, visible } from "./tokens.js";

/** list: [{token, probability, tip}]. With `pick`, each can be chosen.
 *  whole: bars are against 100 % rather than the best; words: the tokens are plain words, whose spaces are no signs */
export function ranked(c, list, { pick, hue = "v", picked = null, whole = false, words = false } = {}) {
  const best = whole ? 1 : Math.max(...list.map((one) => one.probability), c.options?.highestProbability ?? 0, 1e-12);
  const rows = list.map((one, n) => {
    const parts = [
      el("span", {}, words ? one.token : signed(one.token)),
      el("span", { class: "ch-share" }, percent(one.probability, 2)),
      el(
        "span",
        { class: "ch-track" },
        el("span", {
          class: "ch-bar",
          style: { width: `${(one.probability / best) * 100}%`, background: `var(--${hue})` },
        }),
      ),
    ];
    const row = pick
      ? el(
          "button",
          {
            type: "button",
            "data-at": `choice${n}`,
            "aria-pressed": String(picked === n),
            "aria-label": `${visible(one.token)} ${percent(one.probability, 2)}`,
            onclick: () => pick(n),
          },
          parts,
        )
      : el("div", { class: "ch-choice" }, parts);
    return one.tip ? c.tells(row, () => one.tip) : row;
  });
  if (pick) rove(rows, { pick });
  return el("div", { class: "ch-ranked" }, rows);
}

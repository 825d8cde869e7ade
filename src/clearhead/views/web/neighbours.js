// Which words lie near: a word's neighbours, or where a sum of words leads, by the cosine of their vectors.

import { el, rove } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** chosen: the row of the word that was picked; whoever shows the figure may go on from there */
  start: () => ({ chosen: null }),
  title: (c) => {
    const { terms, asked } = c.finding;
    return terms.length === 1 && terms[0].sign === 1
      ? c.words("neighbours_title", { word: terms[0].word })
      : c.words("neighbours_title_sum", { asked });
  },
  reading: (c) =>
    c.words(c.finding.terms.length === 1 ? "neighbours_reading" : "neighbours_reading_sum", {
      count: scale.whole(c.finding.count),
      width: c.finding.width,
    }),
  body(c, box) {
    const { nearest } = c.finding;
    const best = Math.max(...nearest.map((one) => one.cosine), 1e-6);
    const pick = (n) => {
      c.set({ chosen: c.state.chosen === nearest[n].row ? null : nearest[n].row });
      c.options.onPick?.(nearest[n]);
    };
    const rows = nearest.map((one, n) =>
      c.tells(
        el(
          "button",
          {
            type: "button",
            "data-at": `word${n}`,
            "aria-pressed": String(c.state.chosen === one.row),
            "aria-label": `${one.word} ${scale.number(one.cosine)}`,
            onclick: () => pick(n),
          },
          el("span", {}, one.word),
          el("span", { class: "ch-share" }, scale.number(one.cosine)),
          el(
            "span",
            { class: "ch-track" },
            el("span", {
              class: "ch-bar",
              style: { width: `${Math.max(0, one.cosine / best) * 100}%`, background: "var(--v)" },
            }),
          ),
        ),
        () =>
          `${c.words("word_row", { row: scale.whole(one.row + 1) })} · ${c.words("cosine")} ${one.cosine.toFixed(4)}`,
      ),
    );
    if (rows.length) rove(rows, { pick, release: () => c.set({ chosen: null }) });
    box.append(el("div", { class: "ch-ranked" }, rows));
  },
  *table(finding) {
    yield ["rank", "word", "cosine", "row"];
    for (const [n, one] of finding.nearest.entries()) yield [n + 1, one.word, one.cosine, one.row];
  },
};

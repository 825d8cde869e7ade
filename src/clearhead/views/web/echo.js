// How long a word echoes in a recurrent state: what is left of each word after every step.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { plain, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** word: the pinned row */
  start: () => ({ word: null }),
  title: (c) =>
    c.state.word === null
      ? c.words("echo_title")
      : c.words("echo_title_of", { token: plain(textOf(c.finding.tokens[c.state.word])) }),
  reading(c) {
    const words = c.words("echo_reading", { layer: c.finding.layer });
    return c.finding.direction === "reverse" ? `${words} ${c.words("gates_reverse")}` : words;
  },
  body(c, box) {
    const { tokens, echo } = c.finding;
    const names = tokens.map((token) => visible(textOf(token)));
    box.append(
      heatmap(c, {
        rows: names,
        columns: names,
        square: true,
        width: [6, 52],
        height: [8, 30],
        rowTitle: c.words("echo_word"),
        columnTitle: c.words("echo_step"),
        label: c.words("echo_title"),
        name: "echo",
        colour: (r, k) => scale.ink(c, "accent", echo[r][k] ?? 0),
        text: (r, k) => (echo[r][k] > 0.005 ? String(Math.round(echo[r][k] * 100)) : ""),
        tip: (r, k) => `${names[r]} · ${c.words("echo_step")} ${names[k]} · ${scale.percent(echo[r][k])}`,
        picked: c.state.word === null ? null : { row: c.state.word, column: null },
        pick: (r) => c.set({ word: c.state.word === r ? null : r }),
        release: () => c.set({ word: null }),
      }),
      el(
        "div",
        {},
        scale.legend(
          c.words("echo_scale"),
          scale.steps(9, (t) => scale.ink(c, "accent", t)),
          ["0", c.words("echo_more")],
        ),
      ),
    );
  },
  *table(finding) {
    yield ["word", "token", "step", "after", "change", "echo"];
    for (const [i, row] of finding.echo.entries())
      for (let t = 0; t < row.length; t++)
        yield [i, textOf(finding.tokens[i]), t, textOf(finding.tokens[t]), finding.change[i][t], row[t]];
  },
};

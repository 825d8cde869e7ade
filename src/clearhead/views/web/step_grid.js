// What figures of steps are made of: a grid of rows, one for each token, with strips of numbers, numbers and bars.

import { el } from "./dom.js";
import * as scale from "./scale.js";
import { signed, textOf, visible } from "./tokens.js";

export const ROW = 24; // pixels
export const GAP = 18;
export const WIDEST = 18; // a cell

/** Numbers of one column: as many places for each. */
export const tidy = (value, most) => value.toFixed(most >= 10 ? 1 : 2).replace("-", "−");
export const times = (row, by) => row.map((value, d) => value * (typeof by === "number" ? by : by[d]));

/** A grid whose first column names tokens. columns: CSS widths; put(node, row, column, rows it spans). */
export function grid(columns, top, count) {
  const own = el("div", {
    style: {
      display: "grid",
      "grid-template-columns": [`minmax(3.6rem, max-content)`, ...columns].join(" "),
      "grid-template-rows": `${top} repeat(${count}, ${ROW}px)`,
      "column-gap": `${GAP}px`,
      "align-items": "center",
      font: "13px var(--mono)",
      "font-variant-numeric": "tabular-nums",
      width: "max-content",
      "max-width": "100%",
    },
  });
  own.put = (node, row, column, span = 1) => {
    node.style.gridArea = `${row} / ${column} / span ${span} / span 1`;
    own.append(node);
    return node;
  };
  return own;
}
export const named = (text, hue, end = false) =>
  el(
    "span",
    {
      class: "ch-name",
      style: {
        color: hue ? `var(--${hue}-text)` : "var(--soft)",
        "align-self": "end",
        "text-align": end ? "end" : "start",
      },
    },
    text,
  );
export const right = (text, quiet = false) =>
  el(
    "span",
    { style: { "text-align": "end", color: quiet ? "var(--soft)" : "inherit", "white-space": "nowrap" } },
    text,
  );
export const tokenCell = (token, { bold = false, quiet = false } = {}) =>
  el(
    "span",
    {
      style: {
        "font-weight": bold ? 700 : 400,
        color: quiet ? "var(--soft)" : "inherit",
        overflow: "hidden",
        "text-overflow": "ellipsis",
        "white-space": "nowrap",
        "max-width": "8rem",
      },
    },
    signed(textOf(token)),
  );
export const bar = (share, space, hue) =>
  el("span", { class: "ch-bar", style: { width: `${Math.max(1, share * space)}px`, background: hue } });
/** How wide a cell may be so that `count` strips of D numbers fit beside what is `taken`; `least`: then it scrolls. */
export const cellFor = (c, D, taken, count = 1, least = 0.5) =>
  Math.max(least, Math.min(WIDEST, (c.width - taken - 90 - GAP * count) / (D * count)));
export const cells = (c, name, keys, numbers) => (r, d) =>
  `${keys ? `${visible(textOf(keys[r]))}, ` : ""}${name} ${c.words("dimension", { d })}: ` +
  `${scale.number(numbers[r][d])}`;

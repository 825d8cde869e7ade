// One head at work on one token: its query, every key, their products number by number, the score and the weight.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { largest, strip } from "./strip.js";
import { isWritten, plain, signed, stepWords, textOf, visible } from "./tokens.js";

const PITCH = 24;

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  start: () => ({ key: null }),
  title: (c) => c.words("query_key_title", { token: plain(textOf(c.finding.tokens[c.finding.position])) }),
  reading: (c) => c.words("query_key_reading", { layer: c.finding.layer, head: c.finding.head }),
  body,
  *table(finding) {
    yield ["key", "token", "score", "weight", ...Array.from(finding.query, (_, d) => `product_${d}`)];
    for (const [n, token] of finding.keys.entries())
      yield [n, textOf(token), finding.scores[n], finding.weights[n], ...finding.products[n]];
  },
};

function body(c, box) {
  const finding = c.finding;
  const N = finding.keys.length,
    D = finding.query.length;
  const narrow = c.width < 720;
  const space = narrow ? c.width - 190 : Math.floor((c.width - 400) / 2);
  const wide = Math.max(1, Math.min(9, space / D));
  const most = { query: largest([finding.query]), key: largest(finding.key), products: largest(finding.products) };
  const bars = narrow ? 0 : 120;
  const best = Math.max(...finding.weights, 1e-9);
  const grid = el("div", {
    style: {
      display: "grid",
      "grid-template-columns": narrow
        ? `minmax(0, 1fr) ${wide * D}px 4.2rem`
        : `minmax(5rem, max-content) ${wide * D}px ${wide * D}px 4.6rem ${bars + 64}px`,
      "grid-template-rows": `auto ${PITCH + 6}px auto repeat(${N}, ${PITCH}px)`,
      "column-gap": "18px",
      "align-items": "center",
      font: "13px var(--mono)",
    },
  });
  const put = (node, row, column, span = 1) => {
    node.style.gridArea = `${row} / ${column} / span ${span} / span 1`;
    grid.append(node);
    return node;
  };
  const name = (text, colour) =>
    el(
      "span",
      { class: "ch-name", style: { color: colour ? `var(--${colour}-text)` : "var(--soft)", "align-self": "end" } },
      text,
    );
  const place = { key: 2, products: narrow ? null : 3, score: narrow ? null : 4, weight: narrow ? 3 : 5 };

  put(name(c.words("query"), "q"), 1, 2);
  put(el("span", {}, signed(textOf(finding.tokens[finding.position]))), 2, 1);
  put(
    strip(
      c,
      [finding.query],
      most.query,
      wide,
      PITCH,
      (_, d) => `${c.words("query")} ${d} · ${scale.number(finding.query[d])}`,
      "query",
    ),
    2,
    2,
  );
  put(name(c.words("keys"), "k"), 3, 2);
  if (place.products) put(name(c.words("products")), 3, place.products);
  if (place.score) put(name(c.words("score")), 3, place.score).style.textAlign = "end";
  put(name(c.words("weight"), "q"), 3, place.weight);

  const tell = (n, d) =>
    `${visible(textOf(finding.keys[n]))}, ${c.words("dimension", { d })}\n${c.words("query")} ` +
    `${scale.number(finding.query[d])} × ${c.words("key")} ${scale.number(finding.key[n][d])} = ` +
    `${scale.number(finding.products[n][d])}`;
  put(strip(c, finding.key, most.key, wide, PITCH, tell, "keys"), 4, place.key, N);
  if (place.products)
    put(strip(c, finding.products, most.products, wide, PITCH, tell, "products"), 4, place.products, N);
  finding.keys.forEach((token, n) => {
    const hidden = finding.hidden[n];
    const quiet = hidden ? "var(--soft)" : "var(--ink)";
    put(
      el(
        "span",
        {
          style: {
            color: quiet,
            "font-weight": n === finding.position ? 700 : 400,
            overflow: "hidden",
            "text-overflow": "ellipsis",
            "white-space": "nowrap",
          },
        },
        signed(textOf(token)),
      ),
      n + 4,
      1,
    );
    if (place.score)
      put(
        el("span", { style: { "text-align": "end", color: quiet } }, scale.number(finding.scores[n])),
        n + 4,
        place.score,
      );
    const words = hidden ? c.words("hidden") : scale.percent(finding.weights[n], 1);
    const bar =
      bars && !hidden
        ? el("span", {
            class: "ch-bar",
            style: { width: `${Math.max(1, (finding.weights[n] / best) * bars)}px`, background: "var(--q)" },
          })
        : "";
    put(
      el(
        "span",
        { style: { color: quiet, display: "flex", gap: "8px", "align-items": "center" } },
        el("span", { style: { width: "56px", "text-align": "end" } }, words),
        bar,
      ),
      n + 4,
      place.weight,
    );
  });
  const asking = finding.tokens[finding.position];
  box.append(
    isWritten(asking) ? el("p", { class: "ch-say" }, stepWords(c, asking)) : "",
    el("div", { class: "ch-wide", style: { "overflow-x": "auto" } }, grid),
    scale.legend(
      c.words("two_sided"),
      scale.steps(9, (t) => scale.signed(c, t), -1, 1),
      ["−", "0", "+"],
    ),
  );
}

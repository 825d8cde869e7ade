// The walk: one token followed through one layer, step by step, with the actual numbers.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import { ranked } from "./guesses.js";
import * as scale from "./scale.js";
import { chips, plain, signed, stepWords, textOf } from "./tokens.js";

const HUES = { query: "q", key: "k", value: "v" };

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  title: (c) => c.words("walk_title", { token: plain(c.finding.tokens[c.finding.position]) }),
  reading: (c) =>
    c.words(c.finding.heads ? "walk_reading" : "walk_reading_recurrent", {
      layer: c.finding.layer,
      layers: c.finding.layers,
      head: c.finding.head,
      heads: c.finding.heads,
    }),
  body(c, box) {
    const { tokens, position, steps } = c.finding;
    const named = (key, hue) => el("p", { class: "ch-name", style: { color: `var(--${hue}-text)` } }, c.words(key));
    if (c.finding.side === "decoder")
      box.append(
        named("side_encoder", "enc"),
        chips(c.finding.source, () => ({ class: "ch-faint" })),
        named("side_decoder", "dec"),
      );
    box.append(chips(tokens, (n) => ({ class: n === position ? "ch-on" : "ch-faint" })));
    if (c.finding.written) box.append(el("p", { class: "ch-say" }, stepWords(c, c.finding.written)));
    box.append(
      el(
        "div",
        { class: "ch-part ch-steps" },
        steps.map((step, n) => one(c, step, n + 1)),
      ),
    );
  },
  *table(finding) {
    yield ["step", "title", "tap", "label", "place", "number"];
    for (const [n, step] of finding.steps.entries()) {
      for (const vector of step.vectors)
        for (const [d, value] of vector.numbers.entries()) yield [n + 1, step.title, step.tap, vector.label, d, value];
      for (const column of step.columns)
        for (const [k, value] of column.numbers.entries())
          yield [n + 1, step.title, step.tap, column.label, (step.tokens ?? finding.tokens)[k], value];
      for (const [token, probability] of step.guesses)
        yield [n + 1, step.title, step.tap, "probability", token, probability];
    }
  },
};

function one(c, step, n) {
  const parts = [
    el("h4", {}, `${n}. ${step.title}`, el("span", {}, step.tap)),
    el("p", { class: "ch-say" }, step.explanation),
  ];
  if (step.vectors.length) {
    const most = Math.max(...step.vectors.flatMap((vector) => vector.numbers.map(Math.abs)), 1e-9);
    parts.push(...step.vectors.map((vector) => vectorOf(c, vector, most)));
  }
  if (step.columns.length) parts.push(columnsOf(c, step.columns, step.tokens));
  if (step.guesses.length)
    parts.push(
      ranked(
        c,
        step.guesses.map(([token, probability]) => ({ token, probability })),
      ),
    );
  return el("div", { class: "ch-step" }, parts);
}

function vectorOf(c, vector, most) {
  const hue = HUES[vector.role];
  const cells = vector.numbers.map((value, d) => {
    const ground = scale.signed(c, (value / most) * 0.6);
    const cell = el(
      "span",
      { style: { background: scale.css(ground), color: scale.css(scale.onTop(c, ground)) } },
      scale.number(value),
    );
    return c.tells(cell, () => `${vector.label} [${d}] = ${value}`);
  });
  return el(
    "div",
    { class: "ch-vector" },
    el(
      "span",
      {
        class: "ch-of",
        style: hue
          ? { color: `var(--${hue}-text)`, "border-left": `3px solid var(--${hue})`, "padding-left": ".5rem" }
          : { "padding-left": ".7rem" },
      },
      vector.label,
    ),
    el(
      "span",
      { class: "ch-nums" },
      cells,
      el("em", {}, vector.length > vector.numbers.length ? `… ${scale.whole(vector.length)}` : ""),
    ),
  );
}

function columnsOf(c, columns, others) {
  const { position } = c.finding,
    tokens = others ?? c.finding.tokens;
  const shares = columns.find((column) => column.is_probability);
  const own = c.width >= 936 ? (c.width - 40) / 2 : c.width; // steps stand in two columns where there is room
  const space = Math.max(60, Math.min(320, own - 120 - columns.length * 90));
  const head = el(
    "tr",
    {},
    el("th", {}, c.words("looks_at")),
    columns.map((column) => el("th", {}, column.label)),
    shares && el("th", {}),
  );
  const rows = tokens.map((token, n) =>
    el(
      "tr",
      {},
      el("td", { style: { "font-weight": !others && n === position ? 700 : 400 } }, signed(textOf(token))),
      columns.map((column) =>
        el(
          "td",
          { style: { color: column.numbers[n] === null ? "var(--soft)" : "inherit" } },
          column.numbers[n] === null ? c.words("hidden") : scale.number(column.numbers[n]),
        ),
      ),
      shares &&
        el(
          "td",
          { class: "ch-barcell" },
          el("span", {
            class: "ch-bar",
            style: { width: `${(shares.numbers[n] ?? 0) * space}px`, background: "var(--q)" },
          }),
        ),
    ),
  );
  return el(
    "div",
    { style: { "overflow-x": "auto" } },
    el("table", { class: "ch-table" }, el("thead", {}, head), el("tbody", {}, rows)),
  );
}

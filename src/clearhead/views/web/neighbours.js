// Which words lie near: a word's neighbours, or where a sum of words leads, by the cosine of their vectors.

import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { arrow, arrowHead, layout } from "./word_plane.js";

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
    const several = c.finding.terms.length > 1;
    const beside = several && c.width >= 760;
    const space = beside ? Math.floor((c.width - 40) * 0.6) : c.width;
    const map = several ? plane(c, space, pick) : null;
    rows.forEach((row, n) => {
      row.addEventListener("pointerenter", () => map?.light(n));
      row.addEventListener("pointerleave", () => map?.light(null));
    });
    if (rows.length) rove(rows, { pick, release: () => c.set({ chosen: null }), seen: (n) => map?.light(n) });
    const list = el("div", { class: "ch-ranked" }, rows);
    const columns = beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)";
    box.append(
      map ? el("div", { class: "ch-columns", style: { "grid-template-columns": columns } }, map.element, list) : list,
    );
  },
  *table(finding) {
    yield ["rank", "word", "cosine", "row"];
    for (const [n, one] of finding.nearest.entries()) yield [n + 1, one.word, one.cosine, one.row];
  },
};

const ARROW = "neighbours-arrow";
const NAMED = 6; // neighbours that stand on the plane

/** The words of a sum, where it leads, and the words nearest to that, on the plane that the sum lies in. */
function plane(c, space, pick) {
  const { terms, nearest, places } = c.finding;
  const near = nearest.slice(0, NAMED);
  const words = [...terms.map((one) => one.word), ...near.map((one) => one.word), space < 440 ? "" : c.finding.asked];
  const at = [...places.slice(0, terms.length + near.length), places.at(-1)];
  const end = at.length - 1;
  const on = layout(at, words, space, { tall: Math.round(Math.min(430, Math.max(280, space * 0.6))) });
  const { x, y, names } = on;
  const dot = (n, fill, more = {}) => svg("circle", { class: "ch-dot", cx: x(n), cy: y(n), r: 4, fill, ...more });
  const name = (n, more = {}) =>
    svg("text", { class: "ch-halo", x: names[n].x, y: names[n].y, "text-anchor": names[n].anchor, ...more }, words[n]);
  const cosine = (one) => `${one.word} · ${c.words("cosine")} ${one.cosine.toFixed(4)}`;
  const marks = near.map((one, k) => {
    const n = terms.length + k;
    const mark = svg(
      "g",
      { style: { cursor: "pointer" } },
      svg("circle", { cx: x(n), cy: y(n), r: 11, fill: "transparent" }),
      dot(n, "var(--v)", { "fill-opacity": 0.25 + 0.75 * Math.max(0, one.cosine) }),
      name(n),
    );
    mark.addEventListener("click", () => pick(k));
    return c.tells(mark, () => cosine(one));
  });
  const plus = terms.flatMap((one, n) => (one.sign > 0 ? [n] : [])),
    minus = terms.flatMap((one, n) => (one.sign < 0 ? [n] : []));
  const same = plus.length === 2 && minus.length === 1; // a − b + c: from b to c as from a to where it leads
  const arrows = same ? [arrow(ARROW, on, minus[0], plus[1]), arrow(ARROW, on, plus[0], end)] : [];
  const dashed = { stroke: "var(--soft)", "stroke-dasharray": "2 4", "stroke-width": 1, "marker-end": undefined };
  const sides = same ? [arrow(ARROW, on, minus[0], plus[0], dashed), arrow(ARROW, on, plus[1], end, dashed)] : [];
  const element = svg(
    "svg",
    { class: "ch-drawing", width: space, height: on.tall, role: "img", "aria-label": c.words("neighbours_plane") },
    svg("defs", {}, arrowHead(ARROW)),
    sides,
    arrows,
    marks,
    terms.map((_, n) => svg("g", {}, dot(n, "var(--ink)"), name(n, { style: { "font-weight": 600 } }))),
    c.tells(
      svg(
        "g",
        {},
        dot(end, "var(--paper)", { r: 6, stroke: "var(--k)", "stroke-width": 2 }),
        svg("circle", { cx: x(end), cy: y(end), r: 11, fill: "transparent" }),
        name(end, { class: "ch-halo ch-dim" }),
      ),
      () => c.words("neighbours_leads", { asked: c.finding.asked }),
    ),
  );
  return {
    element,
    light: (n) =>
      marks.forEach((mark, k) => {
        mark.querySelector(".ch-dot").setAttribute("r", n === k ? 6.5 : 4);
      }),
  };
}

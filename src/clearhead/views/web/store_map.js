// The search on a map: a text among the passages of a store, and those that lie nearest.

import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { short } from "./tokens.js";
import { layout } from "./word_plane.js";

const LISTED = 8; // passages beside the map
const GIVEN = 2; // those that a model reads by default: they have names on the map

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** chosen: the passage whose words are shown, by its place in `passages` */
  start: () => ({ chosen: 0 }),
  title: (c) => c.words("map_title"),
  reading: (c) =>
    c.words("map_reading", {
      count: scale.whole(c.finding.count),
      width: scale.whole(c.finding.width),
      encoder: c.finding.encoder.split(/[\\/]/).at(-1),
      share: scale.percent(
        c.finding.explained.reduce((a, b) => a + b, 0),
        0,
      ),
    }),
  body(c, box) {
    const { passages } = c.finding;
    const near = passages.filter((one) => one.rank !== null).slice(0, LISTED);
    const beside = c.width >= 760;
    const space = beside ? Math.floor((c.width - 40) * 0.5) : c.width;
    const pick = (n) => c.set({ chosen: n });
    const map = plane(c, space, pick, light);
    const low = Math.min(...passages.map((one) => one.score)),
      high = Math.max(...passages.map((one) => one.score));
    const rows = near.map((one, n) =>
      el(
        "button",
        {
          type: "button",
          "data-at": `near${n}`,
          "aria-pressed": String(c.state.chosen === n),
          "aria-label": `${one.document} ${scale.number(one.score)}`,
          onclick: () => pick(n),
        },
        el("span", { class: "ch-found" }, one.document),
        el("span", { class: "ch-share" }, one.score.toFixed(3)),
        el(
          "span",
          { class: "ch-track" },
          el("span", {
            class: "ch-bar",
            style: { width: `${((one.score - low) / (high - low || 1)) * 100}%`, background: "var(--k)" },
          }),
        ),
      ),
    );
    function light(n) {
      map.light(n);
      rows.forEach((row, k) => row.classList.toggle("ch-lit", k === n));
    }
    rows.forEach((row, n) => {
      row.addEventListener("pointerenter", () => light(n));
      row.addEventListener("pointerleave", () => light(null));
      c.tells(row, () => tip(c, passages[n]));
    });
    if (rows.length) rove(rows, { start: Math.min(c.state.chosen, rows.length - 1), pick, seen: light });
    const one = passages[Math.min(c.state.chosen, passages.length - 1)];
    const said = el(
      "div",
      { class: "ch-card" },
      el("p", { class: "ch-source" }, el("b", {}, one.document), el("span", {}, one.score.toFixed(3))),
      el("p", { class: "ch-passage" }, one.text.trim()),
    );
    const columns = beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)";
    box.append(
      el(
        "div",
        { class: "ch-columns", style: { "grid-template-columns": columns } },
        map.element,
        el("div", {}, el("div", { class: "ch-ranked" }, rows), said),
      ),
      el(
        "div",
        { class: "ch-legend" },
        ...[
          ["q", "map_query"],
          ["k", "map_near"],
          ["soft", "map_others"],
        ].map(([hue, key]) =>
          el("span", { class: "ch-kind" }, el("i", { style: { background: `var(--${hue})` } }), c.words(key)),
        ),
      ),
    );
  },
  *table(finding) {
    yield ["rank", "document", "position", "score", "x", "y", "text"];
    for (const [n, one] of finding.passages.entries())
      yield [
        one.rank === null ? "" : one.rank + 1,
        one.document,
        one.position,
        one.score,
        ...Array.from(finding.places[n + 1]),
        one.text,
      ];
  },
};

const tip = (c, one) => `${one.document} · ${c.words("passage_score", { score: one.score.toFixed(4) })}`;

function plane(c, space, pick, light) {
  const { passages, places, asked } = c.finding;
  const tall = Math.round(Math.min(460, Math.max(260, space * 0.66)));
  const most = space < 480 ? 16 : 28;
  const given = space < 480 ? 0 : GIVEN; // names need room
  const named = [short(asked, most), ...passages.map((one, n) => (n < given ? short(one.document, most) : ""))];
  const shown = places.slice(0, passages.length + 1).map((place) => Array.from(place));
  const { x, y, names, tall: used } = layout(shown, named, space, { tall, most: Infinity });
  const name = (n, more) =>
    svg(
      "text",
      {
        class: "ch-halo",
        x: names[n].x,
        y: names[n].y,
        "text-anchor": names[n].anchor,
        "font-size": 13,
        "font-family": "var(--sans)",
        ...more,
      },
      named[n],
    );
  const low = Math.min(...passages.map((one) => one.score)),
    high = Math.max(...passages.map((one) => one.score));
  const dots = passages.map((one, n) => {
    const found = one.rank !== null;
    const dot = svg("circle", {
      class: "ch-dot",
      cx: x(n + 1),
      cy: y(n + 1),
      r: found ? 4.5 : 2.6,
      fill: found ? "var(--k)" : "var(--soft)",
      "fill-opacity": found ? 0.3 + (0.7 * (one.score - low)) / (high - low || 1) : 0.45,
    });
    const mark = svg(
      "g",
      { style: { cursor: "pointer" } },
      svg("circle", { cx: x(n + 1), cy: y(n + 1), r: 9, fill: "transparent" }),
      dot,
    );
    mark.addEventListener("pointerenter", () => light(n));
    mark.addEventListener("pointerleave", () => light(null));
    mark.addEventListener("click", () => pick(n));
    return c.tells(mark, () => tip(c, one));
  });
  const order = passages
    .map((_, n) => n)
    .sort((a, b) => (passages[a].rank === null ? 0 : 1) - (passages[b].rank === null ? 0 : 1));
  const ring = svg("circle", { r: 8, fill: "none", stroke: "var(--accent)", "stroke-width": 2, visibility: "hidden" });
  const put = (n) => {
    ring.setAttribute("cx", x(n + 1));
    ring.setAttribute("cy", y(n + 1));
    ring.setAttribute("visibility", "visible");
  };
  const lines = passages.slice(0, GIVEN).map((_, n) =>
    svg("line", {
      x1: x(0),
      y1: y(0),
      x2: x(n + 1),
      y2: y(n + 1),
      stroke: "var(--q)",
      "stroke-width": 1,
      "stroke-dasharray": "2 4",
    }),
  );
  const chosen = Math.min(c.state.chosen, passages.length - 1);
  put(chosen);
  const element = svg(
    "svg",
    { class: "ch-drawing", width: space, height: used, role: "img", "aria-label": c.words("map_title") },
    lines,
    order.map((n) => dots[n]),
    passages.slice(0, given).map((_, n) => name(n + 1)),
    c.tells(
      svg(
        "g",
        {},
        svg("circle", { cx: x(0), cy: y(0), r: 6.5, fill: "var(--q)" }),
        name(0, { style: { "font-weight": 600 } }),
      ),
      () => asked,
    ),
    ring,
  );
  return { element, light: (n) => put(n ?? chosen) };
}

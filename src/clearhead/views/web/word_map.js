// A map of words: their vectors on the plane that keeps most of their differences, and how alike each two are.

import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const LETTER = 7.6; // of 13 px sans, on average
const LINE = 17;
const SPILL = 48; // the last slanted name of a column leans out
const SHOWN = 3; // lines from a word that is looked at to those most like it

const view = {
  /** word: the place of the pinned one; show: "learned" or "one-hot" vectors */
  start: () => ({ word: null, show: "learned" }),
  title: (c) => c.words(c.state.show === "learned" ? "word_map_title" : "word_map_title_one_hot"),
  reading(c) {
    const { explained, width, count, odd_one_out } = c.finding;
    if (c.state.show !== "learned") return c.words("word_map_reading_one_hot", { count: scale.whole(count) });
    const kept = scale.percent(explained[0] + explained[1]);
    const odd = odd_one_out === null ? "" : ` ${c.words("word_map_odd", { word: odd_one_out })}`;
    return `${c.words("word_map_reading", { width, kept })}${odd}`;
  },
  controls: (c) => [
    c.group(
      c.words("word_map_vectors"),
      c.state.show,
      [
        ["learned", c.words("word_map_learned")],
        ["one-hot", c.words("word_map_one_hot")],
      ],
      (show) => c.set({ show }),
    ),
  ],
  body(c, box) {
    const beside = c.width >= 860;
    const space = beside ? Math.floor((c.width - 40) * 0.58) : c.width;
    const rest = beside ? c.width - space - 40 : c.width;
    box.append(
      el(
        "div",
        {
          class: "ch-columns",
          style: { "grid-template-columns": beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)" },
        },
        el("div", {}, c.state.show === "learned" ? plane(c, space) : places(c, space)),
        el("div", {}, el("p", { class: "ch-name" }, c.words("word_map_cosines")), cosines(c, rest), legend(c)),
      ),
    );
  },
  *table(finding) {
    yield ["word", "row", "x", "y", ...finding.words];
    for (const [n, word] of finding.words.entries())
      yield [word, finding.rows[n], ...finding.places[n], ...finding.cosines[n]];
  },
};

const cosine = (c, r, k) => (c.state.show === "learned" ? c.finding.cosines[r][k] : Number(r === k));
const pinned = (c) => (c.state.word === null ? null : Math.min(c.state.word, c.finding.words.length - 1));
const pin = (c, n) => c.set({ word: pinned(c) === n ? null : n });

/** The other words, those most like this one first. */
function nearest(c, n) {
  const others = c.finding.words.map((_, k) => k).filter((k) => k !== n);
  return others.sort((a, b) => cosine(c, n, b) - cosine(c, n, a));
}

function tell(c, n) {
  const { words, rows } = c.finding;
  const near = nearest(c, n)
    .slice(0, SHOWN)
    .map((k) => `${words[k]} ${scale.number(cosine(c, n, k))}`);
  return `${words[n]} · ${c.words("word_row", { row: scale.whole(rows[n] + 1) })}\n${near.join(" · ")}`;
}

/** Dots with their names; from the one that is looked at, lines to those most like it. */
function plane(c, space) {
  const { words, places: at, arrows } = c.finding;
  const tall = Math.round(Math.min(560, Math.max(260, space * 0.68)));
  const [left, right] = bounds(at, 0),
    [low, high] = bounds(at, 1);
  const rim = { x: 30, y: 24, name: Math.min(110, Math.max(...words.map((word) => [...word].length)) * LETTER) };
  const unit = Math.min(
    (space - 2 * rim.x - rim.name) / (right - left || 1),
    (tall - 2 * rim.y) / (high - low || 1),
    400,
  );
  const x = (n) => rim.x + (at[n][0] - left) * unit + (space - 2 * rim.x - rim.name - (right - left) * unit) / 2;
  const y = (n) => tall - rim.y - (at[n][1] - low) * unit - (tall - 2 * rim.y - (high - low) * unit) / 2;
  const names = labels(words, x, y, space, tall);
  const lines = svg("g", { class: "ch-lines" });
  const marks = words.map((word, n) => {
    const mark = svg(
      "g",
      { role: "button", "data-at": `word${n}`, "aria-label": tell(c, n), style: { cursor: "pointer" } },
      svg("circle", { cx: x(n), cy: y(n), r: 11, fill: "transparent" }),
      svg("circle", { class: "ch-dot", cx: x(n), cy: y(n), r: 4, fill: "var(--v)" }),
      svg("text", { class: "ch-halo", x: names[n].x, y: names[n].y, "text-anchor": names[n].anchor }, word),
    );
    mark.addEventListener("click", () => pin(c, n));
    mark.addEventListener("pointerenter", () => light(n));
    mark.addEventListener("pointerleave", () => light(pinned(c)));
    return c.tells(mark, () => tell(c, n));
  });
  rove(marks, { start: pinned(c) ?? 0, pick: (n) => pin(c, n), release: () => c.set({ word: null }), seen: light });

  function light(n) {
    const near = n === null ? [] : nearest(c, n).slice(0, SHOWN);
    marks.forEach((mark, k) => {
      const like = n === null || k === n ? 1 : Math.max(0, cosine(c, n, k));
      mark.querySelector(".ch-dot").setAttribute("fill-opacity", 0.2 + 0.8 * like);
    });
    lines.replaceChildren(
      ...near.map((k) =>
        svg("line", {
          x1: x(n),
          y1: y(n),
          x2: x(k),
          y2: y(k),
          stroke: "var(--v)",
          "stroke-width": 1.5,
          "stroke-opacity": Math.max(0.12, cosine(c, n, k)),
        }),
      ),
    );
  }

  const drawing = svg(
    "svg",
    { class: "ch-drawing", width: space, height: tall, role: "group", "aria-label": c.words("word_map_title") },
    arrows.length ? svg("defs", {}, arrowHead()) : null,
    lines,
    arrows.map(([from, to]) => arrow(x, y, from, to)),
    marks,
  );
  light(pinned(c));
  return drawing;
}

const bounds = (places, axis) => {
  const all = places.map((place) => place[axis]);
  return [Math.min(...all), Math.max(...all)];
};

const arrowHead = () =>
  svg(
    "marker",
    { id: "word-map-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0L8 4L0 8z", fill: "var(--k)" }),
  );

function arrow(x, y, from, to) {
  const [dx, dy] = [x(to) - x(from), y(to) - y(from)];
  const long = Math.hypot(dx, dy) || 1,
    gap = Math.min(8, long / 3);
  return svg("line", {
    x1: x(from) + (dx / long) * gap,
    y1: y(from) + (dy / long) * gap,
    x2: x(to) - (dx / long) * gap,
    y2: y(to) - (dy / long) * gap,
    stroke: "var(--k)",
    "stroke-width": 1.5,
    "marker-end": "url(#word-map-arrow)",
  });
}

/** Where each name stands beside its dot: the first of four places at which it covers nothing. */
function labels(words, x, y, space, tall) {
  const taken = words.map((_, n) => [x(n) - 5, y(n) - 5, x(n) + 5, y(n) + 5]);
  return words.map((word, n) => {
    const wide = [...word].reduce((sum, sign) => sum + (sign > "⺀" ? 13.5 : LETTER), 0);
    const options = [
      { x: x(n) + 9, y: y(n) + 4, anchor: "start", from: x(n) + 9 },
      { x: x(n) - 9, y: y(n) + 4, anchor: "end", from: x(n) - 9 - wide },
      { x: x(n), y: y(n) - 9, anchor: "middle", from: x(n) - wide / 2 },
      { x: x(n), y: y(n) + 19, anchor: "middle", from: x(n) - wide / 2 },
    ];
    const box = (one) => [one.from, one.y - LINE + 5, one.from + wide, one.y + 3];
    const free = options.find((one) => {
      const own = box(one);
      const inside = own[0] >= 0 && own[2] <= space && own[1] >= 0 && own[3] <= tall;
      return inside && taken.every((other, k) => k === n || !meet(own, other));
    });
    const chosen = free ?? options[0];
    taken.push(box(chosen));
    return chosen;
  });
}

const meet = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

/** One-hot vectors: for each word a row of zeros as long as the table, with a one at the word's own place. */
function places(c, space) {
  const { words, rows, count } = c.finding;
  const room = Math.min(space * 0.34, Math.max(...words.map((word) => [...word].length)) * LETTER + 14);
  const numbers = scale.whole(count).length * LETTER + 10;
  const long = Math.max(60, space - room - numbers - 8);
  const step = Math.max(18, Math.min(30, 520 / words.length));
  const marks = words.map((word, n) => {
    const middle = 14 + n * step,
      at = room + (rows[n] / Math.max(1, count - 1)) * long;
    const mark = svg(
      "g",
      { role: "button", "data-at": `word${n}`, "aria-label": tell(c, n), style: { cursor: "pointer" } },
      svg("rect", { x: 0, y: middle - step / 2, width: space, height: step, fill: "transparent" }),
      svg(
        "text",
        { x: room - 10, y: middle + 4, "text-anchor": "end", "font-weight": pinned(c) === n ? 600 : 400 },
        word,
      ),
      svg("line", { x1: room, x2: room + long, y1: middle, y2: middle, stroke: "var(--hair)" }),
      svg("line", { x1: at, x2: at, y1: middle - 7, y2: middle + 7, stroke: "var(--v)", "stroke-width": 3 }),
      svg("text", { class: "ch-dim", x: room + long + 8, y: middle + 4 }, scale.whole(rows[n] + 1)),
    );
    mark.addEventListener("click", () => pin(c, n));
    return c.tells(mark, () =>
      c.words("word_map_one_at", { word, row: scale.whole(rows[n] + 1), count: scale.whole(count) }),
    );
  });
  rove(marks, { start: pinned(c) ?? 0, pick: (n) => pin(c, n), release: () => c.set({ word: null }) });
  return svg(
    "svg",
    {
      class: "ch-drawing",
      width: space,
      height: 14 + words.length * step,
      role: "group",
      "aria-label": c.words("word_map_title_one_hot"),
    },
    marks,
  );
}

function cosines(c, space) {
  const { words } = c.finding;
  return heatmap(c, {
    rows: words,
    columns: words,
    space: Math.min(space - SPILL, 620),
    square: true,
    width: [4, 46],
    height: [4, 46],
    label: c.words("word_map_cosines"),
    name: "cosines",
    colour: (r, k) => scale.signed(c, cosine(c, r, k)),
    text: (r, k) => (cosine(c, r, k) > 0.995 ? "1" : scale.like(cosine(c, r, k), 1)),
    tip: (r, k) => `${words[r]} · ${words[k]} · ${c.words("cosine")} ${scale.number(cosine(c, r, k))}`,
    picked: { row: pinned(c), column: null },
    pick: (r) => pin(c, r),
    release: () => c.set({ word: null }),
  });
}

const legend = (c) =>
  scale.legend(
    c.words("cosine"),
    scale.steps(9, (t) => scale.signed(c, t), -1, 1),
    ["−1", "0", "1"],
  );

// Words as vectors: on the plane that keeps most of their differences, number by number, by their angles, and as they
// were before anything was learned.

import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { fan } from "./word_angles.js";
import { arrow, arrowHead, layout, nameWidth } from "./word_plane.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const LETTER = 7.6; // of 13 px sans, on average
const ARROW = "word-map-arrow";
const SPILL = 48; // the last slanted name of a column leans out
const SHOWN = 3; // lines from a word that is looked at to those most like it

const SHOWS = ["learned", "numbers", "angles", "odd", "one-hot"];

const view = {
  /** word: the place of the pinned one; show: the learned vectors as a map, as numbers, by their angles, or each held
   *  against the mean of all; or one-hot vectors */
  start: () => ({ word: null, show: "learned" }),
  title: (c) => c.words(`word_map_title_${shown(c)}`),
  reading(c) {
    const { explained, width, count, odd_one_out } = c.finding;
    const values = { width, count: scale.whole(count), base: c.finding.words[base(c)], odd: odd_one_out };
    if (shown(c) === "odd" && odd_one_out === null) return c.words("word_map_reading_no_odd");
    if (shown(c) !== "learned") return c.words(`word_map_reading_${shown(c)}`, values);
    const kept = scale.percent(explained[0] + explained[1]);
    const odd = odd_one_out === null ? "" : ` ${c.words("word_map_least", { word: odd_one_out })}`;
    return `${c.words("word_map_reading_learned", { width, kept })}${odd}`;
  },
  controls: (c) =>
    c.options.title // whoever shows the figure asks one of its questions
      ? []
      : [
          c.group(
            c.words("word_map_vectors"),
            shown(c),
            SHOWS.map((show) => [show, c.words(`word_map_${show}`)]),
            (show) => c.set({ show }),
          ),
        ],
  body(c, box) {
    if (shown(c) === "numbers") return box.append(numbers(c), signs(c));
    if (shown(c) === "angles") return box.append(fan(c, { base: base(c), pick: (word) => c.set({ word }) }));
    if (shown(c) === "odd") return box.append(againstMean(c));
    const beside = c.width >= 860;
    const space = beside ? Math.floor((c.width - 40) * 0.58) : c.width;
    const rest = beside ? c.width - space - 40 : c.width;
    return box.append(
      el(
        "div",
        {
          class: "ch-columns",
          style: { "grid-template-columns": beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)" },
        },
        el("div", {}, shown(c) === "learned" ? plane(c, space) : places(c, space)),
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

const shown = (c) => (SHOWS.includes(c.state.show) ? c.state.show : "learned");
const cosine = (c, r, k) => (shown(c) !== "one-hot" ? c.finding.cosines[r][k] : Number(r === k));
const pinned = (c) => (c.state.word === null ? null : Math.min(c.state.word, c.finding.words.length - 1));
/** The word that the others are held against. */
const base = (c) => pinned(c) ?? 0;
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
  const on = layout(at, words, space);
  const { x, y, names, tall } = on;
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
    { class: "ch-drawing", width: space, height: tall, role: "group", "aria-label": c.words("word_map_title_learned") },
    arrows.length ? svg("defs", {}, arrowHead(ARROW)) : null,
    lines,
    arrows.map(([from, to]) => arrow(ARROW, on, from, to)),
    marks,
  );
  light(pinned(c));
  return drawing;
}

/** One-hot vectors: for each word a row of zeros as long as the table, with a one at the word's own place. */
function places(c, space) {
  const { words, rows, count } = c.finding;
  const room = Math.min(space * 0.34, Math.max(...words.map(nameWidth)) + 14);
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
      "aria-label": c.words("word_map_title_one-hot"),
    },
    marks,
  );
}

/** The learned vectors themselves: a row of coloured cells for each word. */
function numbers(c) {
  const { words, vectors } = c.finding;
  const most = strong(vectors);
  return heatmap(c, {
    rows: words,
    columns: Array.from(vectors[0], (_, n) => String(n + 1)),
    unnamed: true,
    width: [4, 19],
    height: [14, 24],
    label: c.words("word_map_title_numbers"),
    name: "numbers",
    colour: (r, k) => scale.signed(c, vectors[r][k] / most),
    tip: (r, k) => `${words[r]} · ${c.words("word_map_number_n", { n: k + 1 })}: ${scale.number(vectors[r][k])}`,
    picked: { row: pinned(c), column: null },
    pick: (r) => pin(c, r),
    release: () => c.set({ word: null }),
  });
}

/** What the full colour stands for: few numbers are larger, and these would leave all others pale. */
const strong = (vectors) => {
  const sizes = vectors.flatMap((row) => Array.from(row, Math.abs)).sort((a, b) => a - b);
  return sizes[Math.floor((sizes.length - 1) * 0.97)] || 1;
};

const signs = (c) => {
  const most = scale.like(strong(c.finding.vectors), 1);
  return scale.legend(
    c.words("word_map_value"),
    scale.steps(9, (t) => scale.signed(c, t), -1, 1),
    [`≤ −${most}`, "0", `≥ ${most}`],
  );
};

/** Each word's cosine with the mean of all, the least last: that one does not belong. */
function againstMean(c) {
  const { words, vectors, odd_one_out } = c.finding;
  const units = vectors.map((row) => row.map((value) => value / (Math.hypot(...row) || 1)));
  const mean = Array.from(units[0], (_, k) => units.reduce((sum, row) => sum + row[k], 0));
  const long = Math.hypot(...mean) || 1;
  const cosine = units.map((row) => row.reduce((sum, value, k) => sum + value * mean[k], 0) / long);
  const order = words.map((_, n) => n).sort((a, b) => cosine[b] - cosine[a]);
  const rows = order.map((n) => {
    const odd = words[n] === odd_one_out;
    const bar = { width: `${Math.max(0, cosine[n]) * 100}%`, background: odd ? "var(--k)" : "var(--v)" };
    const row = el(
      "button",
      {
        type: "button",
        "data-at": `word${n}`,
        "aria-pressed": String(pinned(c) === n),
        "aria-label": tell(c, n),
        onclick: () => pin(c, n),
      },
      el("span", { style: { "font-weight": odd ? 600 : 400 } }, words[n]),
      el("span", { class: "ch-share" }, scale.number(cosine[n])),
      el("span", { class: "ch-track" }, el("span", { class: "ch-bar", style: bar })),
    );
    return c.tells(row, () => tell(c, n));
  });
  rove(rows, { pick: (k) => pin(c, order[k]), release: () => c.set({ word: null }) });
  return el("div", { class: "ch-ranked" }, rows);
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

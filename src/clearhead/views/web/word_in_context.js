// One word in several sentences: its one row in a table, and the vector that each use gets from a model that reads.

import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap, pixels } from "./heatmap.js";
import * as scale from "./scale.js";
import { largest } from "./strip.js";
import { layout } from "./word_plane.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const SHOWN = 3; // lines from a use that is looked at to those most like it
const SPILL = 24;
const ROOMY = 480; // pixels of a plane on which words stand beside the numbers

const view = {
  /** use: the place of the pinned one */
  start: () => ({ use: null }),
  title: (c) => c.words("in_context_title", { word: c.finding.word }),
  reading(c) {
    const { uses, explained, within, across, at_home, ahead, table_row } = c.finding;
    const values = { kept: scale.percent(explained[0] + explained[1]), count: uses.length, word: c.finding.word };
    const parts = [c.words("in_context_reading", values)];
    if (table_row) {
      const [row, count] = [scale.whole(table_row.terms[0].row + 1), scale.whole(table_row.count)];
      parts.unshift(c.words("in_context_row", { row, count, table: table_row.model }));
    }
    if (across !== null) {
      const numbers = { within: scale.number(within), across: scale.number(across), home: at_home, count: uses.length };
      parts.push(c.words(within === null ? "in_context_across" : "in_context_parted", numbers));
    }
    if (!ahead) parts.push(c.words("in_context_left"));
    return parts.join(c.lang === "zh" ? "" : " ");
  },
  body(c, box) {
    const row = c.finding.table_row;
    const beside = c.width >= 760;
    const [small, large] = !row || !beside ? [c.width, c.width] : split(c.width, 0.38);
    const [text, square] = beside ? split(c.width, 0.6) : [c.width, c.width];
    const parts = [];
    const light = (n) => parts.forEach((part) => part.light(n));
    const uses = usesOn(c, large, light),
      list = sentences(c, text, light);
    parts.push(uses, list);
    const columns = (...widths) => ({
      "grid-template-columns": beside ? widths.map((one) => `${one}px`).join(" ") : "minmax(0, 1fr)",
    });
    const name = (key, values) => el("p", { class: "ch-name" }, c.words(key, values));
    box.append(
      el(
        "div",
        { class: "ch-columns", style: row ? columns(small, large) : columns(c.width) },
        row && el("div", {}, name("in_context_table", { table: row.model }), tablePlane(c, row, small)),
        el("div", {}, name("in_context_model", { model: c.finding.model, layers: layerWords(c) }), uses.element),
      ),
      el(
        "div",
        { class: "ch-columns ch-part", style: columns(text, square) },
        list.element,
        el("div", {}, name("in_context_cosines"), cosines(c, square, light), legend(c)),
      ),
    );
    light(pinned(c));
  },
  *table(finding) {
    yield ["use", "group", "sentence", "x", "y", ...finding.uses.map((_, n) => `use ${n + 1}`)];
    for (const [n, use] of finding.uses.entries())
      yield [n + 1, use.group + 1, use.sentence, ...finding.places[n], ...finding.cosines[n]];
  },
};

const split = (width, share) => [Math.floor((width - 38) * share), Math.floor((width - 38) * (1 - share))];
const pinned = (c) => (c.state.use === null ? null : Math.min(c.state.use, c.finding.uses.length - 1));
const pin = (c, n) => c.set({ use: pinned(c) === n ? null : n });
const grouped = (c) => c.finding.uses.some((use) => use.group > 0);
const letter = (group) => String.fromCharCode(97 + (group % 26));
/** How a use is called: its number, and the letter of its meaning where meanings were told apart. */
const nameOf = (c, n) => `${n + 1}${grouped(c) ? letter(c.finding.uses[n].group) : ""}`;
const hue = (c, n) => scale.css(scale.head(c, grouped(c) ? c.finding.uses[n].group : n));

/** The word with what stands right before and after it. */
function around({ sentence, start, end }) {
  const before = sentence.slice(0, start).split(/(?<=\s)/),
    after = sentence.slice(end).split(/(?=\s)/);
  const words = [...before.slice(after.length > 2 ? -2 : -3), sentence.slice(start, end), ...after.slice(0, 3)];
  return words.join("").trim();
}

function layerWords(c) {
  const { layers } = c.finding;
  if (layers.length > 1) return c.words("in_context_layers", { layers: layers.join(", ") });
  return layers[0] === 0 ? c.words("in_context_embedding") : c.words("in_context_layer", { layer: layers[0] });
}

/** The other uses, those most like this one first. */
function nearest(c, n) {
  const others = c.finding.uses.map((_, k) => k).filter((k) => k !== n);
  return others.sort((a, b) => c.finding.cosines[n][b] - c.finding.cosines[n][a]);
}

function tell(c, n) {
  const near = nearest(c, n)
    .slice(0, SHOWN)
    .map((k) => `${nameOf(c, k)} ${scale.number(c.finding.cosines[n][k])}`);
  return `${nameOf(c, n)} · ${c.finding.uses[n].sentence}\n${c.words("cosine")}: ${near.join(" · ")}`;
}

/** Dots with their numbers; from the one that is looked at, lines to those most like it. */
function usesOn(c, space, light) {
  const { uses, places } = c.finding;
  const names = uses.map((use, n) => `${nameOf(c, n)} ${space < ROOMY ? "" : around(use)}`.trim());
  // what differs by less than a fiftieth of the vectors' length does not fill the plane: the same stays one point
  const most = space / (0.02 * Math.hypot(...c.finding.vectors[0]) || 1);
  const on = layout(places, names, space, { tall: Math.round(Math.min(400, Math.max(240, space * 0.6))), most });
  const { x, y } = on;
  const lines = svg("g", {});
  const marks = uses.map((_, n) => {
    const mark = svg(
      "g",
      { role: "button", "data-at": `use${n}`, "aria-label": tell(c, n), style: { cursor: "pointer" } },
      svg("circle", { cx: x(n), cy: y(n), r: 12, fill: "transparent" }),
      svg("circle", { class: "ch-dot", cx: x(n), cy: y(n), r: 5, fill: hue(c, n) }),
      svg(
        "text",
        { class: "ch-halo", x: on.names[n].x, y: on.names[n].y, "text-anchor": on.names[n].anchor },
        names[n],
      ),
    );
    mark.addEventListener("click", () => pin(c, n));
    mark.addEventListener("pointerenter", () => light(n));
    mark.addEventListener("pointerleave", () => light(pinned(c)));
    return c.tells(mark, () => tell(c, n));
  });
  rove(marks, { start: pinned(c) ?? 0, pick: (n) => pin(c, n), release: () => c.set({ use: null }), seen: light });
  const label = c.words("in_context_title", { word: c.finding.word });
  return {
    element: svg(
      "svg",
      { class: "ch-drawing", width: space, height: on.tall, role: "group", "aria-label": label },
      lines,
      marks,
    ),
    light(n) {
      const near = n === null ? [] : nearest(c, n).slice(0, SHOWN);
      marks.forEach((mark, k) => {
        const bright = n === null || k === n || near.includes(k);
        mark.querySelector(".ch-dot").setAttribute("fill-opacity", bright ? 1 : 0.3);
      });
      const [least] = scale.extent(c.finding.cosines);
      lines.replaceChildren(
        ...near.map((k) =>
          svg("line", {
            x1: x(n),
            y1: y(n),
            x2: x(k),
            y2: y(k),
            stroke: hue(c, n),
            "stroke-width": 1.5,
            "stroke-opacity": 0.2 + (0.8 * (c.finding.cosines[n][k] - least)) / (1 - least || 1),
          }),
        ),
      );
    },
  };
}

/** The word's one row in a table, among the words nearest to it. */
function tablePlane(c, row, space) {
  const words = [row.terms[0].word, ...row.nearest.map((one) => one.word)];
  const on = layout(row.places.slice(0, words.length), words, space, {
    tall: Math.round(Math.min(400, Math.max(220, space * 0.8))),
  });
  const marks = words.map((word, n) => {
    const mark = svg(
      "g",
      {},
      svg("circle", { cx: on.x(n), cy: on.y(n), r: 11, fill: "transparent" }),
      svg("circle", { cx: on.x(n), cy: on.y(n), r: n ? 3 : 6, fill: n ? "var(--soft)" : "var(--ink)" }),
      svg(
        "text",
        {
          class: "ch-halo",
          x: on.names[n].x,
          y: on.names[n].y,
          "text-anchor": on.names[n].anchor,
          style: { "font-weight": n ? 400 : 600 },
        },
        word,
      ),
    );
    const values = { word, count: c.finding.uses.length, row: scale.whole(row.terms[0].row + 1) };
    return c.tells(mark, () =>
      n
        ? `${word} · ${c.words("cosine")} ${scale.number(row.nearest[n - 1].cosine)}`
        : c.words("in_context_one_point", values),
    );
  });
  return svg(
    "svg",
    {
      class: "ch-drawing",
      width: space,
      height: on.tall,
      role: "img",
      "aria-label": `${c.words("in_context_table", { table: row.model })}: ${words.join(", ")}`,
    },
    [...marks.slice(1), marks[0]],
  );
}

/** Every sentence with the word in its colour, and the word's vector there as a strip. */
function sentences(c, space, light) {
  const { uses, vectors } = c.finding;
  const most = largest(vectors);
  const rows = uses.map((use, n) => {
    const row = el(
      "button",
      {
        type: "button",
        class: "ch-use",
        "data-at": `sentence${n}`,
        "aria-pressed": String(pinned(c) === n),
        onclick: () => pin(c, n),
      },
      el("span", { class: "ch-use-name" }, el("i", { style: { background: hue(c, n) } }), nameOf(c, n)),
      el(
        "span",
        {},
        use.sentence.slice(0, use.start),
        el("b", {}, use.sentence.slice(use.start, use.end)),
        use.sentence.slice(use.end),
      ),
      stripOf(c, vectors[n], most, space - 52),
    );
    row.addEventListener("pointerenter", () => light(n));
    row.addEventListener("pointerleave", () => light(pinned(c)));
    return c.tells(row, () => tell(c, n));
  });
  rove(rows, { start: pinned(c) ?? 0, pick: (n) => pin(c, n), release: () => c.set({ use: null }), seen: light });
  const element = el(
    "div",
    {},
    el("p", { class: "ch-name" }, c.words("in_context_strips", { width: vectors[0].length })),
    el("div", { class: "ch-uses" }, rows),
  );
  return { element, light: (n) => rows.forEach((row, k) => row.classList.toggle("ch-lit", k === n)) };
}

/** A vector as one line of coloured cells, as wide as there is room. */
function stripOf(c, vector, most, space) {
  const canvas = pixels(1, vector.length, (_, k) => scale.signed(c, vector[k] / most));
  canvas.classList.add("ch-use-strip");
  canvas.style.width = `${Math.min(space, vector.length * 12)}px`;
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}

function cosines(c, space, light) {
  const { uses, cosines: values } = c.finding;
  const names = uses.map((_, n) => nameOf(c, n));
  return heatmap(c, {
    rows: names,
    columns: names,
    space: Math.min(space - SPILL, 460),
    square: true,
    width: [4, 46],
    height: [4, 40],
    label: c.words("in_context_cosines"),
    name: "cosines",
    colour: (r, k) => shade(c, values[r][k]),
    text: (r, k) => (values[r][k] > 0.995 ? "1" : scale.like(values[r][k], 1)),
    tip: (r, k) => `${names[r]} · ${names[k]} · ${c.words("cosine")} ${scale.number(values[r][k])}`,
    seen: (r) => light(r ?? pinned(c)),
    picked: { row: pinned(c), column: null },
    pick: (r) => pin(c, r),
    release: () => c.set({ use: null }),
  });
}

/** Uses of one word are often all alike: paper is the least tenth that there is, unless some are opposed. */
const lowest = (c) => Math.floor(scale.extent(c.finding.cosines)[0] * 10) / 10;
const shade = (c, value) => {
  const low = lowest(c);
  return low < 0 ? scale.signed(c, value) : scale.ink(c, "plus", (value - low) / (1 - low || 1));
};

const legend = (c) => {
  const low = Math.max(-1, lowest(c));
  const [from, marks] = low < 0 ? [-1, ["−1", "0", "1"]] : [low, [String(low), "1"]];
  return scale.legend(
    c.words("cosine"),
    scale.steps(9, (t) => shade(c, t), from, 1),
    marks,
  );
};

// Vectors as arrows from one point: each at its true angle to the first and as long as it is. Any two vectors lie in a
// plane, so nothing is lost; only the angles between the others are not shown.

import { el, rove, svg } from "./dom.js";
import * as scale from "./scale.js";
import { arrowHead, nameWidth } from "./word_plane.js";

const ARROW = "word-angle-arrow";
const RIM = 26;

/** base: the place of the word that the others are held against; pick(n) makes another one the first. */
export function fan(c, { base, pick }) {
  const rows = compared(c.finding, base);
  const beside = c.width >= 720;
  const space = beside ? Math.floor(c.width * 0.56) : c.width;
  let light = () => {};
  const picture = drawn(c, rows, space);
  const list = table(c, rows, (n) => light(n), pick);
  light = (n) => {
    picture.light(n);
    list.light(n);
  };
  picture.marks.forEach((mark, n) => {
    mark.addEventListener("pointerenter", () => light(n));
    mark.addEventListener("pointerleave", () => light(null));
    mark.addEventListener("click", () => pick(rows[n].at));
    c.tells(mark, () => tell(c, rows[n]));
  });
  return el(
    "div",
    {
      class: "ch-columns",
      style: {
        "grid-template-columns": beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)",
        "align-items": "start",
      },
    },
    el("div", {}, picture.element),
    list.element,
  );
}

/** Every word held against one: {at, word, cosine, angle, length, distance}, that one first. */
export function compared({ words, vectors, cosines }, base) {
  const length = (row) => Math.hypot(...row);
  const rows = words.map((word, at) => ({
    at,
    word,
    cosine: at === base ? 1 : cosines[base][at],
    angle: at === base ? 0 : (Math.acos(Math.max(-1, Math.min(1, cosines[base][at]))) * 180) / Math.PI,
    length: length(vectors[at]),
    distance: length(vectors[at].map((value, n) => value - vectors[base][n])),
  }));
  return [rows[base], ...rows.filter((_, n) => n !== base)];
}

const degrees = (angle) => `${angle.toFixed(angle < 9.95 ? 1 : 0)}°`;

function tell(c, row) {
  const parts = ["cosine", "angle", "length", "distance"];
  const values = [scale.number(row.cosine), degrees(row.angle), scale.number(row.length), scale.number(row.distance)];
  return `${row.word}\n${parts.map((part, n) => `${c.words(part)} ${values[n]}`).join(" · ")}`;
}

function drawn(c, rows, space) {
  const turned = rows.map((row) => (row.angle * Math.PI) / 180);
  const ends = rows.map((row, n) => [row.length * Math.cos(turned[n]), row.length * Math.sin(turned[n])]);
  const left = Math.min(0, ...ends.map(([x]) => x)),
    right = Math.max(...ends.map(([x]) => x)),
    high = Math.max(...ends.map(([, y]) => y), right * 0.25);
  const name = Math.min(110, Math.max(...rows.map((row) => nameWidth(row.word)))) + 10;
  const unit = Math.min((space - 2 * RIM - name) / (right - left), 330 / high);
  const tall = Math.round(high * unit) + 2 * RIM;
  const x = (value) => RIM + (value - left) * unit + Math.max(0, (space - 2 * RIM - name - (right - left) * unit) / 2);
  const y = (value) => tall - RIM - value * unit;
  const gap = svg("line", { stroke: "var(--soft)", "stroke-dasharray": "3 4", visibility: "hidden" });
  const arc = svg("path", { fill: "none", stroke: "var(--soft)", visibility: "hidden" });
  const names = beyond(rows, ends, turned, x, y);
  const above = Math.max(0, ...names.map((name) => 14 - name.y)); // names that had to move up
  const marks = rows.map((row, n) => {
    const line = { x1: x(0), y1: y(0), x2: x(ends[n][0]), y2: y(ends[n][1]) };
    const look = {
      stroke: n ? "var(--v)" : "var(--k)",
      "stroke-width": 2,
      "marker-end": n ? `url(#${ARROW}-v)` : `url(#${ARROW})`,
    };
    const { x: across, y: down, anchor } = names[n];
    const place = { x: across, y: down, "text-anchor": anchor };
    return svg(
      "g",
      { style: { cursor: "pointer" } },
      svg("line", { ...line, stroke: "transparent", "stroke-width": 14 }),
      svg("line", { class: "ch-vector", ...line, ...look }),
      svg("text", { class: "ch-halo", ...place, style: { "font-weight": n ? 400 : 600 } }, row.word),
    );
  });
  const blue = arrowHead(`${ARROW}-v`);
  blue.firstChild.setAttribute("fill", "var(--v)");
  const element = svg(
    "svg",
    {
      class: "ch-drawing",
      width: space,
      height: tall + above,
      viewBox: `0 ${-above} ${space} ${tall + above}`,
      role: "img",
      "aria-label": c.words("word_map_title_angles"),
    },
    svg("defs", {}, arrowHead(ARROW), blue),
    svg("circle", { cx: x(0), cy: y(0), r: 3, fill: "var(--soft)" }),
    arc,
    gap,
    marks,
  );
  const light = (n) => {
    marks.forEach((mark, k) => {
      mark.querySelector(".ch-vector").style.opacity = n === null || n === k || !k ? 1 : 0.3;
    });
    const shows = n ? "visible" : "hidden";
    gap.setAttribute("visibility", shows);
    arc.setAttribute("visibility", shows);
    if (!n) return;
    const [[ax, ay], [bx, by]] = [ends[0], ends[n]];
    const line = { x1: x(ax), y1: y(ay), x2: x(bx), y2: y(by) };
    for (const [key, value] of Object.entries(line)) gap.setAttribute(key, value);
    const reach = Math.min(rows[0].length, rows[n].length) * 0.4;
    const [tx, ty] = [reach * Math.cos(turned[n]), reach * Math.sin(turned[n])];
    arc.setAttribute("d", `M${x(reach)} ${y(0)}A${reach * unit} ${reach * unit} 0 0 0 ${x(tx)} ${y(ty)}`);
  };
  return { element, marks, light };
}

/** Where the names stand: beyond the tips, and one above the other where they would meet. */
function beyond(rows, ends, turned, x, y) {
  const taken = [];
  return rows.map((row, n) => {
    const wide = nameWidth(row.word) + 6;
    const steep = Math.abs(Math.cos(turned[n])) < 0.4;
    const anchor = steep ? "middle" : Math.cos(turned[n]) > 0 ? "start" : "end";
    const at = { x: x(ends[n][0]) + 10 * Math.cos(turned[n]), y: y(ends[n][1]) - 10 * Math.sin(turned[n]), anchor };
    if (!steep) at.y += 4;
    const from = () => at.x - (anchor === "middle" ? wide / 2 : anchor === "end" ? wide : 0);
    const meets = (other) => from() < other[1] && other[0] < from() + wide && Math.abs(at.y - other[2]) < 15;
    while (taken.some(meets)) at.y -= 5;
    taken.push([from(), from() + wide, at.y]);
    return at;
  });
}

function table(c, rows, seen, pick) {
  const names = rows.map((row, n) =>
    el(
      "button",
      {
        type: "button",
        class: "ch-link",
        "data-at": `word${row.at}`,
        "aria-label": tell(c, row),
        "aria-pressed": String(!n),
        style: { font: "inherit", "font-weight": n ? 400 : 600 },
        onclick: () => pick(row.at),
        onblur: () => seen(null),
      },
      row.word,
    ),
  );
  rove(names, { pick: (n) => pick(rows[n].at), seen });
  const lines = rows.map((row, n) => {
    const cells = n
      ? [scale.number(row.cosine), degrees(row.angle), scale.number(row.length), scale.number(row.distance)]
      : ["1", "0°", scale.number(row.length), "0"];
    return el(
      "tr",
      { onpointerenter: () => seen(n), onpointerleave: () => seen(null) },
      el("td", {}, names[n]),
      cells.map((cell) => el("td", {}, cell)),
    );
  });
  const heads = ["word", "cosine", "angle", "length", "distance"].map((key) =>
    el("th", { scope: "col" }, c.words(key)),
  );
  const element = el(
    "div",
    { class: "ch-scroll ch-wide" },
    el("table", { class: "ch-table ch-compared" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, lines)),
  );
  return { element, light: (n) => lines.forEach((line, k) => line.classList.toggle("ch-lit", k === n)) };
}

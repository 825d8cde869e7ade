// Words on a plane: where each stands so that the plane fits its room, where its name stands, and arrows between two.

import { svg } from "./dom.js";

const LETTER = 7.6; // of 13 px sans, on average
const LINE = 17;
const RIM = { x: 30, y: 24 };

/** How wide a name is, in pixels; a Chinese sign takes the room of more. */
export const nameWidth = (name) => [...name].reduce((sum, sign) => sum + (sign > "⺀" ? 13.5 : LETTER), 0);

/** {x(n), y(n), tall, names}: each place on a drawing `space` pixels wide, and where each name stands.
 *  places   [[x, y], …], the same unit in both directions
 *  most     pixels of one unit at most, so that what lies close is not torn apart */
export function layout(places, words, space, { tall = undefined, most = 400 } = {}) {
  const high = tall ?? Math.round(Math.min(560, Math.max(260, space * 0.68)));
  const [left, right] = bounds(places, 0),
    [low, top] = bounds(places, 1);
  const name = Math.min(110, Math.max(...words.map(nameWidth)));
  const room = { x: space - 2 * RIM.x - name, y: high - 2 * RIM.y };
  const unit = Math.min(room.x / (right - left || 1), room.y / (top - low || 1), most);
  const used = Math.max(120, Math.ceil((top - low) * unit) + 2 * RIM.y); // a flat plane needs less height
  const x = (n) => RIM.x + (places[n][0] - left) * unit + (room.x - (right - left) * unit) / 2;
  const y = (n) => used / 2 + ((top - low) / 2 - (places[n][1] - low)) * unit;
  return { x, y, tall: used, names: labels(words, x, y, space, used) };
}

const bounds = (places, axis) => {
  const all = places.map((place) => place[axis]);
  return [Math.min(...all), Math.max(...all)];
};

/** The head of an arrow, for <defs>. */
export const arrowHead = (id) =>
  svg(
    "marker",
    { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0L8 4L0 8z", fill: "var(--k)" }),
  );

/** From one place to another, with some room around both; `more` are further attributes of the line. */
export function arrow(id, { x, y }, from, to, more = {}) {
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
    "marker-end": `url(#${id})`,
    ...more,
  });
}

/** Where each name stands beside its dot: the first of eight places at which it covers nothing, else the least. */
function labels(words, x, y, space, tall) {
  const taken = words.map((_, n) => [x(n) - 5, y(n) - 5, x(n) + 5, y(n) + 5]);
  return words.map((word, n) => {
    const wide = nameWidth(word);
    const options = [
      { x: x(n) + 9, y: y(n) + 4, anchor: "start", from: x(n) + 9 },
      { x: x(n) - 9, y: y(n) + 4, anchor: "end", from: x(n) - 9 - wide },
      { x: x(n), y: y(n) - 9, anchor: "middle", from: x(n) - wide / 2 },
      { x: x(n), y: y(n) + 19, anchor: "middle", from: x(n) - wide / 2 },
      { x: x(n) + 7, y: y(n) - 7, anchor: "start", from: x(n) + 7 },
      { x: x(n) + 7, y: y(n) + 16, anchor: "start", from: x(n) + 7 },
      { x: x(n) - 7, y: y(n) - 7, anchor: "end", from: x(n) - 7 - wide },
      { x: x(n) - 7, y: y(n) + 16, anchor: "end", from: x(n) - 7 - wide },
    ];
    const box = (one) => [one.from, one.y - LINE + 5, one.from + wide, one.y + 3];
    const cost = (one) => {
      const own = box(one);
      const outside = own[0] < 0 || own[2] > space || own[1] < 0 || own[3] > tall;
      return taken.reduce((sum, other, k) => sum + (k === n ? 0 : shared(own, other)), outside ? 1e6 : 0);
    };
    const chosen = options.reduce((best, one) => (cost(one) < cost(best) ? one : best));
    taken.push(box(chosen));
    return chosen;
  });
}

/** The area that two boxes have in common. */
const shared = (a, b) =>
  Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));

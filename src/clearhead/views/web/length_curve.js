// What happens as the sentence grows: BLEU by the length of the source, a line for each model.

import { el, svg } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const HIGH = 300,
  LEFT = 40,
  TOP = 16,
  BOTTOM = 44;

const view = {
  /** bin: the place of the pinned length */
  start: () => ({ bin: null }),
  title: (c) => c.words("length_title"),
  reading: (c) =>
    c.words("length_reading", {
      data: c.finding.data,
      decoding: c.finding.decoding,
      metric: c.finding.metric,
    }),
  body(c, box) {
    const { curves } = c.finding;
    const names = Math.max(...curves.map((curve) => curve.model.length)) * 7.4 + 24;
    const beside = c.width >= 560; // names at the ends of their lines, else below
    const wide = c.width - LEFT - (beside ? names : 14);
    const bins = curves[0].bins;
    const most = Math.ceil(Math.max(...curves.flatMap((curve) => curve.bins.map((one) => one.bleu))) / 10) * 10 || 10;
    const x = (n) => LEFT + ((n + 0.5) / bins.length) * wide;
    const y = (bleu) => TOP + (1 - bleu / most) * (HIGH - TOP - BOTTOM);
    const picture = svg("svg", {
      class: "ch-chart",
      width: c.width,
      height: HIGH,
      role: "img",
      tabindex: "0",
      "data-at": "lengths",
      "aria-label": c.words("length_title"),
    });
    for (let bleu = 0; bleu <= most; bleu += 10)
      picture.append(
        svg("line", { x1: LEFT, x2: LEFT + wide, y1: y(bleu), y2: y(bleu), stroke: "var(--hair)" }),
        svg("text", { class: "ch-dim", x: LEFT - 8, y: y(bleu) + 4, "text-anchor": "end" }, String(bleu)),
      );
    const every = Math.ceil((7.4 * 6) / (wide / bins.length));
    bins.forEach((one, n) => {
      if (n % every === 0)
        picture.append(svg("text", { class: "ch-dim", x: x(n), y: HIGH - 24, "text-anchor": "middle" }, range(one)));
    });
    picture.append(
      svg(
        "text",
        { class: "ch-dim", x: LEFT + wide / 2, y: HIGH - 6, "text-anchor": "middle" },
        c.words("length_axis"),
      ),
    );
    const hue = (n) => scale.css(scale.head(c, n));
    const ends = apart(curves.map((curve) => y(curve.bins.at(-1).bleu)));
    curves.forEach((curve, k) => {
      const points = curve.bins.map((one, n) => `${x(n)},${y(one.bleu)}`).join(" ");
      picture.append(
        svg("polyline", { points, fill: "none", stroke: hue(k), "stroke-width": 2, "stroke-linejoin": "round" }),
        ...curve.bins.map((one, n) => svg("circle", { cx: x(n), cy: y(one.bleu), r: 3, fill: hue(k) })),
      );
      if (beside)
        picture.append(svg("text", { x: LEFT + wide - wide / bins.length / 2 + 10, y: ends[k] + 4 }, curve.model));
    });
    const line = svg("line", { class: "ch-cursor-line", y1: TOP, y2: HIGH - BOTTOM, stroke: "var(--soft)" });
    picture.append(line);
    const mark = (n) => {
      line.setAttribute("visibility", n === null ? "hidden" : "visible");
      if (n !== null) for (const end of ["x1", "x2"]) line.setAttribute(end, x(n));
    };
    const show = (n, aloud) => {
      mark(n);
      const frame = picture.getBoundingClientRect();
      c.tip(tell(c, n), frame.left + x(n), frame.top + TOP, aloud);
    };
    const hide = () => {
      mark(c.state.bin);
      c.tip("");
    };
    let at = c.state.bin ?? 0;
    const under = (event) => {
      const place = (event.clientX - picture.getBoundingClientRect().left - LEFT) / (wide / bins.length);
      return Math.max(0, Math.min(bins.length - 1, Math.floor(place)));
    };
    const pin = (n) => c.set({ bin: c.state.bin === n ? null : n });
    picture.addEventListener("pointermove", (event) => show(under(event)));
    picture.addEventListener("pointerleave", hide);
    picture.addEventListener("blur", hide);
    picture.addEventListener("focus", () => picture.matches(":focus-visible") && show(at, true));
    picture.addEventListener("click", (event) => pin(under(event)));
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) {
        event.preventDefault();
        at = Math.max(0, Math.min(bins.length - 1, at + step));
        show(at, true);
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pin(at);
      } else if (event.key === "Escape") hide();
    });
    mark(c.state.bin);
    box.append(
      el("p", { class: "ch-name" }, "BLEU"),
      picture,
      el(
        "div",
        { class: "ch-legend ch-keys" },
        curves.map((curve, k) =>
          el(
            "span",
            {},
            el("i", { style: { background: hue(k) } }),
            `${curve.model} · ${c.words("length_all", { bleu: curve.bleu.toFixed(1) })}`,
          ),
        ),
      ),
    );
    if (c.state.bin !== null) box.append(el("p", { class: "ch-say ch-pinned" }, tell(c, c.state.bin)));
  },
  *table(finding) {
    yield ["model", "words_from", "words_to", "sentences", "bleu"];
    for (const curve of finding.curves)
      for (const one of curve.bins) yield [curve.model, one.first, one.last, one.sentences, one.bleu];
  },
};

const range = (one) => (one.first === one.last ? String(one.first) : `${one.first}–${one.last}`);

function tell(c, n) {
  const one = c.finding.curves[0].bins[n];
  const head = c.words("length_bin", { range: range(one), sentences: scale.whole(one.sentences) });
  return [head, ...c.finding.curves.map((curve) => `${curve.model}: ${curve.bins[n].bleu.toFixed(1)}`)].join("\n");
}

/** Names at the ends of lines, moved so that none covers another. */
function apart(heights) {
  const order = heights.map((_, n) => n).sort((a, b) => heights[a] - heights[b]);
  const moved = [...heights];
  for (let n = 1; n < order.length; n++) moved[order[n]] = Math.max(moved[order[n]], moved[order[n - 1]] + 16);
  return moved;
}

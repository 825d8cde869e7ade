// Curves over the steps of training: lines and marks of several runs in one frame, with exact numbers under the
// pointer.

import { el, svg } from "/static/views/dom.js";
import { number, whole } from "/static/views/scale.js";

const HIGH = 240,
  LEFT = 56,
  RIGHT = 12,
  TOP = 10,
  BOTTOM = 28;
const MOST = 900; // points of a line that are drawn: more than its pixels could tell apart

/** → {update({title, lines: [{name, colour, points: [[step, value]], marks, joined}], log, smooth, marks}),
 *  destroy()} */
export function chart(host, page) {
  const title = el("h3", { class: "ch-question" }),
    box = el("div", { class: "st-plot", tabindex: "0", role: "img" }),
    tip = el("div", { class: "ch-tip", hidden: true, "aria-live": "polite" }),
    legend = el("p", { class: "st-legend" });
  const root = el("figure", { class: "st-chart ch" }, title, box, legend, tip);
  host.append(root);
  let data = { lines: [] },
    frame = null,
    at = null;

  function draw() {
    const width = Math.max(240, box.clientWidth || 480);
    title.textContent = data.title;
    const all = data.lines
      .flatMap((line) => [...line.points, ...line.marks])
      .filter(([, value]) => !data.log || value > 0);
    if (!all.length) {
      box.replaceChildren(el("p", { class: "st-line" }, page.words("waiting_steps")));
      legend.textContent = "";
      frame = null;
      return;
    }
    const turn = data.log ? Math.log10 : (value) => value;
    const last = all.reduce((most, [step]) => Math.max(most, step), 1),
      [low, high] = bounds(all, data.log);
    const x = (step) => LEFT + (step / last) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - (turn(value) - turn(low)) / (turn(high) - turn(low) || 1)) * (HIGH - TOP - BOTTOM);
    frame = { x, y, last, width };
    const picture = svg("svg", { width, height: HIGH });
    for (const value of ticks(low, high, data.log)) {
      picture.append(
        svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), stroke: "var(--hair)" }),
        svg("text", { class: "ch-dim", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, tickWords(value)),
      );
    }
    for (const step of ticks(0, last, false, Math.max(2, Math.floor(width / 130))))
      picture.append(
        svg(
          "text",
          {
            class: "ch-dim",
            x: x(step),
            y: HIGH - 8,
            "text-anchor": step === 0 ? "start" : x(step) > width - 30 ? "end" : "middle",
          },
          whole(step),
        ),
      );
    for (const line of data.lines) {
      const points = thinned(line.points.filter(([, value]) => !data.log || value > 0));
      const path = (list) =>
        list
          .map(([step, value], n) => `${n ? "L" : "M"}${x(step).toFixed(1)} ${Math.max(TOP - 4, y(value)).toFixed(1)}`)
          .join("");
      if (points.length)
        picture.append(
          svg("path", {
            d: path(points),
            fill: "none",
            stroke: line.colour,
            "stroke-width": 1.6,
            "stroke-opacity": data.smooth ? 0.3 : 1,
            "stroke-linejoin": "round",
          }),
        );
      if (data.smooth && points.length)
        picture.append(
          svg("path", { d: path(smoothed(points)), fill: "none", stroke: line.colour, "stroke-width": 2 }),
        );
      if (line.joined && line.marks.length > 1)
        picture.append(
          svg("path", {
            d: path(line.marks),
            fill: "none",
            stroke: line.colour,
            "stroke-width": 1.2,
            "stroke-opacity": 0.6,
          }),
        );
      for (const [step, value] of line.marks)
        if (!data.log || value > 0)
          picture.append(
            svg("rect", {
              x: x(step) - 3.5,
              y: Math.max(TOP - 4, y(value)) - 3.5,
              width: 7,
              height: 7,
              fill: line.colour,
              stroke: "var(--paper)",
              "stroke-width": 1,
            }),
          );
    }
    picture.append(
      svg("line", {
        class: "st-cursor",
        y1: TOP,
        y2: HIGH - BOTTOM,
        stroke: "var(--ink)",
        "stroke-opacity": 0.5,
        visibility: "hidden",
      }),
    );
    box.replaceChildren(picture);
    box.setAttribute(
      "aria-label",
      `${data.title}. ${data.lines.map((line) => `${line.name}: ${number(lastOf(line))}`).join("; ")}`,
    );
    const held =
      data.marks && data.lines.some((line) => line.marks.length) && data.lines.some((line) => line.points.length);
    legend.replaceChildren(
      ...(held
        ? [
            el("i", { class: "st-dash" }),
            page.words("training_line"),
            el("i", { class: "st-square" }),
            page.words("held_out_mark"),
          ]
        : []),
      el("span", {}, page.words("step")),
    );
    if (at !== null) show(at);
  }

  function show(step) {
    if (!frame) return;
    at = Math.max(0, Math.min(frame.last, step));
    const rows = data.lines
      .map((line) => {
        const point = nearest(line.points, at),
          mark = nearest(line.marks, at);
        const parts = [
          point && number(point[1]),
          mark &&
            Math.abs(frame.x(mark[0]) - frame.x(at)) < 14 &&
            `${line.points.length ? `■ ` : ""}${number(mark[1])}`,
        ].filter(Boolean);
        return parts.length
          ? [point?.[0] ?? mark[0], `${data.lines.length > 1 ? `${line.name}  ` : ""}${parts.join("  ")}`]
          : null;
      })
      .filter(Boolean);
    if (!rows.length) {
      hide();
      return;
    }
    const px = frame.x(at),
      cursor = box.querySelector(".st-cursor");
    cursor.setAttribute("x1", px);
    cursor.setAttribute("x2", px);
    cursor.setAttribute("visibility", "visible");
    tip.textContent = [page.words("step_n", { n: whole(rows[0][0]) }), ...rows.map(([, words]) => words)].join("\n");
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(px + 10, frame.width - tip.offsetWidth))}px`;
    tip.style.top = `${box.offsetTop + 4}px`;
  }

  function hide() {
    at = null;
    tip.hidden = true;
    box.querySelector(".st-cursor")?.setAttribute("visibility", "hidden");
  }

  box.addEventListener("pointermove", (event) => {
    if (frame)
      show(((event.clientX - box.getBoundingClientRect().left - LEFT) / (frame.width - LEFT - RIGHT)) * frame.last);
  });
  box.addEventListener("pointerleave", hide);
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (event) => {
    const jump = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (jump && frame) {
      event.preventDefault();
      show((at ?? (jump > 0 ? -frame.last / 50 : frame.last * 1.02)) + (jump * frame.last) / 50);
    }
    if (event.key === "Escape") hide();
  });
  const resized = new ResizeObserver(() => {
    if (frame && Math.abs(box.clientWidth - frame.width) > 1) draw();
  });
  resized.observe(box);
  return {
    update(next) {
      data = next;
      draw();
    },
    destroy() {
      resized.disconnect();
      root.remove();
    },
  };
}

/** From the lowest to the highest; the steep fall of the first steps may leave the frame at its top. */
function bounds(points, log) {
  const values = points.map(([, value]) => value).sort((a, b) => a - b);
  let [low, high] = [values[0], values.length > 40 ? values[Math.floor(values.length * 0.985)] : values.at(-1)];
  if (low === high) return low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  if (log) return [low, high];
  if (low > 0 && low < (high - low) * 0.6) low = 0;
  return [low, high + (high - low) * 0.04];
}

function ticks(low, high, log, count = 4) {
  if (log) {
    const within = (steps) => {
      const marks = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
        for (const times of steps) {
          const value = times * 10 ** power;
          if (value >= low * 0.999 && value <= high * 1.001) marks.push(value);
        }
      return marks;
    };
    return [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 8]].map(within).find((marks) => marks.length > 2) ?? [low, high];
  }
  const rough = (high - low) / count,
    size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * size).find((one) => one >= rough);
  const marks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-6; n++)
    marks.push(Number((n * step).toPrecision(12)));
  return marks;
}

const tickWords = (value) =>
  (Math.abs(value) >= 1e3 && Math.abs(value) < 1e7
    ? whole(value)
    : Math.abs(value) >= 1e7 || (value !== 0 && Math.abs(value) < 1e-3)
      ? value.toExponential(0).replace("e+", "e")
      : String(Number(value.toPrecision(3)))
  ).replace("-", "−");

/** Fewer points: neighbours become their mean, the newest stays. */
function thinned(points) {
  if (points.length <= MOST) return points;
  const size = Math.ceil(points.length / MOST),
    means = [];
  for (let n = 0; n < points.length; n += size) {
    const part = points.slice(n, n + size);
    means.push([
      part.reduce((sum, [step]) => sum + step, 0) / part.length,
      part.reduce((sum, [, value]) => sum + value, 0) / part.length,
    ]);
  }
  return [...means, points.at(-1)];
}

/** The newest value of a line. */
const lastOf = (line) => (line.points.at(-1) ?? line.marks.at(-1) ?? [0, NaN])[1];

/** An average over the last tenth or so, which starts where the line does. */
function smoothed(points) {
  const keep = 1 - 1 / Math.max(2, points.length / 30);
  let mean = points[0][1];
  return points.map(([step, value]) => {
    mean = mean * keep + value * (1 - keep);
    return [step, mean];
  });
}

function nearest(points, step) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point[0] - step) < Math.abs(best[0] - step)) best = point;
  return best;
}

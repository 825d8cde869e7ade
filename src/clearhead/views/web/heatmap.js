// A matrix of cells on a canvas, with labels, numbers where they fit, and a cursor for mouse and keyboard.

import { el, svg } from "./dom.js";
import { css, onTop } from "./scale.js";
import { short } from "./tokens.js";

const LETTER = 7.3; // of 12 px monospace
const NAMED = 14; // pixels of a cell above which a slanted name can be read beside the next
const TALLEST = 1100; // pixels of rows; more of them get lower, then the box scrolls

/** rows, columns   their labels (strings)
 *  colour(r, k)    [r, g, b]            text(r, k)   what is written in a cell that is wide enough
 *  tip(r, k)       exact words          seen(r, k)   while hovered or under the cursor; seen(null) after
 *  pick(r, k)      a click or Enter     picked       {row, column}: either may be null
 *  asides          what stands beside each row's label, in grey, where cells are wide enough; asideTitle above it
 *  upward          the first row is the lowest, as layers are
 *  unnamed         no names above the columns: those of the matrix above it are meant
 *  width, height   [least, most] pixels of a cell; sparse: pixels between the names of columns, where there are many
 */
export function heatmap(c, options) {
  const {
    rows,
    columns,
    colour,
    text,
    tip,
    seen,
    pick,
    release,
    picked,
    upward = false,
    label,
    name = "cells",
  } = options;
  const [R, K] = [rows.length, columns.length];
  const bare = options.bare ?? false;
  const most = options.space ?? c.width;
  const roomFor = (labels, share) =>
    Math.min(Math.max(...labels.map(letterWidths), 2) * LETTER + 12, most * share, 190);
  const labelRoom = bare ? 0 : roomFor(rows, 0.32);
  const aside = bare || !options.asides ? 0 : roomFor(options.asides, 0.18);
  const asideRoom = (most - labelRoom - aside) / K < NAMED ? 0 : aside; // the names of columns come first
  const rowRoom = asideRoom + labelRoom;
  const letters = Math.floor((labelRoom - 10) / LETTER);
  const [least, largest] = options.width ?? [3, 30];
  const longest = Math.max(...columns.map((column) => [...column].length), 1);
  const unnamed = bare || options.unnamed;
  const fits = (room) => Math.max(least, Math.min(largest, room / K));
  const isFlat = (cell) => longest * LETTER + 6 <= cell || cell >= 48;
  // the last slanted labels lean out: how far, where a cell is so wide
  const leans = (cell) =>
    unnamed || isFlat(cell)
      ? 0
      : Math.max(
          0,
          ...columns.map((column, k) => (k + 0.5 - K) * cell + 9 + Math.min(letterWidths(column), 13) * LETTER * 0.7),
        );
  const free = most - rowRoom - 2,
    wide = fits(free - leans(fits(free)));
  const [low, high] = options.height ?? [Math.min(wide, 20), 26];
  const tall = Math.max(low, Math.min(high, options.square ? wide : high, TALLEST / R));
  const flat = isFlat(wide);
  const columnRoom = unnamed
    ? 0
    : (flat ? 22 : Math.min(longest * LETTER * 0.72 + 18, 96)) + (options.columnTitle ? 18 : 0);
  const titleRoom = !bare && options.rowTitle && !options.columnTitle ? 18 : 0;
  const top = columnRoom + titleRoom;
  const spill = leans(wide);
  const [W, H] = [rowRoom + wide * K, top + tall * R];
  const x = (k) => rowRoom + k * wide;
  const y = (r) => top + (upward ? R - 1 - r : r) * tall;

  const canvas = el("canvas", {
    class: "ch-cells",
    tabindex: "0",
    role: "img",
    "aria-label": label ?? "",
    "data-at": name,
    style: { left: `${rowRoom}px`, top: `${top}px`, width: `${wide * K}px`, height: `${tall * R}px` },
  });
  paint(c, canvas, { R, K, wide, tall, upward, colour, text });
  const rowLabels = bare
    ? []
    : every(R, tall, 13).map((r) =>
        svg(
          "text",
          { x: rowRoom - 7, y: y(r) + tall / 2 + 4, "text-anchor": "end", "data-row": r },
          short(rows[r], letters),
        ),
      );
  const columnLabels = unnamed
    ? []
    : every(K, wide, flat ? 1 : (options.sparse ?? 13)).map((k) =>
        svg(
          "text",
          flat
            ? { x: x(k) + wide / 2, y: top - 7, "text-anchor": "middle", "data-column": k }
            : { transform: `translate(${x(k) + wide / 2 + 3} ${top - 6}) rotate(-46)`, "data-column": k },
          short(columns[k], flat ? Math.max(2, Math.floor((wide - 4) / LETTER)) : 13),
        ),
      );
  const asides = !asideRoom
    ? []
    : every(R, tall, 13).map((r) =>
        svg(
          "text",
          { class: "ch-dim", x: asideRoom - 7, y: y(r) + tall / 2 + 4, "text-anchor": "end" },
          short(options.asides[r], Math.floor((asideRoom - 10) / LETTER)),
        ),
      );
  const cursor = svg("rect", { class: "ch-cursor", width: wide, height: tall, visibility: "hidden" });
  const pin = svg("g", { class: "ch-pin" });
  const titles = bare
    ? []
    : [
        options.rowTitle &&
          svg("text", { class: "ch-dim", x: rowRoom - 7, y: 11, "text-anchor": "end" }, options.rowTitle),
        asideRoom > 0 &&
          options.asideTitle &&
          svg("text", { class: "ch-dim", x: asideRoom - 7, y: 11, "text-anchor": "end" }, options.asideTitle),
        options.columnTitle && svg("text", { class: "ch-dim", x: rowRoom, y: 11 }, options.columnTitle),
      ];
  const over = svg(
    "svg",
    { width: W + spill, height: H + 2, class: "ch-over" },
    titles,
    asides,
    rowLabels,
    columnLabels,
    pin,
    cursor,
  );
  const inner = el(
    "div",
    { class: "ch-matrix", style: { width: `${W + spill}px`, height: `${H + 2}px` } },
    canvas,
    over,
  );

  const out = tall < 6 ? 1.5 : 0; // around a low row rather than over it
  const edge = (r, k, w, h) =>
    svg("rect", {
      x: x(k) - out,
      y: y(r) - (upward && h > tall ? h - tall : 0) - out,
      width: w + 2 * out,
      height: h + 2 * out,
      "stroke-width": out ? 1 : 2,
    });
  if (picked) {
    const [r, k] = [picked.row, picked.column];
    if (r !== null && r !== undefined && k !== null && k !== undefined) pin.append(edge(r, k, wide, tall));
    else if (r !== null && r !== undefined) pin.append(edge(r, 0, wide * K, tall));
    else if (k !== null && k !== undefined) pin.append(edge(0, k, wide, tall * R));
  }

  let at = [picked?.row ?? 0, picked?.column ?? 0];
  const show = (r, k, aloud) => {
    at = [r, k];
    cursor.setAttribute("x", x(k));
    cursor.setAttribute("y", y(r));
    cursor.setAttribute("visibility", "visible");
    over.querySelectorAll(".ch-lit").forEach((node) => node.classList.remove("ch-lit"));
    over.querySelectorAll(`[data-row="${r}"], [data-column="${k}"]`).forEach((node) => node.classList.add("ch-lit"));
    const box = canvas.getBoundingClientRect();
    c.tip(tip(r, k), box.left + (k + 0.5) * wide, box.top + y(r) - top, aloud);
    seen?.(r, k);
  };
  const hide = () => {
    cursor.setAttribute("visibility", "hidden");
    over.querySelectorAll(".ch-lit").forEach((node) => node.classList.remove("ch-lit"));
    c.tip("");
    seen?.(null, null);
  };
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const k = Math.floor((event.clientX - box.left) / wide),
      n = Math.floor((event.clientY - box.top) / tall);
    return n < 0 || k < 0 || n >= R || k >= K ? null : [upward ? R - 1 - n : n, k];
  };
  canvas.addEventListener("pointermove", (event) => {
    const cell = under(event);
    if (cell) show(...cell);
    else hide();
  });
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("click", (event) => {
    const cell = under(event);
    if (cell) pick?.(...cell);
  });
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) show(...at, true);
  });
  canvas.addEventListener("blur", hide);
  canvas.addEventListener("keydown", (event) => {
    const up = upward ? 1 : -1;
    const step = { ArrowUp: [up, 0], ArrowDown: [-up, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    if (step) {
      event.preventDefault();
      show(Math.max(0, Math.min(R - 1, at[0] + step[0])), Math.max(0, Math.min(K - 1, at[1] + step[1])), true);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pick?.(...at);
    } else if (event.key === "Escape") {
      hide();
      release?.();
    }
  });
  return el("div", { class: `ch-scroll ch-wide${H > TALLEST + 160 ? " ch-tall" : ""}` }, inner);
}

/** How long a text is, in letters; a Chinese one takes the room of more. */
const letterWidths = (text) => [...text].reduce((sum, letter) => sum + (letter >= "\u2e80" ? 1.7 : 1), 0);

/** Which of so many labels fit without touching. */
function every(count, pitch, least) {
  const step = Math.max(1, Math.ceil(least / pitch));
  return Array.from({ length: Math.ceil(count / step) }, (_, n) => n * step);
}

function paint(c, canvas, { R, K, wide, tall, upward, colour, text }) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(wide * K * ratio);
  canvas.height = Math.round(tall * R * ratio);
  const pen = canvas.getContext("2d");
  const gap = wide >= 9 && tall >= 9 ? 1 : 0;
  if (!gap) {
    // many small cells: one pixel each, then enlarged
    pen.imageSmoothingEnabled = false;
    pen.drawImage(
      pixels(R, K, (r, k) => colour(upward ? R - 1 - r : r, k)),
      0,
      0,
      canvas.width,
      canvas.height,
    );
    return;
  }
  pen.scale(ratio, ratio);
  pen.textBaseline = "middle";
  const mono = getComputedStyle(document.documentElement).getPropertyValue("--mono");
  pen.font = `12px ${mono || "ui-monospace, Menlo, Consolas, monospace"}`;
  for (let r = 0; r < R; r++) {
    for (let k = 0; k < K; k++) {
      const fill = colour(r, k);
      const [left, top] = [k * wide, (upward ? R - 1 - r : r) * tall];
      pen.fillStyle = css(fill);
      pen.fillRect(left, top, wide - gap, tall - gap);
      const written = text && wide >= 26 ? text(r, k) : null;
      if (!written) continue;
      pen.fillStyle = css(onTop(c, fill));
      const parts = Array.isArray(written) ? written : ["", written];
      const space = Math.floor((wide - 12) / LETTER) - ([...parts[1]].length + 1) * (parts[0] ? 1 : 0);
      if (parts[0] && space >= 2) {
        pen.textAlign = "left";
        pen.fillText(short(parts[0], space), left + 5, top + tall / 2);
      }
      pen.textAlign = parts[0] ? "right" : "center";
      if (parts[1] && [...parts[1]].length * LETTER < wide - 4)
        pen.fillText(parts[1], left + (parts[0] ? wide - gap - 5 : (wide - gap) / 2), top + tall / 2);
    }
  }
}

/** One pixel for each cell: enlarged without smoothing by whoever draws it. */
export function pixels(R, K, colour) {
  const canvas = document.createElement("canvas");
  canvas.width = K;
  canvas.height = R;
  const pen = canvas.getContext("2d"),
    image = pen.createImageData(K, R),
    data = image.data;
  for (let r = 0, n = 0; r < R; r++) {
    for (let k = 0; k < K; k++, n += 4) {
      const rgb = colour(r, k);
      data[n] = rgb[0];
      data[n + 1] = rgb[1];
      data[n + 2] = rgb[2];
      data[n + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

// Vectors as rows of coloured cells: teal above zero, red below, paper at zero.

import { el } from "./dom.js";
import { pixels } from "./heatmap.js";
import * as scale from "./scale.js";

/** The largest number of many, whatever its sign: what the full colour stands for. */
export const largest = (rows) => {
  const [low, high] = scale.extent(rows);
  return Math.max(Math.abs(low), Math.abs(high)) || 1;
};

/** Rows of numbers, a cell each, under one pointer. words(row, place) is what a cell says. */
export function strip(c, rows, most, wide, tall, words, name) {
  const D = rows[0].length;
  const canvas = el("canvas", {
    class: "ch-cells",
    tabindex: "0",
    role: "img",
    "aria-label": name,
    "data-at": `strip-${name}`,
    style: { position: "static", width: `${wide * D}px`, height: `${tall * rows.length}px`, "align-self": "start" },
  });
  canvas.width = D;
  canvas.height = rows.length * tall;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  const small = pixels(rows.length, D, (r, d) => scale.signed(c, rows[r][d] / most));
  rows.forEach((_, r) => pen.drawImage(small, 0, r, D, 1, 0, r * tall + 1, D, tall - 2));
  let at = [0, 0];
  const show = (r, d, aloud) => {
    at = [Math.max(0, Math.min(rows.length - 1, r)), Math.max(0, Math.min(D - 1, d))];
    const box = canvas.getBoundingClientRect();
    c.tip(words(...at), box.left + (at[1] + 0.5) * wide, box.top + at[0] * tall, aloud);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    show(Math.floor((event.clientY - box.top) / tall), Math.floor((event.clientX - box.left) / wide));
  });
  canvas.addEventListener("pointerleave", () => c.tip(""));
  canvas.addEventListener("blur", () => c.tip(""));
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) show(...at, true);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      event.preventDefault();
      show(at[0] + step[0], at[1] + step[1], true);
    } else if (event.key === "Escape") c.tip("");
  });
  return canvas;
}

// Colours that mean something, always the same thing, and the legends that say what.

import { el } from "./dom.js";

/** Ink of a hue: 0 is paper, 1 the full colour. */
export function ink(c, name, share) {
  return mix(c.colour("paper"), typeof name === "string" ? c.colour(name) : name, clamp(share));
}

/** A two-sided scale with paper at zero: share from -1 to 1. */
export const signed = (c, share) => ink(c, share < 0 ? "minus" : "plus", Math.abs(clamp(share, -1)));

/** The strongest colour for rank 1, fading with every power of ten. */
export const rank = (c, place) =>
  ink(c, "rank", place === null ? 0 : Math.max(0.05, 0.95 - Math.log10(Math.max(place, 1)) * 0.27));

/** Ten hues, fixed by the index of a head. */
export const head = (c, index) => c.colour(`head${index % 10}`);

export const mix = (a, b, share) => a.map((x, n) => Math.round(x + (b[n] - x) * share));
export const css = (rgb) => `rgb(${rgb.join(" ")})`;

/** Ink or paper: whichever reads better on this ground; where neither is clear enough, black or white. */
export function onTop(c, ground) {
  const better = (a, b) => (contrast(a, ground) >= contrast(b, ground) ? a : b);
  const best = better(c.colour("ink"), c.colour("paper"));
  return contrast(best, ground) >= 4.55 ? best : better([0, 0, 0], [255, 255, 255]);
}

export function contrast(a, b) {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const clamp = (value, low = 0) => (Number.isFinite(value) ? Math.max(low, Math.min(1, value)) : 0);

/** Swatches from one end of a scale to the other, with words. stops: colours [r, g, b]; marks: words, spread evenly. */
export function legend(title, stops, marks) {
  const swatches = stops.map((rgb) => el("i", { style: { background: css(rgb) } }));
  const words = el(
    "span",
    { class: "ch-marks" },
    marks.map((mark) => el("span", {}, mark)),
  );
  return el(
    "div",
    { class: "ch-legend" },
    el("span", {}, title),
    el("span", { class: "ch-scale" }, el("span", { class: "ch-swatches" }, swatches), words),
  );
}

export const steps = (count, colour, from = 0, to = 1) =>
  Array.from({ length: count }, (_, n) => colour(from + ((to - from) * n) / (count - 1)));

// ---- numbers as words

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Three places that say something. */
export function number(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (value === 0) return "0";
  const text =
    size < 1e-3 || size >= 1e5
      ? value.toExponential(1)
      : size >= 100
        ? value.toFixed(0)
        : size >= 10
          ? value.toFixed(1)
          : value.toFixed(3);
  return text.replace("-", "−");
}

/** So many places that the largest of the numbers has two that say something: for cells of one table. */
export function like(value, most) {
  if (!isNumber(value)) return "–";
  const places = most >= 10 ? 1 : Math.max(2, Math.min(4, 1 - Math.floor(Math.log10(most || 1))));
  if (Math.abs(value) < 0.5 * 10 ** -places) return "0";
  return value
    .toFixed(places)
    .replace("-", "−")
    .replace(/^(−?)0\./, "$1.");
}

export function percent(value, places) {
  if (!isNumber(value)) return "–";
  const share = value * 100;
  return `${share.toFixed(places ?? (share !== 0 && share < 0.1 ? 2 : share < 9.95 ? 1 : 0))} %`;
}

export const whole = (value) =>
  isNumber(value)
    ? Math.round(value)
        .toString()
        .replace(/\B(?=(\d{3})+$)/g, ",")
    : "–";

export function extent(rows) {
  let low = Infinity,
    high = -Infinity;
  for (const row of rows)
    for (const value of row)
      if (isNumber(value)) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
  return low > high ? [0, 0] : [low, high];
}

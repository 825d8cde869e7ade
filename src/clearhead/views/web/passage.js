// Retrieved passages as what they are: short texts with their source and score; and the text that they were found for.

import { el } from "./dom.js";
import * as scale from "./scale.js";
import { chip, chips, isSpecial, visible } from "./tokens.js";

/** Where a passage comes from, and how alike it is. `more` stands behind it. */
export function source(c, one, ...more) {
  const name = one.document || c.words("passage_unnamed");
  return el(
    "p",
    { class: "ch-source" },
    el("span", { class: "ch-rank" }, String(one.rank + 1)),
    el("b", {}, name),
    one.position > 0 ? el("span", {}, c.words("passage_place", { n: one.position + 1 })) : "",
    scale.isNumber(one.score) ? el("span", {}, c.words("passage_score", { score: one.score.toFixed(3) })) : "",
    ...more,
  );
}

/** The words of a passage, a span for each token; `attributes(n)` gives those of one. What follows the chunk in its
 *  document is parted from it by a sign. */
export function passageText(c, one, attributes = () => ({})) {
  const before = tokensOf(one.tokens, one.text.length);
  const spans = one.tokens.map((token, n) => {
    const own = attributes(n);
    const kind = ["ch-piece", isSpecial(token) && "ch-special", n >= before && "ch-after", own.class];
    return el("span", { ...own, class: kind.filter(Boolean).join(" ") }, spaced(token.text).trimStart() || " ");
  });
  const set = (from, to) =>
    spans.slice(from, to).flatMap((span, n) => [/^[ ▁]/.test(one.tokens[from + n].text) ? " " : "", span]);
  const sign = before < spans.length ? el("span", { class: "ch-goes", title: c.words("passage_goes_on") }, " ⋯ ") : "";
  return { element: el("p", { class: "ch-passage" }, set(0, before), sign, set(before, spans.length)), spans };
}

/** How many of its tokens stand for the first so many characters. */
function tokensOf(tokens, characters) {
  const placed = tokens.some((token) => token.end > 0);
  const first = placed ? tokens.findIndex((token) => token.end > 0 && token.start >= characters) : -1;
  return first < 0 ? tokens.length : first;
}

const spaced = (text) => visible(text).replaceAll("␣", " ").replaceAll("⏎", "⏎ ");

/** The text in chips, without the tokens that only fill a chunk up: these are one small mark.
 *  {element, marks: Map from a place in the text to its chip, filler: the mark or null} */
export function folded(c, finding, attributes = () => ({})) {
  const { tokens, filler, chunk_size } = finding;
  const line = chips(tokens.slice(filler), (n) => {
    const at = n + filler,
      own = attributes(at);
    const last = (at + 1) % chunk_size === 0 && at + 1 < tokens.length;
    return { ...own, "data-at": `t${at}`, class: `${last ? "ch-chunk-end " : ""}${own.class ?? ""}` };
  });
  const marks = new Map([...line.querySelectorAll(".ch-tok")].map((mark, n) => [n + filler, mark]));
  let mark = null;
  if (filler) {
    mark = chip([tokens[0]], 0, { class: "ch-filler", "data-at": "fill" }, ` × ${filler}`);
    c.tells(mark, () => c.words("passage_filler", { n: filler }));
    line.prepend(mark);
  }
  return { element: line, marks, filler: mark };
}

/** The ground and the ink on it, as a style. */
export const painted = (c, hue, share) => {
  const ground = scale.ink(c, hue, share);
  return share > 0.02 ? { background: scale.css(ground), color: scale.css(scale.onTop(c, ground)) } : {};
};

/** The same for an element that stands already. */
export function paint(c, node, hue, share) {
  const { background = "", color = "" } = painted(c, hue, share);
  node.style.background = background;
  node.style.color = color;
}

/** The chunk whose passages a token could look at. */
export const chunkOf = (finding, position) => Math.floor(position / finding.chunk_size) - 1;

// Patches of a picture: warm ink on each by how much it counts, over the picture itself, which stays visible.

import { el, rove, svg } from "./dom.js";
import * as scale from "./scale.js";

const FULL = 0.75; // of the strongest ink: what is under it can still be told
const WIDEST = 460; // pixels

export const onGrid = (units) => units.some((unit) => unit.kind === "patch");

/** units     patches with their rectangles, and places that only mark something
 *  picture   {url, width, height} of the picture as given; null: the grid alone
 *  share(k)  from 0 to 1             tip(k)   exact words
 */
export function patches(c, { units, picture, share, tip, label }) {
  const cells = units.map((unit, k) => [unit, k]).filter(([unit]) => unit.kind === "patch");
  const right = Math.max(...cells.map(([unit]) => unit.left + unit.width));
  const bottom = Math.max(...cells.map(([unit]) => unit.top + unit.height));
  const left = Math.min(0, ...cells.map(([unit]) => unit.left));
  const top = Math.min(0, ...cells.map(([unit]) => unit.top));
  const [width, height] = [Math.max(right, picture?.width ?? 0) - left, Math.max(bottom, picture?.height ?? 0) - top];
  const wide = Math.min(WIDEST, c.width, (WIDEST * width) / height);
  const ink = scale.css(c.colour("warm"));
  const squares = cells.map(([unit, k]) => {
    const square = svg("rect", {
      x: unit.left,
      y: unit.top,
      width: unit.width,
      height: unit.height,
      fill: ink,
      "fill-opacity": (Math.max(0, share(k)) * FULL).toFixed(3),
      stroke: scale.css(c.colour("paper")),
      "stroke-width": width / 600,
      tabindex: "-1",
    });
    return c.tells(square, () => tip(k));
  });
  rove(squares, {});
  const shown =
    picture && svg("image", { href: picture.url, x: 0, y: 0, width: picture.width, height: picture.height });
  return el(
    "div",
    { style: { "max-width": `${wide}px` } },
    svg(
      "svg",
      { viewBox: `${left} ${top} ${width} ${height}`, width: wide, role: "group", "aria-label": label },
      shown,
      squares,
    ),
  );
}

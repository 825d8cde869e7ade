// Elements made in one line: text is always set as text, never read as markup.

const SVG = "http://www.w3.org/2000/svg";

export const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style" && typeof value === "object") {
      for (const [name, set] of Object.entries(value)) node.style.setProperty(name, set);
    } else if (key === "style")
      node.style.cssText = value; // as an attribute, strict pages would forbid it
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Tab stops at one of the items; arrows move among them, Enter pins, Escape releases.
 *  across: how many stand side by side, so that up and down move by a row; 0 for a list, where all arrows
 *  step by one. */
export function rove(items, { start = 0, across = 0, seen, pick, release, other } = {}) {
  let at = Math.max(0, Math.min(start, items.length - 1));
  items.forEach((item, n) => {
    item.setAttribute("tabindex", n === at ? "0" : "-1");
    item.addEventListener("focus", () => {
      items[at].setAttribute("tabindex", "-1");
      item.setAttribute("tabindex", "0");
      at = n;
      seen?.(n);
    });
    item.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across || 1, ArrowUp: -(across || 1) }[event.key];
      let next = step === undefined ? undefined : n + step;
      if (event.key === "Home") next = 0;
      if (event.key === "End") next = items.length - 1;
      if (other?.(event.key, n)) event.preventDefault();
      else if (next !== undefined) {
        event.preventDefault();
        items[Math.max(0, Math.min(items.length - 1, next))].focus();
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pick?.(n);
      } else if (event.key === "Escape") release?.();
    });
  });
}

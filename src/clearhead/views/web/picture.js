// A drawn figure as one SVG that any program opens: boxes, texts, lines and canvases, where the browser has put them.

const NS = "http://www.w3.org/2000/svg";
const KEPT = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "font-style",
  "text-anchor",
  "dominant-baseline",
  "stroke-dasharray",
];

export function svgOf(root) {
  const frame = root.getBoundingClientRect();
  const ground = getComputedStyle(root).getPropertyValue("background-color");
  const out = make("svg", {
    xmlns: NS,
    width: round(frame.width),
    height: round(frame.height),
    viewBox: `0 0 ${round(frame.width)} ${round(frame.height)}`,
  });
  out.append(make("rect", { width: "100%", height: "100%", fill: ground }));
  walk(root, out, frame);
  return new XMLSerializer().serializeToString(out);
}

export async function pngOf(root, scale = 2) {
  const text = svgOf(root);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width * scale;
  canvas.height = image.height * scale;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function walk(node, out, frame) {
  if (node.nodeType === Node.TEXT_NODE) return lines(node, out, frame);
  if (node.nodeType !== Node.ELEMENT_NODE || node.dataset?.picture === "no") return undefined;
  const style = getComputedStyle(node);
  const box = node.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden" || !box.width || !box.height) return undefined;
  if (node.localName === "canvas") {
    return out.append(
      make("image", {
        ...at(box, frame),
        preserveAspectRatio: "none",
        "image-rendering": "pixelated",
        href: node.toDataURL("image/png"),
      }),
    );
  }
  if (node.localName === "svg") return out.append(drawing(node, box, frame));
  const paint = style.backgroundColor;
  if (!/rgba\(.*, 0\)|transparent/.test(paint))
    out.append(make("rect", { ...at(box, frame), rx: parseFloat(style.borderTopLeftRadius) || 0, fill: paint }));
  if (style.outlineStyle !== "none" && parseFloat(style.outlineWidth)) {
    out.append(
      make("rect", {
        ...at(box, frame),
        rx: 3,
        fill: "none",
        stroke: style.outlineColor,
        "stroke-width": style.outlineWidth,
      }),
    );
  }
  if (parseFloat(style.borderBottomWidth) && style.borderBottomStyle !== "none") {
    const y = round(box.bottom - frame.top - 0.5);
    out.append(
      make("line", {
        x1: round(box.left - frame.left),
        x2: round(box.right - frame.left),
        y1: y,
        y2: y,
        stroke: style.borderBottomColor,
        "stroke-width": style.borderBottomWidth,
      }),
    );
  }
  node.childNodes.forEach((child) => walk(child, out, frame));
  return undefined;
}

/** A text may run over several lines: one <text> for each. */
function lines(node, out, frame) {
  const text = node.textContent;
  if (!text.trim()) return;
  const style = getComputedStyle(node.parentElement);
  const range = document.createRange();
  let begin = 0,
    top = null,
    last = null;
  const put = (end) => {
    if (!last || !text.slice(begin, end).trim()) return;
    const size = parseFloat(style.fontSize);
    const element = make("text", {
      x: round(last.left - frame.left),
      y: round(last.top - frame.top + (last.height + size * 0.7) / 2),
      fill: style.color,
      "font-family": style.fontFamily,
      "font-size": style.fontSize,
      "font-weight": style.fontWeight,
      "xml:space": "preserve",
    });
    element.textContent = text.slice(begin, end);
    out.append(element);
  };
  for (let n = 0; n < text.length; n++) {
    range.setStart(node, n);
    range.setEnd(node, n + 1);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    if (top !== null && Math.abs(box.top - top) > 3) {
      put(n);
      begin = n;
      last = null;
    }
    top = box.top;
    last ??= box;
  }
  put(text.length);
}

/** An inner drawing, its computed colours and type written into it. */
function drawing(node, box, frame) {
  const copy = node.cloneNode(true);
  const [from, to] = [
    [node, ...node.querySelectorAll("*")],
    [copy, ...copy.querySelectorAll("*")],
  ];
  from.forEach((element, n) => {
    const style = getComputedStyle(element);
    if (style.display === "none") {
      to[n].remove();
      return;
    }
    for (const name of KEPT) if (element !== node) to[n].setAttribute(name, style.getPropertyValue(name));
    ["class", "style", "tabindex", "data-at"].forEach((name) => to[n].removeAttribute(name));
  });
  for (const [name, value] of Object.entries(at(box, frame))) copy.setAttribute(name, value);
  return copy;
}

function make(name, attributes) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

const round = (value) => Math.round(value * 10) / 10;
const at = (box, frame) => ({
  x: round(box.left - frame.left),
  y: round(box.top - frame.top),
  width: round(box.width),
  height: round(box.height),
});

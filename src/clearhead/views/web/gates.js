// A recurrent layer over time: its gates, its cell and its state, a column for each word.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";
import { largest } from "./strip.js";
import { chips, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const BESIDE = 860; // pixels from which two parts stand side by side
const GAP = 32;

const view = {
  /** part: the one shown alone, by its name; row: the pinned [part, row], 0 its mean; token: the pinned word */
  start: () => ({ part: null, row: null, token: null }),
  title: (c) =>
    c.state.part === null
      ? c.words("gates_title")
      : c.words("gates_title_part", { part: c.words(`gates_${c.state.part}`) }),
  reading(c) {
    const { layer, layers, direction, parts } = c.finding;
    const part = shown(c)[0] ?? parts[0];
    const words = c.words("gates_reading", { layer, layers, count: part.units.length, width: scale.whole(part.width) });
    return direction === "reverse" ? `${words} ${c.words("gates_reverse")}` : words;
  },
  controls(c) {
    const entries = c.finding.parts.map((part) => [part.name, c.words(`gates_${part.name}`)]);
    return [
      c.choice(c.words("gates_part"), c.state.part ?? "", [["", c.words("gates_all")], ...entries], (name) =>
        c.set({ part: name || null, row: null, token: null }),
      ),
    ];
  },
  body(c, box) {
    const { tokens } = c.finding;
    const parts = shown(c);
    const line = el("div", {});
    const paint = (name, r) => {
      const part = c.finding.parts.find((one) => one.name === name);
      const row = part ? rowsOf(part)[r] : null;
      const colour = part ? colourOf(c, part) : null;
      const made = chips(tokens, (k) => {
        const ground = row ? colour(row[k]) : c.colour("paper");
        return {
          style: { background: scale.css(ground), color: scale.css(scale.onTop(c, ground)) },
          class: c.state.token === k ? "ch-on" : "",
        };
      });
      line.replaceChildren(made);
    };
    paint(...(c.state.row ?? [null, 0]));
    const beside = parts.length > 1 && c.width >= BESIDE;
    const across = beside ? 2 : 1;
    const space = beside ? (c.width - GAP) / 2 : c.width;
    const maps = parts.map((part, n) =>
      el(
        "div",
        {},
        parts.length > 1
          ? el("p", { class: "ch-name" }, part.is_gate ? part.label : `${part.label} · ± ${ends(part)}`)
          : "",
        partMap(c, part, { space, unnamed: n >= across, tall: parts.length === 1, paint }),
      ),
    );
    box.append(
      parts.length > 1 ? line : "", // one part alone has its words above its columns
      el(
        "div",
        {
          class: parts.length > 1 ? "ch-part" : "",
          style: {
            display: "grid",
            "grid-template-columns": `repeat(${across}, minmax(0, 1fr))`,
            gap: `14px ${GAP}px`,
          },
        },
        maps,
      ),
      el(
        "div",
        { style: { display: "flex", "flex-wrap": "wrap", gap: "0 2.5rem" } },
        parts.some((part) => part.is_gate) &&
          scale.legend(
            c.words("gates_scale"),
            scale.steps(8, (t) => scale.ink(c, "accent", t)),
            ["0", "1"],
          ),
        parts.some((part) => !part.is_gate) &&
          scale.legend(
            parts.length > 1 ? c.words("gates_signed") : c.words("two_sided"),
            scale.steps(9, (t) => scale.signed(c, t), -1, 1),
            parts.length > 1 ? ["−", "0", "+"] : [`−${ends(parts[0])}`, "0", ends(parts[0])],
          ),
      ),
    );
  },
  *table(finding) {
    yield ["part", "unit", "position", "token", "value"];
    for (const part of finding.parts) {
      const names = ["mean", ...part.units];
      for (const [r, row] of rowsOf(part).entries())
        for (const [k, token] of finding.tokens.entries()) yield [part.name, names[r], k, textOf(token), row[k]];
    }
  },
};

/** The parts that are shown: all, or the chosen one. */
const shown = (c) => c.finding.parts.filter((part) => c.state.part === null || part.name === c.state.part);
/** The number that the full colour stands for. */
const ends = (part) => scale.number(largest(rowsOf(part)));
const rowsOf = (part) => [part.mean, ...part.values];

/** A number's colour: ink for a gate, else two sides with paper at zero. */
function colourOf(c, part) {
  if (part.is_gate) return (value) => scale.ink(c, "accent", value);
  const most = largest(rowsOf(part));
  return (value) => scale.signed(c, value / most);
}

function partMap(c, part, { space, unnamed, tall, paint }) {
  const { tokens } = c.finding;
  const rows = rowsOf(part),
    colour = colourOf(c, part);
  const name = (r) => (r === 0 ? c.words("gates_mean") : `${c.words("gates_unit")} ${part.units[r - 1]}`);
  const pinned = c.state.row?.[0] === part.name ? c.state.row[1] : null;
  return heatmap(c, {
    rows: [c.words("gates_mean"), ...part.units.map(String)],
    columns: tokens.map((token) => visible(textOf(token))),
    space,
    unnamed,
    width: [5, 96],
    height: tall ? [4, 18] : [4, 11],
    label: part.label,
    name: `gates-${part.name}`,
    colour: (r, k) => colour(rows[r][k]),
    tip: (r, k) =>
      `${c.words(`gates_${part.name}`)} · ${name(r)} · ${visible(textOf(tokens[k]))} · ${scale.number(rows[r][k])}`,
    seen: (r) => (r === null ? paint(...(c.state.row ?? [null, 0])) : paint(part.name, r)),
    picked: pinned === null ? null : { row: pinned, column: c.state.token },
    pick: (r, k) =>
      c.set(pinned === r && c.state.token === k ? { row: null, token: null } : { row: [part.name, r], token: k }),
    release: () => c.set({ row: null, token: null }),
  });
}

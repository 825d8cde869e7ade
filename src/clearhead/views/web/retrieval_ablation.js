// Does the store matter? Passages left out, or exchanged for random ones, and how far every written word moves.

import { el, rove } from "./dom.js";
import { figure } from "./figure.js";
import { folded } from "./passage.js";
import * as scale from "./scale.js";
import { plain, textOf, visible } from "./tokens.js";

const FULL = 0.85;
const HARDLY = 0.05; // bits: below, a store hardly matters

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** change: which change of the passages the text shows */
  start: (finding) => ({ change: finding.changes.findIndex((one) => one.how === "all") }),
  title: (c) => c.words("store_title", { store: c.finding.store || c.words("store_this") }),
  reading: (c) => c.words("store_reading"),
  body(c, box) {
    const { finding } = c;
    const rows = new Map(finding.rows.map((row, n) => [row, n]));
    const high = Math.max(0.5, ...finding.gain.flatMap((row) => Array.from(row, (x) => Math.abs(x) || 0)));
    const text = folded(c, finding, (k) => ({ class: rows.has(k) ? "ch-gained" : "ch-faint" }));
    const named = el("p", { class: "ch-name ch-part" });

    function show(n) {
      named.textContent = c.words("store_shown", { change: changeName(c, finding.changes[n]) });
      for (const [k, mark] of text.marks) {
        const row = rows.get(k);
        if (row === undefined) continue;
        const gain = finding.gain[n][row];
        const ground = scale.signed(c, scale.isNumber(gain) ? (gain / high) * FULL : 0);
        mark.style.background = scale.css(ground);
        mark.style.color = scale.isNumber(gain) ? scale.css(scale.onTop(c, ground)) : "";
        mark.querySelector("small")?.remove();
        const instead = finding.instead[n][row];
        if (scale.isNumber(gain) && instead !== textOf(finding.tokens[k]))
          mark.append(el("small", {}, `→ ${visible(instead)}`));
      }
    }

    for (const [k, mark] of text.marks)
      c.tells(mark, () => (rows.has(k) ? words(c, shown, rows.get(k)) : c.words("store_too_early")));
    let shown = Math.min(c.state.change, finding.changes.length - 1);
    rove(
      [...text.marks.values()].filter((_, n) => rows.has(n + finding.filler)),
      { release: () => c.tip("") },
    );
    const table = changes(c, (n) => {
      shown = n ?? c.state.change;
      show(shown);
    });
    box.append(
      el("p", { class: "ch-verdict" }, verdict(c), finding.alone === null ? "" : alone(c)),
      table,
      named,
      text.element,
      scale.legend(
        c.words("store_scale"),
        scale.steps(9, (t) => scale.signed(c, t * FULL), -1, 1),
        [`−${high.toFixed(1)}`, "0", `+${high.toFixed(1)}`],
      ),
    );
    show(shown);
  },
  *table(finding) {
    yield ["how", "document", "position", "token", "probability", "gain", "moved", "instead"];
    for (const [n, change] of finding.changes.entries())
      for (const [k, row] of finding.rows.entries())
        if (scale.isNumber(finding.gain[n][k]))
          yield [
            change.how,
            change.passage === null ? "" : finding.passages[change.passage].document,
            row,
            textOf(finding.tokens[row]),
            finding.probability[k],
            finding.gain[n][k],
            finding.moved[n][k],
            finding.instead[n][k],
          ];
  },
};

const factor = (value) => (value < 10 ? value.toFixed(1) : scale.whole(value));

/** The answer in a sentence. */
function verdict(c) {
  const { changes, rows } = c.finding;
  const all = changes.find((one) => one.how === "all");
  const values = {
    gain: Math.abs(all.gain).toFixed(1),
    factor: factor(2 ** Math.abs(all.gain)),
    moved: all.moved.toFixed(1),
    others: all.others,
    count: rows.length,
  };
  const key =
    all.moved < HARDLY && Math.abs(all.gain) < HARDLY ? "store_hardly" : all.gain < 0 ? "store_hinders" : "store_helps";
  return c.words(key, values);
}

/** What the model writes with nothing to look at, where that is something else. */
function alone(c) {
  const { alone: words, answer } = c.finding;
  if (words === answer) return "";
  const gap = c.lang === "zh" ? "" : " ";
  return `${gap}${c.words("store_alone", { words: words || c.words("store_nothing"), answer })}`;
}

function changeName(c, change) {
  if (change.how !== "one") return c.words(`store_${change.how}`);
  const one = c.finding.passages[change.passage];
  const name = one.document || c.words("passage_unnamed");
  const several = c.finding.passages.some((other) => other.chunk !== one.chunk);
  return c.words(several ? "store_one_of" : "store_one", { name, rank: one.rank + 1, chunk: one.chunk + 1 });
}

/** A row for each change: what was done, and what it does to the text on average. */
function changes(c, seen) {
  const { finding } = c;
  const most = Math.max(0.05, ...finding.changes.map((one) => Math.abs(one.gain)));
  const buttons = finding.changes.map((change, n) =>
    el(
      "button",
      {
        type: "button",
        class: "ch-change",
        "data-at": `change${n}`,
        "aria-pressed": String(c.state.change === n),
        onclick: () => c.set({ change: n }),
      },
      el("span", { class: "ch-change-name" }, changeName(c, change)),
      el("span", { class: "ch-share" }, c.words("store_bits", { n: signed(change.gain) })),
      el(
        "span",
        { class: "ch-track" },
        el("span", {
          class: "ch-bar",
          style: {
            width: `${(Math.abs(change.gain) / most) * 100}%`,
            background: `var(--${change.gain < 0 ? "minus" : "plus"})`,
          },
        }),
      ),
      el(
        "span",
        { class: "ch-change-others" },
        c.words("store_others", {
          n: change.others,
          of: Array.from(finding.gain[n]).filter(scale.isNumber).length,
        }),
      ),
    ),
  );
  buttons.forEach((button, n) => {
    button.addEventListener("pointerenter", () => seen(n));
    button.addEventListener("pointerleave", () => seen(null));
    c.tells(button, () =>
      c.words("store_change_tip", {
        gain: signed(finding.changes[n].gain),
        moved: scale.number(finding.changes[n].moved),
      }),
    );
  });
  rove(buttons, { start: c.state.change, seen, pick: (n) => c.set({ change: n }) });
  return el("div", { class: "ch-changes ch-ranked" }, buttons);
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

function words(c, n, k) {
  const { tokens, rows, gain, moved, instead, probability } = c.finding;
  const token = plain(textOf(tokens[rows[k]]));
  if (!scale.isNumber(gain[n][k])) return c.words("store_too_early");
  return c.words("store_tip", {
    token,
    p: scale.percent(probability[k]),
    gain: signed(gain[n][k]),
    moved: scale.number(moved[n][k]),
    instead: visible(instead[n][k]),
  });
}

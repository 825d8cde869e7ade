// Attention over a recurrent encoder's states, in four steps: score, softmax, context, word.

import { el, rove } from "./dom.js";
import { figure } from "./figure.js";
import { ranked } from "./guesses.js";
import * as scale from "./scale.js";
import { bar, cellFor, cells, GAP, grid, named, ROW, right, tidy, times, tokenCell, WIDEST } from "./step_grid.js";
import { largest, strip } from "./strip.js";
import { chips, plain, rowColumns, rowNames, stepWords, textOf, visible } from "./tokens.js";

const STEPS = [1, 2, 3, 4];
const LEAST = 0.2; // pixels of a number in a strip: on a telephone a vector is a texture, and all of it is there

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** step: 1 to 4, token: the word that is written */
  start: (finding) => ({ step: 1, token: telling(finding) }),
  title: (c) => c.words(`align_title_${c.state.step}`, { token: nameOf(c) }),
  reading: (c) =>
    c.words(`align_reading_${c.state.step}`, {
      who: c.words(c.finding.before ? "align_before" : "align_after"),
      how: c.words(`align_${c.finding.score}`),
      sum: scale.percent(
        Array.from(c.finding.weights[at(c)]).reduce((a, b) => a + b, 0),
        0,
      ),
    }),
  controls(c) {
    if (c.options.title) return []; // a chapter that shows one step after the other
    return [
      c.group(
        c.words("align_step"),
        c.state.step,
        STEPS.map((n) => [n, c.words(`align_name_${n}`)]),
        (n) => c.set({ step: n }),
      ),
    ];
  },
  body(c, box) {
    const { tokens } = c.finding;
    const line = chips(tokens, (n) => ({
      class: n === at(c) ? "ch-on" : "",
      role: "button",
      "data-pick": "",
      "aria-pressed": String(n === at(c)),
      onclick: () => c.set({ token: n }),
    }));
    rove([...line.querySelectorAll(".ch-tok")], { start: at(c), pick: (token) => c.set({ token }) });
    const inside = el("div", { class: "ch-wide ch-scroll ch-tall" });
    box.append(
      el("p", { class: "ch-name" }, c.words("align_who")),
      line,
      el("p", { class: "ch-say" }, stepWords(c, tokens[at(c)])),
      el("div", { class: "ch-part" }, inside),
    );
    [scores, softmax, context, word][c.state.step - 1](c, inside);
    if (c.state.step !== 2)
      box.append(
        scale.legend(
          c.words("two_sided"),
          scale.steps(9, (t) => scale.signed(c, t), -1, 1),
          ["−", "0", "+"],
        ),
      );
  },
  *table(finding) {
    yield ["step", ...rowColumns(finding.tokens), "key", "key_token", "score", "weight"];
    for (const [q, row] of finding.weights.entries())
      for (let k = 0; k < row.length; k++)
        yield [q, ...rowNames(finding.tokens[q]), k, textOf(finding.keys[k]), finding.scores[q][k], row[k]];
  },
};

/** The chosen step of writing. */
const at = (c) => Math.min(c.state.token, c.finding.tokens.length - 1);
const nameOf = (c) => plain(textOf(c.finding.tokens[at(c)]));

/** The word that is most sure of where it looks, and says something. */
function telling(finding) {
  let best = 0,
    most = 0;
  finding.weights.forEach((row, q) => {
    const k = row.indexOf(Math.max(...row));
    const says = /[\p{L}\p{N}]/u.test(textOf(finding.tokens[q])) && /[\p{L}\p{N}]/u.test(textOf(finding.keys[k]));
    if (says && row[k] > most && k !== q) [best, most] = [q, row[k]];
  });
  return best;
}

/** A vector with its name, as wide as the figure. */
function vector(c, label, row, hue) {
  const cell = Math.min(WIDEST, c.width / row.length);
  return el(
    "div",
    { style: { margin: "0 0 .8rem" } },
    el("p", { class: "ch-name", style: { color: `var(--${hue ? `${hue}-text` : "soft"})` } }, label),
    strip(c, [row], largest([row]), cell, ROW, cells(c, label, null, [row]), label),
  );
}

// ---- 1: every state gets a score

function scores(c, box) {
  const { keys, memory, states, scores: all_ } = c.finding;
  const own = all_[at(c)],
    state = states[at(c)],
    D = memory[0].length;
  // where there is little room the scores come first, without bars: they are what the figure is about
  const narrow = c.width < 620,
    side = narrow ? 0 : 70;
  const [stateColumn, scoreColumn] = narrow ? [3, 2] : [2, 3];
  const wide = cellFor(c, D, narrow ? 50 : 60 + side * 2 + GAP, 1, LEAST);
  const columns = [`${wide * D}px`, "3.4rem", `${side * 2}px`];
  const all = grid(narrow ? ["2.6rem", columns[0]] : columns, "auto", keys.length);
  all.put(named(c.words("align_states"), "enc"), 1, stateColumn);
  all.put(
    strip(c, memory, largest(memory), wide, ROW, cells(c, c.words("align_states"), keys, memory), "states"),
    2,
    stateColumn,
    keys.length,
  );
  all.put(named(c.words("score"), "", true), 1, scoreColumn);
  const most = largest([own]),
    best = Math.max(...own);
  keys.forEach((one, k) => {
    all.put(tokenCell(one, { bold: own[k] === best }), k + 2, 1);
    const number = all.put(right(tidy(own[k], most)), k + 2, scoreColumn);
    if (own[k] === best) number.style.fontWeight = 700;
    if (!narrow)
      all.put(
        c.tells(signedBar(c, own[k] / most, side), () => `${visible(textOf(one))}: ${scale.number(own[k])}`),
        k + 2,
        4,
      );
  });
  box.append(vector(c, c.words("align_state", { width: scale.whole(state.length) }), state, "dec"), all);
}

/** A bar to the right of the middle for what is above zero, to the left for what is below. */
const signedBar = (c, share, side) =>
  el(
    "span",
    { style: { position: "relative", height: `${ROW}px`, display: "block" } },
    el("i", {
      style: { position: "absolute", left: `${side}px`, top: 0, bottom: 0, width: "1px", background: "var(--hair)" },
    }),
    el("i", {
      style: {
        position: "absolute",
        top: `${(ROW - 10) / 2}px`,
        height: "10px",
        left: `${side + Math.min(0, share) * side}px`,
        width: `${Math.max(1, Math.abs(share) * side)}px`,
        "border-radius": "2px",
        background: scale.css(scale.signed(c, share < 0 ? -0.9 : 0.9)),
      },
    }),
  );

// ---- 2: shares of one

function softmax(c, box) {
  const { keys } = c.finding,
    own = c.finding.scores[at(c)],
    weights = c.finding.weights[at(c)];
  const best = Math.max(...own),
    most = largest([own]);
  const narrow = c.width < 560,
    space = Math.max(40, Math.min(700, c.width - (narrow ? 230 : 350)));
  const all = grid(["4rem", ...(narrow ? [] : ["max-content"]), "4.2rem", `${space}px`], "auto", keys.length);
  const heads = [c.words("score"), ...(narrow ? [] : [c.words("steps_exp")]), c.words("weight")];
  heads.forEach((text, n) => all.put(named(text, n === heads.length - 1 ? "q" : "", true), 1, n + 2));
  keys.forEach((one, k) => {
    all.put(tokenCell(one, { bold: own[k] === best }), k + 2, 1);
    all.put(right(tidy(own[k], most), true), k + 2, 2);
    if (!narrow) all.put(right(scale.number(Math.exp(own[k] - best)), true), k + 2, 3);
    all.put(right(scale.percent(weights[k], 1)), k + 2, heads.length + 1);
    all.put(
      c.tells(bar(weights[k], space, "var(--q)"), () => `${visible(textOf(one))}: ${scale.percent(weights[k], 2)}`),
      k + 2,
      heads.length + 2,
    );
  });
  box.append(all);
}

// ---- 3: a blend of states

function context(c, box) {
  const { keys, memory, context: contexts } = c.finding,
    weights = c.finding.weights[at(c)],
    made = contexts[at(c)];
  const parts = memory.map((row, k) => times(row, weights[k])),
    D = made.length;
  const narrow = c.width < 620,
    bars = narrow ? 0 : Math.min(160, c.width / 8);
  const wide = cellFor(c, D, 60 + (bars ? bars + GAP : 0), 1, LEAST);
  const all = grid(["3.6rem", ...(bars ? [`${bars}px`] : []), `${wide * D}px`], "auto", keys.length + 1);
  const column = bars ? 4 : 3;
  const most = largest([...parts, made]);
  all.put(named(c.words("weight"), "q", true), 1, 2);
  all.put(named(c.words("align_weighted"), "enc"), 1, column);
  all.put(
    strip(
      c,
      parts,
      most,
      wide,
      ROW,
      (k, d) =>
        `${visible(textOf(keys[k]))}, ${c.words("dimension", { d })}\n${scale.percent(weights[k], 1)} × ` +
        `${scale.number(memory[k][d])} = ${scale.number(parts[k][d])}`,
      "weighted",
    ),
    2,
    column,
    keys.length,
  );
  keys.forEach((one, k) => {
    all.put(tokenCell(one), k + 2, 1);
    all.put(right(scale.percent(weights[k], 1)), k + 2, 2);
    if (bars) all.put(bar(weights[k], bars, "var(--q)"), k + 2, 3);
  });
  const last = keys.length + 2;
  all.put(el("b", { style: { "white-space": "nowrap" } }, "Σ"), last, 1);
  all.put(named(c.words("align_context"), "", true), last, column - 1).style.alignSelf = "center";
  const row = all.put(
    strip(c, [made], most, wide, ROW, cells(c, c.words("align_context"), null, [made]), "context"),
    last,
    column,
  );
  row.style.borderTop = "1px solid var(--ink)";
  all.style.gridTemplateRows = `auto repeat(${keys.length}, ${ROW}px) ${ROW + 6}px`;
  box.append(all);
}

// ---- 4: from two vectors to a word

function word(c, box) {
  const { context: contexts, outputs, readout, words } = c.finding,
    q = at(c);
  const line = (key, row, hue) => vector(c, c.words(key, { width: scale.whole(row.length) }), row, hue);
  box.append(
    line("align_context_of", contexts[q], "enc"),
    line("align_output", outputs[q], "dec"),
    line("align_readout", readout[q], ""),
    ranked(
      c,
      words[q].map(([token, probability]) => ({ token, probability })),
    ),
  );
}

// Attention in six steps: what one token, one head and then all heads of a layer really computed.

import { el, rove } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { bar, cellFor, cells, GAP, grid, named, ROW, right, tidy, times, tokenCell, WIDEST } from "./step_grid.js";
import { largest, strip } from "./strip.js";
import { chips, isWritten, joins, plain, rowColumns, rowNames, signed, stepWords, textOf, visible } from "./tokens.js";

const STEPS = [1, 2, 3, 4, 5, 6];

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** step: 1 to 6, token: the one that asks, head: through which */
  start: (finding) => ({ step: 1, ...telling(finding) }),
  title: (c) =>
    c.words(c.finding.side === "cross" && c.state.step === 1 ? "steps_title_cross" : `steps_title_${c.state.step}`, {
      token: nameOf(c),
    }),
  reading: (c) =>
    c.words(`steps_reading_${c.state.step}`, {
      token: nameOf(c),
      layer: c.finding.layer,
      head: c.state.head,
      size: c.finding.query[0][0].length,
      heads: c.finding.query.length,
      width: c.finding.output[0].length,
      scale: scale.number(c.finding.scale),
      keys: c.finding.keys.length,
    }),
  controls(c) {
    const heads = c.finding.query.map((_, h) =>
      c.tells(
        el(
          "button",
          {
            type: "button",
            "data-at": `head${h}`,
            "aria-pressed": String(h === c.state.head),
            "aria-label": c.words("head_n", { n: h }),
            style: headStyle(c, h),
            onclick: () => c.set({ head: h }),
          },
          String(h),
        ),
        () => strongest(c, h),
      ),
    );
    rove(heads, { start: c.state.head, pick: (head) => c.set({ head }) });
    const step = c.options.title
      ? []
      : [
          c.group(
            c.words("steps_step"),
            c.state.step,
            STEPS.map((n) => [n, c.words(`steps_name_${n}`)]),
            (n) => c.set({ step: n }),
          ),
        ];
    return [
      ...step,
      el(
        "span",
        { class: "ch-heads", role: "group", "aria-label": c.words("heads") },
        el("span", { style: { "align-self": "center", "margin-right": ".4rem" } }, c.words("head")),
        heads,
      ),
    ];
  },
  body(c, box) {
    const { tokens } = c.finding;
    const line = chips(tokens, (n) => ({
      class: n === c.state.token ? "ch-on" : "",
      role: "button",
      "data-pick": "",
      "aria-pressed": String(n === c.state.token),
      onclick: () => c.set({ token: n }),
    }));
    rove([...line.querySelectorAll(".ch-tok")], { start: c.state.token, pick: (token) => c.set({ token }) });
    const inside = el("div", { class: "ch-wide ch-scroll ch-tall" });
    const writes = isWritten(tokens[0]);
    box.append(
      el("p", { class: "ch-name" }, c.words(writes ? "steps_who_writes" : "steps_who")),
      line,
      writes ? el("p", { class: "ch-say" }, stepWords(c, tokens[c.state.token] ?? tokens[0])) : "",
      el("div", { class: "ch-part" }, inside),
    );
    [vectors, products, scaling, softmax, sum, joined][c.state.step - 1](c, inside);
    if (![3, 4].includes(c.state.step))
      box.append(
        scale.legend(
          c.words("two_sided"),
          scale.steps(9, (t) => scale.signed(c, t), -1, 1),
          ["−", "0", "+"],
        ),
      );
  },
  *table(finding) {
    yield ["head", "query", ...rowColumns(finding.tokens), "key", "key_token", "product", "score", "weight"];
    for (const [h, rows] of finding.weights.entries()) {
      for (let q = 0; q < rows.length; q++)
        for (let k = 0; k < rows[q].length; k++)
          yield [
            h,
            q,
            ...rowNames(finding.tokens[q]),
            k,
            textOf(finding.keys[k]),
            dot(finding.query[h][q], finding.key[h][k]),
            finding.scores[h][q][k],
            rows[q][k],
          ];
    }
  },
};

const nameOf = (c) => plain(textOf(c.finding.tokens[c.state.token] ?? c.finding.tokens[0]));
const headStyle = (c, h) => ({
  "--hue": scale.css(scale.head(c, h)),
  "--on": scale.css(scale.onTop(c, scale.head(c, h))),
});
const dot = (a, b) => a.reduce((sum, value, d) => sum + value * b[d], 0);

/** The head and the token that look most at one other word, and not at the one before. */
function telling(finding) {
  let best = { head: 0, token: Math.min(1, finding.tokens.length - 1) },
    most = 0;
  finding.weights.forEach((rows, head) =>
    rows.forEach((row, token) =>
      row.forEach((weight, k) => {
        const far = finding.side === "cross" || (k !== token && k !== token - 1);
        if (
          far &&
          weight > most &&
          finding.tokens[token].word !== null &&
          finding.keys[k].word !== null &&
          !joins(finding.tokens, token)
        )
          [best, most] = [{ head, token }, weight];
      }),
    ),
  );
  return best;
}

function strongest(c, head) {
  const row = c.finding.weights[head][c.state.token],
    k = row.indexOf(Math.max(...row));
  return (
    `${c.words("head_n", { n: head })}: ${nameOf(c)} → ${visible(textOf(c.finding.keys[k]))} ` +
    `${scale.percent(row[k], 1)}`
  );
}

/** What a step needs of the chosen token and head. */
function chosen(c) {
  const {
    finding: f,
    state: { head: h, token: q },
  } = c;
  const hidden = Array.from(f.weights[h][q], (weight) => weight === 0);
  return {
    query: f.query[h][q],
    key: f.key[h],
    value: f.value[h],
    scores: f.scores[h][q],
    weights: f.weights[h][q],
    hidden,
    sums: f.key[h].map((key) => dot(f.query[h][q], key)),
  };
}

const looks = (c, k) => c.finding.side !== "cross" && k === c.state.token;

// ---- 1: every token gets three vectors

function vectors(c, box) {
  const {
    finding: f,
    state: { head, token },
  } = c;
  const self = f.side !== "cross",
    D = f.query[0][0].length;
  const own = [
    ["query", "q", f.query[head][token]],
    ...(self
      ? [
          ["key", "k", f.key[head][token]],
          ["value", "v", f.value[head][token]],
        ]
      : []),
  ];
  const line = (label, hue, row) =>
    el(
      "div",
      { style: { margin: "0 0 .7rem" } },
      el(
        "p",
        { class: "ch-name", style: { color: hue ? `var(--${hue}-text)` : "var(--soft)" } },
        label,
        el(
          "code",
          {},
          `${Array.from(row.slice(0, c.width < 560 ? 3 : 5), (value) => scale.number(value)).join("  ")} …`,
        ),
      ),
      strip(c, [row], largest([row]), Math.min(WIDEST, c.width / row.length), ROW, cells(c, label, null, [row]), label),
    );
  if (f.input)
    box.append(line(c.words("steps_input", { token: nameOf(c), width: f.input[token].length }), "", f.input[token]));
  box.append(
    ...own.map(([name, hue, row]) =>
      line(c.words(`steps_of_${name}`, { token: nameOf(c), size: row.length }), hue, row),
    ),
  );
  const every = [
    ...(self ? [["query", "q", f.query[head]]] : []),
    ["key", "k", f.key[head]],
    ["value", "v", f.value[head]],
  ];
  const wide = cellFor(c, D, 0, every.length);
  const all = grid(
    every.map(() => `${wide * D}px`),
    "auto",
    f.keys.length,
  );
  every.forEach(([name, hue, rows], n) => {
    all.put(
      named(c.words(name === "query" ? "steps_queries" : name === "key" ? "keys" : "steps_values"), hue),
      1,
      n + 2,
    );
    all.put(
      strip(c, rows, largest(rows), wide, ROW, cells(c, c.words(name), f.keys, rows), `${name}s`),
      2,
      n + 2,
      rows.length,
    );
  });
  f.keys.forEach((key, k) => all.put(tokenCell(key, { bold: looks(c, k) }), k + 2, 1));
  box.append(el("p", { class: "ch-name ch-part" }, c.words("steps_everyone")), all);
}

// ---- 2: the query meets every key

function products(c, box) {
  const { query, key, sums, hidden } = chosen(c),
    { keys } = c.finding;
  const narrow = c.width < 720,
    D = query.length,
    rows = key.map((one) => times(query, one));
  const wide = cellFor(c, D, 72, narrow ? 1 : 2);
  const all = grid(
    [...(narrow ? [] : [`${wide * D}px`]), `${wide * D}px`, "4.4rem"],
    `auto ${ROW + 6}px auto`,
    keys.length,
  );
  const at = narrow ? 2 : 3; // where the products stand
  const tell = (k, d) =>
    `${visible(textOf(keys[k]))}, ${c.words("dimension", { d })}\n${c.words("query")} ${scale.number(query[d])} × ` +
    `${c.words("key")} ${scale.number(key[k][d])} = ${scale.number(rows[k][d])}`;
  all.put(named(c.words("query"), "q"), 1, 2);
  all.put(tokenCell(c.finding.tokens[c.state.token], { bold: true }), 2, 1);
  all.put(strip(c, [query], largest([query]), wide, ROW, cells(c, c.words("query"), null, [query]), "query"), 2, 2);
  if (!narrow) {
    all.put(named(c.words("keys"), "k"), 3, 2);
    all.put(strip(c, key, largest(key), wide, ROW, tell, "keys"), 4, 2, keys.length);
  }
  all.put(named(c.words("products")), 3, at);
  all.put(strip(c, rows, largest(rows), wide, ROW, tell, "products"), 4, at, keys.length);
  all.put(named(c.words("steps_sum"), "", true), 3, at + 1);
  const most = Math.max(...sums);
  keys.forEach((one, k) => {
    all.put(tokenCell(one, { bold: looks(c, k), quiet: hidden[k] }), k + 4, 1);
    const cell = all.put(right(tidy(sums[k], largest([sums])), hidden[k]), k + 4, at + 1);
    if (sums[k] === most) cell.style.fontWeight = 700;
  });
  box.append(all);
}

// ---- 3: smaller numbers

function scaling(c, box) {
  const { sums, scores, hidden } = chosen(c),
    { keys, added, scale: by } = c.finding;
  const most = largest([sums]),
    side = Math.max(24, Math.min(460, (c.width - 330) / 2));
  const extra = added?.[c.state.head][c.state.token];
  const all = grid(["4.4rem", ...(extra ? ["4.4rem"] : []), "4.4rem", `${side * 2}px`], "auto", keys.length);
  const heads = [c.words("steps_sum"), ...(extra ? [c.words("steps_added")] : []), c.words("score")];
  heads.forEach((text, n) => all.put(named(text, "", true), 1, n + 2));
  all.put(named(c.words("steps_before_after", { scale: scale.number(by) })), 1, heads.length + 2);
  keys.forEach((one, k) => {
    const quiet = hidden[k];
    all.put(tokenCell(one, { bold: looks(c, k), quiet }), k + 2, 1);
    all.put(right(tidy(sums[k], most), true), k + 2, 2);
    if (extra) all.put(right(tidy(extra[k], most), true), k + 2, 3);
    all.put(right(quiet ? c.words("hidden") : tidy(scores[k], 1), quiet), k + 2, heads.length + 1);
    const mark = (value, thick, colour, more = {}) =>
      el("i", {
        style: {
          position: "absolute",
          height: `${thick}px`,
          top: `${(ROW - thick) / 2}px`,
          left: `${side + Math.min(0, value / most) * side}px`,
          width: `${Math.max(1, (Math.abs(value) / most) * side)}px`,
          "border-radius": "2px",
          background: colour,
          ...more,
        },
      });
    const shown = scale.css(scale.signed(c, scores[k] < 0 ? -0.9 : 0.9));
    const cell = el(
      "span",
      { style: { position: "relative", height: `${ROW}px`, display: "block" } },
      el("i", {
        style: { position: "absolute", left: `${side}px`, top: 0, bottom: 0, width: "1px", background: "var(--hair)" },
      }),
      mark(sums[k], 14, "transparent", { border: "1px solid var(--soft)" }),
      quiet ? "" : mark(scores[k], 8, shown),
    );
    all.put(
      c.tells(
        cell,
        () =>
          `${visible(textOf(one))}: ${scale.number(sums[k])} × ` +
          `${scale.number(by)}${extra ? ` + ${scale.number(extra[k])}` : ""} = ${scale.number(scores[k])}`,
      ),
      k + 2,
      heads.length + 2,
    );
  });
  box.append(all);
}

// ---- 4: shares of one

function softmax(c, box) {
  const { sums, scores, weights, hidden } = chosen(c),
    { keys } = c.finding;
  const best = Math.max(...Array.from(scores).filter((_, k) => !hidden[k]));
  const top = Math.max(...sums.filter((_, k) => !hidden[k])),
    all_ = sums.map((sum, k) => (hidden[k] ? 0 : Math.exp(sum - top)));
  const whole = all_.reduce((a, b) => a + b, 0),
    raw = all_.map((value) => value / whole); // had nobody scaled
  const narrow = c.width < 560,
    space = Math.max(40, Math.min(800, c.width - (narrow ? 230 : 350)));
  const all = grid(["4.4rem", ...(narrow ? [] : ["max-content"]), "4.2rem", `${space}px`], "auto", keys.length + 1);
  [c.words("score"), ...(narrow ? [] : [c.words("steps_exp")]), c.words("weight")].forEach((text, n) =>
    all.put(named(text, n === (narrow ? 1 : 2) ? "q" : "", true), 1, n + 2),
  );
  const at = narrow ? 3 : 4;
  keys.forEach((one, k) => {
    const quiet = hidden[k];
    all.put(tokenCell(one, { bold: looks(c, k), quiet }), k + 2, 1);
    all.put(right(quiet ? c.words("hidden") : tidy(scores[k], 1), quiet), k + 2, 2);
    if (!narrow) all.put(right(quiet ? "0" : scale.number(Math.exp(scores[k] - best)), true), k + 2, 3);
    all.put(right(scale.percent(weights[k], 1), quiet), k + 2, at);
    const cell = el(
      "span",
      { class: "ch-both" },
      el("span", { class: "ch-ghost", style: { width: `${Math.max(1, raw[k] * space)}px` } }),
      bar(weights[k], space, "var(--q)"),
    );
    all.put(
      c.tells(
        cell,
        () =>
          `${visible(textOf(one))}: ${scale.percent(weights[k], 2)}\n${c.words("steps_unscaled")}: ` +
          `${scale.percent(raw[k], 2)}`,
      ),
      k + 2,
      at + 1,
    );
  });
  all.put(right(c.words("steps_together"), true), keys.length + 2, at - 1).style.font = "12px var(--sans)";
  all.put(
    right(
      scale.percent(
        Array.from(weights).reduce((a, b) => a + b, 0),
        1,
      ),
    ),
    keys.length + 2,
    at,
  ).style.borderTop = "1px solid var(--soft)";
  box.append(
    all,
    el(
      "div",
      { class: "ch-keys" },
      el("span", {}, el("i", { style: { background: "var(--q)" } }), c.words("weight")),
      el("span", {}, el("i", { style: { border: "1px solid var(--soft)" } }), c.words("steps_unscaled")),
    ),
  );
}

// ---- 5: a blend of values

function sum(c, box) {
  const { value, weights, hidden } = chosen(c),
    { keys, answers } = c.finding;
  const answer = answers[c.state.head][c.state.token],
    D = answer.length,
    parts = value.map((one, k) => times(one, weights[k]));
  const narrow = c.width < 720,
    bars = narrow ? 0 : Math.min(200, c.width / 10);
  const wide = cellFor(c, D, 64 + (bars ? bars + GAP : 0), narrow ? 1 : 2);
  const all = grid(
    ["3.6rem", ...(bars ? [`${bars}px`] : []), ...(narrow ? [] : [`${wide * D}px`]), `${wide * D}px`],
    "auto",
    keys.length + 1,
  );
  const at = narrow ? 3 : 5;
  all.put(named(c.words("weight"), "q", true), 1, 2);
  if (!narrow) {
    all.put(named(c.words("steps_values"), "v"), 1, 4);
    all.put(
      strip(c, value, largest(value), wide, ROW, cells(c, c.words("value"), keys, value), "values"),
      2,
      4,
      keys.length,
    );
  }
  all.put(named(c.words("steps_weighted")), 1, at);
  const most = largest([...parts, answer]);
  all.put(
    strip(
      c,
      parts,
      most,
      wide,
      ROW,
      (k, d) =>
        `${visible(textOf(keys[k]))}, ${c.words("dimension", { d })}\n${scale.percent(weights[k], 1)} × ` +
        `${scale.number(value[k][d])} = ${scale.number(parts[k][d])}`,
      "weighted",
    ),
    2,
    at,
    keys.length,
  );
  keys.forEach((one, k) => {
    all.put(tokenCell(one, { bold: looks(c, k), quiet: hidden[k] }), k + 2, 1);
    all.put(right(scale.percent(weights[k], 1), hidden[k]), k + 2, 2);
    if (bars) all.put(bar(weights[k], bars, "var(--q)"), k + 2, 3);
  });
  const last = keys.length + 2;
  all.put(el("b", { style: { "white-space": "nowrap" } }, "Σ"), last, 1);
  if (!narrow)
    all.put(named(c.words("steps_answer", { head: c.state.head }), "", true), last, 4).style.alignSelf = "center";
  const row = all.put(
    strip(
      c,
      [answer],
      most,
      wide,
      ROW,
      (_, d) =>
        `${c.words("steps_answer", { head: c.state.head })}, ${c.words("dimension", { d })}: ` +
        `${scale.number(answer[d])}`,
      "answer",
    ),
    last,
    at,
  );
  row.style.borderTop = "1px solid var(--ink)";
  all.style.gridTemplateRows = `auto repeat(${keys.length}, ${ROW}px) ${ROW + 6}px`;
  box.append(all);
}

// ---- 6: all heads, joined

function joined(c, box) {
  const { keys, weights, answers, output } = c.finding,
    { token } = c.state;
  const D = answers[0][0].length,
    H = answers.length,
    narrow = c.width < 720;
  const each = Math.max(3, Math.min(16, (c.width * 0.3) / keys.length)),
    wide = cellFor(c, D, narrow ? 110 : each * keys.length + 230);
  const all = grid([...(narrow ? [] : [`${each * keys.length}px`]), "10rem", `${wide * D}px`], "auto", H);
  if (narrow) all.style.gridTemplateColumns = `2.8rem minmax(0, 1fr) ${wide * D}px`;
  const at = narrow ? 2 : 3;
  all.put(named(c.words("head")), 1, 1);
  if (!narrow) all.put(named(c.words("steps_weights"), "q"), 1, 2);
  all.put(named(c.words("steps_looks")), 1, at);
  all.put(named(c.words("steps_answers"), "v"), 1, at + 1);
  const rows = answers.map((one) => one[token]),
    most = largest(rows);
  rows.forEach((row, h) => {
    const hue = scale.head(c, h),
      share = weights[h][token],
      k = share.indexOf(Math.max(...share));
    const button = el(
      "button",
      {
        type: "button",
        "data-at": `row${h}`,
        "aria-pressed": String(h === c.state.head),
        onclick: () => c.set({ head: h }),
        style: headStyle(c, h),
      },
      String(h),
    );
    all.put(el("span", { class: "ch-heads" }, button), h + 2, 1);
    if (!narrow) {
      all.put(
        el(
          "span",
          { style: { display: "flex" } },
          Array.from(share, (weight, n) =>
            c.tells(
              el("i", {
                style: {
                  width: `${each}px`,
                  height: "16px",
                  background: scale.css(scale.ink(c, hue, Math.max(0.04, weight))),
                },
              }),
              () => `${visible(textOf(keys[n]))} ${scale.percent(weight, 1)}`,
            ),
          ),
        ),
        h + 2,
        2,
      );
    }
    all.put(
      el(
        "span",
        { style: { overflow: "hidden", "text-overflow": "ellipsis", "white-space": "nowrap" } },
        signed(textOf(keys[k])),
        ` ${scale.percent(share[k])}`,
      ),
      h + 2,
      at,
    );
    all.put(
      strip(
        c,
        [row],
        most,
        wide,
        ROW,
        (_, d) => `${c.words("steps_answer", { head: h })}, ${c.words("dimension", { d })}: ${scale.number(row[d])}`,
        `answer ${h}`,
      ),
      h + 2,
      at + 1,
    );
  });
  const side = Float32Array.from(rows.flatMap((row) => Array.from(row))),
    result = output[token];
  const long = (label, row, edges) => {
    const cell = Math.min(WIDEST, c.width / row.length);
    const marks = edges
      ? el(
          "div",
          { style: { display: "flex", width: `${cell * row.length}px` } },
          rows.map((_, h) =>
            el("i", { style: { width: `${cell * D}px`, height: "3px", background: scale.css(scale.head(c, h)) } }),
          ),
        )
      : "";
    return el(
      "div",
      { style: { margin: "1rem 0 0" } },
      el("p", { class: "ch-name" }, label),
      strip(c, [row], largest([row]), cell, ROW, cells(c, label, null, [row]), label),
      marks,
    );
  };
  box.append(
    all,
    long(c.words("steps_side_by_side", { heads: H, size: D, width: side.length }), side, true),
    long(c.words("steps_output", { token: nameOf(c), width: result.length }), result, false),
  );
}

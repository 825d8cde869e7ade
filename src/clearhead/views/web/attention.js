// Who looks at whom: lines between tokens, one head as a matrix, or all layers and heads side by side.

import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap, pixels } from "./heatmap.js";
import * as scale from "./scale.js";
import { isWritten, joins, plain, rowColumns, rowNames, rowWords, short, textOf, visible } from "./tokens.js";

const LINES = 700; // the strongest lines of a head that are drawn while nothing is chosen
const LEAST = 0.004; // a weight that would not be seen
const NUMBERED = 40; // the strongest links of a token that carry their number
const SUMMARIES = ["entropy", "distance", "to_previous", "to_separator", "to_same", "induction", "alignment"];

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** view: lines | matrix | all, layer: its number, heads: those that are shown, token: the pinned query, key: the
   *  pinned key */
  start(finding) {
    const best = tellingHead(finding);
    return { view: "lines", layer: best.layer, heads: [best.head], token: best.token, key: null, sort: "layer" };
  },
  title(c) {
    const { view: how, token, key } = c.state;
    if (how === "all") return c.words("attention_all");
    const writes = isWritten(c.finding.tokens[0]);
    if (token !== null && c.finding.tokens[token])
      return c.words(writes ? "attention_writing" : "attention_of", { token: plain(textOf(c.finding.tokens[token])) });
    if (key !== null && c.finding.keys[key])
      return c.words(writes ? "attention_written_from" : "attention_to", {
        token: plain(textOf(c.finding.keys[key])),
      });
    return c.words(c.finding.side === "cross" ? "attention_cross" : "attention_lines");
  },
  reading(c) {
    const { tokens } = c.finding;
    const rows = [isWritten(tokens[0]) && "attention_reading_rows", tokens.at(-1).guessed && "attention_reading_guess"];
    return [...rows.filter(Boolean), `attention_reading_${c.state.view}`].map((key) => c.words(key)).join(" ");
  },
  controls(c) {
    const { layer, view: how } = c.state;
    // Of two stacks there are three attentions; a finding holds one, and whoever shows it can fetch another.
    const { of_states } = c.finding; // one attention over encoder states: nothing else to choose
    const sides =
      c.finding.side !== "self" && c.options.onSide && !of_states
        ? [
            c.group(
              c.words("attention_side"),
              c.finding.side,
              ["encoder", "decoder", "cross"].map((key) => [key, c.words(`side_${key}`)]),
              (key) => c.options.onSide(key),
            ),
          ]
        : [];
    const views = c.group(
      c.words("view"),
      how,
      ["lines", "matrix", ...(of_states ? [] : ["all"])].map((key) => [key, c.words(`attention_view_${key}`)]),
      (key) => c.set({ view: key }),
    );
    if (how === "all") {
      const known = SUMMARIES.filter((name) => scale.isNumber(c.finding.summaries?.[0]?.[name]));
      return [
        ...sides,
        views,
        known.length &&
          c.choice(
            c.words("sort"),
            c.state.sort,
            ["layer", ...known].map((key) => [key, c.words(`head_${key}`)]),
            (sort) => c.set({ sort }),
          ),
      ].filter(Boolean);
    }
    if (of_states) return [views];
    return [
      ...sides,
      views,
      c.choice(
        c.words("layer"),
        layer,
        [...c.finding.layers].reverse().map((n) => [n, n]),
        (n) => c.set({ layer: Number(n) }),
      ),
      headButtons(c),
    ];
  },
  body(c, box) {
    ({ lines, matrix, all })[c.state.view](c, box);
  },
  *table(finding) {
    yield ["layer", "head", "query", ...rowColumns(finding.tokens), "key", "key_token", "weight"];
    for (const [l, layer] of finding.layers.entries()) {
      for (const [h, rows] of finding.weights[l].entries()) {
        for (let q = 0; q < rows.length; q++)
          for (let k = 0; k < rows[q].length; k++)
            yield [layer, finding.heads[h], q, ...rowNames(finding.tokens[q]), k, textOf(finding.keys[k]), rows[q][k]];
      }
    }
  },
};

/** Not the token itself nor the one before; of two texts every place is elsewhere. */
const elsewhere = (finding, q, k) => finding.side === "cross" || (k !== q && k !== q - 1);

/** A head that has something to show: across two texts the one that aligns them best; else sharp, and not only for the
 *  first token, a separator or the one before. */
function tellingHead(finding) {
  let best = { layer: finding.layers[0], head: finding.heads[0], rows: finding.weights[0][0], score: -1 };
  for (const { layer, head, alignment } of finding.summaries ?? []) {
    const rows = finding.weights[finding.layers.indexOf(layer)]?.[finding.heads.indexOf(head)];
    if (rows && scale.isNumber(alignment) && alignment > best.score) best = { layer, head, rows, score: alignment };
  }
  if (best.score >= 0) return { ...best, token: tellingToken(finding, best.rows) };
  const counts = finding.keys.map((key) => key.word !== null); // millions of weights: looked up once
  for (const [l, layer] of finding.layers.entries()) {
    for (const [h, rows] of finding.weights[l].entries()) {
      let score = 0;
      for (let q = 2; q < rows.length; q++) {
        const row = rows[q];
        for (let k = 1; k < row.length; k++) if (counts[k] && k !== q && k !== q - 1) score += row[k] * row[k];
      }
      if (score > best.score) best = { layer, head: finding.heads[h], rows, score };
    }
  }
  return { ...best, token: tellingToken(finding, best.rows) };
}

/** The token of a head, the first of its word, that looks most at one other word. */
function tellingToken(finding, rows) {
  let [best, most] = [null, 0.3];
  for (let q = finding.side === "cross" ? 0 : 2; q < rows.length; q++) {
    const { word } = finding.tokens[q];
    if (word === null || word === finding.tokens[q - 1]?.word) continue;
    for (let k = 1; k < rows[q].length; k++) {
      if (elsewhere(finding, q, k) && finding.keys[k].word !== null && rows[q][k] > most)
        [best, most] = [q, rows[q][k]];
    }
  }
  return best;
}

/** The weights of a head, by its number in the model: (query, key). */
const weightsOf = (c, head = c.state.heads[0]) => {
  const { layers, heads, weights } = c.finding;
  return weights[Math.max(0, layers.indexOf(Number(c.state.layer)))][Math.max(0, heads.indexOf(head))];
};
const summaryOf = (c, layer, head) => c.finding.summaries?.find((one) => one.layer === layer && one.head === head);

function headButtons(c) {
  const { heads } = c.finding;
  const buttons = heads.map((h) => {
    const on = c.state.heads.includes(h);
    const button = el(
      "button",
      {
        type: "button",
        "data-at": `head${h}`,
        "aria-pressed": String(on),
        "aria-label": c.words("head_n", { n: h }),
        style: { "--hue": scale.css(scale.head(c, h)), "--on": scale.css(scale.onTop(c, scale.head(c, h))) },
        onclick: (event) => choose(h, event.shiftKey || event.ctrlKey || event.metaKey),
      },
      String(h),
    );
    return c.tells(button, () => headWords(c, c.state.layer, h));
  });
  const choose = (h, more) => {
    const rest = c.state.heads.filter((n) => n !== h);
    c.set({
      heads:
        more && c.state.view === "lines"
          ? rest.length === c.state.heads.length
            ? [...rest, h].sort((a, b) => a - b)
            : rest.length
              ? rest
              : [h]
          : [h],
    });
    c.options.onHead?.({ layer: Number(c.state.layer), head: h });
  };
  rove(buttons, {
    start: heads.indexOf(c.state.heads[0]),
    pick: (n) => choose(heads[n], false),
    other(press, n) {
      if (press === "+") choose(heads[n], true);
      return press === "+";
    },
  });
  return el(
    "span",
    { class: "ch-heads", role: "group", "aria-label": c.words("heads") },
    el("span", { style: { "align-self": "center", "margin-right": ".4rem" } }, c.words("head")),
    buttons,
  );
}

const headName = (c, layer, head) =>
  c.finding.of_states ? c.words("attention_of_states") : c.words("layer_head", { layer, head });

function headWords(c, layer, head) {
  const summary = summaryOf(c, Number(layer), head);
  const words = [c.words("layer_head", { layer, head })];
  for (const name of SUMMARIES) {
    if (summary && scale.isNumber(summary[name]))
      words.push(
        `${c.words(`head_${name}`)} ` +
          `${name === "entropy" || name === "distance" ? scale.number(summary[name]) : scale.percent(summary[name])}`,
      );
  }
  return words.join("\n");
}

// ---- lines between tokens

function lines(c, box) {
  const beside = c.width >= 940;
  const space = beside ? Math.floor(c.width * 0.64) : c.width;
  const heads = c.state.heads.filter((h) => c.finding.heads.includes(h));
  if (!heads.length) heads.push(c.finding.heads[0]);
  const left = el("div", { class: "ch-scroll ch-tall" });
  let lit = () => {};
  const parts = [left];
  if (beside) {
    const right = el("div", { class: "ch-aside" });
    parts.push(right);
    const side = Math.min(c.width - space - 48, 420);
    right.append(
      el("p", { class: "ch-name" }, headName(c, c.state.layer, heads[0])),
      square(c, side, heads[0], (q) => lit(q, null)),
      facts(c, c.state.layer, heads[0]),
    );
  }
  box.append(
    el(
      "div",
      {
        class: "ch-columns",
        style: { "grid-template-columns": beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)" },
      },
      parts,
    ),
    key(c, heads),
  );
  lit = joined(c, left, space, heads);
}

const key = (c, heads) =>
  scale.legend(
    c.words("attention_scale"),
    scale.steps(8, (t) => scale.ink(c, scale.head(c, heads[0]), t)),
    ["0", "0.5", "1"],
  );

function joined(c, box, space, heads) {
  const { tokens, keys } = c.finding;
  const [Q, K] = [tokens.length, keys.length];
  const pitch = Math.max(16, Math.min(space < c.width ? 34 : 28, 720 / Math.max(Q, K)));
  const letter = 7.9,
    cross = c.finding.side === "cross";
  const widest = (list) =>
    Math.min(Math.max(...list.map((token) => [...visible(textOf(token))].length), 3) * letter + 14, space * 0.3);
  const bars = space >= 560 ? Math.min(150, space * 0.16) : 0;
  const own = Math.max(widest(tokens), 48); // and left of it, what has just been read
  const before = isWritten(tokens[0]) ? Math.min(widest(tokens.map((token) => token.read)), space * 0.18) : 0;
  const [l, r] = [own + before, space - widest(keys) - 58 - bars];
  const y = (n) => 24 + n * pitch + pitch / 2;
  const height = 28 + Math.max(Q, K) * pitch;
  const curve = (q, k) => {
    const bend = (r - l) * 0.45;
    return `M${l + 4} ${y(q)}C${l + 4 + bend} ${y(q)} ${r - 4 - bend} ${y(k)} ${r - 4} ${y(k)}`;
  };

  const still = svg("g", { class: "ch-lines" }),
    live = svg("g", { class: "ch-lines" }),
    shares = svg("g");
  const rows = svg("g");
  const drawing = svg(
    "svg",
    { width: space, height, role: "group", "aria-label": c.words("attention_lines") },
    svg(
      "text",
      { class: "ch-dim", x: l - 4, y: 12, "text-anchor": "end", style: cross ? "fill: var(--dec-text)" : null },
      c.words(cross ? (before ? "decoder_writes" : "decoder_reads") : "looks"),
    ),
    before ? svg("text", { class: "ch-dim", x: before - 8, y: 12, "text-anchor": "end" }, c.words("row_read")) : null,
    svg(
      "text",
      { class: "ch-dim", x: r + 4, y: 12, style: cross ? "fill: var(--enc-text)" : null },
      c.words(cross ? "encoder_reads" : "looked_at"),
    ),
    still,
    live,
    rows,
    shares,
  );

  const path = (h, q, k, weight) =>
    svg("path", {
      d: curve(q, k),
      stroke: scale.css(scale.head(c, h)),
      "stroke-opacity": (0.08 + weight * 0.92).toFixed(3),
      "stroke-width": (0.8 + weight * 5 * Math.min(1, pitch / 20)).toFixed(2),
    });
  const all = [];
  for (const h of heads)
    weightsOf(c, h).forEach((row, q) =>
      row.forEach((weight, k) => {
        if (weight > 0.02) all.push([weight, h, q, k]);
      }),
    );
  all.sort((a, b) => b[0] - a[0]);
  still.append(
    ...all
      .slice(0, LINES)
      .reverse()
      .map(([weight, h, q, k]) => path(h, q, k, weight)),
  );

  const label = (token, list, n, side) => {
    const x = side === "q" ? l - 4 : r + 4;
    const wide = side === "q" ? own : space - r - 58 - bars;
    const hit = svg("rect", {
      class: "ch-hit",
      x: side === "q" ? 0 : r,
      y: y(n) - pitch / 2,
      width: side === "q" ? l : wide,
      height: pitch,
      rx: 3,
    });
    const joint =
      joins(list, n) &&
      svg("line", {
        x1: side === "q" ? l + 1 : r - 1,
        x2: side === "q" ? l + 1 : r - 1,
        y1: y(n - 1),
        y2: y(n),
        stroke: "var(--soft)",
        "stroke-width": 1.5,
      });
    const size = pitch < 18 ? "font-size: 12px" : undefined;
    const text = svg(
      "text",
      {
        x,
        y: y(n) + 4.5,
        "text-anchor": side === "q" ? "end" : "start",
        style: size,
        class: [token.word === null && "ch-aside", token.guessed && "ch-guessed"].filter(Boolean).join(" ") || null,
      },
      short(visible(textOf(token)), Math.floor((wide - 12) / letter)),
    );
    const read =
      side === "q" && before
        ? svg(
            "text",
            { class: "ch-dim", x: before - 8, y: y(n) + 4.5, "text-anchor": "end" },
            short(visible(token.read), Math.floor((before - 8) / 7.2)),
          )
        : null;
    const pinned = side === "q" ? c.state.token === n : c.state.token === null && c.state.key === n;
    return svg(
      "g",
      {
        class: `ch-row${pinned ? " ch-pinned" : ""}`,
        "data-at": `${side}${n}`,
        role: "button",
        "aria-label": rowWords(c, token),
      },
      hit,
      joint,
      read,
      text,
    );
  };
  const left = tokens.map((token, n) => label(token, tokens, n, "q")),
    right = keys.map((token, n) => label(token, keys, n, "k"));
  rows.append(...left, ...right);

  const light = (q, k) => {
    left.forEach((row, n) => row.classList.toggle("ch-lit", n === q));
    right.forEach((row, n) => row.classList.toggle("ch-lit", n === k));
    const none = q === null && k === null;
    still.classList.toggle("ch-quiet", !none);
    rows.classList.toggle("ch-faded", !none);
    const [drawn, numbers] = [[], []]; // put in all at once
    const list = none ? [] : q !== null ? keys : tokens;
    const values = list.map((_, n) =>
      Math.max(...heads.map((h) => (q !== null ? weightsOf(c, h)[q][n] : weightsOf(c, h)[n]?.[k]) || 0)),
    );
    const least = Math.max(LEAST, [...values].sort((a, b) => b - a)[NUMBERED] ?? 0);
    list.forEach((_, n) => {
      for (const [order, h] of heads.entries()) {
        const weight = q !== null ? weightsOf(c, h)[q][n] : weightsOf(c, h)[n]?.[k];
        if (!(weight > LEAST)) continue;
        drawn.push(path(h, q ?? n, q !== null ? n : k, weight));
        (q !== null ? right : left)[n].classList.toggle(
          "ch-lit",
          weight > 0.1 || (q !== null ? right : left)[n].classList.contains("ch-lit"),
        );
        const thick = Math.min(9, (pitch - 6) / heads.length);
        if (bars)
          numbers.push(
            svg("rect", {
              x: space - bars,
              y: y(n) - (thick * heads.length) / 2 + order * thick,
              width: Math.max(1, weight * bars),
              height: Math.max(1.5, thick - 0.5),
              rx: 2,
              fill: scale.css(scale.head(c, h)),
              "fill-opacity": 0.85,
            }),
          );
      }
      if (values[n] > least)
        numbers.push(
          svg(
            "text",
            { class: "ch-dim", x: space - bars - 8, y: y(n) + 4, "text-anchor": "end" },
            scale.percent(values[n], 1),
          ),
        );
    });
    live.replaceChildren(...drawn);
    shares.replaceChildren(...numbers);
  };
  const rest = () => light(c.state.token, c.state.token === null ? c.state.key : null);
  const tell = (q, k, node) => c.tipAt(linesWords(c, q, k), node, true);
  const pin = (q, k) =>
    c.set(c.state.token === q && c.state.key === k ? { token: null, key: null } : { token: q, key: k });
  const turn = (press) => {
    const layers = c.finding.layers,
      at = layers.indexOf(Number(c.state.layer));
    const step = { ArrowRight: 1, ArrowLeft: -1 }[press],
      climb = { PageUp: 1, PageDown: -1 }[press];
    if (step) {
      const known = c.finding.heads;
      c.set({ heads: [known.at((known.indexOf(heads[0]) + step) % known.length)] });
      return true;
    }
    if (climb) {
      c.set({ layer: layers[Math.max(0, Math.min(layers.length - 1, at + climb))] });
      return true;
    }
    return false;
  };
  for (const [side, group] of [
    ["q", left],
    ["k", right],
  ]) {
    const of = (n) => (side === "q" ? [n, null] : [null, n]);
    group.forEach((row, n) => {
      row.addEventListener("pointerenter", () => light(...of(n)));
      row.addEventListener("pointerleave", rest);
      row.addEventListener("click", () => pin(...of(n)));
      row.addEventListener("blur", () => {
        rest();
        c.tip("");
      });
    });
    rove(group, {
      start: (side === "q" ? c.state.token : c.state.key) ?? 0,
      other: turn,
      pick: (n) => pin(...of(n)),
      release: () => c.set({ token: null, key: null }),
      seen: (n) => {
        if (group[n].matches(":focus-visible")) {
          light(...of(n));
          tell(...of(n), group[n]);
        }
      },
    });
  }
  box.append(drawing);
  rest();
  return (q, k) => (q === null && k === null ? rest() : light(q, k));
}

/** The strongest links of a token, in words. */
function linesWords(c, q, k) {
  const rows = weightsOf(c);
  const list = q !== null ? Array.from(rows[q]) : Array.from(rows, (row) => row[k]);
  const others = q !== null ? c.finding.keys : c.finding.tokens;
  const best = list
    .map((weight, n) => [weight, n])
    .sort((a, b) => b[0] - a[0])
    .slice(0, 3)
    .filter(([weight]) => weight > LEAST);
  const own = rowWords(c, q !== null ? c.finding.tokens[q] : c.finding.keys[k]);
  return (
    `${own} ${q !== null ? "→" : "←"} ` +
    `${best.map(([weight, n]) => `${visible(textOf(others[n]))} ${scale.percent(weight, 1)}`).join(", ")}`
  );
}

// ---- one head as a matrix

function matrix(c, box) {
  const { tokens, keys } = c.finding;
  const head = c.state.heads[0],
    hue = scale.head(c, head),
    rows = weightsOf(c);
  const ramp = scale.steps(101, (t) => scale.ink(c, hue, t));
  const beside = c.width >= 900;
  const cell = Math.max(34, Math.min(56, 640 / tokens.length)); // pixels, at most
  const cells = heatmap(c, {
    rows: tokens.map((t) => visible(textOf(t))),
    asides: isWritten(tokens[0]) ? tokens.map((t) => visible(t.read)) : null,
    asideTitle: c.words("row_read"),
    columns: keys.map((t) => visible(textOf(t))),
    space: beside ? c.width - 370 : c.width,
    square: true,
    width: [3, cell],
    height: [tokens.length <= 40 ? 14 : 3, cell], // as long as every row can have its name
    sparse: 11.5,
    rowTitle: c.words(isWritten(tokens[0]) ? "decoder_writes" : "query"),
    columnTitle: c.words(isWritten(tokens[0]) ? "encoder_reads" : "key"),
    label: c.words("attention_view_matrix"),
    name: "matrix",
    colour: (q, k) => ramp[Math.round((rows[q][k] || 0) * 100)],
    text: (q, k) => (rows[q][k] >= 0.005 ? (rows[q][k] * 100).toFixed(0) : null),
    tip: (q, k) => cellWords(c, head, q, k),
    picked: { row: c.state.token, column: c.state.key },
    pick: (q, k) => c.set(c.state.token === q && c.state.key === k ? { token: null, key: null } : { token: q, key: k }),
    release: () => c.set({ token: null, key: null }),
  });
  const parts = [el("div", {}, cells)];
  if (beside)
    parts.push(
      el("div", {}, el("p", { class: "ch-name" }, headName(c, c.state.layer, head)), facts(c, c.state.layer, head)),
    );
  box.append(
    el(
      "div",
      {
        class: "ch-columns",
        style: { "grid-template-columns": beside ? "max-content minmax(0, 1fr)" : "minmax(0, 1fr)" },
      },
      parts,
    ),
    key(c, [head]),
  );
}

const cellWords = (c, head, q, k) =>
  `${c.finding.of_states ? "" : `${headName(c, c.state.layer, head)} · `}${rowWords(c, c.finding.tokens[q])} → ` +
  `${visible(textOf(c.finding.keys[k]))} · ${scale.number(weightsOf(c, head)[q][k])}`;

/** The matrix without labels, beside the lines or for the head under the pointer. */
function square(c, side, head, seen) {
  const rows = weightsOf(c, head),
    hue = scale.head(c, head);
  const { tokens, keys } = c.finding;
  const ramp = scale.steps(101, (t) => scale.ink(c, hue, t));
  return heatmap(c, {
    rows: tokens.map(textOf),
    columns: keys.map(textOf),
    bare: true,
    space: side,
    width: [1, 34],
    height: [1, 34],
    square: true,
    name: "square",
    label: c.words("attention_view_matrix"),
    colour: (q, k) => ramp[Math.round((rows[q][k] || 0) * 100)],
    tip: (q, k) => cellWords(c, head, q, k),
    seen,
    pick: (q) => c.set({ token: c.state.token === q ? null : q, key: null }),
    release: () => c.set({ token: null, key: null }),
    picked: { row: c.state.token, column: null },
  });
}

/** What sums a head up. */
function facts(c, layer, head) {
  const summary = summaryOf(c, Number(layer), head);
  if (!summary) return "";
  const rows = SUMMARIES.filter((name) => scale.isNumber(summary[name])).map((name) => {
    const share = !["entropy", "distance"].includes(name);
    const bar = share
      ? el("span", {
          class: "ch-bar",
          style: { width: `${Math.max(1, summary[name] * 72)}px`, background: scale.css(scale.head(c, head)) },
        })
      : "";
    return el(
      "tr",
      {},
      el("td", { style: { font: "13px var(--sans)" } }, c.words(`head_${name}`)),
      el("td", {}, share ? scale.percent(summary[name]) : scale.number(summary[name])),
      el("td", { class: "ch-barcell" }, bar),
    );
  });
  return el("table", { class: "ch-table", style: { "margin-top": ".8rem" } }, rows);
}

// ---- all layers and heads

function all(c, box) {
  const { layers, heads, weights } = c.finding;
  const beside = c.width >= 960;
  const side = Math.min(340, Math.floor(c.width * 0.3));
  const space = beside ? c.width - side - 48 : c.width;
  const tiles = [];
  layers.forEach((layer, l) =>
    heads.forEach((h, n) =>
      tiles.push({ layer, l, h, place: n, rows: weights[l][n], summary: summaryOf(c, layer, h) }),
    ),
  );
  const sorted = c.state.sort !== "layer";
  if (sorted) tiles.sort((a, b) => (b.summary?.[c.state.sort] ?? -1) - (a.summary?.[c.state.sort] ?? -1));
  const across = sorted ? Math.min(12, Math.max(3, Math.floor(space / 76))) : heads.length;
  const edge = sorted ? 0 : 26,
    crown = sorted ? 0 : 22,
    gap = space > 500 ? 6 : 3,
    foot = sorted ? 16 : 0;
  const size = Math.max(18, Math.min(sorted ? 96 : 180, Math.floor((space - edge) / across) - gap));
  const down = sorted ? Math.ceil(tiles.length / across) : layers.length;
  const place = (tile, n) => (sorted ? [n % across, Math.floor(n / across)] : [tile.place, layers.length - 1 - tile.l]);
  const [W, H] = [edge + across * (size + gap), crown + down * (size + gap + foot)];

  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const canvas = el("canvas", {
    class: "ch-cells",
    tabindex: "0",
    role: "img",
    "aria-label": c.words("attention_all"),
    "data-at": "all",
    style: { position: "static", width: `${W}px`, height: `${H}px`, "image-rendering": "auto" },
  });
  canvas.width = W * ratio;
  canvas.height = H * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = scale.css(c.colour("soft"));
  if (!sorted) {
    pen.textAlign = "center";
    heads.forEach((head, h) => pen.fillText(head, edge + h * (size + gap) + size / 2, 12));
    pen.textAlign = "right";
    layers.forEach((layer, l) =>
      pen.fillText(layer, edge - 8, crown + (layers.length - 1 - l) * (size + gap) + size / 2 + 4),
    );
  }
  const where = new Map();
  const wash = c.colour("wash");
  tiles.forEach((tile, n) => {
    const [column, row] = place(tile, n);
    const [x, y] = [edge + column * (size + gap), crown + row * (size + gap + foot)];
    const ramp = scale.steps(64, (t) => scale.mix(wash, scale.head(c, tile.h), Math.min(1, t * 1.25)));
    const small = thumbnail(tile.rows, size * ratio, ramp);
    pen.imageSmoothingEnabled = small.width > size * ratio;
    pen.drawImage(small, x, y, size, size);
    if (sorted) {
      pen.textAlign = "left";
      pen.fillStyle = scale.css(c.colour("soft"));
      pen.fillText(
        size > 44
          ? `${tile.layer}·${tile.h}  ${scale.number(tile.summary?.[c.state.sort])}`
          : `${tile.layer}·${tile.h}`,
        x,
        y + size + 12,
      );
    }
    where.set(`${column},${row}`, tile);
    Object.assign(tile, { x, y, n });
  });
  const frame = svg("rect", { class: "ch-cursor", width: size + 4, height: size + 4, visibility: "hidden" });
  const chosen = tiles.find((tile) => tile.layer === Number(c.state.layer) && tile.h === c.state.heads[0]) ?? tiles[0];
  const pin = svg(
    "g",
    { class: "ch-pin" },
    svg("rect", { x: chosen.x - 2, y: chosen.y - 2, width: size + 4, height: size + 4, "stroke-width": 2 }),
  );
  const stage = el(
    "div",
    { class: "ch-matrix", style: { width: `${W}px` } },
    canvas,
    svg("svg", { class: "ch-over", width: W, height: H }, pin, frame),
  );
  const panel = el(
    "div",
    {},
    el("p", { class: "ch-name" }, c.words("layer_head", { layer: chosen.layer, head: chosen.h })),
    square(c, beside ? side : Math.min(c.width, 320), chosen.h),
    facts(c, chosen.layer, chosen.h),
    el(
      "p",
      {},
      el(
        "button",
        { type: "button", class: "ch-link", "data-at": "see-lines", onclick: () => c.set({ view: "lines" }) },
        c.words("see_lines"),
      ),
    ),
  );
  let at = chosen;
  const light = (tile, aloud) => {
    at = tile;
    frame.setAttribute("x", tile.x - 2);
    frame.setAttribute("y", tile.y - 2);
    frame.setAttribute("visibility", "visible");
    const box = canvas.getBoundingClientRect();
    c.tip(headWords(c, tile.layer, tile.h), box.left + tile.x + size / 2, box.top + tile.y, aloud);
  };
  const dim = () => {
    frame.setAttribute("visibility", "hidden");
    c.tip("");
  };
  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - edge) / (size + gap));
    const row = Math.floor((event.clientY - box.top - crown) / (size + gap + foot));
    return where.get(`${column},${row}`);
  };
  canvas.addEventListener("pointermove", (event) => {
    const tile = under(event);
    if (tile) light(tile);
    else dim();
  });
  canvas.addEventListener("pointerleave", dim);
  canvas.addEventListener("blur", dim);
  canvas.addEventListener("focus", () => {
    if (canvas.matches(":focus-visible")) light(at, true);
  });
  const pick = (tile) => {
    c.set({ layer: tile.layer, heads: [tile.h] });
    c.options.onHead?.({ layer: tile.layer, head: tile.h });
  };
  canvas.addEventListener("click", (event) => {
    const tile = under(event);
    if (tile) pick(tile);
  });
  canvas.addEventListener("dblclick", (event) => {
    const tile = under(event);
    if (tile) c.set({ view: "lines", layer: tile.layer, heads: [tile.h] });
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) {
      event.preventDefault();
      const [column, row] = place(at, at.n);
      const next = where.get(`${column + step[0]},${row + step[1]}`);
      if (next) light(next, true);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pick(at);
    } else if (event.key === "Escape") dim();
  });
  const axis = sorted ? "" : el("p", { class: "ch-name", style: { "font-weight": 400 } }, c.words("all_axes"));
  box.append(
    el(
      "div",
      {
        class: "ch-columns",
        style: { "grid-template-columns": beside ? `max-content minmax(0, ${side}px)` : "minmax(0, 1fr)" },
      },
      el("div", { class: "ch-wide" }, axis, stage),
      panel,
    ),
    key(c, [at.h]),
  );
}

/** A small picture of a weight matrix: of cells that share a pixel the strongest is shown. */
function thumbnail(rows, side, ramp) {
  const [R, K] = [Math.min(rows.length, Math.round(side)), Math.min(rows[0].length, Math.round(side))];
  const [down, across] = [rows.length / R, rows[0].length / K];
  return pixels(R, K, (r, k) => {
    let most = 0;
    for (let q = Math.floor(r * down); q < Math.floor((r + 1) * down); q++) {
      const row = rows[q];
      for (let n = Math.floor(k * across); n < Math.floor((k + 1) * across); n++) if (row[n] > most) most = row[n];
    }
    return ramp[Math.round(most * 63)];
  });
}

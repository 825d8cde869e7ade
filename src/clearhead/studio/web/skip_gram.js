// A window slides over a sentence: which words stand near which, and how often. It is what skip-gram and GloVe learn
// from; no model is asked, the sentence alone is counted.

import { el, rove } from "/static/views/dom.js";
import { figure } from "/static/views/figure.js";
import { heatmap } from "/static/views/heatmap.js";
import * as scale from "/static/views/scale.js";

const WINDOWS = [1, 2, 3, 5];
const SPILL = 48; // the last slanted name of a column leans out

/** The words of a sentence, without its punctuation. */
export const wordsOf = (text) => text.match(/[\p{L}\p{N}]+(?:['’-][\p{L}\p{N}]+)*/gu) ?? [];

/** Every pair of a word and one that stands near it: [centre, context], as places in the sentence. */
export function pairsOf(words, window) {
  const near = (n) => words.map((_, k) => k).filter((k) => k !== n && Math.abs(k - n) <= window);
  return words.flatMap((_, n) => near(n).map((k) => [n, k]));
}

/** A part of a chapter that shows the reader's own sentence. */
export function skipGram(host, page, reader) {
  let drawn = null,
    shown = null;
  const dress = () => ({ lang: page.lang, theme: page.theme });
  const update = (now) => {
    const words = wordsOf(now.text.toLowerCase());
    host.hidden = words.length < 2;
    if (host.hidden) return;
    if (shown === words.join(" ")) return;
    const state = drawn ? { window: drawn.state().window } : {};
    drawn?.destroy();
    shown = words.join(" ");
    drawn = figure(host, { kind: "skip-gram", words }, { ...dress(), state }, view);
  };
  const off = page.onChange(() => drawn?.update(dress()));
  update(reader);
  return {
    update,
    destroy() {
      off();
      drawn?.destroy();
    },
  };
}

const say = (c, en, zh) => (c.lang === "zh" ? zh : en);

const view = {
  /** centre: the place of the word that the window is at; window: words to either side */
  start: ({ words }) => ({ centre: longest(words), window: 2 }),
  title: (c) => say(c, "Which words stand near which?", "哪些词挨着哪些词？"),
  reading(c) {
    const count = pairsOf(c.finding.words, c.state.window).length;
    return say(
      c,
      `Choose a word, or walk along the sentence with the arrow keys: the window goes with you. In all its places ` +
        `it finds ${count} pairs; the grid has each pair of words with how often it was found.`,
      `选择一个词，或用方向键沿句子走：窗口跟着你走。走遍所有位置，一共找到 ${count} 对；方格里是每一对词出现的次数。`,
    );
  },
  controls: (c) => [
    el("span", {}, say(c, "Words to either side", "左右各几个词")),
    c.group(
      say(c, "Words to either side", "左右各几个词"),
      c.state.window,
      WINDOWS.map((n) => [n, String(n)]),
      (window) => c.set({ window }),
    ),
  ],
  body(c, box) {
    const beside = c.width >= 860;
    const space = beside ? Math.floor((c.width - 40) * 0.5) : c.width;
    const columns = beside ? `${space}px minmax(0, 1fr)` : "minmax(0, 1fr)";
    box.append(
      el(
        "div",
        { class: "ch-columns", style: { "grid-template-columns": columns } },
        el("div", {}, sentence(c), found(c)),
        el(
          "div",
          {},
          el("p", { class: "ch-name" }, say(c, "How often each pair was found", "每一对出现的次数")),
          counts(c, beside ? c.width - space - 40 : c.width),
        ),
      ),
    );
  },
  *table({ words }) {
    yield ["centre", "context", "distance"];
    for (const [n, k] of pairsOf(words, WINDOWS.at(-1))) yield [words[n], words[k], Math.abs(n - k)];
  },
};

const longest = (words) => words.reduce((best, word, n) => (word.length > words[best].length ? n : best), 0);
const centreOf = (c) => Math.min(c.state.centre, c.finding.words.length - 1);

/** The sentence as chips: the word in the middle of the window, those inside it, and the rest. */
function sentence(c) {
  const { words } = c.finding;
  const centre = centreOf(c);
  const chips = words.map((word, n) => {
    const inside = n !== centre && Math.abs(n - centre) <= c.state.window;
    return el(
      "span",
      {
        class: `ch-tok${n === centre ? " st-centre" : inside ? " st-context" : ""}`,
        role: "button",
        "data-pick": "",
        "data-at": `word${n}`,
        "aria-pressed": String(n === centre),
        onclick: () => c.set({ centre: n }),
      },
      word,
    );
  });
  rove(chips, {
    start: centre,
    pick: (n) => c.set({ centre: n }),
    seen: (n) => {
      if (n !== centreOf(c) && chips[n].matches(":focus-visible")) c.set({ centre: n });
    },
  });
  return el("div", { class: "ch-tokens", role: "group" }, chips);
}

/** The pairs that the window finds where it stands. */
function found(c) {
  const { words } = c.finding;
  const centre = centreOf(c);
  const here = pairsOf(words, c.state.window).filter(([n]) => n === centre);
  return el(
    "div",
    { class: "ch-part" },
    el("p", { class: "ch-name" }, say(c, "Pairs found here: centre → context", "在这里找到的：中心词 → 上下文词")),
    el(
      "div",
      { class: "st-pairs" },
      here.map(([, k]) => el("span", {}, el("b", {}, words[centre]), " → ", words[k])),
    ),
  );
}

/** Over the whole sentence: rows are centres, columns what stands near them. */
function counts(c, space) {
  const kinds = [...new Set(c.finding.words)];
  const at = new Map(kinds.map((word, n) => [word, n]));
  const table = kinds.map(() => kinds.map(() => 0));
  for (const [n, k] of pairsOf(c.finding.words, c.state.window))
    table[at.get(c.finding.words[n])][at.get(c.finding.words[k])] += 1;
  const most = Math.max(...table.flat(), 1);
  return heatmap(c, {
    rows: kinds,
    columns: kinds,
    space: space - SPILL,
    square: true,
    width: [9, 34],
    height: [9, 26],
    label: say(c, "How often each pair was found", "每一对出现的次数"),
    name: "counts",
    colour: (r, k) => scale.ink(c, "accent", (table[r][k] / most) * 0.85),
    text: (r, k) => (table[r][k] ? String(table[r][k]) : ""),
    tip: (r, k) => `${kinds[r]} → ${kinds[k]} · ${table[r][k]}`,
    picked: { row: at.get(c.finding.words[centreOf(c)]), column: null },
    pick: (r) => c.set({ centre: c.finding.words.indexOf(kinds[r]) }),
  });
}

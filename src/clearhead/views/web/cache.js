// What the cache saves: for every token that is written, what is computed again without it and only read with it.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import { amount } from "./parameters.js";
import * as scale from "./scale.js";
import { plain, signed, visible } from "./tokens.js";

const COMPUTED = 0.92,
  READ = 0.24,
  SOON = 0.035; // ink of keys: computed now, only read, not there yet
const LEAN = 36; // pixels that the last slanted name needs

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** step: the pinned row */
  start: () => ({ step: null }),
  title: (c) => c.words("cache_title"),
  reading(c) {
    const count = c.finding.source.length;
    const own = c.words("cache_reading", { layers: c.finding.layers });
    return count ? `${own} ${c.words("cache_reading_source", { count })}` : own;
  },
  body(c, box) {
    const beside = c.width >= 760;
    const space = (beside ? Math.floor((c.width - 48) / 2) : c.width) - LEAN;
    box.append(
      el(
        "div",
        {
          class: "ch-columns",
          style: { "grid-template-columns": beside ? "minmax(0, 1fr) minmax(0, 1fr)" : "minmax(0, 1fr)" },
        },
        grid(c, false, space),
        grid(c, true, space),
      ),
      el(
        "div",
        { class: "ch-keys ch-legend" },
        [
          ["cache_computed", COMPUTED],
          ["cache_read", READ],
        ].map(([key, ink]) =>
          el("span", {}, el("i", { style: { background: scale.css(scale.ink(c, "k", ink)) } }), c.words(key)),
        ),
      ),
      work(c),
    );
  },
  *table(finding) {
    yield ["step", "token", "length", "computed", "attended", "macs", "macs_without_cache", "cached_values"];
    for (const [n, one] of finding.steps.entries())
      yield [
        n + 1,
        one.token,
        one.length,
        one.computed,
        one.attended,
        one.macs,
        one.macs_without_cache,
        one.cached_values,
      ];
  },
};

/** A row for each token that is written, a column for each that has been read by then. */
function grid(c, cached, space) {
  const { steps, tokens } = c.finding;
  const read = tokens.slice(0, steps.at(-1).length);
  const state = (r, k) => {
    const step = steps[r];
    if (k >= step.length) return "unread";
    if (!cached || k >= step.length - step.computed) return "computed";
    return k >= step.length - step.attended ? "read" : "unseen";
  };
  const inks = { computed: COMPUTED, read: READ, unread: SOON, unseen: SOON };
  return el(
    "div",
    {},
    el("p", { class: "ch-name" }, c.words(cached ? "cache_with" : "cache_without")),
    heatmap(c, {
      rows: steps.map((step) => visible(step.token)),
      columns: read.map(visible),
      space,
      width: [5, 64],
      height: [12, 22],
      rowTitle: c.words("cache_writes"),
      label: c.words(cached ? "cache_with" : "cache_without"),
      name: cached ? "with" : "without",
      colour: (r, k) => scale.ink(c, "k", inks[state(r, k)]),
      tip(r, k) {
        const names = { token: visible(read[k]), writes: visible(steps[r].token) };
        return `${c.words(`cache_tip_${state(r, k)}`, names)}\n${tell(c, steps[r])}`;
      },
      picked: c.state.step === null ? null : { row: c.state.step, column: null },
      pick: (r) => c.set({ step: c.state.step === r ? null : r }),
      release: () => c.set({ step: null }),
    }),
  );
}

const tell = (c, { macs, macs_without_cache: without }) =>
  `${c.words("cache_without")} ${scale.whole(without)} · ${c.words("cache_with")} ${scale.whole(macs)}`;

function work(c) {
  const { steps } = c.finding;
  const most = Math.max(...steps.map((step) => step.macs_without_cache));
  const sum = (name) => steps.reduce((total, step) => total + step[name], 0);
  const rows = steps.map((step, n) =>
    c.tells(
      el(
        "div",
        { class: `ch-choice${c.state.step === n ? " ch-on-row" : ""}`, tabindex: "-1", "data-step": n },
        el("span", {}, signed(step.token)),
        el("span", { class: "ch-share ch-was" }, amount(step.macs_without_cache)),
        el("span", { class: "ch-share" }, amount(step.macs)),
        el(
          "span",
          { class: "ch-track ch-both" },
          el("span", { class: "ch-ghost", style: { width: `${(step.macs_without_cache / most) * 100}%` } }),
          el("span", { class: "ch-bar", style: { width: `${(step.macs / most) * 100}%`, background: "var(--k)" } }),
        ),
      ),
      () => `${plain(step.token)}\n${tell(c, step)}`,
    ),
  );
  const head = el(
    "div",
    { class: "ch-choice ch-headline" },
    el("span", { style: { "text-align": "start" } }, c.words("cache_writes")),
    el("span", {}, c.words("cache_without_short")),
    el("span", {}, c.words("cache_with_short")),
    el("span", {}),
  );
  const kept = steps.at(-1).cached_values;
  const saved = 1 - sum("macs") / sum("macs_without_cache");
  const total = c.words("cache_total", {
    without: amount(sum("macs_without_cache")),
    work: amount(sum("macs")),
    saved: scale.percent(saved),
    kept: scale.whole(kept),
    size: size(kept * c.finding.bytes_per_value),
  });
  return el(
    "div",
    { class: "ch-part" },
    el("p", { class: "ch-name" }, c.words("cache_work")),
    el("div", { class: "ch-ranked ch-probabilities" }, head, rows),
    el("p", { class: "ch-say", "data-saved": saved }, total),
  );
}

const size = (bytes) =>
  bytes >= 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${(bytes / 2 ** 10).toFixed(0)} KiB`;

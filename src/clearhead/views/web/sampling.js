// How the next token is drawn: probabilities before and after temperature, top-k and top-p, which the reader can move.

import { el } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { signed, visible } from "./tokens.js";

const ROWS = 24; // candidates that are listed; the curve shows the others

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** the three settings; null: not in force */
  start: (finding) => ({
    temperature: finding.settings.temperature,
    top_k: finding.settings.top_k,
    top_p: finding.settings.top_p,
  }),
  title: (c) => c.words("sampling_title"),
  reading: (c) =>
    c.words("sampling_reading", {
      count: Math.min(ROWS, c.finding.candidates.length),
      vocabulary: scale.whole(c.finding.candidates.length + c.finding.other_logits.length),
    }),
  body,
  *table(finding) {
    yield ["rank", "token", "token_id", "logit", "before", "after"];
    for (const [n, one] of finding.candidates.entries())
      yield [n + 1, one.token, one.token_id, one.logit, one.before, one.after];
  },
};

/** What the filters of `generate` do, in their order: temperature, top-k, top-p. logits: the highest first.
 *  Gives the probabilities after all of them, how many tokens are left, and the share that each cut took. */
export function shaped(logits, { temperature, top_k, top_p }) {
  const count = logits.length;
  const weight = new Float64Array(count);
  let total = 0;
  for (let n = 0; n < count; n++) total += weight[n] = Math.exp((logits[n] - logits[0]) / (temperature ?? 1));
  let left = count;
  const cut = { top_k: 0, top_p: 0 };
  const keep = (least, name) => {
    let gone = 0;
    for (let n = least; n < left; n++) gone += weight[n];
    cut[name] = gone / total;
    total -= gone;
    left = least;
  };
  if (top_k !== null && top_k < left) {
    let least = Math.max(1, top_k);
    while (least < left && logits[least] === logits[least - 1]) least++; // what ties with the last one stays
    keep(least, "top_k");
  }
  if (top_p !== null && top_p < 1) {
    let [least, above] = [0, 0];
    while (least < left && (least === 0 || above / total < top_p)) above += weight[least++];
    keep(least, "top_p");
  }
  return { left, cut, of: (n) => (n < left ? weight[n] / total : 0) };
}

function body(c, box) {
  const { candidates, other_logits, text, source, draws } = c.finding;
  const logits = Float64Array.from([...candidates.map((one) => one.logit), ...other_logits]);
  const before = shaped(logits, { temperature: null, top_k: null, top_p: null });
  const limit = Math.min(200, logits.length);
  let now = { ...c.state };
  const line = el(
    "p",
    { class: "ch-say ch-prompt" },
    source ? `${source} → ` : "",
    text.length > 240 ? `…${text.slice(-240)}` : text,
    el("span", { style: { color: "var(--v-text)" } }, "▁"),
  );

  // Sliders: a number each; the end of the range switches a filter off.
  const ways = {
    temperature: {
      low: 0.05,
      high: 2,
      step: 0.05,
      off: 1,
      read: (v) => v,
      write: (v) => v.toFixed(2),
      to: (v) => v ?? 1,
    },
    top_k: {
      low: 1,
      high: limit,
      step: 1,
      off: limit,
      read: (v) => (v >= limit ? null : v),
      write: (v) => (v >= limit ? c.words("sampling_off") : scale.whole(v)),
      to: (v) => Math.min(v ?? limit, limit),
    },
    top_p: {
      low: 0.01,
      high: 1,
      step: 0.01,
      off: 1,
      read: (v) => (v >= 1 ? null : v),
      write: (v) => (v >= 1 ? c.words("sampling_off") : v.toFixed(2)),
      to: (v) => v ?? 1,
    },
  };
  const shown = {};
  const sliders = Object.entries(ways).map(([name, way]) => {
    const input = el("input", {
      type: "range",
      min: way.low,
      max: way.high,
      step: way.step,
      value: way.to(now[name]),
      "data-at": name,
      "aria-label": c.words(`sampling_${name}`),
    });
    const value = el("output", {}, way.write(way.to(now[name])));
    input.addEventListener("input", () => {
      now = { ...now, [name]: way.read(Number(input.value)) };
      value.textContent = way.write(Number(input.value));
      input.setAttribute("aria-valuetext", value.textContent);
      paint();
    });
    input.addEventListener("change", () => c.set(now));
    shown[name] = { input, value };
    return el("label", { class: "ch-knob" }, el("span", {}, c.words(`sampling_${name}`)), input, value);
  });

  const top = candidates.slice(0, ROWS);
  const rows = top.map((one, n) => {
    const share = el("span", { class: "ch-share" }),
      was = el("span", { class: "ch-share ch-was" }, scale.percent(before.of(n), 1));
    const bar = el("span", { class: "ch-bar", style: { background: "var(--v)" } }),
      ghost = el("span", { class: "ch-ghost" });
    const row = el(
      "div",
      { class: "ch-choice", tabindex: "-1", "data-token": one.token_id },
      el("span", {}, signed(one.token)),
      was,
      share,
      el("span", { class: "ch-track ch-both" }, ghost, bar),
    );
    c.tells(
      row,
      () =>
        `${visible(one.token)} · ${c.words("token_id", { id: one.token_id })} · ${c.words("score")} ` +
        `${scale.number(one.logit)}\n${c.words("sampling_before")} ${scale.percent(before.of(n), 2)} → ` +
        `${c.words("sampling_after")} ${scale.percent(Number(row.dataset.after), 2)}`,
    );
    return { row, share, bar, ghost };
  });
  const masses = el("div", { class: "ch-mass" }),
    facts = el("div", { class: "ch-keys" }),
    drawn = el("div", { class: "ch-part" });

  function paint() {
    const after = shaped(logits, now);
    const most = Math.max(before.of(0), after.of(0));
    rows.forEach(({ row, share, bar, ghost }, n) => {
      const value = after.of(n);
      row.dataset.after = value;
      row.classList.toggle("ch-cut", value === 0);
      share.textContent = value === 0 ? c.words("sampling_cut") : scale.percent(value, 1);
      bar.style.width = `${(value / most) * 100}%`;
      ghost.style.width = `${(before.of(n) / most) * 100}%`;
    });
    // Of the probabilities after the temperature: what top-k took, what top-p took of the remainder, what is left.
    const k = after.cut.top_k,
      p = (1 - k) * after.cut.top_p,
      stays = 1 - k - p;
    const parts = [
      ["sampling_left", stays, "var(--v)"],
      ["sampling_by_top_p", p, "var(--warm)"],
      ["sampling_by_top_k", k, "var(--head7)"],
    ];
    masses.replaceChildren(
      ...parts.map(([, share, ground]) => el("i", { style: { width: `${share * 100}%`, background: ground } })),
    );
    masses.dataset.cut = JSON.stringify({ top_k: after.cut.top_k, top_p: after.cut.top_p, left: after.left });
    facts.replaceChildren(
      ...parts.map(([name, share, ground], n) =>
        el(
          "span",
          {},
          el("i", { style: { background: ground } }),
          c.words(name, { share: scale.percent(share), count: n ? "" : scale.whole(after.left) }),
        ),
      ),
    );
    const same = Object.keys(ways).every(
      (name) => ways[name].to(now[name]) === ways[name].to(c.finding.settings[name]),
    );
    drawn.replaceChildren(same ? drawnBy(c, draws) : again(c, now));
  }
  const list = el(
    "div",
    { class: "ch-ranked ch-probabilities" },
    el(
      "div",
      { class: "ch-choice ch-headline" },
      el("span", {}),
      el("span", {}, c.words("sampling_before")),
      el("span", {}, c.words("sampling_after")),
      el("span", {}),
    ),
    rows.map(({ row }) => row),
  );
  const beside = c.width >= 860;
  const knobs = el(
    "div",
    {},
    el("div", { class: "ch-knobs", "data-picture": "no" }, sliders),
    el("p", { class: "ch-name ch-part" }, c.words("sampling_mass")),
    masses,
    facts,
    drawn,
  );
  box.append(
    line,
    el(
      "div",
      {
        class: "ch-columns ch-part",
        style: { "grid-template-columns": beside ? "minmax(0, 3fr) minmax(18rem, 2fr)" : "minmax(0, 1fr)" },
      },
      ...(beside ? [list, knobs] : [knobs, list]),
    ),
    el(
      "div",
      { class: "ch-keys ch-legend" },
      el(
        "span",
        {},
        el("i", {
          class: "ch-ghost",
          style: { height: "11px", width: "11px", position: "static", display: "inline-block" },
        }),
        c.words("sampling_before"),
      ),
      el("span", {}, el("i", { style: { background: "var(--v)" } }), c.words("sampling_after")),
    ),
  );
  paint();
}

/** What the model's own draws gave, most often first. */
function drawnBy(c, draws) {
  const chips = draws.map((one) =>
    c.tells(el("span", { class: "ch-tok ch-open", tabindex: "-1" }, signed(one.token)), () =>
      c.words("sampling_seed", { seed: one.seed }),
    ),
  );
  return el(
    "div",
    {},
    el("p", { class: "ch-name" }, c.words("sampling_drawn", { first: draws[0].seed, last: draws.at(-1).seed })),
    el("div", { class: "ch-tokens" }, chips),
  );
}

/** Other settings than the finding's: only the model can draw with them. */
function again(c, now) {
  const ask = c.options.onSettings;
  return el(
    "p",
    { class: "ch-say" },
    c.words("sampling_other"),
    " ",
    ask
      ? el(
          "button",
          { type: "button", class: "ch-link", "data-at": "again", onclick: () => ask({ ...now }) },
          c.words("sampling_again"),
        )
      : "",
  );
}

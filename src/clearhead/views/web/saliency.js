// Which tokens an answer came from: a warm highlight behind each, for the output that is looked at.

import { el, rove } from "./dom.js";
import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import { onGrid, patches } from "./patches.js";
import * as scale from "./scale.js";
import { chip, chips, plain, textOf, visible } from "./tokens.js";

const FULL = 0.85; // the warmest highlight lets the text be read
const WITH_NUMBERS = 160; // tokens; longer texts show their percentages on hover only

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** output: which answer is explained, view: text | matrix, columns: of a matrix, "all" or the "source" alone */
  start: () => ({ output: 0, view: "text", columns: "all" }),
  title(c) {
    const { text, against } = outputOf(c);
    return against
      ? c.words("saliency_against", { token: plain(text), other: plain(against) })
      : c.words(onGrid(c.finding.tokens) ? "saliency_patches" : "saliency_title", { token: plain(text) });
  },
  reading: (c) =>
    c.words(c.state.view === "text" ? "saliency_reading" : "saliency_reading_matrix", {
      method: c.words(`method_${c.finding.method.replaceAll("-", "_")}`),
    }),
  controls: (c) =>
    c.finding.outputs.length < 2
      ? []
      : [
          c.group(
            c.words("view"),
            c.state.view,
            [
              ["text", c.words("view_text")],
              ["matrix", c.words("view_matrix")],
            ],
            (key) => c.set({ view: key }),
          ),
        ],
  body: (c, box) => (c.state.view === "matrix" ? matrix : onText)(c, box),
  *table(finding) {
    yield ["output", "against", "probability", "position", "token", "share", "contribution"];
    for (const [n, output] of finding.outputs.entries()) {
      for (const [k, token] of finding.tokens.entries())
        if (scale.isNumber(finding.scores[n][k]))
          yield [
            output.text,
            output.against,
            output.probability,
            k,
            textOf(token),
            finding.scores[n][k],
            finding.contributions?.[n][k],
          ];
    }
  },
};

const outputOf = (c) => c.finding.outputs[Math.min(c.state.output, c.finding.outputs.length - 1)];
const most = (row) => Math.max(...Array.from(row).filter(scale.isNumber), 1e-9);
const key = (c, high) =>
  scale.legend(
    c.words("saliency_scale"),
    scale.steps(8, (t) => scale.ink(c, "warm", t * FULL)),
    ["0", scale.percent(high)],
  );

function onText(c, box) {
  const { tokens, outputs, scores, source } = c.finding;
  const line = el("div", {});
  const places = new Map(outputs.map((output, n) => [output.position, n]).filter(([position]) => position !== null));
  const paint = (n) => {
    const row = scores[n],
      high = most(row);
    if (onGrid(tokens)) {
      const highest = most(counted(tokens, row));
      line.replaceChildren(
        patches(c, {
          units: tokens,
          picture: c.finding.picture,
          share: (k) => (row[k] || 0) / highest,
          tip: (k) => words(c, n, k),
          label: view.title(c),
        }),
        marksLine(tokens, row),
      );
      return;
    }
    const all = chips(
      tokens,
      (k) => {
        const can = scale.isNumber(row[k]);
        const ground = scale.ink(c, "warm", can ? (row[k] / high) * FULL : 0);
        const kinds = [can ? "" : "ch-faint", outputs[n].position === k ? "ch-on" : ""].filter(Boolean).join(" ");
        return {
          style: { background: scale.css(ground), color: can ? scale.css(scale.onTop(c, ground)) : "" },
          class: kinds,
          "data-pick": places.has(k) ? "" : null,
        };
      },
      (k) => (tokens.length <= WITH_NUMBERS && row[k] >= 0.005 ? el("small", {}, `${Math.round(row[k] * 100)}%`) : []),
    );
    const marks = [...all.querySelectorAll(".ch-tok")];
    marks.forEach((mark, k) => {
      c.tells(mark, () => words(c, n, k));
      if (places.has(k)) mark.addEventListener("click", () => c.set({ output: places.get(k) }));
    });
    rove(marks, { pick: (k) => places.has(k) && c.set({ output: places.get(k) }) });
    if (source) {
      // what the encoder read, then what the decoder wrote
      const words = [...all.childNodes],
        first = words.indexOf(marks[source]?.parentNode ?? null);
      const [read, written] = [words.slice(0, first < 0 ? undefined : first), first < 0 ? [] : words.slice(first)].map(
        (part) => el("div", { class: "ch-tokens" }, part),
      );
      line.replaceChildren(
        el("p", { class: "ch-name", style: { color: "var(--enc-text)" } }, c.words("was_read")),
        read,
        el("p", { class: "ch-name ch-part", style: { color: "var(--dec-text)" } }, c.words("was_written")),
        written,
      );
    } else line.replaceChildren(all);
  };
  const answers = outputs.map((output, n) => {
    const button = chip([output.text], 0, {
      "data-at": `o${n}`,
      "data-pick": "",
      role: "button",
      class: n === c.state.output ? "ch-on" : "ch-open",
      "aria-pressed": String(n === c.state.output),
    });
    button.addEventListener("pointerenter", () => paint(n));
    button.addEventListener("pointerleave", () => paint(c.state.output));
    button.addEventListener("click", () => c.set({ output: n }));
    return c.tells(button, () =>
      [
        visible(output.text),
        output.against && `${c.words("rather_than")} ${visible(output.against)}`,
        scale.isNumber(output.probability) && c.words("probability", { p: scale.percent(output.probability, 1) }),
      ]
        .filter(Boolean)
        .join(" · "),
    );
  });
  rove(answers, {
    start: c.state.output,
    seen: paint,
    pick: (n) => c.set({ output: n }),
    release: () => paint(c.state.output),
  });
  paint(Math.min(c.state.output, outputs.length - 1));
  box.append(
    line,
    el(
      "div",
      { class: "ch-part" },
      el("p", { class: "ch-name" }, c.words(outputs.length > 1 ? "saliency_outputs" : "saliency_output")),
      el("div", { class: "ch-tokens" }, answers),
    ),
    key(c, most(counted(tokens, scores[Math.min(c.state.output, outputs.length - 1)]))),
  );
}

/** What the ink is measured by: of a picture, its patches alone. */
const counted = (tokens, row) => (onGrid(tokens) ? row.filter((_, k) => tokens[k].kind === "patch") : row);

/** What the places have that show nothing of the picture. */
const marksLine = (tokens, row) =>
  el(
    "p",
    { class: "ch-name" },
    tokens
      .map((token, k) => [token, k])
      .filter(([token]) => token.kind !== "patch")
      .map(([token, k]) => `${textOf(token)} ${scale.percent(row[k], 1)}`)
      .join(" · "),
  );

function matrix(c, box) {
  const { outputs, scores, source } = c.finding;
  const tokens = c.state.columns === "source" && source ? c.finding.tokens.slice(0, source) : c.finding.tokens;
  const high = scale.extent(scores)[1] || 1;
  box.append(
    heatmap(c, {
      rows: outputs.map((output) => visible(output.text)),
      columns: tokens.map((token) => visible(textOf(token))),
      width: [6, 84],
      height: [14, 28],
      sparse: 11.5,
      rowTitle: c.words("output"),
      label: c.words("view_matrix"),
      name: "saliency",
      colour: (r, k) => scale.ink(c, "warm", ((scores[r][k] || 0) / high) * FULL),
      text: (r, k) => (scores[r][k] >= 0.005 ? (scores[r][k] * 100).toFixed(0) : null),
      tip: (r, k) => words(c, r, k),
      picked: { row: c.state.output, column: null },
      pick: (r) => c.set({ output: r }),
    }),
    key(c, high),
  );
}

function words(c, n, k) {
  const { tokens, outputs, scores, contributions } = c.finding;
  if (!scale.isNumber(scores[n][k])) return c.words("could_not_matter");
  const adds = contributions ? contributions[n][k] : null;
  const signed = scale.isNumber(adds)
    ? `\n${c.words(adds < 0 ? "takes" : "adds", { n: scale.number(Math.abs(adds)) })}`
    : "";
  return `${visible(textOf(tokens[k]))} → ${visible(outputs[n].text)} · ${scale.percent(scores[n][k], 1)}${signed}`;
}

// What a head answers: labels, hidden words, whether a sentence follows, a label for every token.

import { el, rove } from "./dom.js";
import { figure } from "./figure.js";
import { ranked } from "./guesses.js";
import * as scale from "./scale.js";
import { chip, chips, plain, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const WHOLE = ["label", "labels", "next-sentence", "token-label"]; // of one whole, or each of its own
const FEW = 10; // of many labels, so many are shown
/** A label of the model's own as it is; ours, of the two heads that have no labels, in the language of the page. */
const labelOf = (c, what, label) =>
  what === "next-sentence" || what === "replaced" ? c.words(`prediction_${label.replaceAll(" ", "_")}`) : label;

const view = {
  /** answer: the one whose choices are shown, where there is one for every token */
  start: () => ({ answer: null }),
  title(c) {
    const kinds = new Set(c.finding.answers.map((answer) => answer.kind));
    return c.words(`prediction_title_${kinds.size === 1 ? [...kinds][0].replace("-", "_") : "label"}`);
  },
  reading: (c) =>
    [...new Set(c.finding.answers.map((answer) => answer.kind))]
      .map((what) => c.words(`prediction_reading_${what.replace("-", "_")}`))
      .join(" "),
  body(c, box) {
    const { answers } = c.finding;
    const perToken = answers.some((answer) => answer.kind === "token-label" || answer.kind === "replaced");
    (perToken ? everyToken : plainly)(c, box);
  },
  *table(finding) {
    yield ["kind", "position", "token", "label", "probability", "score"];
    for (const one of finding.answers)
      for (const choice of one.choices)
        yield [
          one.kind,
          one.position,
          one.position === null ? null : textOf(finding.tokens[one.position]),
          choice.label,
          choice.probability,
          choice.score,
        ];
  },
};

const tipOf = (c, choice) =>
  [
    visible(choice.label),
    scale.isNumber(choice.probability) && scale.percent(choice.probability, 2),
    `${c.words("score")} ${scale.number(choice.score)}`,
  ]
    .filter(Boolean)
    .join(" · ");

/** Bars against 100 % where the choices share one whole; a number as it is. */
function bars(c, answer) {
  if (answer.kind === "number")
    return el(
      "p",
      { class: "ch-figures" },
      answer.choices.map((choice) => el("span", {}, `${choice.label} `, el("b", {}, scale.number(choice.score)))),
    );
  const shown = answer.choices.length > FEW + 2 ? answer.choices.slice(0, FEW) : answer.choices,
    rest = answer.choices.slice(shown.length);
  const list = ranked(
    c,
    shown.map((choice) => ({
      token: answer.kind === "word" || answer.kind === "span" ? choice.label : labelOf(c, answer.kind, choice.label),
      probability: choice.probability,
      tip: tipOf(c, choice),
    })),
    { hue: "v", whole: WHOLE.includes(answer.kind), words: answer.kind !== "word" },
  );
  if (!rest.length) return list;
  const share =
    answer.kind === "label"
      ? scale.percent(rest.reduce((sum, choice) => sum + choice.probability, 0))
      : `< ${scale.percent(rest[0].probability)}`;
  return el(
    "div",
    {},
    list,
    el(
      "p",
      { class: "ch-say" },
      c.words(answer.kind === "label" ? "prediction_rest" : "prediction_rest_each", { count: rest.length, share }),
    ),
  );
}

function plainly(c, box) {
  const { tokens, answers } = c.finding;
  const gaps = new Map(answers.filter((answer) => answer.kind === "word").map((answer, n) => [answer.position, n]));
  const span = answers.find((answer) => answer.kind === "span");
  const pair = tokens.some((token) => token.segment === 1);
  const attributes = (n) => ({ class: gaps.has(n) || (span && n >= span.position && n <= span.last) ? "ch-on" : "" });
  const more = (n) => (gaps.has(n) && gaps.size > 1 ? el("small", {}, gaps.get(n) + 1) : []);
  box.append(pair ? twoTexts(c, tokens, attributes, more) : chips(tokens, attributes, more));
  const parts = answers.map((answer) => {
    const name =
      answer.kind === "word" && gaps.size > 1
        ? c.words("prediction_gap", { n: gaps.get(answer.position) + 1 })
        : answer.kind === "word" && answers.length > 1
          ? c.words("prediction_title_word")
          : answer.kind === "next-sentence" && answers.length > 1
            ? c.words("prediction_title_next_sentence")
            : "";
    return el("div", { class: "ch-part" }, name ? el("p", { class: "ch-name" }, name) : "", bars(c, answer));
  });
  const across = Math.max(1, Math.min(parts.length, Math.floor(c.width / 340)));
  box.append(
    el("div", { class: "ch-columns", style: { "grid-template-columns": `repeat(${across}, minmax(0, 1fr))` } }, parts),
  );
}

function twoTexts(c, tokens, attributes, more) {
  const line = chips(tokens, attributes, more);
  const marks = [...line.querySelectorAll(".ch-tok")],
    words = [...line.childNodes];
  const first = words.indexOf(marks[tokens.findIndex((token) => token.segment === 1)].parentNode);
  const [one, two] = [words.slice(0, first), words.slice(first)].map((part) => el("div", { class: "ch-tokens" }, part));
  return el(
    "div",
    {},
    el("p", { class: "ch-name" }, c.words("prediction_first")),
    one,
    el("p", { class: "ch-name ch-part" }, c.words("prediction_second")),
    two,
  );
}

/** A label under each token; one of them opened. */
function everyToken(c, box) {
  const { tokens, answers } = c.finding;
  const at = new Map(answers.map((answer, n) => [answer.position, n]));
  const kinds = [...new Set(answers.flatMap((answer) => answer.choices.map((choice) => choice.label)))].sort();
  const strength = (answer) =>
    answer.kind === "replaced"
      ? answer.choices[0].probability
      : (answer.choices[0].probability - 1 / kinds.length) / (1 - 1 / kinds.length);
  const hue = (answer) => (answer.kind === "replaced" ? "warm" : scale.head(c, kinds.indexOf(answer.choices[0].label)));
  const detail = el("div", { class: "ch-part" });
  const open = (n) => {
    const answer =
      answers[n ?? c.state.answer ?? answers.findIndex((one) => strength(one) === Math.max(...answers.map(strength)))];
    detail.replaceChildren(el("p", { class: "ch-name" }, plain(textOf(tokens[answer.position]))), bars(c, answer));
  };
  const line = el("div", { class: "ch-tokens ch-labelled" });
  const marks = tokens.map((token, k) => {
    const answer = answers[at.get(k)];
    if (!answer) return chip(tokens, k);
    const ground = scale.ink(c, hue(answer), Math.max(0.08, strength(answer)) * 0.7);
    const mark = chip(
      tokens,
      k,
      {
        class: c.state.answer === at.get(k) ? "ch-on" : "",
        "data-pick": "",
        style: { background: scale.css(ground), color: scale.css(scale.onTop(c, ground)) },
      },
      el(
        "small",
        {},
        answer.kind === "replaced" ? scale.percent(answer.choices[0].probability) : answer.choices[0].label,
      ),
    );
    mark.addEventListener("pointerenter", () => open(at.get(k)));
    mark.addEventListener("pointerleave", () => open(null));
    mark.addEventListener("click", () => c.set({ answer: c.state.answer === at.get(k) ? null : at.get(k) }));
    return c.tells(
      mark,
      () =>
        `${visible(textOf(token))} · ${answer.choices
          .slice(0, 3)
          .map((choice) => `${labelOf(c, answer.kind, choice.label)} ${scale.percent(choice.probability, 1)}`)
          .join("  ")}`,
    );
  });
  const active = marks.filter((_, k) => at.has(k));
  rove(active, { seen: (n) => open(n), pick: (n) => c.set({ answer: n }), release: () => c.set({ answer: null }) });
  line.append(...marks);
  box.append(line);
  if (answers[0].kind !== "replaced")
    box.append(
      el(
        "div",
        { class: "ch-keys ch-legend" },
        kinds.map((kind, n) => el("span", {}, el("i", { style: { background: scale.css(scale.head(c, n)) } }), kind)),
      ),
      detail,
    );
  else
    box.append(
      scale.legend(
        c.words("prediction_replaced"),
        scale.steps(8, (t) => scale.ink(c, "warm", t * 0.7)),
        ["0 %", "100 %"],
      ),
    );
  open(null);
}

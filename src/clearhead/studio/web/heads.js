// Two things the lab does with a figure: a head that is clicked is taken away, a next token that is clicked is written.

import { el } from "/static/views/dom.js";
import { number, percent } from "/static/views/scale.js";
import { plain, signed, textOf } from "/static/views/tokens.js";
import { ask, inTurn, isCancelled } from "./api.js";
import { troubleWords } from "./live.js";

const SPEAKS = ["causal-lm", "seq2seq-lm", "masked-lm", "pretraining"]; // tasks with a word for each token

/** Goes on with the token that was picked among the next ones: in the text, or in what an encoder–decoder has
 *  written. */
export function continued(picked, finding, state) {
  const token = picked.token.replaceAll("▁", " "); // SentencePiece’s sign for a space
  const next = finding.text ? finding.text + token : token.trimStart();
  return finding.source === null ? { text: next, state: {} } : { params: { ...state.params, target: next }, state: {} };
}

/** The head that a figure has chosen: {layer, head}, or null. */
function headOf(finding, chosen) {
  if (finding.kind === "attention") return { layer: Number(chosen.layer), head: chosen.heads[0] };
  if (finding.kind === "query-key") return { layer: finding.layer, head: finding.head };
  if (finding.kind === "ablation" && chosen.layer !== null)
    return { layer: finding.layers[chosen.layer], head: finding.heads[chosen.head] };
  return null;
}

/** Whose answer is looked at: that of the pinned token, where tokens have one; undefined: the last, or the hidden
 *  word. */
function positionOf(finding, chosen, spec) {
  const pinned = finding.kind === "attention" ? chosen.token : finding.position;
  return typeof pinned === "number" && SPEAKS.includes(spec.task) && finding.side !== "encoder" && !spec.params.words
    ? pinned
    : undefined;
}

/** What stands under a figure about heads: a switch, and with it the answers with the chosen head and without it. */
export function headPanel(page) {
  const box = el("div", { class: "st-without" });
  let shown = null,
    stop = null;

  async function update(request, head) {
    const key = JSON.stringify([request, page.lang]);
    if (key === shown) return;
    shown = key;
    stop?.abort();
    const mine = new AbortController();
    stop = mine;
    box.setAttribute("aria-busy", "true");
    try {
      const { finding } = await inTurn(() => ask(request, { signal: mine.signal }), mine.signal);
      if (!mine.signal.aborted) box.replaceChildren(...table(page, finding, head, request));
    } catch (error) {
      if (isCancelled(error)) return;
      box.replaceChildren(el("p", { class: "st-line st-error" }, troubleWords(page, error)));
    } finally {
      if (mine === stop) box.removeAttribute("aria-busy");
    }
  }

  return (finding, chosen, spec, { on, turn }) => {
    const head = headOf(finding, chosen);
    if (!head) return [];
    const own = finding.kind === "ablation"; // there a click has said it already
    if (own || on) {
      const { target, chosen: followed, how } = spec.params;
      const position = own ? spec.params.position : positionOf(finding, chosen, spec);
      const side = ["encoder", "decoder", "cross"].includes(finding.side) ? finding.side : undefined;
      const params = Object.fromEntries(
        Object.entries({
          layers: String(head.layer),
          heads: String(head.head),
          side,
          target,
          position,
          k: 8,
          ...(own ? { chosen: followed, how } : {}),
        }).filter(([, value]) => value !== undefined),
      );
      update(
        {
          model: spec.model,
          question: "ablation",
          text: spec.text,
          ...(spec.second ? { second: spec.second } : {}),
          params,
        },
        head,
      );
    } else stop?.abort();
    const field = el("input", { type: "checkbox", "data-at": "without", onchange: () => turn(field.checked) });
    field.checked = on;
    return [own ? "" : el("label", { class: "st-switch" }, field, page.words("take_away", head)), own || on ? box : ""];
  };
}

/** The likeliest answers with the head and without it, each with two bars on one scale. */
function table(page, finding, head, request) {
  const after = new Map(finding.after.map((one) => [one.token_id, one]));
  const before = new Map(finding.before.map((one) => [one.token_id, one]));
  const rows = [...new Map([...before, ...after]).values()].map((one) => ({
    token: one.token,
    was: before.get(one.token_id)?.probability,
    now: after.get(one.token_id)?.probability,
  }));
  const most = Math.max(...rows.map((one) => Math.max(one.was ?? 0, one.now ?? 0)), 1e-12);
  const bar = (share, kind) =>
    el("span", { class: `st-bar-${kind}`, style: { width: `${((share ?? 0) / most) * 100}%` } });
  rows.sort((a, b) => Math.max(b.was ?? 0, b.now ?? 0) - Math.max(a.was ?? 0, a.now ?? 0));
  return [
    el(
      "p",
      { class: "st-line" },
      page.words(
        request.params.chosen ? "without_score" : finding.position === null ? "without_bits" : "without_bits_at",
        {
          ...head,
          effect: number(Number(finding.effect[0][0])),
          token: finding.position === null ? "" : plain(textOf(finding.tokens[finding.position] ?? "")),
        },
      ),
    ),
    el(
      "table",
      { class: "st-change" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", {}, page.words("answer")),
          el("th", {}, page.words("with_head")),
          el("th", {}, page.words("without_head")),
          el("th", { "aria-hidden": "true" }),
        ),
      ),
      el(
        "tbody",
        {},
        rows
          .slice(0, 8)
          .map((one) =>
            el(
              "tr",
              {},
              el("td", {}, signed(one.token)),
              el("td", {}, one.was === undefined ? "–" : percent(one.was, 1)),
              el("td", {}, one.now === undefined ? "–" : percent(one.now, 1)),
              el("td", { class: "st-bars", "aria-hidden": "true" }, bar(one.was, "was"), bar(one.now, "now")),
            ),
          ),
      ),
    ),
  ];
}

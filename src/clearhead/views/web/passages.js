// Retrieved passages: which were looked up for a text, and which of their tokens were looked at to write a word.

import { el, rove } from "./dom.js";
import { figure } from "./figure.js";
import { chunkOf, folded, paint, passageText, source } from "./passage.js";
import * as scale from "./scale.js";
import { plain, textOf, visible } from "./tokens.js";

const FULL = 0.85; // the strongest ink lets the word be read

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** part: "attention" (what a word that is written looks at) or "encoder" (what a word of a passage is held against);
   *  token: the word that is written, a place in `rows`; piece: [passage, token]; layer, head, reader (a layer of the
   *  encoder): which one, "" for the mean of all */
  start: (finding) => ({
    part: "attention",
    token: telling(finding),
    piece: agreeing(finding),
    layer: "",
    head: "",
    reader: "",
  }),
  title: (c) =>
    c.state.part === "encoder" && c.finding.encoder
      ? c.words("passages_title_encoder", { token: plain(pieceOf(c).text) })
      : c.words("passages_title", { token: plain(textOf(tokenOf(c))) }),
  reading: (c) =>
    c.state.part === "encoder" && c.finding.encoder
      ? c.words("passages_reading_encoder")
      : [c.words("passages_reading"), c.words(c.finding.null ? "passages_null_reading" : "passages_all_reading")].join(
          c.lang === "zh" ? "" : " ",
        ),
  controls(c) {
    const { layers, weights, encoder } = c.finding;
    const all = ["", c.words("passages_mean")];
    const parts = ["attention", "encoder"].map((key) => [key, c.words(`passages_part_${key}`)]);
    const made = [];
    if (encoder && !c.options.part) made.push(c.group(c.words("view"), c.state.part, parts, (part) => c.set({ part })));
    if (c.state.part === "encoder" && encoder) {
      if (encoder.length > 1)
        made.push(
          c.choice(
            c.words("layer"),
            c.state.reader,
            [all, ...encoder.map((_, n) => [n, c.words("layer_n", { n })])],
            (reader) => c.set({ reader }),
          ),
        );
      return made;
    }
    if (layers.length > 1)
      made.push(
        c.choice(
          c.words("layer"),
          c.state.layer,
          [all, ...layers.map((layer, n) => [n, c.words("layer_n", { n: layer })])],
          (layer) => c.set({ layer }),
        ),
      );
    if (weights[0].length > 1)
      made.push(
        c.choice(
          c.words("head"),
          c.state.head,
          [all, ...weights[0].map((_, n) => [n, c.words("head_n", { n })])],
          (head) => c.set({ head }),
        ),
      );
    return made;
  },
  body: (c, box) => (c.state.part === "encoder" && c.finding.encoder ? reading : looking)(c, box),
  *table(finding) {
    yield ["position", "token", "chunk", "rank", "document", "score", "layer", "head", "share"];
    for (const [n, row] of finding.rows.entries())
      for (const one of finding.passages.filter((other) => other.chunk === chunkOf(finding, row)))
        for (const [l, layer] of finding.layers.entries())
          for (const [h, head] of finding.weights[l].entries())
            yield [
              row,
              textOf(finding.tokens[row]),
              one.chunk,
              one.rank,
              one.document,
              one.score,
              layer,
              h,
              sum(head[n][one.rank]),
            ];
  },
};

const sum = (row) => Array.from(row).reduce((a, b) => a + b, 0);
const at = (c) => Math.max(0, Math.min(c.state.token, c.finding.rows.length - 1));
const tokenOf = (c) => c.finding.tokens[c.finding.rows[at(c)]];
const pieceOf = (c) => {
  const [p, t] = c.state.piece;
  const one = c.finding.passages[p] ?? c.finding.passages[0];
  return one.tokens[Math.min(t, one.tokens.length - 1)];
};

/** The first word that was written; else the first that passages had a part in. */
function telling(finding) {
  const first = finding.rows.findIndex((row) => row >= finding.begin);
  return Math.max(0, first);
}

/** The first piece of a passage that the text says too; else the one that the first written word looked at most. */
function agreeing(finding) {
  const p = finding.passages.findIndex((one) => one.agrees.length);
  if (p >= 0) return [p, finding.passages[p].agrees[0][0]];
  const n = telling(finding);
  let best = [0, 0],
    most = 0;
  finding.passages.forEach((one, which) => {
    if (one.chunk !== chunkOf(finding, finding.rows[n])) return;
    one.tokens.forEach((_, t) => {
      const all = finding.weights.reduce((a, heads) => a + heads.reduce((b, rows) => b + rows[n][one.rank][t], 0), 0);
      if (all > most) [best, most] = [[which, t], all];
    });
  });
  return best;
}

const chosen = (all, which) => (which === "" ? all.map((_, n) => n) : [Number(which)]);

/** Of a written token: [passage][piece] and the null key's share, over the layers and heads that are looked at. */
function weightsOf(c, n) {
  const { weights, null: none } = c.finding;
  const layers = chosen(weights, c.state.layer),
    heads = chosen(weights[0], c.state.head);
  const count = layers.length * heads.length;
  const mean = weights[0][0][n].map((row) => new Float32Array(row.length));
  let nobody = 0;
  for (const l of layers)
    for (const h of heads) {
      weights[l][h][n].forEach((row, k) => {
        for (let t = 0; t < row.length; t++) mean[k][t] += row[t] / count;
      });
      nobody += none ? none[l][h][n] / count : 0;
    }
  return { mean, nobody };
}

// ---- what a word that is written looks at

function looking(c, box) {
  const { finding } = c;
  const places = new Map(finding.rows.map((row, n) => [row, n]));
  const text = folded(c, finding, (k) => ({
    class: [k < finding.begin ? "ch-faint" : "", places.get(k) === at(c) ? "ch-on" : ""].filter(Boolean).join(" "),
    ...(places.has(k) ? { role: "button", "data-pick": "", "aria-pressed": String(places.get(k) === at(c)) } : {}),
  }));
  const say = el("p", { class: "ch-say" }),
    shelf = el("div", { class: "ch-shelf" });
  let cards = [];
  let held = -1; // the chunk whose passages stand there

  function show(n) {
    const chunk = chunkOf(finding, finding.rows[n]);
    if (chunk !== held) {
      cards = shelve(c, chunk, text.marks);
      shelf.replaceChildren(...cards.map((card) => card.element));
      held = chunk;
    }
    const { mean, nobody } = weightsOf(c, n);
    const most = Math.max(1e-9, ...mean.map((row) => Math.max(...row)));
    const shares = cards.map(({ one }) => sum(mean[one.rank]));
    cards.forEach((card, k) => {
      card.share.textContent = scale.percent(shares[k]);
      card.bar.style.width = `${Math.min(1, shares[k]) * 100}%`;
      card.spans.forEach((span, t) => {
        paint(c, span, "q", (mean[card.one.rank][t] / most) * FULL);
        span.dataset.share = mean[card.one.rank][t];
      });
    });
    const token = plain(textOf(finding.tokens[finding.rows[n]]));
    const list = shares.map((share, k) => `${k + 1}: ${scale.percent(share)}`).join(", ");
    say.textContent =
      c.words("passages_say", { token, list }) +
      (finding.null ? ` ${c.words("passages_null", { share: scale.percent(nobody) })}` : "");
    end.textContent = scale.percent(most);
  }

  const buttons = finding.rows.map((row) => text.marks.get(row));
  const key = scale.legend(
    c.words("passages_scale"),
    scale.steps(8, (t) => scale.ink(c, "q", t * FULL)),
    ["0", "–"],
  );
  const end = key.querySelector(".ch-marks span:last-child");
  key.append(el("span", { class: "ch-agrees" }, c.words("passages_agree")));
  buttons.forEach((button, n) => {
    button.addEventListener("pointerenter", () => show(n));
    button.addEventListener("pointerleave", () => show(at(c)));
    button.addEventListener("click", () => c.set({ token: n }));
    c.tells(button, () => c.words("passages_tip", { token: visible(textOf(finding.tokens[finding.rows[n]])) }));
  });
  rove(buttons, { start: at(c), seen: show, pick: (token) => c.set({ token }), release: () => show(at(c)) });
  box.append(text.element, say, shelf, key);
  show(at(c));
  for (const [k, mark] of text.marks)
    if (!places.has(k))
      c.tells(mark, () => c.words("passages_too_early", { token: visible(textOf(finding.tokens[k])) }));
}

/** The passages of a chunk, each with its share of the attention. Pieces that the text says too are underlined, and
 *  light up together with their place there. */
function shelve(c, chunk, marks) {
  return c.finding.passages
    .filter((one) => one.chunk === chunk)
    .map((one) => {
      const says = new Map(); // piece → place in the text
      for (const [a, b, length] of one.agrees) for (let n = 0; n < length; n++) says.set(a + n, b + n);
      const { element, spans } = passageText(c, one, (t) => ({ class: says.has(t) ? "ch-agrees" : "" }));
      const bar = el("span", { class: "ch-bar", style: { background: "var(--q)" } }),
        share = el("span", { class: "ch-share" });
      spans.forEach((span, t) => {
        c.tells(
          span,
          () =>
            `${visible(textOf(one.tokens[t]))} · ${scale.percent(Number(span.dataset.share), 1)}` +
            (says.has(t) ? `\n${c.words("passages_agrees_tip")}` : ""),
        );
        const mark = marks.get(says.get(t));
        if (!mark) return;
        for (const [node, other] of [
          [span, mark],
          [mark, span],
        ]) {
          node.addEventListener("pointerenter", () => other.classList.add("ch-lit"));
          node.addEventListener("pointerleave", () => other.classList.remove("ch-lit"));
        }
      });
      const track = el("span", { class: "ch-track" }, bar);
      const card = el("div", { class: "ch-card" }, source(c, one, share, track), element);
      return { one, element: card, spans, share, bar };
    });
}

// ---- what a word of a passage is held against when the passage is read

function reading(c, box) {
  const { finding } = c;
  const { encoder, chunk_size, filler } = finding;
  const [p] = c.state.piece;
  const chunk = (finding.passages[p] ?? finding.passages[0]).chunk;
  const shown = finding.passages.map((one, n) => [one, n]).filter(([one]) => one.chunk === chunk);
  const text = folded(c, finding, (k) => ({
    class: Math.floor(k / chunk_size) === chunk ? "" : "ch-faint",
  }));
  const say = el("p", { class: "ch-say" });
  const layers = chosen(encoder, c.state.reader);
  const weights = ([one, t]) => {
    const row = new Float32Array(chunk_size);
    for (const l of layers) {
      const own = encoder[l][one.chunk][one.rank][t];
      for (let k = 0; k < chunk_size; k++) row[k] += own[k] / layers.length;
    }
    return row;
  };
  const show = (one, t) => {
    const row = weights([one, t]);
    const first = chunk * chunk_size;
    const real = Array.from(row).filter((_, k) => first + k >= filler);
    const most = Math.max(1e-9, ...real);
    for (const [k, mark] of text.marks) {
      const inside = k >= first && k < first + chunk_size;
      paint(c, mark, "enc", inside ? (row[k - first] / most) * FULL : 0);
      mark.dataset.share = inside ? row[k - first] : "";
    }
    const rest = chunk === 0 ? sum(row.subarray(0, filler)) : 0;
    say.textContent =
      c.words("passages_say_encoder", { token: plain(textOf(one.tokens[t])) }) +
      (rest ? ` ${c.words("passages_fill_share", { share: scale.percent(rest) })}` : "");
    end.textContent = scale.percent(most);
  };
  for (const mark of text.marks.values())
    c.tells(mark, () =>
      mark.dataset.share
        ? `${mark.textContent} · ${scale.percent(Number(mark.dataset.share), 1)}`
        : c.words("passages_other_chunk"),
    );
  const key = scale.legend(
    c.words("passages_scale_encoder"),
    scale.steps(8, (t) => scale.ink(c, "enc", t * FULL)),
    ["0", "–"],
  );
  const end = key.querySelector(".ch-marks span:last-child");
  const all = [];
  const cards = shown.map(([one, n]) => {
    const { element, spans } = passageText(c, one, (t) => ({
      class: n === c.state.piece[0] && t === c.state.piece[1] ? "ch-on" : "",
      role: "button",
      "data-at": `p${n}-${t}`,
      "data-pick": "",
    }));
    spans.forEach((span, t) => {
      span.addEventListener("pointerenter", () => show(one, t));
      span.addEventListener("pointerleave", back);
      span.addEventListener("click", () => c.set({ piece: [n, t] }));
      all.push([span, one, n, t]);
    });
    return el("div", { class: "ch-card" }, source(c, one), element);
  });
  function back() {
    const one = finding.passages[c.state.piece[0]] ?? finding.passages[0];
    show(one, Math.min(c.state.piece[1], one.tokens.length - 1));
  }
  rove(
    all.map(([span]) => span),
    {
      start: Math.max(
        0,
        all.findIndex(([, , n, t]) => n === c.state.piece[0] && t === c.state.piece[1]),
      ),
      seen: (n) => show(all[n][1], all[n][3]),
      pick: (n) => c.set({ piece: [all[n][2], all[n][3]] }),
      release: back,
    },
  );
  box.append(text.element, say, el("div", { class: "ch-shelf" }, cards), key);
  back();
}

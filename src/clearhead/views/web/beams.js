// A search as a growing tree: the texts that are followed, what was dropped on the way, what came to an end.

import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { short, visible } from "./tokens.js";

const LETTER = 7.9; // of 13 px monospace
const PACE = 800; // ms between two steps of the play

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** step: how far the tree has grown, answer: whose path is lit (its place in the ranking; null: the best so far) */
  start: (finding) => ({ step: finding.steps, answer: null }),
  title: (c) => c.words(c.finding.beams > 1 ? "beams_title" : "beams_title_greedy"),
  reading: (c) =>
    c.words(c.finding.beams > 1 ? "beams_reading" : "beams_reading_greedy", {
      beams: c.finding.beams,
      penalty: c.finding.length_penalty,
    }),
  body,
  *table(finding) {
    yield ["id", "parent", "step", "token", "token_id", "log_prob", "total", "status", "score", "rank"];
    for (const one of finding.nodes)
      yield [
        one.id,
        one.parent,
        one.step,
        one.token,
        one.token_id,
        one.log_prob,
        one.total,
        one.status,
        one.score,
        one.rank,
      ];
  },
};

function body(c, box) {
  const { steps, text, source, beams } = c.finding;
  if (source || text)
    box.append(el("p", { class: "ch-say ch-prompt" }, visibleText(source || text), source ? " →" : ""));
  const tree = grown(c),
    list = el("div", { class: "ch-part" });
  let step = Math.max(1, Math.min(steps, Number(c.state.step) || steps)),
    playing = null;

  const slider = el("input", {
    type: "range",
    min: 1,
    max: steps,
    step: 1,
    value: step,
    "data-at": "step",
    "aria-label": c.words("beams_step"),
  });
  const count = el("span", { class: "ch-count" });
  const play = el("button", { type: "button", class: "ch-link", "data-at": "play" });
  const show = (now) => {
    step = now;
    slider.value = now;
    slider.setAttribute("aria-valuetext", c.words("beams_step_of", { n: now, of: steps }));
    count.textContent = c.words("beams_step_of", { n: now, of: steps });
    tree.show(now, best(c, now, c.state.answer));
    list.replaceChildren(ranking(c, now, (path) => tree.show(now, path ?? best(c, now, c.state.answer))));
  };
  const stop = () => {
    clearInterval(playing);
    playing = null;
    play.textContent = c.words("beams_play");
  };
  const start = () => {
    play.textContent = c.words("beams_pause");
    show(step >= steps ? 1 : step);
    playing = setInterval(() => {
      if (!slider.isConnected) {
        clearInterval(playing);
        return;
      } // the figure was drawn anew
      if (step >= steps) {
        stop();
        c.set({ step: steps });
        return;
      }
      show(step + 1);
    }, PACE);
  };
  slider.addEventListener("input", () => {
    stop();
    show(Number(slider.value));
  });
  slider.addEventListener("change", () => c.set({ step: Number(slider.value) }));
  play.addEventListener("click", () => (playing ? stop() : start()));
  stop();
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches; // then the reader moves it
  const bar = el("div", { class: "ch-slide", "data-picture": "no" }, still ? "" : play, slider, count);
  box.append(...(steps > 1 ? [bar] : []), tree.element, legend(c, beams), list);
  show(step);
}

const visibleText = (text) => (text.length > 240 ? `…${text.slice(-240)}` : text);

/** The nodes from the first to this one. */
function pathTo(nodes, last) {
  const path = [];
  for (let n = last; n >= 0; n = nodes[n].parent) path.unshift(n);
  return path;
}

/** The path that is lit: the chosen answer's, else the winner's, else that of the likeliest text so far. */
function best(c, step, answer) {
  const { nodes, answers, steps } = c.finding;
  if (step >= steps) return answers[answer ?? 0]?.nodes ?? [];
  const live = nodes.filter((node) => node.step === step && node.status !== "dropped");
  live.sort((a, b) => b.total - a.total);
  return live.length ? pathTo(nodes, live[0].id) : [];
}

/** The drawing: a column for each step, its candidates from the likeliest down, joined to what they go on from. */
function grown(c) {
  const { nodes, steps } = c.finding;
  const columns = Array.from({ length: steps + 1 }, () => []);
  nodes.forEach((node) => columns[node.step].push(node));
  const rows = Math.max(...columns.map((column) => column.length));
  const pitch = 30,
    top = 20;
  const wide = columns.map((column) =>
    Math.max(44, Math.min(132, Math.max(0, ...column.map((node) => [...visible(node.token)].length)) * LETTER + 16)),
  );
  wide[0] = 14;
  const share = Math.max(26, Math.min(90, (c.width - wide.reduce((a, b) => a + b, 0)) / steps)); // room for the lines
  const left = [];
  columns.forEach((_, n) => {
    left[n] = n ? left[n - 1] + wide[n - 1] + share : 0;
  });
  const [W, H] = [left[steps] + wide[steps] + 4, top + rows * pitch + 6];
  const parents = new Set(nodes.map((node) => node.parent));
  const place = new Map();
  columns.forEach((column, step) =>
    column.forEach((node, row) =>
      place.set(node.id, { x: left[step], y: top + row * pitch + pitch / 2, w: wide[step] }),
    ),
  );
  const root = { x: left[0], y: top + (rows * pitch) / 2, w: wide[0] };

  const lines = svg("g", { class: "ch-lines" }),
    marks = svg("g");
  const paths = nodes.map((node) => {
    const from = node.parent < 0 ? root : place.get(node.parent),
      to = place.get(node.id);
    const [x, z] = [from.x + from.w, to.x];
    return svg("path", { d: `M${x} ${from.y}C${(x + z) / 2} ${from.y} ${(x + z) / 2} ${to.y} ${z} ${to.y}` });
  });
  lines.append(...paths);
  const groups = nodes.map((node) => {
    const { x, y, w } = place.get(node.id);
    const ends = node.status === "finished";
    const box = svg("rect", { class: "ch-hit", x, y: y - 11, width: w, height: 22, rx: 3 });
    const word = svg(
      "text",
      { x: x + w / 2, y: y + 4.5, "text-anchor": "middle" },
      short(visible(node.token), Math.floor((w - 8) / LETTER)),
    );
    const end = ends
      ? svg("line", { x1: x + w + 2, x2: x + w + 2, y1: y - 9, y2: y + 9, stroke: "var(--enc)", "stroke-width": 4 })
      : null;
    const group = svg(
      "g",
      { class: "ch-node", "data-at": `n${node.id}`, role: "img", "aria-label": tell(c, node) },
      box,
      word,
      end,
    );
    return c.tells(group, () => tell(c, node));
  });
  marks.append(...groups);
  const heads = columns
    .slice(1)
    .map((_, n) =>
      svg("text", { class: "ch-dim", x: left[n + 1] + wide[n + 1] / 2, y: 10, "text-anchor": "middle" }, n + 1),
    );
  const drawing = svg(
    "svg",
    { width: W, height: H, role: "group", "aria-label": c.words("beams_title") },
    heads,
    lines,
    marks,
    svg("circle", { cx: 7, cy: root.y, r: 4.5, fill: "var(--ink)" }),
  );
  const element = el("div", { class: "ch-scroll ch-wide" }, drawing);
  const shares = nodes.map((node) => Math.exp(node.log_prob));
  rove(groups, { start: 0 });
  const show = (step, path) => {
    const lit = new Set(path);
    nodes.forEach((node, n) => {
      const there = node.step <= step;
      const gone =
        node.status === "dropped" ||
        node.status === "stopped" ||
        (node.step < step && node.status === "live" && !parents.has(node.id));
      for (const mark of [groups[n], paths[n]]) mark.style.display = there ? "" : "none";
      groups[n].classList.toggle("ch-gone", gone);
      groups[n].classList.toggle("ch-best", lit.has(node.id));
      paths[n].setAttribute("stroke", lit.has(node.id) ? "var(--accent)" : gone ? "var(--hair)" : "var(--soft)");
      paths[n].setAttribute("stroke-width", lit.has(node.id) ? 3.5 : (0.8 + 2 * shares[n]).toFixed(2));
      if (lit.has(node.id)) lines.append(paths[n]); // above the others
    });
    heads.forEach((head, n) => {
      head.style.display = n < step ? "" : "none";
    });
    const edge = left[step] + wide[step];
    if (edge > element.clientWidth + element.scrollLeft || edge < element.scrollLeft)
      element.scrollLeft = Math.max(0, edge - element.clientWidth + 40);
  };
  return { element, show };
}

function tell(c, node) {
  const words = [
    `${visible(node.token)} · ${scale.percent(Math.exp(node.log_prob), 1)} · ${c.words("log_prob")} ` +
      `${scale.number(node.log_prob)}`,
    `${c.words("beams_total")} ${scale.number(node.total)}`,
    c.words(`beams_${node.status}`),
  ];
  if (scale.isNumber(node.score)) words.push(`${c.words("score")} ${scale.number(node.score)}`);
  return words.join("\n");
}

/** The texts at this step: those that go on and those that have ended; at the end, the answers. */
function ranking(c, step, seen) {
  const { nodes, answers, steps } = c.finding;
  const over = step >= steps;
  const textOf = (path) => path.map((n) => nodes[n].token).join("");
  const rows = over
    ? answers.map((one, n) => ({
        key: n,
        path: one.nodes,
        text: one.text || textOf(one.nodes),
        total: one.total,
        score: one.score,
        length: one.nodes.length,
        ended: true,
      }))
    : nodes
        .filter((node) =>
          node.status === "finished" ? node.step <= step : node.step === step && node.status !== "dropped",
        )
        .map((node) => ({
          path: pathTo(nodes, node.id),
          total: node.total,
          score: node.score,
          ended: node.status === "finished",
        }))
        .map((row) => ({ ...row, text: textOf(row.path), length: row.path.length }));
  const scored = c.finding.beams > 1,
    wide = c.width >= 480;
  const head = el(
    "tr",
    {},
    el("th", {}, c.words(over ? "beams_answers" : "beams_followed")),
    el("th", {}, c.words("log_prob")),
    wide && el("th", {}, c.words("beams_length")),
    scored ? el("th", {}, c.words("score")) : "",
  );
  const lines = rows.map((row) => {
    const on = over && scored && (c.state.answer ?? 0) === row.key;
    const name = el(
      over && scored ? "button" : "span",
      {
        type: over && scored ? "button" : null,
        class: "ch-text",
        "data-at": over ? `answer${row.key}` : null,
        "aria-pressed": over && scored ? String(on) : null,
        onclick: over && scored ? () => c.set({ answer: row.key }) : undefined,
      },
      over ? row.text : visible(row.text).replaceAll("␣", " ").trim(),
    );
    const line = el(
      "tr",
      { class: on ? "ch-on-row" : "" },
      el("td", {}, name, row.ended && !over ? el("span", { class: "ch-badge" }, c.words("beams_ended")) : ""),
      el("td", {}, scale.number(row.total)),
      wide && el("td", {}, row.length),
      scored ? el("td", {}, scale.isNumber(row.score) ? scale.number(row.score) : "–") : "",
    );
    line.addEventListener("pointerenter", () => seen(row.path));
    line.addEventListener("pointerleave", () => seen(null));
    return line;
  });
  return el(
    "div",
    { style: { "overflow-x": "auto" } },
    el("table", { class: "ch-table ch-texts" }, el("thead", {}, head), el("tbody", {}, lines)),
  );
}

const legend = (c, beams) =>
  el(
    "div",
    { class: "ch-keys ch-legend" },
    el(
      "span",
      {},
      el("i", { style: { background: "var(--accent)", height: "4px", "vertical-align": "3px", width: "18px" } }),
      c.words(beams > 1 ? "beams_key_best" : "beams_key_taken"),
    ),
    el("span", { class: "ch-gone-key" }, c.words("beams_key_dropped")),
    el("span", {}, el("i", { style: { background: "var(--enc)", width: "4px" } }), c.words("beams_key_ended")),
  );

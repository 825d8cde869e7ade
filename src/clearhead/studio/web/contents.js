// The first page: what this is, a figure that answers at once, and what there is to read and to try.

import { el } from "/static/views/dom.js";
import { all, inputBar } from "./chapter.js";
import { live } from "./live.js";
import { sample } from "./words.js";

const PAUSE = 450; // milliseconds after the last key

/** The figure at the top, by what kind of model there is: the first that fits. */
const FIRST = [
  { question: "attention", task: "seq2seq-lm", params: { side: "cross", words: true } },
  { question: "next-token", task: "causal-lm", params: { k: 8 } },
  { question: "attention", task: null, params: {} },
];

export async function show(main, page) {
  main.classList.add("st-article", "st-contents");
  const trained = page.models.filter((one) => one.trained);
  const first = FIRST.find((one) => trained.some((model) => model.task === one.task)) ?? FIRST[2];
  const fitting = first.task ? trained.filter((one) => one.task === first.task) : page.models;
  let card = fitting[0],
    typed = null,
    timer = null;
  const reader = () => ({ text: typed ?? (card ? sample(first, card) : ""), model: card?.name, lang: page.lang });
  const spec = () => ({ model: card.name, question: first.question, text: reader().text, params: first.params });

  const heading = el("h1"),
    lede = el("p", { class: "st-lede" }),
    host = el("div", { class: "st-wide" });
  const bar = inputBar({}, page, {
    reader,
    fitting,
    set(change, now) {
      if ("text" in change) typed = change.text;
      if ("model" in change) card = fitting.find((one) => one.name === change.model);
      clearTimeout(timer);
      timer = setTimeout(() => figure.update(spec()), now ? 0 : PAUSE);
    },
  });
  bar.element.classList.add("st-still");
  const chaptersTitle = el("h2"),
    list = el("ol", { class: "st-contents-list" }),
    tools = el("h2"),
    rest = el("ul", { class: "st-contents-list" });
  main.append(el("header", {}, heading, lede), card ? bar.element : "", host, chaptersTitle, list, tools, rest);
  const figure = card ? live(host, spec(), page) : null;
  const chapters = await all(page);

  const entry = (href, sign, title, about) =>
    el(
      "li",
      {},
      el(
        "a",
        { href },
        el("span", { class: "st-number", "aria-hidden": "true" }, sign),
        el("span", {}, el("b", {}, title), el("span", { class: "st-about" }, about)),
      ),
    );

  function dress() {
    document.title = "Clearhead";
    heading.textContent = page.words("contents_title");
    lede.textContent = page.words("lede");
    chaptersTitle.textContent = page.words("nav_chapters");
    tools.textContent = page.words("tools");
    if (card) bar.dress();
    list.replaceChildren(
      ...chapters.map((one, n) =>
        entry(`/chapters/${one.slug}`, String(n + 1), one.title[page.lang], one.about[page.lang]),
      ),
    );
    if (!chapters.length) list.replaceChildren(el("li", { class: "st-line" }, page.words("no_chapters")));
    rest.replaceChildren(
      entry("/lab", "→", page.words("nav_lab"), page.words("lab_about")),
      entry("/runs", "→", page.words("nav_runs"), page.words("runs_about")),
    );
  }
  page.onChange(dress);
  dress();
}

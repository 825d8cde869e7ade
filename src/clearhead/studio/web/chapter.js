// A chapter on the page: prose and live figures on the reader's own sentence.
//
// One module for each chapter, chapters/<slug>.js, which says what stands there and draws nothing itself:
//
//   export const chapter = {
//     slug, title: {en, zh}, about: {en, zh},                about: one line for the contents page, and the lede
//     needs: ["name", …],                                    optional: models that it is about; without them it is not
//                                                              listed, and says so where its address is opened
//     needsFamily: "name",                                   optional: any model of this family is as good
//     needsStores: ["name", …],                              optional: the same for stores of passages; any is as good
//     input: {
//       text: {en, zh} | string,                             the sentence that stands there first
//       second: {en, zh} | string,                           optional: a second sentence
//       model: "name",                                       the model it is meant for; else the first that fits
//       models: (model) => boolean,                          which models of /api/state the reader may choose
//     },
//     parts: [
//       {text: {en, zh} | (reader) => {en, zh}},             prose, in the markup below
//       {figure: (reader) => spec | null},                   a live figure (live.js: {model, question, text, second,
//                                                              params, title, read, state}); model, text and second
//                                                              are the reader's where they are left out; null shows
//                                                              nothing; narrow: true keeps it to the column of text
//       {control: {name, kind, label: {en, zh}, value, …}},  a value the reader sets, found again as reader[name]:
//                                                              kind "range" {low, high, step}, "choice" {choices:
//                                                              [[value, {en, zh} | string], …], or (reader) => such
//                                                              a list}, "text", "lines"
//                                                              (a text of several), "switch"; a value may be
//                                                              (reader) => value, until the reader sets one;
//                                                              resets: ["name", …] takes such values back;
//                                                              when: (reader) => boolean hides it
//       {write: (reader) => {text, options}},                a text that the model writes, streamed, with cancel
//       {code: "python" | (reader) => string},               lines of Python, with a button that copies them
//       {custom: (host, page, reader) => {update(reader), destroy()}},   anything else, drawn by the chapter
//     ],
//   };
//
// `reader` = {text, second, model, lang, card, models, stores, …values of the controls, set(change)}: `card` is the
// model's entry of /api/state; reader.set({text: "…"}) does what the reader could do, say from a hook of a figure
// (live.js). Every part is a function of the reader; a figure is asked for again only when its spec changes, half a
// second after the last key.
//
// Markup of prose: paragraphs are parted by an empty line; "## " begins a heading, "- " an item of a list; *emphasis*,
// **strong**, `code`, [words](/lab or https://…), and words in a colour that means something: {q:query} {k:key}
// {v:value} {enc:…} {dec:…}. Nothing else is markup, and nothing is ever read as HTML.

import { el } from "/static/views/dom.js";
import { generate, isCancelled, Trouble } from "./api.js";
import { choose } from "./choose.js";
import { grows } from "./fields.js";
import { live, troubleWords } from "./live.js";

/** In their order. */
export const SLUGS = ["words", "bottleneck", "attention", "transformer", "bert", "gpt2", "library", "why", "layers"];
const PAUSE = 450; // milliseconds after the last key

/** The chapter behind a slug. */
export async function load(slug) {
  if (!SLUGS.includes(slug)) throw new Trouble(slug, { key: "no_page" });
  return (await import(`./chapters/${slug}.js`)).chapter;
}

/** All chapters that are there and whose models are, in their order. */
export async function all(page) {
  const loaded = await Promise.allSettled(SLUGS.map(load));
  return loaded
    .filter((one) => one.status === "fulfilled")
    .map((one) => one.value)
    .filter((one) => !missing(one, page).length);
}

/** The models and stores that a chapter is about and that are not here. */
const missing = (chapter, page) => [
  ...(chapter.needs ?? []).filter(
    (name) => !page.models.some((model) => model.name === name || model.family === chapter.needsFamily),
  ),
  ...(page.stores.length ? [] : (chapter.needsStores ?? [])),
];

export async function show(main, page, slug) {
  const chapter = await load(slug);
  const others = await all(page);
  const lacking = missing(chapter, page);
  if (lacking.length) {
    apologise(main, page, chapter, lacking);
    return;
  }
  const fitting = page.models.filter(chapter.input?.models ?? (() => true));
  const query = new URLSearchParams(location.search);
  const first = (value) => (typeof value === "string" ? value : (value?.[page.lang] ?? value?.en ?? ""));
  const named =
    fitting.find((one) => one.name === query.get("model")) ?? choose(fitting, chapter.input?.model) ?? fitting[0];
  // null: the sentence of the chapter, in the page's language
  const typed = { text: query.get("text"), second: query.get("second") };
  const values = Object.fromEntries(
    chapter.parts.filter((part) => part.control).map(({ control }) => [control.name, control.value]),
  );
  const given = { ...values }; // as the chapter has them; a function says what a value is until one is set
  let card = named;
  const reader = () => ({
    ...Object.fromEntries(
      Object.entries(values).map(([name, value]) => [
        name,
        typeof value === "function" ? value({ ...values, stores: page.stores }) : value,
      ]),
    ),
    text: typed.text ?? first(chapter.input?.text),
    second: typed.second ?? first(chapter.input?.second),
    model: card?.name,
    card,
    models: page.models,
    stores: page.stores,
    lang: page.lang,
    set: (change) => {
      set(change, true);
      bar.dress();
    },
  });

  const heading = el("h1"),
    kicker = el("p", { class: "st-kicker" }),
    lede = el("p", { class: "st-lede" });
  const bar = inputBar(chapter, page, { reader, fitting, set });
  const parts = chapter.parts.map((part) => ({ part, ...drawn(part) }));
  const foot = el("nav", { class: "st-turn" });
  main.classList.add("st-article");
  const none = el("p", { class: "st-line st-error", hidden: Boolean(card) });
  main.append(el("header", {}, kicker, heading, lede), bar.element, none, ...parts.map((one) => one.element), foot);

  let timer = null;
  function set(change, now = false) {
    if ("model" in change) card = page.models.find((one) => one.name === change.model) ?? card;
    if ("text" in change) typed.text = change.text;
    if ("second" in change) typed.second = change.second;
    for (const name of Object.keys(values)) if (name in change) values[name] = change[name];
    clearTimeout(timer);
    timer = setTimeout(
      () => {
        keep();
        update();
      },
      now ? 0 : PAUSE,
    );
  }

  /** What the reader typed stands in the address, so that a copied link shows the same page. */
  function keep() {
    const words = new URLSearchParams(location.search);
    for (const name of ["text", "second"])
      if (typed[name] === null) words.delete(name);
      else words.set(name, typed[name]);
    if (card && card !== named) words.set("model", card.name);
    history.replaceState(null, "", `${location.pathname}${words.size ? `?${words}` : ""}${location.hash}`);
  }

  function update() {
    const now = reader();
    for (const one of parts) one.update(now);
  }

  function dress() {
    kicker.textContent = page.words("chapter_n", { n: 1 + others.indexOf(chapter) });
    heading.textContent = first(chapter.title);
    lede.textContent = first(chapter.about);
    document.title = `${first(chapter.title)} · Clearhead`;
    none.textContent = page.words("no_model_fits");
    bar.dress();
    const at = others.findIndex((one) => one.slug === chapter.slug);
    const link = (to, key) =>
      to
        ? el(
            "a",
            { href: page.link(`/chapters/${to.slug}`), rel: key },
            el("small", {}, page.words(key)),
            first(to.title),
          )
        : el("span");
    foot.replaceChildren(link(others[at - 1], "previous"), link(others[at + 1], "next"));
    update();
  }

  /** One part: {element, update(reader)}. */
  function drawn(part) {
    if (part.text) {
      const element = el("div", { class: "st-prose" });
      return {
        element,
        update: (now) =>
          element.replaceChildren(...prose(first(typeof part.text === "function" ? part.text(now) : part.text))),
      };
    }
    if (part.figure) return figurePart(part);
    if (part.control) {
      const { name, kind, resets = [] } = part.control;
      const back = () => Object.fromEntries(resets.map((one) => [one, given[one]]));
      return control(
        part.control,
        (value) => set({ ...back(), [name]: value }, !["text", "lines"].includes(kind)),
        first,
        reader,
      );
    }
    if (part.write) return writePart(part);
    if (part.code) {
      const code = codeBlock(page, part.lang);
      return {
        element: code.element,
        update: (now) => code.say(typeof part.code === "function" ? part.code(now) : part.code),
      };
    }
    const element = el("div", { class: "st-wide" });
    let made = null;
    const update = (now) => {
      if (made) made.update?.(now);
      else made = part.custom(element, page, now);
    };
    return { element, update };
  }

  function figurePart(part) {
    const element = el("div", { class: part.narrow ? "st-narrow" : "st-wide" });
    let figure = null;
    return {
      element,
      update(now) {
        const spec = part.figure(now);
        const asks = Boolean(spec && (spec.model ?? now.model));
        element.hidden = !asks;
        if (!asks) {
          figure?.destroy();
          figure = null;
          return;
        }
        const whole = {
          second: undefined,
          params: {},
          title: undefined,
          read: undefined,
          ...spec,
          model: spec.model ?? now.model,
          text: spec.text ?? now.text,
        };
        if (figure) figure.update(whole);
        else figure = live(element, whole, page);
      },
    };
  }

  function writePart(part) {
    const element = el("div", { class: "st-workspace" });
    const writing = writer(page);
    element.append(writing.element);
    return {
      element,
      update(now) {
        const spec = part.write(now) ?? {};
        element.hidden = !(spec.model ?? now.model);
        writing.update({ model: spec.model ?? now.model, text: spec.text ?? now.text, options: spec.options ?? {} });
      },
    };
  }

  page.onChange(dress);
  dress();
}

/** A chapter whose models are not here: what it would be about, and what is missing. */
function apologise(main, page, chapter, lacking) {
  const heading = el("h1"),
    lede = el("p", { class: "st-lede" }),
    line = el("p", { class: "st-line st-error" });
  main.classList.add("st-article");
  main.append(el("header", {}, heading, lede), line);
  const dress = () => {
    heading.textContent = chapter.title[page.lang];
    lede.textContent = chapter.about[page.lang];
    document.title = `${chapter.title[page.lang]} · Clearhead`;
    line.textContent = page.words("chapter_needs", { models: lacking.join(", ") });
  };
  page.onChange(dress);
  dress();
}

// ---- the reader's sentence, typed once

export function inputBar(chapter, page, { reader, fitting, set }) {
  const text = el("textarea", { rows: "1", spellcheck: "false", name: "text" });
  const second = chapter.input?.second ? el("textarea", { rows: "1", spellcheck: "false", name: "second" }) : null;
  const models = el(
    "select",
    { name: "model", onchange: () => set({ model: models.value }, true) },
    fitting.map((one) => el("option", { value: one.name }, one.name)),
  );
  const fit = [text, second].filter(Boolean).map((area) => grows(area, 120));
  for (const [area, name] of [
    [text, "text"],
    [second, "second"],
  ]) {
    area?.addEventListener("input", () => set({ [name]: area.value }));
    area?.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        set({ [name]: area.value }, true);
      }
    });
  }
  const label = el("label", {}),
    labelSecond = el("label", {}),
    labelModel = el("label", { class: "st-bar-model" });
  label.append(el("span", {}), text);
  if (second) labelSecond.append(el("span", {}), second);
  labelModel.append(el("span", {}), models);
  const element = el(
    "form",
    { class: "st-bar", onsubmit: (event) => event.preventDefault() },
    label,
    second ? labelSecond : "",
    labelModel,
  );
  return {
    element,
    dress() {
      const now = reader();
      label.firstChild.textContent = page.words("your_sentence");
      if (second) {
        labelSecond.firstChild.textContent = page.words("second_sentence");
        if (second.value !== now.second) second.value = now.second;
      }
      labelModel.firstChild.textContent = page.words("model");
      labelModel.hidden = fitting.length < 2;
      if (text.value !== now.text) text.value = now.text;
      models.value = now.model;
      fit.forEach((one) => one());
    },
  };
}

function control(spec, give, first, reader) {
  let typed; // what the reader set last
  const choices = typeof spec.choices === "function" ? spec.choices(reader()) : spec.choices;
  const set = (value) => {
    typed = value;
    give(value);
  };
  const name = el("span", { class: "st-control-name" }),
    shown = el("output", {});
  let field;
  if (spec.kind === "range")
    field = el("input", {
      type: "range",
      min: spec.low,
      max: spec.high,
      step: spec.step ?? 1,
      oninput: () => {
        shown.textContent = field.value;
        set(Number(field.value));
      },
    });
  else if (spec.kind === "choice")
    field = el(
      "select",
      { onchange: () => set(choices[field.selectedIndex][0]) },
      choices.map(([value]) => el("option", { value })),
    );
  else if (spec.kind === "switch") field = el("input", { type: "checkbox", onchange: () => set(field.checked) });
  else if (spec.kind === "lines")
    field = el("textarea", { rows: "3", spellcheck: "false", oninput: () => set(field.value) });
  else field = el("input", { type: "text", spellcheck: "false", oninput: () => set(field.value) });
  if (spec.kind === "switch") field.checked = Boolean(spec.value);
  else field.value = reader()[spec.name];
  const fit = spec.kind === "lines" ? grows(field, 320) : () => {};
  const element = el("label", { class: `st-control st-${spec.kind}` }, name, field, shown);
  return {
    element,
    update(now) {
      name.textContent = first(spec.label);
      element.hidden = spec.when ? !spec.when(now) : false;
      if (document.activeElement !== field || now[spec.name] !== typed) {
        if (spec.kind === "switch") field.checked = Boolean(now[spec.name]);
        else field.value = now[spec.name];
        fit();
      }
      if (spec.kind === "range") shown.textContent = field.value;
      if (spec.kind === "choice")
        choices.forEach(([value, words], n) => {
          field.options[n].textContent = words === undefined ? value : first(words);
          field.options[n].selected = value === now[spec.name];
        });
    },
  };
}

// ---- text that a model writes

/** A box in which a model's text appears token by token. {element, update(request), start(), stop()} */
export function writer(page) {
  const text = el("p", { class: "st-written", "aria-live": "polite" }),
    line = el("div", { class: "st-line" });
  const element = el("div", { class: "st-writer" }, text, line);
  let request = null,
    running = null;

  // a text of its own, and no continuation
  const answers = () => /^seq2seq/.test(page.models.find((one) => one.name === request.model)?.task ?? "");
  const prompt = () => [el("span", { class: "st-prompt" }, request.text), answers() ? el("br") : ""];
  const idle = (words) =>
    line.replaceChildren(
      words ? el("span", {}, words) : "",
      el("button", { type: "button", class: "st-button", onclick: start }, page.words("write")),
    );

  async function start() {
    stop();
    const mine = new AbortController();
    running = mine;
    text.replaceChildren(...prompt());
    line.replaceChildren(
      el("span", { class: "st-thinking" }, page.words("writing")),
      el("button", { type: "button", class: "ch-link", onclick: stop }, page.words("cancel")),
    );
    line.classList.remove("st-error");
    const began = performance.now();
    let count = 0;
    try {
      for await (const event of generate(request, mine.signal)) {
        if (event.event === "token") {
          text.append(event.text);
          count += 1;
        }
      }
      idle(page.words("written_n", { n: count, s: ((performance.now() - began) / 1000).toFixed(1) }));
    } catch (error) {
      if (isCancelled(error)) {
        if (mine === running) idle(page.words("cancelled"));
        return;
      }
      idle(troubleWords(page, error));
      line.classList.add("st-error");
    } finally {
      if (mine === running) running = null;
    }
  }

  function stop() {
    running?.abort();
  }

  return {
    element,
    start,
    stop,
    written: () => text.textContent,
    update(next) {
      if (JSON.stringify(next) === JSON.stringify(request)) {
        if (!running) idle("");
        return;
      }
      stop();
      running = null;
      request = next;
      text.replaceChildren(...prompt());
      idle("");
    },
  };
}

// ---- prose and code

/** Lines of Python with a button that copies them. */
export function codeBlock(page) {
  const code = el("code", {});
  const button = el("button", {
    type: "button",
    class: "ch-link",
    onclick: async () => {
      await navigator.clipboard.writeText(code.textContent).catch(() => {});
      button.textContent = page.words("copied");
      setTimeout(() => {
        button.textContent = page.words("copy");
      }, 1600);
    },
  });
  const element = el("div", { class: "st-code" }, el("pre", { tabindex: "0" }, code), button);
  return {
    element,
    say(text) {
      code.textContent = text.trim();
      button.textContent = page.words("copy");
    },
  };
}

export function prose(text) {
  const nodes = [];
  for (const part of text.trim().split(/\n\s*\n/)) {
    const lines = part.split("\n").map((one) => one.trim());
    if (lines[0].startsWith("## ")) {
      nodes.push(el("h2", {}, inline(lines[0].slice(3))));
      if (lines.length > 1) nodes.push(el("p", {}, inline(joined(lines.slice(1)))));
    } else if (lines[0].startsWith("- ")) {
      const items = lines.join("\n").slice(2).split("\n- ");
      nodes.push(el("ul", {}, ...items.map((item) => el("li", {}, inline(joined(item.split("\n")))))));
    } else nodes.push(el("p", {}, inline(joined(lines))));
  }
  return nodes;
}

/** Lines as one: Chinese has no space between them. */
const joined = (lines) =>
  lines.join(" ").replace(/([\u3000-\u9fff\uff00-\uffef]) (?=(?:\*+|\{\w+:)?[\u3000-\u9fff\uff00-\uffef])/g, "$1");

const MARKS =
  /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]+)\]\(((?:\/|#|https:\/\/)[^)\s]*)\)|\{(q|k|v|enc|dec):([^}]+)\}/g;

export function inline(text) {
  const nodes = [];
  let at = 0;
  for (const mark of text.matchAll(MARKS)) {
    nodes.push(text.slice(at, mark.index));
    at = mark.index + mark[0].length;
    const [, code, strong, soft, words, href, colour, coloured] = mark;
    if (code) nodes.push(el("code", {}, code));
    else if (strong) nodes.push(el("strong", {}, inline(strong)));
    else if (soft) nodes.push(el("em", {}, inline(soft)));
    else if (words) nodes.push(el("a", { href }, inline(words)));
    else nodes.push(el("b", { class: `st-${colour}` }, coloured));
  }
  nodes.push(text.slice(at));
  return nodes.filter(Boolean);
}

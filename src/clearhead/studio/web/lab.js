// The lab: a model, a text, a question. All that is chosen stands in the address.

import { el } from "/static/views/dom.js";
import { unpack } from "/static/views/numbers.js";
import { overlay } from "/static/views/overlay.js";
import { extent } from "/static/views/scale.js";
import { getModel } from "./api.js";
import { writer } from "./chapter.js";
import { fieldFor, grows } from "./fields.js";
import { continued, headPanel } from "./heads.js";
import { live, STAYS, troubleWords } from "./live.js";
import { address, stateOf } from "./state.js";
import { sample } from "./words.js";

const PAUSE = 450; // milliseconds after the last key
const NEEDS_TWO = ["next-sentence", "question-answering"]; // tasks that read two texts
const ONE_TEXT = /causal|seq2seq/; // tasks that do not
const SHOWN = 4; // parameters; more of them are folded away
const TYPING = 3000; // what is typed within so many milliseconds is one step back

export async function show(main, page) {
  main.classList.add("st-lab");
  /** In the reader's language. Letting it write is no finding but a text, streamed: it stands among the questions. */
  const questions = () => {
    const chinese = page.lang === "zh" ? page.zh : null;
    return [...overlay(page.questions, chinese?.questions), overlay(page.write, chinese?.write)];
  };
  const byName = new Map(questions().map((one) => [one.name, one]));
  const preferred =
    page.models.find((one) => one.loaded && one.trained) ?? page.models.find((one) => one.trained) ?? page.models[0];
  if (!preferred) {
    main.append(el("p", { class: "st-alone" }, page.words("no_models")));
    return;
  }

  let state = complete(stateOf(location));
  let about = null; // what the server says of the model
  let columns = []; // {host, figure | writing, head}
  let seconds = null;

  function complete(fromAddress) {
    return {
      ...fromAddress,
      model: fromAddress.model ?? preferred.name,
      question: byName.has(fromAddress.question) ? fromAddress.question : "attention",
    };
  }
  const question = () => questions().find((one) => one.name === state.question);
  const card = () =>
    about?.name === state.model
      ? about
      : (page.models.find((one) => one.name === state.model) ?? { name: state.model, source: "hub" });
  /** A question about two texts begins with two, as long as neither was typed. */
  const secondText = () =>
    state.second ??
    (state.text === undefined && (question().second === "needed" || NEEDS_TWO.includes(card().task))
      ? sample(question(), card(), true)
      : undefined);
  const text = () => state.text ?? sample(question(), card());

  // ---- the parts of the page, made once

  const models = el("select", {
    id: "model",
    onchange: () => (models.value === "" ? hubField() : choose({ model: models.value })),
  });
  const hub = el("input", {
    type: "text",
    hidden: true,
    spellcheck: "false",
    onchange: () => hub.value.trim() && choose({ model: hub.value.trim() }),
  });
  const facts = el("p", { class: "st-facts" });
  const area = textField("text", (value) => typed({ text: value }));
  const second = textField("second", (value) => typed({ second: value }));
  const other = textField("other-text", (value) => typed({ other: value }));
  const otherModel = el("select", { id: "other-model", onchange: () => choose({ other: otherModel.value }) });
  const against = el("select", {
    id: "against",
    onchange: () =>
      choose({
        vs: against.value || undefined,
        other: against.value === "model" ? rival() : against.value === "text" ? text() : undefined,
      }),
  });
  const names = Object.fromEntries(["model", "text", "second", "against", "other"].map((name) => [name, el("span")]));
  const labels = {
    model: el("label", { class: "st-field" }, names.model, models, hub),
    text: el("label", { class: "st-field st-text" }, names.text, area),
    second: el("label", { class: "st-field st-text" }, names.second, second),
    against: el("label", { class: "st-field" }, names.against, against),
    other: el("label", { class: "st-field st-text" }, names.other, other, otherModel),
  };
  const addSecond = el("button", {
    type: "button",
    class: "ch-link",
    onclick: () => {
      labels.second.hidden = false;
      addSecond.hidden = true;
      second.focus();
    },
  });
  const link = el("button", {
    type: "button",
    class: "ch-link",
    onclick: async () => {
      await navigator.clipboard.writeText(location.href).catch(() => {});
      link.textContent = page.words("copied");
      setTimeout(() => {
        link.textContent = page.words("copy_link");
      }, 1600);
    },
  });
  const params = el("form", { class: "st-params", onsubmit: (event) => event.preventDefault() }),
    help = el("p", { class: "st-help", "aria-live": "polite" });
  const current = el("button", {
    type: "button",
    class: "st-current",
    "aria-controls": "questions",
    onclick: () => {
      const open = list.classList.toggle("st-open");
      current.setAttribute("aria-expanded", String(open));
    },
  });
  const list = el("div", { id: "questions", class: "st-list" }),
    aside = el("aside", {}, current, list);
  const heading = el("h1", { class: "st-title" }),
    summary = el("p", { class: "st-summary" });
  const results = el("section", { class: "st-results" });
  main.append(
    aside,
    el(
      "div",
      { class: "st-workspace" },
      el("div", { class: "st-row" }, labels.model, labels.against, link),
      facts,
      labels.text,
      addSecond,
      labels.second,
      labels.other,
      el("header", {}, heading, summary),
      params,
      help,
      results,
    ),
  );

  // ---- what changes

  let timer = null,
    lastTyped = 0;

  /** One step: it can be gone back from. */
  function choose(change, push = true) {
    clearTimeout(timer);
    const fresh = change.model !== undefined || change.question !== undefined;
    if (fresh)
      change = { params: keptParams(change.question ?? state.question), without: undefined, ...change, state: {} };
    if (change.question && !byName.get(change.question).second) change.second = undefined;
    state = { ...state, ...change };
    keep(push);
    sync();
  }

  /** Parameters that the next question knows too. */
  const keptParams = (name) => (name === state.question ? state.params : {});

  function typed(change) {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const stays = Object.fromEntries(Object.entries(state.state).filter(([name]) => STAYS.includes(name)));
      choose({ ...change, state: stays }, Date.now() - lastTyped > TYPING);
      lastTyped = Date.now();
    }, PAUSE);
  }

  function keep(push) {
    const here = new URLSearchParams(location.search);
    let to = address(state);
    for (const name of ["lang", "theme"])
      if (here.has(name))
        to = to.includes("?")
          ? `${to}&${name}=${here.get(name)}`
          : to.replace(/^\/lab/, `/lab?${name}=${here.get(name)}`);
    if (to !== location.pathname + location.search + location.hash)
      history[push ? "pushState" : "replaceState"](null, "", to);
  }

  window.addEventListener("popstate", () => {
    if (document.activeElement?.localName === "textarea") document.activeElement.blur();
    state = complete(stateOf(location));
    sync();
  });
  page.onChange(() => {
    refusal?.();
    dress();
  });

  const rival = () =>
    (
      page.models.find((one) => one.name !== state.model && one.task === card().task) ??
      page.models.find((one) => one.name !== state.model) ??
      card()
    ).name;

  function hubField() {
    hub.hidden = false;
    hub.focus();
  }

  // ---- showing it

  let turn = 0;
  async function sync() {
    turn += 1;
    const mine = turn;
    if (about?.name !== state.model) about = null;
    dress();
    if (!about) {
      quietly(page.words("loading_model", { model: state.model }));
      try {
        const model = await getModel(state.model);
        if (mine !== turn) return;
        about = { ...model, name: state.model };
      } catch (error) {
        if (mine === turn)
          refuse(() => [
            el("span", {}, troubleWords(page, error)),
            el("button", { type: "button", class: "ch-link", onclick: sync }, page.words("try_again")),
          ]);
        return;
      }
      dress();
    }
    if (whyNot(question())) {
      refuse(() => [el("span", {}, whyNot(question()))]);
      return;
    }
    if (question().second === "needed" && !secondText()) {
      refuse(() => [el("span", {}, page.words("needs_second"))], false);
      return;
    }
    if (columns.length === 0 || results.dataset.kind !== kindOf()) rebuild();
    columns.forEach((column) => column.update());
  }

  const kindOf = () => `${state.question === "write" ? "write" : "ask"} ${state.vs ?? ""}`;
  const whyNot = (one) => {
    const reasons = overlay(about?.questions, page.lang === "zh" ? about?.zh?.questions : null);
    return reasons?.[one.name === "write" ? "next-token" : one.name] ?? null;
  };

  let refusal = null;
  function clear() {
    refusal = null;
    columns.forEach((column) => column.destroy());
    columns = [];
    results.replaceChildren();
    delete results.dataset.kind;
  }
  /** In place of a figure: why there is none. `say` gives it in the language of the page. */
  function refuse(say, trouble = true) {
    clear();
    const line = el("p", { class: `st-line${trouble ? " st-error" : ""}`, role: trouble ? "alert" : "status" });
    refusal = () => line.replaceChildren(...say());
    refusal();
    results.replaceChildren(line);
  }
  function quietly(words) {
    if (!columns.length)
      results.replaceChildren(
        el("p", { class: "st-line", role: "status" }, el("span", { class: "st-thinking" }, words)),
      );
  }

  function rebuild() {
    clear();
    results.dataset.kind = kindOf();
    results.classList.toggle("st-two", Boolean(state.vs));
    columns = state.vs ? [column(0), column(1)] : [column(0)];
  }

  /** One figure, or a text that is written; the second of two stands for the other model or text. */
  function column(n) {
    const name = el("p", { class: "st-column-name" }),
      host = el("div", { class: "st-column" }, name);
    results.append(host);
    const model = () => (n && state.vs === "model" ? (state.other ?? rival()) : state.model);
    const words = () => (n && state.vs === "text" ? (state.other ?? "") : text());
    const named = () => {
      name.hidden = !state.vs;
      name.textContent = state.vs === "model" ? model() : words();
    };
    if (state.question === "write") {
      const writing = writer(page);
      host.append(writing.element);
      return {
        update() {
          named();
          writing.update({ model: model(), text: words(), options: optionsOf(question().params, state.params) });
        },
        destroy: writing.stop,
      };
    }
    const panel = headPanel(page);
    const spec = () => ({
      inLab: true,
      model: model(),
      question: state.question,
      text: words(),
      second:
        (question().second && !(ONE_TEXT.test(card().task) && question().second === "pair") && secondText()) ||
        undefined,
      params: state.params,
      state: state.state,
      onAnswer: (_, took) => {
        if (!n) {
          seconds = took;
          dressFacts();
        }
        oneScale();
        oneChoice();
      },
      hooks: {
        onPick: (picked) => choose(continued(picked, columns[n].finding(), state)),
        onSide: (side) => choose({ params: { ...state.params, side }, state: {} }),
        onSettings: (set) => choose({ params: { ...state.params, ...set }, state: {} }),
      },
      onState: (now) => {
        if (!n) {
          state = { ...state, state: now };
          keep(false);
        }
        share(n, now);
      },
      actions: (finding, now) =>
        panel(
          finding,
          now,
          { ...spec(), task: (page.models.find((one) => one.name === model()) ?? card()).task },
          { on: Boolean(state.without), turn: (on) => choose({ without: on || undefined }) },
        ),
    });
    let figure = null;
    return {
      update() {
        named();
        if (figure) figure.update(spec());
        else figure = live(host, spec(), page);
      },
      finding: () => figure?.finding() ?? null,
      state: () => figure?.state() ?? {},
      set: (options) => figure?.set(options),
      chosen: (now) => figure?.choose(now),
      destroy() {
        figure?.destroy();
        host.remove();
      },
    };
  }

  /** Side by side, what is chosen about the view is chosen for both; layers and heads too, where the model is the
   *  same. */
  function share(n, now) {
    const common = Object.fromEntries(
      Object.entries(now).filter(([name]) => (state.vs === "model" ? ["view", "sort"] : STAYS).includes(name)),
    );
    columns[1 - n]?.chosen?.(common);
  }

  /** Each figure begins with the head that has most to show; of two texts, the second shows the head of the first. */
  function oneChoice() {
    if (state.vs === "text" && columns.every((one) => one.finding?.())) share(0, columns[0].state());
  }

  /** Side by side, bars and colours of probabilities and effects are on one scale. The others have fixed ones. */
  function oneScale() {
    const findings = columns.map((one) => one.finding?.()).filter(Boolean);
    if (findings.length < 2 || findings[0].kind !== findings[1].kind) return;
    const { kind } = findings[0];
    if (kind === "next-tokens")
      columns.forEach((one) =>
        one.set({ highestProbability: Math.max(...findings.map(({ candidates }) => candidates[0].probability)) }),
      );
    if (kind === "ablation" || kind === "patching")
      columns.forEach((one) =>
        one.set({ mostEffect: Math.max(...findings.flatMap((all) => extent(unpack(all).effect).map(Math.abs))) }),
      );
  }

  // ---- words and values

  function dress() {
    const one = question();
    document.title = `${one.title} · Clearhead`;
    for (const [name, key] of [
      ["model", "model"],
      ["text", "text"],
      ["second", "second_sentence"],
      ["against", "compare_with"],
    ])
      names[name].textContent = page.words(key);
    names.other.textContent = page.words(state.vs === "model" ? "other_model" : "other_text");
    link.textContent = page.words("copy_link");
    hub.placeholder = page.words("hub_id");
    hub.setAttribute("aria-label", page.words("hub_id"));
    options(models, grouped(page.models, state.model), state.model);
    options(
      otherModel,
      grouped(
        page.models.filter((m) => m.name !== state.model),
        state.other,
      ),
      state.other,
    );
    options(
      against,
      [
        ["", page.words("nothing")],
        ...(page.models.length > 1 ? [["model", page.words("another_model")]] : []),
        ["text", page.words("another_text")],
      ],
      state.vs ?? "",
    );
    hold(area, text());
    hold(second, secondText() ?? "");
    hold(other, state.vs === "text" ? (state.other ?? "") : "");
    const pairs = one.second === "needed" || (one.second === "pair" && !ONE_TEXT.test(card().task));
    labels.second.hidden = !pairs || (one.second !== "needed" && !secondText() && document.activeElement !== second);
    addSecond.hidden = !pairs || !labels.second.hidden;
    addSecond.textContent = page.words("add_second");
    labels.other.hidden = !state.vs;
    other.hidden = state.vs !== "text";
    otherModel.hidden = state.vs !== "model";
    heading.textContent = one.title;
    summary.textContent = one.help;
    dressFacts();
    dressQuestions();
    dressParams();
  }

  /** The line about a shipped model, in the reader's language. */
  const aboutOf = (model) =>
    overlay(page.models, page.lang === "zh" ? page.zh?.models : null).find((one) => one.name === model.name)?.about;

  function dressFacts() {
    const one = card(),
      config = about?.config ?? {};
    const layers = config.encoder_layers
      ? page.words("n_layers_two", { a: config.encoder_layers, b: config.decoder_layers })
      : (config.num_hidden_layers ?? config.n_layer)
        ? page.words("n_layers", { n: config.num_hidden_layers ?? config.n_layer })
        : "";
    const size = one.parameters ? page.words("n_parameters", { n: amount(one.parameters) }) : "";
    facts.textContent = [
      one.family,
      one.task,
      layers,
      size,
      one.source === "shipped" ? aboutOf(one) : "",
      seconds !== null &&
        page.words("answered_in", {
          s: seconds < 0.095 ? `${Math.max(1, Math.round(seconds * 1000))}\u00a0ms` : `${seconds.toFixed(1)}\u00a0s`,
        }),
    ]
      .filter(Boolean)
      .join(" · ");
  }

  function grouped(from, chosen) {
    const all = from.map((one) => [one.name, one.name, one.source]);
    if (chosen && !from.some((one) => one.name === chosen)) all.push([chosen, chosen, "hub"]);
    if (page.hub && from === page.models) all.push(["", page.words("hub_other"), "hub"]);
    return all.map(([value, name, source]) => [value, name, page.words(`source_${source}`)]);
  }

  function dressQuestions() {
    const held = document.activeElement?.dataset?.question;
    current.textContent = question().title;
    current.setAttribute("aria-expanded", String(list.classList.contains("st-open")));
    const groups = new Map();
    for (const one of questions()) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
    list.replaceChildren(
      ...[...groups.values()].map((ones) =>
        el(
          "div",
          { role: "group", "aria-label": ones[0].group_title },
          el("p", { class: "st-group" }, ones[0].group_title),
          ones.map((one) => {
            const reason = whyNot(one),
              own = state.question === one.name;
            return el(
              "button",
              {
                type: "button",
                "data-question": one.name,
                "aria-current": own ? "true" : false,
                "aria-disabled": reason && !own ? "true" : false,
                onclick: () => {
                  if (!reason || own) {
                    list.classList.remove("st-open");
                    choose({ question: one.name });
                  }
                },
              },
              one.title,
              reason ? el("small", {}, reason) : "",
            );
          }),
        ),
      ),
    );
    if (held) list.querySelector(`[data-question="${held}"]`)?.focus();
    const one = list.querySelector("[aria-current]")?.getBoundingClientRect(),
      frame = aside.getBoundingClientRect();
    // into sight, without moving the page
    if (one) aside.scrollTop += Math.max(one.bottom + 8 - frame.bottom, 0) + Math.min(one.top - 8 - frame.top, 0);
  }

  let formOf = null;
  function dressParams() {
    const both =
      /seq2seq/.test(card().task ?? "") ||
      ["decoder_layers", "num_decoder_layers"].some((name) => name in (about?.config ?? {}));
    const shown = question().params.filter((one) => !one.encoder_decoder_only || both);
    const now = `${page.lang} ${state.question} ${shown.map((one) => one.name)}`;
    if (formOf !== now) {
      formOf = now;
      help.textContent = "";
      const fields = shown.map((one) =>
        fieldFor(
          one,
          page,
          (value) => choose({ params: { ...state.params, [one.name]: value } }),
          (words) => {
            help.textContent = words;
          },
        ),
      );
      const few = fields.length > SHOWN + 1 ? SHOWN : fields.length;
      params.replaceChildren(
        ...fields.slice(0, few),
        few < fields.length
          ? el(
              "details",
              { class: "st-more", open: shown.slice(few).some((one) => one.name in state.params) },
              el("summary", {}, page.words("more_settings")),
              el("div", {}, fields.slice(few)),
            )
          : "",
      );
    }
    for (const field of params.querySelectorAll("[name]")) {
      const value = state.params[field.name];
      if (document.activeElement === field) continue;
      if (field.type === "checkbox") field.checked = String(value ?? field.dataset.start) === "true";
      else field.value = value ?? field.dataset.start ?? "";
    }
  }

  keep(false);
  await sync();
}

/** 124 M, 30 k. */
const amount = (n) =>
  n >= 1e9
    ? `${(n / 1e9).toFixed(1)} B`
    : n >= 1e6
      ? `${Math.round(n / 1e6)} M`
      : n >= 1e3
        ? `${Math.round(n / 1e3)} k`
        : String(n);

/** What is set in the form, as the server takes it: numbers as numbers. */
const optionsOf = (fields, values) =>
  Object.fromEntries(
    fields
      .filter(({ name }) => values[name] !== "" && values[name] !== undefined)
      .map(({ name, kind }) => [name, kind === "int" || kind === "float" ? Number(values[name]) : values[name]]),
  );

/** A text field; `changed` hears what is typed. */
function textField(id, changed) {
  const area = el("textarea", { id, rows: "1", spellcheck: "false", oninput: () => changed(area.value) });
  fits.set(area, grows(area, 320));
  return area;
}
const fits = new WeakMap();

/** Puts a value in, unless the reader is typing there. */
function hold(area, value) {
  if (area.value !== value && document.activeElement !== area) area.value = value;
  fits.get(area)();
}

/** The entries of a <select>, in groups where they have some: [value, words, group]. */
function options(select, entries, chosen) {
  const groups = new Map();
  for (const [value, words, group] of entries)
    groups.set(group, [...(groups.get(group) ?? []), el("option", { value }, words)]);
  select.replaceChildren(
    ...[...groups].flatMap(([group, ones]) => (group ? el("optgroup", { label: group }, ones) : ones)),
  );
  if (chosen !== undefined) select.value = chosen;
}

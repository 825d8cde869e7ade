// Answers from a library: one question, asked with several stores, or with passages that the reader has rewritten.

import { el } from "/static/views/dom.js";
import { ask, inTurn, isCancelled } from "./api.js";
import { grows } from "./fields.js";
import { live, troubleWords } from "./live.js";

const PAUSE = 600; // milliseconds after the last key
const OTHERS = ["Timbuktu", "Atlantis"]; // written in place of an answer; the second where that is the first

/** The store that the chapter begins with. */
export const FIRST = "factbook";
/** Names of the stores that are here, the first one in front. */
export const storesOf = ({ stores }) => {
  const names = stores.map((one) => one.name);
  return names.includes(FIRST) ? [FIRST, ...names.filter((name) => name !== FIRST)] : names;
};

/** Asks one thing after the other; only the newest counts. `show(finding)` gets the answer. */
function inquiry(page, host, show) {
  const line = el("p", { class: "st-line", role: "status", hidden: true });
  let key = "",
    running = null,
    failed = null;
  const told = () => {
    line.hidden = !failed;
    line.classList.toggle("st-error", Boolean(failed));
    line.textContent = failed ? troubleWords(page, failed) : "";
  };
  const off = page.onChange(told);
  return {
    line,
    ask(request) {
      const now = JSON.stringify(request);
      if (now === key) return;
      key = now;
      running?.abort();
      const mine = new AbortController();
      running = mine;
      failed = null;
      told();
      host.setAttribute("aria-busy", "true");
      inTurn(() => ask(request, { signal: mine.signal }), mine.signal)
        .then(({ finding }) => {
          if (!mine.signal.aborted) show(finding);
        })
        .catch((error) => {
          if (isCancelled(error)) return;
          [failed, key] = [error, ""];
          told();
        })
        .finally(() => {
          if (running === mine) host.removeAttribute("aria-busy");
        });
    },
    destroy() {
      running?.abort();
      off();
    },
  };
}

const request = (reader, question, store, edits = []) => ({
  model: reader.model,
  question,
  text: reader.text,
  params: { store, ask: "yes" },
  ...(edits.length ? { edits } : {}),
});

/** One answer in large letters, with a name above it and where it is from below. */
function plate() {
  const name = el("p", { class: "st-plate-name" }),
    words = el("p", { class: "st-plate-words", "aria-live": "polite" }),
    from = el("p", { class: "st-plate-from" });
  return { element: el("div", { class: "st-plate" }, name, words, from), name, words, from };
}

/** The question, answered from every store, and by the model alone. */
export function answers(host, page, reader) {
  const names = storesOf(reader);
  const plates = [...names, null].map((store) => ({ store, ...plate(), finding: null }));
  host.append(
    el(
      "div",
      { class: "st-plates" },
      plates.map((one) => one.element),
    ),
  );
  const dress = () => {
    for (const one of plates) {
      one.name.textContent = one.store ?? page.words("library_alone");
      if (!one.finding) continue;
      const words = one.store === null ? one.finding.alone : one.finding.answer;
      one.words.textContent = words || page.words("library_nothing");
      one.from.textContent = one.store === null ? "" : (one.finding.passages[0]?.document ?? "");
    }
  };
  const asked = plates.map((one) => {
    const made = inquiry(page, one.element, (finding) => {
      one.finding = finding;
      dress();
    });
    one.element.append(made.line);
    return made;
  });
  const off = page.onChange(dress);
  const update = (now) => {
    dress();
    if (!now.model) return;
    plates.forEach((one, n) => {
      asked[n].ask(
        one.store === null ? request(now, "retrieval-ablation", names[0]) : request(now, "passages", one.store),
      );
    });
  };
  update(reader);
  return {
    update,
    destroy() {
      off();
      for (const one of asked) one.destroy();
    },
  };
}

/** The passages that were found, to be rewritten; what the model says before and after; and where it looked. */
export function desk(host, page, reader) {
  const before = plate(),
    after = plate(),
    shelf = el("div", { class: "st-desk" }),
    below = el("div", {});
  host.append(shelf, el("div", { class: "st-plates" }, before.element, after.element), below);
  let now = reader,
    found = null, // as the store has it
    changed = null,
    figure = null,
    timer = null;
  let fields = [];

  const store = () => now.store;
  const wholeOf = (one) => `${one.text}${one.continuation}`.trim();
  const edits = () =>
    fields
      .filter(({ area, one }) => area.value.trim() && area.value.trim() !== wholeOf(one))
      .map(({ area, one }) => ({ document: one.document, position: one.position ?? 0, text: area.value.trim() }));

  const first = inquiry(page, before.element, (finding) => {
    found = finding;
    changed = null;
    lay();
    dress();
  });
  const second = inquiry(page, after.element, (finding) => {
    changed = finding;
    dress();
  });
  before.element.append(first.line);
  after.element.append(second.line);

  /** A field for each passage of the first chunk. */
  function lay() {
    fields = found.passages
      .filter((one) => one.chunk === 0)
      .map((one) => {
        const area = el("textarea", { rows: "2", spellcheck: "false", oninput: () => soon() });
        area.value = wholeOf(one);
        const fit = grows(area, 320);
        const name = el("span", { class: "st-control-name" });
        const back = el("button", { type: "button", class: "ch-link", onclick: () => write(area, wholeOf(one)) });
        const swap = el("button", { type: "button", class: "ch-link", onclick: () => write(area, swapped(one)) });
        const element = el("div", { class: "st-edit" }, el("label", {}, name, area), el("p", {}, swap, back));
        return { one, area, fit, name, back, swap, element };
      });
    shelf.replaceChildren(...fields.map((field) => field.element));
    for (const field of fields) field.fit();
  }

  const other = () => (found.answer === OTHERS[0] ? OTHERS[1] : OTHERS[0]);
  const swapped = (one) => wholeOf(one).replaceAll(found.answer, other());

  function write(area, words) {
    area.value = words;
    area.dispatchEvent(new Event("input"));
    soon(0);
  }

  function soon(pause = PAUSE) {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const given = edits();
      if (given.length) second.ask(request(now, "passages", store(), given));
      else changed = null;
      dress();
      draw();
    }, pause);
  }

  function draw() {
    const spec = {
      ...request(now, "passages", store()),
      edits: edits(),
      state: { part: "attention" },
      hooks: { part: true },
    };
    if (figure) figure.update(spec);
    else figure = live(below, spec, page);
  }

  function dress() {
    before.name.textContent = page.words("library_before", { store: store() });
    after.name.textContent = page.words("library_after");
    if (found) before.words.textContent = found.answer || page.words("library_nothing");
    const given = fields.length ? edits() : [];
    after.words.textContent = given.length ? (changed?.answer ?? "…") : "";
    after.from.textContent = given.length ? "" : page.words("library_same");
    fields.forEach(({ one, area, name, back, swap }, n) => {
      name.textContent = page.words("library_passage", { n: n + 1, name: one.document });
      back.textContent = page.words("library_back");
      back.hidden = area.value.trim() === wholeOf(one);
      swap.hidden = !found.answer || !wholeOf(one).includes(found.answer) || !back.hidden;
      swap.textContent = page.words("library_try", { answer: found.answer, other: other() });
    });
  }

  const off = page.onChange(dress);
  let key = "";
  const update = (next) => {
    now = next;
    const wanted = request(now, "passages", store());
    if (now.model && JSON.stringify(wanted) !== key) {
      key = JSON.stringify(wanted);
      clearTimeout(timer);
      fields = []; // what was rewritten belongs to what was found for another question
      first.ask(wanted);
      draw();
    }
    dress();
  };
  update(reader);
  return {
    update,
    destroy() {
      clearTimeout(timer);
      off();
      first.destroy();
      second.destroy();
      figure?.destroy();
    },
  };
}

// A live figure: asks the server, says what is happening, and draws the answer; the old one stays until the new
// one is there.
//
//   const figure = live(host, spec, page)
//   spec   {model, question, text, second, params}      what is asked
//          edits: [{document, position, text}, …]       passages of a store that say something else for this figure
//          title: {en, zh}, read: {en, zh}              in place of the view's own question above and reading below
//          state, onState(state, whole)                 what is chosen in the view, and all of its state
//          hooks: {onPick, onSide, onSettings, …}       what else the view offers (views/web/figure.js)
//          inLab: true where it stands in the lab already, else its menu leads there
//          onAnswer(finding, seconds), actions(finding) → nodes that stand under the figure
//   page   {lang, theme, models, words(key, values), onChange(fn) → stop}
//   figure.update(spec) asks again where the question changed; figure.destroy() ends it and cancels what runs.
//
// Nothing is asked before the figure is near the window, and figures ask one at a time.

import { el } from "/static/views/dom.js";
import { draw } from "/static/views/draw.js";
import { ask, inTurn, isCancelled, savedPage } from "./api.js";
import { address } from "./state.js";

const NEAR = "500px";
const PATIENCE = 250; // milliseconds before we say that we are waiting
export const STAYS = ["view", "sort", "heads", "head", "layer"]; // what was chosen about the model, not about the text

export function live(host, spec, page) {
  const place = el("div", { class: "st-place" });
  const line = el("div", { class: "st-line", role: "status", hidden: true });
  const actions = el("div", { class: "st-actions" });
  const box = el("div", { class: "st-live", "data-question": spec.question }, line, place, actions);
  host.append(box);

  let figure = null,
    finding = null;
  let shown = null; // the question that the figure answers
  let running = null; // {key, stop}
  let refused = null; // says again what went wrong
  let near = false,
    gone = false,
    chosen = {},
    givenState = "";

  const requestOf = (of) => ({
    model: of.model,
    question: of.question,
    text: of.text ?? "",
    ...(of.second ? { second: of.second } : {}),
    params: clean(of.params),
    ...(of.edits?.length ? { edits: of.edits } : {}),
  });
  const keyOf = (of) => JSON.stringify(requestOf(of));
  const dress = () => ({ lang: page.lang, theme: page.theme, title: spec.title, read: spec.read });

  async function refresh() {
    if (gone || !near) return;
    const key = keyOf(spec);
    const other = JSON.stringify(spec.state ?? {}) !== givenState; // what is chosen was chosen anew, from outside
    if (key === shown) {
      cancel();
      quiet();
      figure?.update({ ...dress(), ...(other ? { state: { ...figure.start, ...spec.state } } : {}) });
      givenState = JSON.stringify(spec.state ?? {});
      tellActions();
      return;
    }
    if (running?.key === key) return;
    cancel();
    const stop = new AbortController();
    running = { key, stop };
    const mine = spec;
    box.setAttribute("aria-busy", "true");
    let patient = false,
      progressEvent = null; // what takes no time needs no words
    const later = setTimeout(() => {
      patient = true;
      waiting(progressEvent ? progressWords(progressEvent) : page.words("thinking"));
    }, PATIENCE);
    try {
      const answer = await inTurn(
        () =>
          ask(requestOf(mine), {
            signal: stop.signal,
            progress: (event) => {
              progressEvent = event;
              if (patient) waiting(progressWords(event));
            },
          }),
        stop.signal,
      );
      if (stop.signal.aborted || gone) return;
      const kept =
        !mine.onState && finding?.kind === answer.finding.kind && finding?.model === answer.finding.model
          ? pick(chosen, STAYS)
          : {};
      figure?.destroy();
      place.replaceChildren();
      finding = answer.finding;
      givenState = JSON.stringify(mine.state ?? {});
      figure = await drawn(mine, { ...mine.state, ...kept });
      chosen = changed(figure.state(), figure.start);
      shown = key;
      quiet();
      tellActions();
      mine.onAnswer?.(finding, answer.seconds);
    } catch (error) {
      if (isCancelled(error) && stop.signal.aborted) {
        if (running?.stop === stop) stopped();
      } else trouble(error);
    } finally {
      clearTimeout(later);
      if (running?.stop === stop) {
        running = null;
        box.removeAttribute("aria-busy");
      }
    }
  }

  async function drawn(of, state) {
    const options = {
      ...of.hooks,
      ...dress(),
      page: () => savedPage(requestOf(of)),
      lab: of.inLab ? undefined : address(of),
      onState(now) {
        chosen = changed(now, figure.start);
        if (spec.onState) {
          spec = { ...spec, state: chosen };
          givenState = JSON.stringify(chosen);
        }
        tellActions();
        spec.onState?.(chosen, now);
      },
    };
    try {
      return await draw(place, finding, { ...options, state });
    } catch (error) {
      // a link may choose what this text does not have
      if (!Object.keys(state).length) throw error;
      place.replaceChildren();
      return draw(place, finding, { ...options, state: {} });
    }
  }

  function cancel() {
    const old = running;
    running = null;
    old?.stop.abort();
  }

  const tellActions = () => actions.replaceChildren(...(spec.actions?.(finding, figure.state()) ?? []).filter(Boolean));
  const progressWords = (event) =>
    page.words(event.stage === "working" && event.layers ? "stage_layers" : `stage_${event.stage ?? "working"}`, event);

  function waiting(text) {
    refused = null;
    line.replaceChildren(
      el("span", { class: "st-thinking" }, text),
      el("button", { type: "button", class: "ch-link", onclick: () => running?.stop.abort() }, page.words("cancel")),
    );
    line.classList.remove("st-error");
    line.hidden = false;
  }

  function quiet() {
    refused = null;
    line.hidden = true;
    line.classList.remove("st-error");
    line.replaceChildren();
    box.removeAttribute("aria-busy");
  }

  const again = (words) =>
    el("button", { type: "button", class: "ch-link", onclick: () => refresh() }, page.words(words));

  function stopped() {
    refused = null;
    line.classList.remove("st-error");
    line.replaceChildren(el("span", {}, page.words("cancelled")), again("ask_again"));
    line.hidden = false;
    box.removeAttribute("aria-busy");
  }

  function trouble(error) {
    figure?.destroy();
    [figure, finding, shown] = [null, null, null];
    place.replaceChildren();
    actions.replaceChildren();
    line.classList.add("st-error");
    line.hidden = false;
    refused = () => line.replaceChildren(el("span", {}, troubleWords(page, error)), again("try_again"));
    refused();
    spec.onTrouble?.(error);
  }

  const watch = new IntersectionObserver(
    (seen) => {
      if (seen.some((one) => one.isIntersecting)) {
        near = true;
        watch.disconnect();
        refresh();
      }
    },
    { rootMargin: NEAR },
  );
  watch.observe(box);
  const off = page.onChange(() => {
    refused?.();
    figure?.update(dress());
    if (figure) tellActions();
  });

  return {
    element: box,
    finding: () => finding,
    /** All that is chosen in the view. */
    state: () => figure?.state() ?? {},
    /** Options of the view, such as the end of a scale that two figures share. */
    set: (options) => figure?.update(options),
    /** Chooses in the figure, without telling anybody. */
    choose(state) {
      figure?.update({ state });
      if (figure) {
        chosen = changed(figure.state(), figure.start);
        tellActions();
      }
    },
    update(next) {
      spec = { ...spec, ...next };
      box.dataset.question = spec.question;
      refresh();
    },
    destroy() {
      gone = true;
      cancel();
      watch.disconnect();
      off();
      figure?.destroy();
      box.remove();
    },
  };
}

export const troubleWords = (page, error) => {
  if (error.key) return page.words(error.key);
  return (page.lang === "zh" && error.zh) || error.message || String(error);
};

const clean = (params = {}) =>
  Object.fromEntries(
    Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== ""),
  );
const pick = (of, names) => Object.fromEntries(Object.entries(of).filter(([name]) => names.includes(name)));
/** What differs from where the view began. */
const changed = (state, start = {}) =>
  Object.fromEntries(
    Object.entries(state).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(start[name])),
  );

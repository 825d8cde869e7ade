// The fields of the studio: one for each kind of parameter, and one for texts, which is as high as its text.

import { el } from "/static/views/dom.js";

/** `set(value)` is called when the reader is done with it; `tell(words)` when they look at it. */
export function fieldFor(param, page, set, tell) {
  const { label, help } = param;
  const attributes = { name: param.name, title: help, onfocus: () => tell(help), "aria-description": help };
  const start = param.default === null || param.default === undefined ? "" : String(param.default);
  let field;
  if (param.kind === "bool") {
    field = el("input", {
      ...attributes,
      type: "checkbox",
      "data-start": start,
      onchange: () => set(String(field.checked) === start ? undefined : field.checked),
    });
  } else if (param.kind === "choice") {
    field = el(
      "select",
      { ...attributes, "data-start": start, onchange: () => set(field.value === start ? undefined : field.value) },
      param.choices.map((one, n) => el("option", { value: one }, param.choice_labels[n])),
    );
  } else if (param.kind === "model") {
    field = el(
      "select",
      { ...attributes, "data-start": "", onchange: () => set(field.value || undefined) },
      el("option", { value: "" }, page.words("same_model")),
      page.models.map((one) => el("option", { value: one.name }, one.name)),
    );
  } else if (param.kind === "store") {
    field = el(
      "select",
      { ...attributes, "data-start": "", onchange: () => set(field.value || undefined) },
      el("option", { value: "" }, page.words(page.stores.length ? "auto" : "no_stores")),
      page.stores.map((one) => el("option", { value: one.name }, one.name)),
    );
  } else if (param.kind === "int" || param.kind === "float") {
    field = el("input", {
      ...attributes,
      type: "number",
      "data-start": start,
      min: param.least,
      max: param.most,
      step: param.kind === "int" ? 1 : "any",
      placeholder: page.words("auto"),
      onchange: () => set(field.value === start ? undefined : field.value),
    });
  } else {
    field = el("input", {
      ...attributes,
      type: "text",
      "data-start": start,
      spellcheck: "false",
      placeholder: page.words(param.kind === "indices" ? "all" : "auto"),
      onchange: () => set(field.value === start ? undefined : field.value),
    });
  }
  return el("label", { class: `st-param st-${param.kind}` }, el("span", {}, label), field);
}

/** A text field that grows with its text, up to so many pixels. Returns what fits it anew. */
export function grows(area, most) {
  const fit = () => {
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, most)}px`;
  };
  let width = 0;
  new ResizeObserver(() => {
    if (area.clientWidth !== width) {
      width = area.clientWidth;
      fit();
    }
  }).observe(area);
  area.addEventListener("input", fit);
  return fit;
}

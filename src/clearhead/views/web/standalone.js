// A figure alone on its page: the language and the theme to choose, and what is pinned kept in the address.

import { el } from "./dom.js";
import { unpack } from "./numbers.js";
import { LANGUAGES, say } from "./words.js";

/** `draw` is that of the view; the finding stands in the page. */
export function show(draw) {
  const finding = unpack(JSON.parse(document.getElementById("finding").textContent));
  const inset = document.body.classList.contains("ch-inset");
  const query = new URLSearchParams(location.search);
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) query.set(key, value);
  let lang = query.get("lang") ?? (/^zh/i.test(navigator.language) ? "zh" : "en");
  let theme = query.get("theme") ?? around() ?? undefined;
  const state = Object.fromEntries(
    [...query].filter(([key]) => key !== "lang" && key !== "theme").map(([key, value]) => [key, read(value)]),
  );

  const isDark = () => (theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const main = el("main");
  const languages = Object.entries(LANGUAGES).map(([key, name]) =>
    el(
      "button",
      {
        type: "button",
        lang: key === "zh" ? "zh-Hans" : "en",
        "data-lang": key,
        onclick: () => {
          lang = key;
          update();
        },
      },
      name,
    ),
  );
  const themes = el("button", {
    type: "button",
    onclick: () => {
      theme = isDark() ? "light" : "dark";
      update();
    },
  });
  if (!inset) document.body.append(el("nav", {}, el("b", {}, "Clearhead"), el("span", {}, languages, themes)));
  document.body.append(main);
  dress();
  const figure = draw(main, finding, { lang, theme, state, onState: keep, open: inset ? alone : undefined });
  if (inset) {
    fit();
    new ResizeObserver(fit).observe(document.body);
  }

  function dress() {
    const root = document.documentElement;
    root.lang = lang === "zh" ? "zh-Hans" : "en";
    if (theme) root.dataset.theme = theme;
    languages.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.lang === lang)));
    themes.textContent = isDark() ? "☀" : "☾";
    themes.setAttribute("aria-label", say(lang, "theme"));
    themes.title = say(lang, "theme");
  }

  function update() {
    dress();
    figure.update({ lang, theme });
    keep(figure.state());
  }

  function keep(now) {
    if (inset) return;
    const chosen = Object.entries(now)
      .map(([key, value]) => [key, JSON.stringify(value)])
      .filter(([key, value]) => value !== JSON.stringify(figure.start[key]));
    const words = new URLSearchParams(chosen);
    if (theme) words.set("theme", theme);
    words.set("lang", lang);
    history.replaceState(null, "", `#${words}`);
  }

  function fit() {
    try {
      if (window.frameElement)
        window.frameElement.style.height = `${Math.ceil(document.body.getBoundingClientRect().height) + 4}px`;
    } catch {
      /* a frame that may not be measured keeps the height it was given */
    }
  }

  function alone() {
    const whole = document.documentElement.cloneNode(true);
    whole.querySelectorAll("main, nav").forEach((part) => part.remove());
    whole.querySelector("body").classList.remove("ch-inset");
    window.open(URL.createObjectURL(new Blob([`<!doctype html>${whole.outerHTML}`], { type: "text/html" })), "_blank");
  }
}

/** The theme of the notebook around a frame, where it says so. */
function around() {
  try {
    const light = window.frameElement?.ownerDocument.body.dataset.jpThemeLight;
    return light === undefined ? null : light === "true" ? "light" : "dark";
  } catch {
    return null;
  }
}

function read(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

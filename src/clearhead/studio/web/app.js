// The shell around every page: navigation, language, theme, and which page the address means.

import { el } from "/static/views/dom.js";
import { getState } from "./api.js";
import { troubleWords } from "./live.js";
import { say } from "./words.js";

const ROUTES = [
  { at: /^\/$/, here: "chapters", show: async (main, page) => (await import("./contents.js")).show(main, page) },
  { at: /^\/lab\/?$/, here: "lab", show: async (main, page) => (await import("./lab.js")).show(main, page) },
  { at: /^\/runs\/?$/, here: "runs", show: async (main, page) => (await import("./runs.js")).show(main, page) },
  {
    at: /^\/chapters\/([\w-]+)\/?$/,
    here: "chapters",
    show: async (main, page, slug) => (await import("./chapter.js")).show(main, page, slug),
  },
];

const kept = {
  get: (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set: (name, value) => {
    try {
      localStorage.setItem(name, value);
    } catch {
      /* a private window forgets */
    }
  },
};
const query = new URLSearchParams(location.search);
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

/** What every part of the page shares. */
const page = {
  lang: query.get("lang") ?? kept.get("clearhead.lang") ?? (/^zh/i.test(navigator.language) ? "zh" : "en"),
  chosenTheme: query.get("theme") ?? kept.get("clearhead.theme"),
  get theme() {
    return page.chosenTheme ?? (system.matches ? "dark" : "light");
  },
  models: [],
  stores: [],
  questions: [],
  limits: {},
  runs: false,
  hub: false,
  words: (key, values) => say(page.lang, key, values),
  /** Calls back when the language or the theme changes; what it returns ends that. */
  onChange(fn) {
    listeners.add(fn);
    return () => listeners.delete(fn);
  },
  /** An address within the studio. */
  link: (path) => path,
};
if (page.lang !== "zh") page.lang = "en";

const nav = el("nav", { class: "st-nav" });
const main = el("main", { id: "main", tabindex: "-1" });
const route = ROUTES.find((one) => one.at.test(location.pathname));

function drawNav() {
  const link = (href, key) =>
    el("a", { href, "aria-current": route?.here === key ? "page" : false }, page.words(`nav_${key}`));
  const language = (key, name) =>
    el(
      "button",
      {
        type: "button",
        lang: key === "zh" ? "zh-Hans" : "en",
        "data-lang": key,
        "aria-pressed": String(page.lang === key),
        onclick: () => choose({ lang: key }),
      },
      name,
    );
  const dark = page.theme === "dark";
  const held = nav.contains(document.activeElement)
    ? (document.activeElement.dataset.lang ?? document.activeElement.dataset.at)
    : null;
  nav.setAttribute("aria-label", page.words("navigation"));
  nav.replaceChildren(
    el("a", { href: "#main", class: "st-skip", onclick: () => main.focus() }, page.words("skip")),
    el("a", { href: "/", class: "st-name" }, "Clearhead"),
    link("/lab", "lab"),
    link("/", "chapters"),
    link("/runs", "runs"),
    el(
      "span",
      { class: "st-end" },
      el(
        "span",
        { class: "st-languages", role: "group", "aria-label": page.words("language") },
        language("en", "English"),
        language("zh", "中文"),
      ),
      el(
        "button",
        {
          type: "button",
          "data-at": "theme",
          "aria-label": page.words(dark ? "to_light" : "to_dark"),
          title: page.words(dark ? "to_light" : "to_dark"),
          onclick: () => choose({ theme: dark ? "light" : "dark" }),
        },
        dark ? "☀" : "☾",
      ),
    ),
  );
  if (held) nav.querySelector(`[data-lang="${held}"], [data-at="${held}"]`)?.focus();
}

function choose({ lang, theme }) {
  if (lang) {
    page.lang = lang;
    kept.set("clearhead.lang", lang);
  }
  if (theme) {
    page.chosenTheme = theme;
    kept.set("clearhead.theme", theme);
  }
  const words = new URLSearchParams(location.search); // an address that names them says what is shown
  if (lang && words.has("lang")) words.set("lang", lang);
  if (theme && words.has("theme")) words.set("theme", theme);
  history.replaceState(history.state, "", `${location.pathname}${words.size ? `?${words}` : ""}${location.hash}`);
  dress();
}

function dress() {
  const root = document.documentElement;
  root.lang = page.lang === "zh" ? "zh-Hans" : "en";
  root.dataset.theme = page.theme;
  drawNav();
  for (const fn of listeners) fn();
}

async function begin() {
  document.body.classList.add("ch-page", "st-page");
  document.body.append(nav, main);
  system.addEventListener("change", dress);
  dress();
  try {
    Object.assign(page, await getState());
    if (!route) throw Object.assign(new Error(), { key: "no_page" });
    await route.show(main, page, location.pathname.match(route.at)[1]);
  } catch (error) {
    main.replaceChildren(
      el(
        "div",
        { class: "st-alone" },
        el("h1", {}, page.words("trouble")),
        el("p", { class: "st-error", role: "alert" }, troubleWords(page, error)),
        el("p", {}, el("a", { href: "/" }, page.words("to_contents"))),
      ),
    );
    if (!error.key && error.constructor.name !== "Trouble") throw error;
  }
}

begin();

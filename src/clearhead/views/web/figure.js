// What every figure has: its question above, how to read it below, exact numbers on hover and focus, and a small menu.

import { el } from "./dom.js";
import { csv, json } from "./numbers.js";
import { overlay } from "./overlay.js";
import { pngOf, svgOf } from "./picture.js";
import { say } from "./words.js";

/** Draws a view of a finding into an element and keeps it up to date.
 *
 *  view      start(finding) → state, title(c), reading(c), body(c, box), and maybe controls(c), table(finding), says(c)
 *  options   lang ("en" | "zh"), theme ("light" | "dark" | nothing: the system's), state, onState(state),
 *            open (an address, or a function, that shows the figure alone), page() → the HTML of a page of its own,
 *            lab (the address of the figure in the studio's lab), title and read ({en, zh}: words of one's own)
 *            Some views take more: onPick(token) next tokens, onHead({layer, head}) and onSide(side) attention,
 *            onSettings({temperature, top_k, top_p}) sampling; part: true where one part of passages is shown for
 *            good; highestProbability, mostEffect: the end of the scale
 *            that two figures side by side share
 *  Returns { update(options), state(), start, destroy() }; `start` is the state before anything was chosen.
 */
export function figure(element, finding, options, view) {
  const frame = {
    question: el("h3", { class: "ch-question" }),
    model: el("span", { class: "ch-model" }),
    controls: el("div", { class: "ch-controls", "data-picture": "no" }),
    body: el("div", { class: "ch-body" }),
    reading: el("figcaption"),
    live: el("div", { class: "ch-live", "aria-live": "polite" }),
    tip: el("div", { class: "ch-tip", role: "presentation", hidden: true }),
    menu: el("div", { class: "ch-menu", "data-picture": "no" }),
  };
  const root = el(
    "figure",
    { class: "ch ch-figure", "data-kind": finding.kind },
    el("header", {}, frame.question, frame.model, frame.menu),
    frame.controls,
    frame.body,
    frame.reading,
    frame.live,
    frame.tip,
  );
  element.append(root);

  let settings = {};
  const inChinese = overlay(finding, finding.$zh);
  const start = { ...view.start?.(finding) };
  let state = { ...start };
  let width = 0;
  let probed = {};
  const system = matchMedia("(prefers-color-scheme: dark)");

  const c = {
    /** In the reader's language, as far as it has words of its own. */
    get finding() {
      return c.lang === "zh" ? inChinese : finding;
    },
    get lang() {
      return settings.lang === "zh" ? "zh" : "en";
    },
    get state() {
      return state;
    },
    get width() {
      return width;
    },
    /** What whoever shows the figure gave, such as what to do when something is picked. */
    get options() {
      return settings;
    },
    words: (key, values) => say(c.lang, key, values),
    /** The state changes, the figure is redrawn, and whoever shows it is told. */
    set(change) {
      state = { ...state, ...change };
      draw();
      settings.onState?.({ ...state });
    },
    tip(text, x, y, aloud = false) {
      if (!text) {
        frame.tip.hidden = true;
        return;
      }
      frame.tip.textContent = text;
      frame.tip.hidden = false;
      const [outer, own] = [root.getBoundingClientRect(), frame.tip.getBoundingClientRect()];
      const left = Math.max(0, Math.min(x - outer.left - own.width / 2, outer.width - own.width));
      const above = y - outer.top - own.height - 10;
      frame.tip.style.left = `${left}px`;
      frame.tip.style.top = `${above < -8 ? y - outer.top + 18 : above}px`;
      if (aloud) frame.live.textContent = text;
    },
    /** The same, above an element. */
    tipAt(text, node, aloud = false) {
      const box = node.getBoundingClientRect();
      c.tip(text, box.left + box.width / 2, box.top, aloud);
    },
    /** Hover and focus of one mark both show its numbers. */
    tells(node, text) {
      node.addEventListener("pointerenter", () => c.tipAt(text(), node));
      node.addEventListener("pointerleave", () => c.tip(""));
      node.addEventListener("focus", () => {
        if (node.matches(":focus-visible")) c.tipAt(text(), node, true);
      });
      node.addEventListener("blur", () => c.tip(""));
      return node;
    },
    /** A named colour of the style sheet, as [r, g, b]. */
    colour(name) {
      if (!probed[name]) {
        frame.live.style.color = `var(--${name})`;
        probed[name] = getComputedStyle(frame.live)
          .color.match(/[\d.]+/g)
          .slice(0, 3)
          .map(Number);
        frame.live.style.color = "";
      }
      return probed[name];
    },
    choice,
    group,
  };

  /** A <select> in the controls. */
  function choice(label, value, entries, set) {
    const select = el(
      "select",
      { "aria-label": label, "data-at": `choice-${label}`, onchange: () => set(select.value) },
      entries.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text)),
    );
    return el("label", {}, `${label} `, select);
  }

  /** Buttons of which one is on. */
  function group(label, value, entries, set) {
    return el(
      "span",
      { class: "ch-group", role: "group", "aria-label": label },
      entries.map(([key, text]) =>
        el(
          "button",
          {
            type: "button",
            "data-at": `group-${key}`,
            "aria-pressed": key === value ? "true" : "false",
            onclick: () => set(key),
          },
          text,
        ),
      ),
    );
  }

  function draw() {
    const held = root.contains(document.activeElement)
      ? document.activeElement?.closest("[data-at]")?.dataset.at
      : undefined;
    width = Math.max(240, Math.floor(frame.body.clientWidth || element.clientWidth || 640));
    root.lang = c.lang === "zh" ? "zh-Hans" : "en";
    const theme =
      settings.theme ?? element.closest("[data-theme]")?.dataset.theme ?? (system.matches ? "dark" : "light");
    if (root.dataset.theme !== theme) {
      root.dataset.theme = theme;
      probed = {};
    }
    frame.tip.hidden = true;
    frame.question.textContent = settings.title?.[c.lang] ?? view.title(c);
    frame.model.textContent = finding.model ?? "";
    frame.reading.textContent = settings.read?.[c.lang] ?? view.reading(c);
    frame.controls.replaceChildren(...(view.controls?.(c) ?? []));
    frame.controls.hidden = !frame.controls.childNodes.length;
    const scrolled = frame.body.querySelector(".ch-scroll")?.scrollTop;
    frame.body.replaceChildren();
    view.body(c, frame.body);
    if (scrolled) {
      const box = frame.body.querySelector(".ch-scroll");
      if (box) box.scrollTop = scrolled;
    }
    drawMenu();
    if (held) root.querySelector(`[data-at="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
  }

  function drawMenu() {
    const name = `clearhead-${finding.kind}`;
    const entries = [
      ["copy_svg", () => copy(svgOf(root))],
      ["save_svg", () => keep(`${name}.svg`, new Blob([svgOf(root)], { type: "image/svg+xml" }))],
      ["save_png", async () => keep(`${name}.png`, await pngOf(root))],
      ["copy_json", () => copy(json(finding))],
      ["save_json", () => keep(`${name}.json`, new Blob([json(finding)], { type: "application/json" }))],
    ];
    if (view.table)
      entries.push(["save_csv", () => keep(`${name}.csv`, new Blob([csv(view.table(finding))], { type: "text/csv" }))]);
    if (settings.page)
      entries.push([
        "save_page",
        async () => keep(`${name}.html`, new Blob([await settings.page()], { type: "text/html" })),
      ]);
    if (settings.lab) entries.push(["open_lab", () => window.open(settings.lab, "_blank")]);
    if (settings.open)
      entries.push([
        "open_alone",
        () => (typeof settings.open === "function" ? settings.open() : window.open(settings.open, "_blank")),
      ]);
    const list = el(
      "div",
      { class: "ch-entries", role: "menu", hidden: true },
      entries.map(([key, act]) =>
        el(
          "button",
          {
            type: "button",
            role: "menuitem",
            tabindex: "-1",
            onclick: () => {
              shut();
              Promise.resolve(act()).then(
                () => announce(c.words(`${key}_done`)),
                (error) => announce(error.message),
              );
            },
          },
          c.words(key),
        ),
      ),
    );
    const button = el(
      "button",
      {
        type: "button",
        class: "ch-more",
        "data-at": "menu",
        "aria-haspopup": "menu",
        "aria-expanded": "false",
        "aria-label": c.words("menu"),
        title: c.words("menu"),
        onclick: () => (list.hidden ? show() : shut()),
      },
      "⋯",
    );
    const show = () => {
      list.hidden = false;
      button.setAttribute("aria-expanded", "true");
      list.firstChild.focus();
    };
    const shut = () => {
      list.hidden = true;
      button.setAttribute("aria-expanded", "false");
    };
    frame.menu.replaceChildren(button, list);
    list.addEventListener("keydown", (event) => {
      const items = [...list.children],
        at = items.indexOf(document.activeElement);
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        items[(at + step + items.length) % items.length].focus();
      }
      if (event.key === "Escape") {
        event.stopPropagation();
        shut();
        button.focus();
      }
    });
    list.addEventListener("focusout", (event) => {
      if (!frame.menu.contains(event.relatedTarget)) shut();
    });
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = el("textarea", { style: { position: "fixed", opacity: "0" } });
      area.value = text;
      root.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function announce(text) {
    c.tipAt(text, frame.menu, true);
    setTimeout(() => c.tip(""), 1600);
  }

  function update(more = {}) {
    settings = { ...settings, ...more };
    if (more.state) state = { ...state, ...more.state };
    draw();
  }

  const observer = new ResizeObserver(() => {
    if (Math.abs(frame.body.clientWidth - width) > 1 && frame.body.clientWidth >= 240) draw();
  });
  const onSystem = () => draw();
  system.addEventListener("change", onSystem);
  update(options);
  observer.observe(frame.body);
  return {
    update,
    element: root,
    state: () => ({ ...state }),
    start,
    destroy() {
      observer.disconnect();
      system.removeEventListener("change", onSystem);
      root.remove();
    },
  };
}

function keep(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// What fires together: factors of the activations, a sparkline each; hover one and its tokens light up.

import { el, rove, svg } from "./dom.js";
import { figure } from "./figure.js";
import * as scale from "./scale.js";
import { chips, textOf, visible } from "./tokens.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** factor: the pinned one */
  start: () => ({ factor: 0 }),
  title: (c) =>
    c.state.factor === null ? c.words("factors_title") : c.words("factors_title_of", { n: c.state.factor }),
  reading: (c) =>
    c.words("factors_reading", { count: c.finding.factors.length, error: scale.percent(c.finding.error, 1) }),
  body(c, box) {
    const { tokens, factors, weights } = c.finding;
    const line = el("div", {});
    const paint = (n) => {
      const row = n === null ? null : factors[n],
        most = row ? Math.max(...row, 1e-9) : 1;
      const made = chips(tokens, (k) => {
        const ground = row ? scale.ink(c, "accent", (row[k] / most) * 0.85) : c.colour("paper");
        return { style: { background: scale.css(ground), color: scale.css(scale.onTop(c, ground)) } };
      });
      if (row)
        [...made.querySelectorAll(".ch-tok")].forEach((mark, k) =>
          c.tells(mark, () => `${visible(textOf(tokens[k]))} · ${c.words("factor")} ${n} · ${scale.number(row[k])}`),
        );
      line.replaceChildren(made);
    };
    paint(c.state.factor);
    const columns = c.width >= 1000 ? 2 : 1;
    const wide = Math.floor((c.width - (columns - 1) * 48) / columns) - 130,
      tall = 34;
    const rows = [...factors].map((row, n) => {
      const most = Math.max(...row, 1e-9),
        step = wide / row.length;
      const path = Array.from(
        row,
        (value, k) =>
          `L${(k * step).toFixed(1)} ${(tall - (value / most) * (tall - 3)).toFixed(1)}H${((k + 1) * step).toFixed(1)}`,
      ).join("");
      const on = n === c.state.factor;
      const spark = svg(
        "svg",
        { width: wide, height: tall + 1 },
        svg("path", { d: `M0 ${tall}${path}V${tall}Z`, fill: "var(--accent)", "fill-opacity": on ? 0.85 : 0.4 }),
        svg("line", { x1: 0, x2: wide, y1: tall + 0.5, y2: tall + 0.5, stroke: "var(--hair)" }),
      );
      const button = el(
        "div",
        {
          role: "button",
          "data-at": `f${n}`,
          "data-pick": "",
          "aria-pressed": String(on),
          "aria-label": `${c.words("factor")} ${n}`,
          style: {
            display: "grid",
            "grid-template-columns": "118px minmax(0, 1fr)",
            "align-items": "end",
            padding: "4px 6px",
            cursor: "pointer",
            "border-radius": "3px",
            background: on ? "var(--wash)" : "transparent",
          },
        },
        el(
          "span",
          { style: { font: "12.5px/1.4 var(--sans)", color: on ? "var(--ink)" : "var(--soft)" } },
          `${c.words("factor")} ${n}`,
          ` · ${scale.percent(weights[n])}`,
        ),
        spark,
      );
      button.addEventListener("pointerenter", () => paint(n));
      button.addEventListener("pointermove", (event) => {
        const box = spark.getBoundingClientRect(),
          k = Math.floor((event.clientX - box.left) / step);
        if (k >= 0 && k < row.length)
          c.tip(
            `${c.words("factor")} ${n} · ${visible(textOf(tokens[k]))} · ${scale.number(row[k])}`,
            event.clientX,
            box.top,
          );
      });
      button.addEventListener("pointerleave", () => {
        paint(c.state.factor);
        c.tip("");
      });
      button.addEventListener("click", () => c.set({ factor: on ? null : n }));
      return button;
    });
    rove(rows, {
      start: c.state.factor ?? 0,
      seen: paint,
      pick: (n) => c.set({ factor: n === c.state.factor ? null : n }),
      release: () => c.set({ factor: null }),
    });
    box.append(
      line,
      el(
        "div",
        {
          class: "ch-part",
          style: { display: "grid", "grid-template-columns": `repeat(${columns}, minmax(0, 1fr))`, gap: "2px 36px" },
        },
        rows,
      ),
      scale.legend(
        c.words("factor_scale"),
        scale.steps(8, (t) => scale.ink(c, "accent", t * 0.85)),
        ["0", c.words("its_most")],
      ),
    );
  },
  *table(finding) {
    yield ["factor", "weight", "position", "token", "value"];
    for (const [n, row] of finding.factors.entries())
      for (const [k, token] of finding.tokens.entries()) yield [n, finding.weights[n], k, textOf(token), row[k]];
  },
};

// Training runs as live curves: loss, held-out measures, learning rate, speed, and what the model writes along the way.

import { el } from "/static/views/dom.js";
import { number, whole } from "/static/views/scale.js";
import { getJson } from "./api.js";
import { chart } from "./chart.js";
import { troubleWords } from "./live.js";
import { known } from "./words.js";

const EVERY = 2000; // milliseconds between two looks
const SILENT = 60; // seconds after which a run that has not ended is silent
const LINES = [
  ["chart_loss", "loss"],
  ["chart_rate", "lr"],
  ["chart_speed", "units_per_second"],
  ["chart_gradient", "grad_norm"],
];

export async function show(main, page) {
  main.classList.add("st-lab", "st-runs");
  const title = el("h1", { class: "st-title" }),
    list = el("div", { class: "st-run-list" }),
    note = el("p", { class: "st-line", role: "status", hidden: true });
  const options = el("div", { class: "st-params" }),
    charts = el("div", { class: "st-charts" }),
    samples = el("section", { class: "st-samples" });
  main.append(el("aside", {}, title, list), el("div", { class: "st-workspace" }, note, options, charts, samples));

  const query = new URLSearchParams(location.search);
  let chosen = query.get("runs")?.split(",").filter(Boolean) ?? null;
  const settings = { log: query.has("log"), smooth: query.has("smooth") };
  let listing = [];
  const runs = new Map(); // id → what was read of it
  const drawn = new Map(); // title → chart

  const colour = (id) =>
    `var(--head${
      Math.max(
        0,
        listing.findIndex((one) => one.id === id),
      ) % 10
    })`;

  function keep() {
    const words = new URLSearchParams(location.search);
    words.set("runs", chosen.join(","));
    for (const name of ["log", "smooth"])
      if (settings[name]) words.set(name, "1");
      else words.delete(name);
    history.replaceState(null, "", `/runs?${words}`);
  }

  /** Reads what is new of the chosen runs; true if anything was. */
  async function look() {
    let changed = false;
    for (const id of chosen ?? []) {
      const run = runs.get(id) ?? { id, next: 0, ...empty() };
      runs.set(id, run);
      for (let more = true; more; ) {
        const answer = await getJson(`/api/runs/${encodeURIComponent(id)}?after=${run.next}`);
        if (answer.restart) Object.assign(run, empty());
        if (answer.recipe) run.recipe = answer.recipe;
        answer.events.forEach((event) => record(run, event));
        changed ||= answer.events.length > 0 || answer.restart;
        run.next = answer.next;
        more = answer.more;
      }
    }
    return changed;
  }

  async function watch() {
    if (!document.hidden) {
      try {
        const before = JSON.stringify(listing);
        listing = (await getJson("/api/runs")).runs;
        if (chosen === null && listing.length) chosen = [listing[0].id];
        const changed = await look();
        if (changed || JSON.stringify(listing) !== before) draw();
        say(
          listing.length
            ? chosen?.length
              ? ""
              : page.words("choose_runs")
            : page.words(page.runs ? "no_runs" : "no_runs_folder"),
        );
      } catch (error) {
        say(troubleWords(page, error), true);
      }
    }
    setTimeout(watch, EVERY);
  }

  function say(words, trouble = false) {
    note.hidden = !words;
    note.classList.toggle("st-error", trouble);
    if (note.textContent !== words) note.textContent = words;
  }

  async function choose(id, on) {
    chosen = listing.map((one) => one.id).filter((one) => (one === id ? on : chosen?.includes(one)));
    keep();
    draw();
    try {
      await look();
    } catch (error) {
      say(troubleWords(page, error), true);
    }
    say(chosen.length ? "" : page.words("choose_runs"));
    draw();
  }

  // ---- the picture

  function draw() {
    document.title = `${page.words("runs_title")} · Clearhead`;
    title.textContent = page.words("runs_title");
    const held = document.activeElement?.dataset?.run;
    list.replaceChildren(
      ...listing.map((one) => {
        const box = el("input", {
          type: "checkbox",
          "data-run": one.id,
          onchange: () => choose(one.id, box.checked),
          style: { "accent-color": colour(one.id) },
        });
        box.checked = Boolean(chosen?.includes(one.id));
        return el(
          "label",
          { class: "st-run" },
          box,
          el("span", {}, el("b", {}, one.name), el("small", {}, facts(one))),
          el("i", { style: { background: colour(one.id) } }),
        );
      }),
    );
    if (held) list.querySelector(`[data-run="${held}"]`)?.focus();
    drawOptions();
    const shown = (chosen ?? []).map((id) => runs.get(id)).filter(Boolean);
    const metrics = [...new Set(shown.flatMap((run) => Object.keys(run.measures)))].filter((name) => name !== "loss");
    const wanted = shown.some((run) => run.begin || run.lines.loss.length)
      ? [
          ...LINES.map(([key, name]) => [
            key,
            {
              title: page.words(key, { units: unitsOf(shown) }),
              log: name === "loss" && settings.log,
              smooth: name === "loss" && settings.smooth,
              marks: name === "loss",
              lines: shown.map((run) => line(run, run.lines[name], name === "loss" ? run.measures.loss : [])),
            },
          ]),
          ...metrics.map((name) => [
            `metric ${name}`,
            {
              title: page.words("chart_metric", { name: name.replaceAll("_", " ") }),
              marks: true,
              lines: shown.map((run) => line(run, [], run.measures[name] ?? [], true)),
            },
          ]),
        ]
      : [];
    for (const [key, one] of drawn)
      if (!wanted.some(([name]) => name === key)) {
        one.destroy();
        drawn.delete(key);
      }
    for (const [key, data] of wanted) {
      if (!drawn.has(key)) drawn.set(key, chart(charts, page));
      drawn.get(key).update(data);
    }
    drawSamples(shown);
  }

  /** What the runs count, in their own words. */
  const unitsOf = (shown) => {
    const units = [...new Set(shown.map((run) => run.begin?.unit).filter(Boolean))];
    if (units.length !== 1) return page.words(units.length ? "units_several" : "units_unit");
    return known(`units_${units[0]}`) ? page.words(`units_${units[0]}`) : units[0];
  };

  const line = (run, points, marks = [], joined = false) => ({
    name: listing.find((one) => one.id === run.id)?.name ?? run.id,
    colour: colour(run.id),
    points,
    marks: marks ?? [],
    joined,
  });

  function drawOptions() {
    if (options.dataset.lang === page.lang || !listing.length) return;
    options.dataset.lang = page.lang;
    options.replaceChildren(
      ...[
        ["log", "scale_log"],
        ["smooth", "smooth"],
      ].map(([name, words]) => {
        const box = el("input", {
          type: "checkbox",
          name,
          onchange: () => {
            settings[name] = box.checked;
            keep();
            draw();
          },
        });
        box.checked = settings[name];
        return el("label", { class: "st-param st-bool" }, el("span", {}, page.words(words)), box);
      }),
    );
  }

  function facts(one) {
    const run = runs.get(one.id),
      newest = run?.newest;
    const silent = Date.now() / 1000 - one.changed;
    const state = one.ended
      ? page.words(run?.end && run.end.finished === false ? "run_stopped" : "run_ended")
      : silent > SILENT
        ? page.words("run_quiet", { t: duration(silent) })
        : page.words("run_going");
    const at = newest
      ? page.words("of_steps", { n: whole(newest.step), all: whole(newest.steps) })
      : one.step !== null
        ? page.words("step_n", { n: whole(one.step) })
        : "";
    const left =
      !one.ended && newest?.eta && silent <= SILENT ? page.words("time_left", { t: duration(newest.eta) }) : "";
    return [state, at, typeof one.loss === "number" ? `${page.words("chart_loss")} ${number(one.loss)}` : "", left]
      .filter(Boolean)
      .join(" · ");
  }

  const pages = new Map(); // id → which sample; nothing: the newest
  function drawSamples(shown) {
    const held = document.activeElement?.dataset?.sample;
    samples.replaceChildren(
      ...shown.map((run) => {
        const name = listing.find((one) => one.id === run.id)?.name ?? run.id;
        const parts = [];
        if (run.samples.length) {
          const last = run.samples.length - 1,
            at = Math.min(pages.get(run.id) ?? last, last),
            [step, text] = run.samples[at];
          const slide = el("input", {
            type: "range",
            min: 0,
            max: last,
            value: at,
            "data-sample": run.id,
            "aria-label": `${page.words("sample_at")}: ${name}`,
            "aria-valuetext": page.words("step_n", { n: whole(step) }),
            oninput: () => {
              if (Number(slide.value) === last) pages.delete(run.id);
              else pages.set(run.id, Number(slide.value));
              drawSamples(shown);
            },
          });
          parts.push(
            el(
              "div",
              { class: "st-control" },
              el("span", {}, page.words("samples")),
              last ? slide : "",
              el("output", {}, page.words("step_n", { n: whole(step) })),
            ),
            el("p", { class: "st-written" }, text),
          );
        }
        if (run.end?.test && Object.keys(run.end.test).length)
          parts.push(
            el(
              "p",
              { class: "st-line" },
              `${page.words("test_result")}: ${Object.entries(run.end.test)
                .map(([metric, value]) => `${metric} ${number(value)}`)
                .join(" · ")}`,
            ),
          );
        if (run.end?.text) parts.push(el("p", { class: "st-line st-error" }, run.end.text));
        parts.push(...run.notes.map((text) => el("p", { class: "st-line" }, text)));
        if (run.recipe)
          parts.push(
            el(
              "details",
              {
                open: opened.has(run.id),
                ontoggle: (event) => (event.target.open ? opened.add(run.id) : opened.delete(run.id)),
              },
              el("summary", {}, page.words("recipe")),
              el("div", { class: "st-code" }, el("pre", { tabindex: "0" }, run.recipe)),
            ),
          );
        return parts.length
          ? el(
              "article",
              { style: { "--hue": colour(run.id) } },
              el("h2", {}, name),
              el("p", { class: "st-facts" }, about(run.begin)),
              parts,
            )
          : "";
      }),
    );
    if (held) samples.querySelector(`[data-sample="${held}"]`)?.focus();
  }
  const opened = new Set();

  const about = (begin) =>
    begin
      ? [
          begin.family,
          begin.objective,
          page.words("n_parameters", { n: whole(begin.parameters) }),
          `${begin.device}${begin.devices > 1 ? ` × ${begin.devices}` : ""}`,
          begin.precision,
        ]
          .filter(Boolean)
          .join(" · ")
      : "";

  page.onChange(draw);
  draw();
  watch();
}

const empty = () => ({
  begin: null,
  newest: null,
  end: null,
  recipe: null,
  lines: { loss: [], lr: [], units_per_second: [], grad_norm: [] },
  measures: {},
  samples: [],
  notes: [],
});

/** A run that goes on begins again; what it does anew replaces what it did before. */
function record(run, event) {
  const step = event.step ?? 0;
  if (event.event === "begin") {
    const until = (points) => points.filter(([at]) => at <= step);
    Object.assign(run, { begin: event, end: null, samples: until(run.samples) });
    for (const name of Object.keys(run.lines)) run.lines[name] = until(run.lines[name]);
    for (const name of Object.keys(run.measures)) run.measures[name] = until(run.measures[name]);
  } else if (event.event === "step") {
    run.newest = event;
    for (const name of Object.keys(run.lines))
      if (typeof event[name] === "number") run.lines[name].push([step, event[name]]);
  } else if (event.event === "evaluation") {
    for (const [name, value] of Object.entries(event.metrics ?? {}))
      if (typeof value === "number") {
        run.measures[name] ??= [];
        run.measures[name].push([step, value]);
      }
  } else if (event.event === "sample") run.samples.push([step, String(event.text)]);
  else if (event.event === "note") run.notes = [...run.notes, String(event.text)].slice(-5);
  else if (event.event === "end") run.end = event;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} d`;
}

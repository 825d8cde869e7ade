"""The figures in a real browser, from a file and without a network: drawn, hovered, pinned, in both languages."""

import html
import json
import re
import subprocess

import numpy as np
import pytest

from clearhead.explain.ablation import ablation
from clearhead.explain.alignment_steps import alignment_steps
from clearhead.explain.attention import attention
from clearhead.explain.attention_steps import attention_steps
from clearhead.explain.beams import beams
from clearhead.explain.caching import caching
from clearhead.explain.echo import echo
from clearhead.explain.gates import gates
from clearhead.explain.hidden_states import hidden_states
from clearhead.explain.neuron_probe import neuron_probe
from clearhead.explain.neurons import neurons, top_tokens
from clearhead.explain.next_token import next_token
from clearhead.explain.parameters import parameters
from clearhead.explain.patching import patching
from clearhead.explain.positions import positions
from clearhead.explain.prediction import prediction
from clearhead.explain.query_key import query_key
from clearhead.explain.saliency import saliency
from clearhead.explain.sampling import sampling
from clearhead.explain.similarity import similarity
from clearhead.explain.walk import walk
from clearhead.studio.screenshots import CHROMIUM
from clearhead.views.page import fragment
from clearhead.views.widget import module
from tests.explain.library import of_library
from tests.explain.test_length_curve import curves
from tests.programs import need_chromium
from tests.tiny import TEXT, tiny_pipeline
from tests.views.test_page import finding_of, of_words

CHANGED = TEXT.replace("cat sat on", "cat on sat")


@pytest.fixture(autouse=True)
def chromium():
    need_chromium()


# Frames of the same origin: the page around them can look inside, try them, and write down what it saw.
LOOK = r"""
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// Texts whose contrast with their ground is below AA, 4.5 to 1. What a canvas shows is chosen by scale.onTop.
function faint(figure) {
  const view = figure.ownerDocument.defaultView, found = [];
  const parts = (colour) => { const n = colour.match(/[\d.]+/g).map(Number); return [n.slice(0, 3), n[3] ?? 1]; };
  const over = ([rgb, alpha], ground) => rgb.map((v, n) => v * alpha + ground[n] * (1 - alpha));
  const light = (rgb) => { const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const paint = (node) => { // what lies behind a node: grounds from the outside in; in a drawing, the box behind the word
    const chain = [];
    for (let n = node; n && n.nodeType === 1; n = n.parentNode) chain.unshift(n);
    let ground = [255, 255, 255];
    for (const n of chain) {
      if (n.namespaceURI.endsWith("svg")) { const box = n.localName === "g" && n.querySelector(":scope > rect.ch-hit"); if (box) { const [rgb, alpha] = parts(view.getComputedStyle(box).fill.replace("none", "rgba(0,0,0,0)")); ground = over([rgb, alpha], ground); } } else ground = over(parts(view.getComputedStyle(n).backgroundColor), ground);
    }
    return [ground, chain.reduce((all, n) => all * Number(view.getComputedStyle(n).opacity), 1)];
  };
  for (const node of figure.querySelectorAll("*")) {
    const text = [...node.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent).join("").trim();
    const style = view.getComputedStyle(node), drawn = node.namespaceURI.endsWith("svg");
    if (!text || style.display === "none" || style.visibility === "hidden" || !node.getClientRects().length || node.closest(".ch-live, [hidden], option")) continue;
    const [ground, opacity] = paint(node);
    const [rgb, alpha] = parts(drawn ? style.fill : style.color);
    const seen = over([rgb, alpha * opacity * (drawn ? Number(style.fillOpacity) : 1)], ground);
    const [a, b] = [light(seen), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${text.slice(0, 24)} (${node.getAttribute("class") ?? node.localName}): ${ratio.toFixed(2)}`);
  }
  return found;
}
async function look(frame) {
  const inside = frame.contentDocument, figure = inside.querySelector("figure");
  if (!figure) return { drawn: false };
  const ask = (name) => figure.querySelector(name);
  const seen = { drawn: true, question: ask("h3").textContent, reading: ask("figcaption").textContent,
    model: ask(".ch-model").textContent,
    marks: figure.querySelectorAll(".ch-tok, .ch-row, canvas, .ch-choice, .ch-ranked > *, .ch-node, .ch-area, .ch-chart").length,
    legend: !!ask(".ch-legend"), height: frame.getBoundingClientRect().height,
    inner: inside.body.getBoundingClientRect().height,
    wide: inside.documentElement.scrollWidth - inside.documentElement.clientWidth };
  seen.faint = faint(figure);
  const mark = ask("canvas.ch-cells") ?? ask(".ch-ranked > button, .ch-nums span, .ch-node, .ch-area, .ch-probabilities .ch-choice + .ch-choice") ?? ask(".ch-ranked > .ch-choice") ?? ask(".ch-tok, .ch-chart");
  const box = mark.getBoundingClientRect();
  const at = { clientX: box.left + 3, clientY: box.top + 3, bubbles: true };
  for (const name of ["pointerenter", "pointermove"]) mark.dispatchEvent(new frame.contentWindow.PointerEvent(name, at));
  seen.tip = ask(".ch-tip").textContent;
  if (mark.localName === "canvas") mark.dispatchEvent(new frame.contentWindow.MouseEvent("click", at));
  seen.faint.push(...faint(figure));
  seen.pinned = !!ask(".ch-pin rect, .ch-on, .ch-pinned");
  return seen;
}
onload = async () => {
  const seen = {};
  try {
    for (let n = 0; n < 40 && [...document.querySelectorAll("iframe")].some((f) => !f.contentDocument?.querySelector("figcaption")); n++) await wait(100);
    for (const frame of document.querySelectorAll("iframe")) seen[frame.title.split(": ")[1]] = await look(frame);
    if (window.more) seen.more = await window.more();
  } catch (error) { seen.error = String(error.stack); }
  document.body.innerHTML = "";
  document.body.append(Object.assign(document.createElement("pre"), { id: "seen", textContent: JSON.stringify(seen) }));
};
"""  # noqa: E501


def browse(body, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(f'<!doctype html><meta charset="utf-8"><body>{body}<script>{LOOK}</script>', encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1200,900", "--virtual-time-budget=20000", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    seen = json.loads(html.unescape(found[1]))
    assert "error" not in seen, seen["error"]
    return seen


@pytest.fixture(scope="module")
def pipe():
    return tiny_pipeline("gpt2")


@pytest.fixture(scope="module")
def findings(pipe):
    tokens = attention(pipe, TEXT).tokens
    return [
        attention(pipe, TEXT), attention_steps(pipe, TEXT), query_key(pipe, TEXT), ablation(pipe, TEXT),
        saliency(pipe, TEXT, max_new_tokens=2),
        hidden_states(pipe, TEXT), hidden_states(pipe, TEXT, positions=-1, candidates=[" cat", " mat"]),
        next_token(pipe, TEXT), walk(pipe, TEXT), neurons(pipe, TEXT, top=6), top_tokens(pipe, [TEXT], 0, 1),
        gates(tiny_pipeline("rnn"), TEXT), neuron_probe(pipe, [TEXT, CHANGED]),
        alignment_steps(tiny_pipeline("rnn-seq2seq"), TEXT, "a dog sat"), echo(tiny_pipeline("rnn"), TEXT), curves(),
        finding_of("factors", model="small", tokens=tokens, factors=np.eye(2, len(tokens)), error=0.1,
                   weights=np.array([0.7, 0.3])),
        similarity(pipe, TEXT, tiny_pipeline("bert"), unbiased=True), patching(pipe, TEXT, CHANGED),
        caching(pipe, TEXT, 3),
        beams(pipe, TEXT, 3, 5), positions(pipe, 16), parameters(pipe), sampling(pipe, TEXT, 0.7, 20, 0.9),
        prediction(tiny_pipeline("bert", "pretraining"), "the [MASK] sat on", "the [MASK] ran"), *of_words()[1:],
        *of_library(),
    ]  # fmt: skip


def frames(findings):
    return "".join(fragment(found).replace('loading="lazy"', "") for found in findings)


def test_every_kind_is_drawn_and_answers_the_pointer(findings, tmp_path):
    seen = browse(frames(findings), tmp_path)
    assert len(seen) == len(findings)
    for kind, figure in seen.items():
        assert figure["drawn"], kind
        assert figure["question"].endswith("?"), kind
        assert len(figure["reading"]) > 40, kind
        assert figure["marks"] > 0, kind
        assert figure["legend"] or kind in ("next-tokens", "walk", "prediction", "neighbours"), kind
        assert not figure["faint"], kind
        assert figure["wide"] <= 0, f"{kind} is wider than its frame"
        assert abs(figure["height"] - figure["inner"]) < 8, f"{kind} does not fill its frame"
        assert figure["tip"], kind
    matrices = ("attention", "ablation", "hidden-states", "comparison", "similarity", "patching", "neurons", "gates")
    for kind in (*matrices, "echo", "word-map", "word-in-context"):
        assert seen[kind]["pinned"], kind


def test_text_can_be_read_in_the_dark_too(findings, tmp_path):
    dark = '<script>document.body.dataset.jpThemeLight = "false"</script>'  # as a notebook says it
    seen = browse(dark + frames([*findings, prediction(tiny_pipeline("bert", "token-classification"), TEXT)]), tmp_path)
    assert {kind: figure["faint"] for kind, figure in seen.items() if figure["faint"]} == {}


def test_the_tree_grows_with_the_slider(pipe, tmp_path):
    found = beams(pipe, TEXT, 3, 5)
    script = """<script>window.more = async () => {
      const inside = document.querySelector("iframe").contentDocument,
      ask = (name) => [...inside.querySelectorAll(name)];
      const shown = () => ask(".ch-node").filter((node) => node.style.display !== "none").map((node) => Number(node.dataset.at.slice(1)));
      const lit = () => ask(".ch-node.ch-best").map((node) => Number(node.dataset.at.slice(1)));
      const whole = [shown(), lit()], slider = inside.querySelector("input[type=range]");
      slider.value = 2;
      slider.dispatchEvent(new Event("input"));
      const early = [shown(), ask(".ch-texts tbody tr").length];
      slider.dispatchEvent(new Event("change"));
      inside.querySelector("input[type=range]").value = 5;
      inside.querySelector("input[type=range]").dispatchEvent(new Event("change"));
      inside.querySelector("[data-at=answer1]").click();
      const second = lit();
      inside.querySelector("[data-at=play]").click();
      const playing = shown().length;
      await wait(2000);
      return { whole, early, second, playing, later: shown().length };
    };</script>"""  # noqa: E501
    body = frames([found]) + script
    seen = browse(body, tmp_path)["more"]
    assert seen["whole"] == [[node.id for node in found.nodes], found.answers[0].nodes]
    assert seen["early"] == [[node.id for node in found.nodes if node.step <= 2], 3]
    assert seen["second"] == found.answers[1].nodes
    assert seen["playing"] == 6 < seen["later"]  # begins with the first step and goes on by itself


def test_sampling_on_the_page_is_sampling_in_python(pipe, tmp_path):
    """The reader's sliders compute what `generate` would: compared with findings made with those settings."""
    ways = [(0.7, 20, 0.9), (1.5, None, 0.5), (0.35, 3, None), (2.0, 50, 0.97), (1.0, None, None), (0.05, None, 0.3)]
    asked = json.dumps(ways)
    script = f"""<script>window.more = async () => {{
      const inside = document.querySelector("iframe").contentDocument;
      return {asked}.map(([temperature, top_k, top_p]) => {{
        for (const [name, value] of Object.entries({{ temperature, top_k: top_k ?? 1e9, top_p: top_p ?? 1 }})) {{
          const slider = inside.querySelector(`[data-at=${{name}}]`);
          slider.value = value;
          slider.dispatchEvent(new Event("input"));
        }}
        return {{ after: [...inside.querySelectorAll("[data-token]")].map((row) => [Number(row.dataset.token), Number(row.dataset.after)]),
          cut: JSON.parse(inside.querySelector(".ch-mass").dataset.cut) }};
      }});
    }};</script>"""  # noqa: E501
    body = frames([sampling(pipe, TEXT, 1.0, show=30)]) + script
    for (temperature, top_k, top_p), seen in zip(ways, browse(body, tmp_path)["more"], strict=True):
        wanted = sampling(pipe, TEXT, temperature, top_k, top_p, show=24)
        assert [token for token, _ in seen["after"]] == [one.token_id for one in wanted.candidates]
        assert [chance for _, chance in seen["after"]] == pytest.approx(
            [one.after for one in wanted.candidates], abs=2e-6
        )
        assert seen["cut"]["left"] == wanted.remaining
        cuts = {stage.name: stage.removed_mass for stage in wanted.stages}
        assert seen["cut"]["top_k"] == pytest.approx(cuts.get("top_k", 0.0), abs=2e-6)
        assert seen["cut"]["top_p"] == pytest.approx(cuts.get("top_p", 0.0), abs=2e-6)


def test_areas_are_parameters(tmp_path):
    found = parameters("gpt2")
    script = """<script>window.more = async () => {
      const areas = [...document.querySelector("iframe").contentDocument.querySelectorAll(".ch-area")];
      return areas.map((area) => [Number(area.dataset.parameters), (parseFloat(area.style.width) + 2) * (parseFloat(area.style.height) + 2)]);
    };</script>"""  # noqa: E501
    body = frames([found]) + script
    seen = browse(body, tmp_path)["more"]
    assert sum(count for count, _ in seen) == found.total
    whole = sum(area for _, area in seen)
    for count, area in seen:
        assert area / whole == pytest.approx(count / found.total, abs=2e-3)


def test_whoever_shows_a_figure_is_told_what_was_picked(tmp_path):
    """A next token that was clicked, a head that was clicked, another side of an encoder–decoder."""
    both = tiny_pipeline("bart")
    shown = [next_token(tiny_pipeline("gpt2"), TEXT), attention(both, TEXT, target="a dog sat")]
    sources = {found.kind: module(found.kind) for found in shown}
    given = json.dumps([[found.kind, found.to_dict(), sources[found.kind]] for found in shown]).replace("<", "\\u003c")
    body = f"""<div id="here"></div><script>
    window.more = async () => {{
      const told = {{}}, host = document.getElementById("here");
      const options = {{ onPick: (token) => {{ told.pick = token.token_id; }}, onHead: (head) => {{ told.head = head; }}, onSide: (side) => {{ told.side = side; }} }};
      for (const [kind, finding, source] of {given}) {{
        const address = URL.createObjectURL(new Blob([source.replace("export default {{ render }};", "export default {{ address }};")], {{ type: "text/javascript" }}));
        const {{ draw }} = await import((await import(address)).default.address(kind.replace("-", "_") + ".js"));
        const figure = draw(host, finding, options);
        host.querySelector(".ch-ranked button")?.click();
        host.querySelector("[data-at=head1]")?.click();
        host.querySelector("[data-at=group-encoder]")?.click();
        figure.destroy();
      }}
      return told;
    }};</script>"""  # noqa: E501
    told = browse(body, tmp_path)["more"]
    layer = told.pop("head")
    assert layer["head"] == 1 and layer["layer"] in shown[1].layers
    assert told == {"pick": shown[0].candidates[0].token_id, "side": "encoder"}


def test_the_widget_is_one_module_that_keeps_python_informed(pipe, tmp_path):
    found = json.dumps(next_token(pipe, TEXT).to_dict()).replace("<", "\\u003c")
    source = json.dumps(module("next-tokens")).replace("<", "\\u003c")
    body = f"""<div id="here"></div><script>
    window.more = async () => {{
      const values = {{ finding: {found}, state: {{}}, lang: "zh" }}, on = {{}};
      const model = {{ get: (key) => values[key], set: (key, value) => {{ values[key] = value; }}, save_changes() {{}},
        on: (name, act) => {{ on[name] = act; }} }};
      const address = URL.createObjectURL(new Blob([{source}], {{ type: "text/javascript" }}));
      const widget = (await import(address)).default, el = document.getElementById("here");
      const end = await widget.render({{ model, el }});
      const before = el.querySelector("h3").textContent;
      values.lang = "en";
      on["change:lang"]();
      const after = el.querySelector("h3").textContent;
      el.querySelector(".ch-ranked button").click();
      end();
      return {{ before, after, chosen: values.state.chosen, left: el.childNodes.length }};
    }};</script>"""
    seen = browse(body, tmp_path)["more"]
    best = next_token(pipe, TEXT).candidates[0].token_id
    assert seen == {"before": "接下来可能是什么？", "after": "What may come next?", "chosen": best, "left": 0}


def test_swapped_heads_and_pinned_places(pipe, tmp_path):
    """A pinned position lights up in both texts, a head has no place in them, and the words say what was measured."""
    heads = patching(pipe, TEXT, CHANGED, tap="attention.heads", answer=" cat", layers=[0, 1])
    positions = patching(pipe, TEXT, CHANGED, positions=[[1, 2], [3]])
    frames = "".join(fragment(found).replace('loading="lazy"', "") for found in (heads, positions))
    body = f"""{frames}<script>window.more = async () => [...document.querySelectorAll("iframe")].map((frame) => {{
      const figure = frame.contentDocument.querySelector("figure");
      return {{ on: [...figure.querySelectorAll(".ch-on")].map((node) => node.dataset.at), reading: figure.querySelector("figcaption").textContent }};
    }});</script>"""  # noqa: E501
    by_head, by_position = browse(body, tmp_path)["more"]
    assert by_head["on"] == [] and "one layer and head at a time" in by_head["reading"]
    assert "score of “cat” all the way" in by_head["reading"]
    assert by_position["on"] == ["t1", "t2"] * 2 and "above" in by_position["reading"]

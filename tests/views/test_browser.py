"""The figures in a real browser, from a file and without a network: drawn, hovered, pinned, in both languages."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from clearhead.explain.ablation import ablation
from clearhead.explain.attention import attention
from clearhead.explain.hidden_states import hidden_states
from clearhead.explain.neurons import neurons, top_tokens
from clearhead.explain.next_token import next_token
from clearhead.explain.query_key import query_key
from clearhead.explain.saliency import saliency
from clearhead.explain.walk import walk
from clearhead.views.page import fragment
from clearhead.views.widget import module
from tests.explain.samples import TEXT, small
from tests.views.test_page import finding_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

# Frames of the same origin: the page around them can look inside, try them, and write down what it saw.
LOOK = r"""
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
async function look(frame) {
  const inside = frame.contentDocument, figure = inside.querySelector("figure");
  if (!figure) return { drawn: false };
  const ask = (name) => figure.querySelector(name);
  const seen = { drawn: true, question: ask("h3").textContent, reading: ask("figcaption").textContent,
    model: ask(".ch-model").textContent, marks: figure.querySelectorAll(".ch-tok, .ch-row, canvas, .ch-choice, .ch-ranked > *").length,
    legend: !!ask(".ch-legend"), height: frame.getBoundingClientRect().height, inner: inside.body.getBoundingClientRect().height,
    wide: inside.documentElement.scrollWidth - inside.documentElement.clientWidth };
  const mark = ask("canvas.ch-cells") ?? ask(".ch-ranked > button, .ch-nums span") ?? ask(".ch-tok");
  const box = mark.getBoundingClientRect();
  const at = { clientX: box.left + 3, clientY: box.top + 3, bubbles: true };
  for (const name of ["pointerenter", "pointermove"]) mark.dispatchEvent(new frame.contentWindow.PointerEvent(name, at));
  seen.tip = ask(".ch-tip").textContent;
  if (mark.localName === "canvas") mark.dispatchEvent(new frame.contentWindow.MouseEvent("click", at));
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
    return small("gpt2")


def test_every_kind_is_drawn_and_answers_the_pointer(pipe, tmp_path):
    tokens = attention(pipe, TEXT).tokens
    findings = [
        attention(pipe, TEXT), query_key(pipe, TEXT), ablation(pipe, TEXT), saliency(pipe, TEXT, max_new_tokens=2),
        hidden_states(pipe, TEXT), hidden_states(pipe, TEXT, positions=-1, candidates=[" cat", " mat"]),
        next_token(pipe, TEXT), walk(pipe, TEXT), neurons(pipe, TEXT, top=6), top_tokens(pipe, [TEXT], 0, 1),
        finding_of("factors", model="small", tokens=tokens, factors=np.eye(2, len(tokens)), error=0.1,
                   weights=np.array([0.7, 0.3])),
        finding_of("similarity", a="one", b="two", measure="cka", layers_a=[0, 1], layers_b=[0, 1], values=np.eye(2)),
        finding_of("patching", model="small", clean=tokens, corrupted=tokens, tap="layers.*.output", layers=[0, 1],
                   effect=np.ones((2, len(tokens))), answers=[" cat", " dog"]),
    ]  # fmt: skip
    seen = browse("".join(fragment(found).replace('loading="lazy"', "") for found in findings), tmp_path)
    assert len(seen) == len(findings)
    for kind, figure in seen.items():
        assert figure["drawn"], kind
        assert figure["question"].endswith("?"), kind
        assert len(figure["reading"]) > 40, kind
        assert figure["marks"] > 0, kind
        assert figure["legend"] or kind in ("next-tokens", "walk"), kind
        assert figure["wide"] <= 0, f"{kind} is wider than its frame"
        assert abs(figure["height"] - figure["inner"]) < 8, f"{kind} does not fill its frame"
        assert figure["tip"], kind
    for kind in ("attention", "ablation", "hidden-states", "comparison", "similarity", "patching", "neurons"):
        assert seen[kind]["pinned"], kind


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

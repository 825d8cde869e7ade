"""Findings as one HTML file: everything inside, nothing from outside, and no text can break out of its place."""

import base64
import dataclasses
import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain.ablation import ablation
from clearhead.explain.finding import Finding
from clearhead.explain.neighbours import neighbours
from clearhead.explain.next_token import Candidate, NextTokens
from clearhead.explain.token_path import Column, Vector, WalkStep
from clearhead.explain.walk import Walk, walk
from clearhead.explain.word_in_context import word_in_context
from clearhead.explain.word_map import word_map
from clearhead.pipeline.vector_files import pipeline_of
from clearhead.text.word_vectors import Words
from clearhead.views import page as pages
from clearhead.views.page import WEB, compact, fragment, modules, page, script_json
from tests.programs import need_node
from tests.tiny import TEXT, tiny_pipeline

KINDS = [
    "attention", "attention-steps", "query-key", "ablation", "saliency", "neurons", "top-tokens", "factors",
    "hidden-states", "comparison", "similarity", "patching", "next-tokens", "walk", "beams", "positions", "parameters",
    "prediction", "sampling", "neighbours", "word-map",
    "word-in-context", "store-map", "passages", "retrieval-ablation",
]  # fmt: skip
EVIL = "</script><script>alert(1)</script><!-- \u2028 &amp; \" ' ]]>"


def next_tokens(text="Once upon a", token=" time"):
    return NextTokens("a model", text, None, [Candidate(token, 7, 0.75, 3.5), Candidate("\n", 8, 0.25, 2.4)], 0.81, 50)


def small_walk():
    steps = [
        WalkStep("Embedding", "Token 7 becomes a vector of 4 numbers.", "embed.output",
                 [Vector("token", [0.5, -1.0], 4)]),
        WalkStep("Score, scale, mask, softmax", "Multiplied by 0.5.", "layers.0.attention.weights",
             columns=[Column("score", [1.0, None]), Column("weight", [1.0, 0.0], True)]),
        WalkStep("The next token", "All 50 words.", "logits", guesses=[(" time", 0.9), ("!", 0.1)]),
    ]  # fmt: skip
    return Walk("a model", ["Once", " upon"], 0, 0, 1, 2, 2, steps)


def finding_of(kind, **given):
    fields = [(name, object) for name in given]
    made = dataclasses.make_dataclass("Made", fields, bases=(Finding,), frozen=True, namespace={"kind": kind})
    return made(**given)


def of_words():
    """A word's neighbours, a sum, a map, and a word in two contexts of two meanings."""
    table = torch.arange(20.0).view(5, 4).sin()
    vectors = pipeline_of(Words.of(["king", "queen", "猫", "man", "woman"]), table, "own vectors")
    return (
        neighbours(vectors, "king"),
        neighbours(vectors, "king - man + 猫"),
        word_map(vectors, "king -> 猫 man woman"),
        word_in_context(tiny_pipeline("bert"), "the king sat\nA king ran\n\nthe King", table=vectors),
    )


def embedded(text):
    found = re.search(r'<script type="application/json" id="finding">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def test_every_kind_has_a_view_whose_modules_are_all_there():
    for kind in KINDS:
        sources = modules(pages.module_of(kind))
        assert "export const draw" in sources[pages.module_of(kind)]
        assert {"figure.js", "words.js", "dom.js"} <= sources.keys()


def test_what_is_not_drawn_is_refused_with_a_way_out():
    with pytest.raises(InputError, match="json"):
        page(finding_of("weather", model="m"))


def test_a_page_needs_nothing_from_outside():
    text = page(next_tokens())
    assert text.startswith("<!doctype html>")
    assert not re.findall(r'(?:src|href)\s*=\s*["\']?(?:https?:)?//', text)
    imports = json.loads(re.search(r'<script type="importmap">(.*?)</script>', text)[1])["imports"]
    for name, address in imports.items():
        source = base64.b64decode(address.removeprefix("data:text/javascript;base64,")).decode()
        needed = re.findall(r'(?m)^(?:import|(?:import|export) [^"=]* from) "([^"]+)"', source)
        assert set(needed) <= imports.keys(), name  # every import has an address, and none is relative
        assert not re.search(r"https?://(?!www\.w3\.org/)", source), name


@pytest.mark.parametrize("draw", [page, lambda found: html.unescape(re.search('srcdoc="([^"]*)"', fragment(found))[1])])
def test_no_text_breaks_out(draw):
    evil = next_tokens(EVIL, EVIL)
    text = draw(dataclasses.replace(evil, model=EVIL))
    assert "<script>alert" not in text
    back = embedded(text)
    assert back["text"] == EVIL
    assert back["candidates"][0]["token"] == EVIL
    assert back["model"] == EVIL
    assert "\u2028" not in text.split("<body")[1]


def test_a_fragment_is_one_attribute():
    text = fragment(next_tokens('a "quoted" <b>', "'"))
    assert text.count("<iframe") == 1
    assert text.count('"') == 2 * len(re.findall(r'\s[a-z]+="', text))


def test_large_arrays_travel_exactly():
    weights = np.random.default_rng(0).random((3, 2, 20, 20)).astype(np.float32)
    weights[0, 0, 0, 1] = np.nan
    packed = compact(finding_of("attention", weights=weights, layers=list(range(1000)), names=["a"] * 600))
    assert packed["weights"]["shape"] == [3, 2, 20, 20]
    back = np.frombuffer(base64.b64decode(packed["weights"]["$float32"]), "<f4").reshape(3, 2, 20, 20)
    np.testing.assert_array_equal(back, weights)
    assert packed["layers"] == list(range(1000))  # whole numbers and words stay what they are
    assert packed["names"] == ["a"] * 600
    assert compact(finding_of("attention", weights=weights[:1, :1, :2]))["weights"][0][0][0][1] is None


def test_what_a_finding_says_itself_has_its_chinese_beside_it(tmp_path):
    found = ablation(tiny_pipeline("gpt2"), TEXT)
    packed = compact(found)
    assert packed["metric"] == "how far the probabilities of the next token move, in bits"
    assert packed["$zh"] == {"metric": "下一个词元的概率变化，以比特计"}
    assert "$zh" not in found.to_dict()
    assert compact(walk(tiny_pipeline("gpt2"), TEXT))["$zh"]["steps"]["0"]["title"] == "嵌入"


def test_json_in_a_script_has_no_markup():
    assert json.loads(script_json({"a": EVIL})) == {"a": EVIL}
    assert "<" not in script_json({"a": EVIL})
    with pytest.raises(ValueError, match="JSON"):
        script_json(float("nan"))


def test_saved_whole(tmp_path):
    path = small_walk().save(tmp_path / "walk.html")
    assert embedded(path.read_text(encoding="utf-8"))["steps"][1]["columns"][0]["numbers"] == [1.0, None]


# ---- the modules themselves, read by a JavaScript engine where there is one

node = pytest.mark.usefixtures("needs_node")


@pytest.fixture
def needs_node():
    need_node()


def run(script, tmp_path):
    for source in WEB.glob("*.js"):
        shutil.copy(source, tmp_path / source.name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "run.mjs").write_text(script)
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_lines_can_be_read():
    sources = [*WEB.glob("*.*s"), *(WEB.parents[1] / "studio/web").rglob("*.*s")]
    assert len(sources) > 50
    for source in sources:
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
            assert len(line) <= 120, f"{source.name}:{number}"


@node
def test_every_module_is_read_without_error(tmp_path):
    names = sorted(source.name for source in WEB.glob("*.js"))
    script = f"for (const name of {json.dumps(names)}) await import('./' + name); console.log('true')"
    assert run(script, tmp_path) is True


@node
def test_every_word_that_is_asked_for_is_there_in_both_languages(tmp_path):
    asked = set()
    for source in WEB.glob("*.js"):
        asked |= set(re.findall(r'\bwords\("(\w+)"', source.read_text(encoding="utf-8")))
    table = run("import { WORDS } from './words.js'; console.log(JSON.stringify(WORDS))", tmp_path)
    assert asked <= table.keys(), asked - table.keys()
    for key, (english, chinese) in table.items():
        assert english and chinese, key
        assert english != chinese or key not in asked, key
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese)), key


@node
def test_tokens_show_their_spaces_and_join_into_words(tmp_path):
    script = r"""import { visible, joins, short } from './tokens.js';
    const tokens = [['un', 0], ['##able', 0], ['[SEP]', null], ['[SEP]', null]]
      .map(([text, word]) => ({ text, word, segment: 0 }));
    const joined = tokens.map((_, n) => joins(tokens, n));
    console.log(JSON.stringify([visible(' a\n\t'), visible('▁b'), visible('\u200b'), joined, short('abcdef', 4)]))"""
    assert run(script, tmp_path) == ["␣a⏎⇥", "␣b", "\\u200b", [False, True, False, False], "abc…"]


@node
def test_packed_numbers_come_back_and_leave_as_json_and_csv(tmp_path):
    values = np.random.default_rng(0).random((30, 20)).astype(np.float32)
    values[3, 4] = np.nan
    packed = compact(finding_of("similarity", values=values))
    script = f"""import {{ unpack, json, csv }} from './numbers.js';
    const found = unpack({json.dumps(packed)});
    console.log(JSON.stringify([JSON.parse(json(found)), csv([['a', 'b,"c'], [1, null]])]))"""
    back, table = run(script, tmp_path)
    assert back["values"][3][4] is None
    np.testing.assert_array_equal(np.nan_to_num(np.array(back["values"], dtype=np.float32)), np.nan_to_num(values))
    assert table == 'a,"b,""c"\n1,\n'


@node
def test_chinese_lies_over_english(tmp_path):
    script = """import { overlay } from './overlay.js';
    import { json } from './numbers.js';
    const steps = [{ title: 'b', n: 1 }, { title: 'c', n: 2 }];
    const finding = { what: 'a', steps, $zh: { steps: { 1: { title: '丙' } } } };
    const over = overlay(finding, finding.$zh);
    console.log(JSON.stringify([over.steps, finding.steps[1].title, JSON.parse(json(finding)).$zh ?? null]))"""
    steps = [{"title": "b", "n": 1}, {"title": "丙", "n": 2}]
    assert run(script, tmp_path) == [steps, "c", None]


@node
def test_ranks_and_contrast(tmp_path):
    script = """import { contrast, rank, onTop, like, percent } from './scale.js';
    const c = { colour: (name) => ({ paper: [253, 252, 249], ink: [28, 27, 25], rank: [51, 32, 143] })[name] };
    const grounds = [1, 2, 5, 10, 30, 100, 300, 1000, 10000].map((n) => rank(c, n));
    const contrasts = grounds.map((g) => contrast(g, onTop(c, g)));
    const words = [like(0.0004, 0.03), like(-0.25, 1), percent(0.504, 1)];
    console.log(JSON.stringify([grounds.map((g) => g[0]), contrasts, ...words]))"""
    reds, contrasts, nothing, quarter, share = run(script, tmp_path)
    assert reds == sorted(reds)  # rank 1 is the strongest
    assert min(contrasts) >= 4.5
    assert (nothing, quarter, share) == ("0", "−.25", "50.4 %")

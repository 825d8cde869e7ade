"""The shipped models: complete, within the budget, and as good as before they were packed."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import clearhead as ch
from clearhead import zoo
from clearhead.hub.packed import PACKED
from clearhead_zoo import CARDS, MODELS

ROOT = Path(__file__).parents[2]
MB = 10**6
TAKEN = ("glove",)  # trained by others, and given to the public domain: no recipe here makes them
ALL_TOGETHER, EACH = 190 * MB, 40 * MB


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*"))


def test_the_core_knows_the_names_of_all():
    assert sorted(zoo.TRAINED) == sorted(CARDS)


def test_every_folder_has_a_card_and_every_card_a_folder():
    assert {path.name for path in MODELS.iterdir()} == set(CARDS)
    assert [card.name for card in zoo.cards().values() if card.folder is not None] == list(CARDS)


@pytest.mark.parametrize("name", CARDS)
def test_a_model_is_complete(name):
    folder = MODELS / name
    own = set() if name in TAKEN else {"recipe.yaml", "curve.json"}
    assert {PACKED, "config.json", "card.md", *own} <= {p.name for p in folder.iterdir()}
    assert json.loads((folder / "config.json").read_text())["model_type"] == CARDS[name][0]
    assert size_of(folder) <= EACH
    pipe = ch.load(name)
    assert all(p.isfinite().all() for p in pipe.model.parameters())


def test_all_together_are_within_the_budget():
    assert size_of(MODELS) <= ALL_TOGETHER


@pytest.mark.slow
@pytest.mark.parametrize(("project", "most"), [(".", 5 * MB), ("zoo", ALL_TOGETHER)])
def test_wheels(project, most, tmp_path):
    """Models are in the second wheel, and in no other."""
    fresh = tmp_path / "fresh.cfg"  # an older build beside the source would leak into the wheel
    fresh.write_text(f"[build]\nbuild_base = {tmp_path / 'build'}\n")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path]
    subprocess.run([*command, ROOT / project], env={**os.environ, "DIST_EXTRA_CONFIG": str(fresh)}, check=True)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    weights = {Path(name).parent.name for name in names if name.endswith(".safetensors")}
    assert weights == (set(CARDS) if project == "zoo" else set())
    assert any(name.startswith("clearhead/zoo/recipes/") for name in names) == (project == ".")
    assert wheel.stat().st_size <= most


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("translate-en-de", "Two dogs are playing in the snow.", "Zwei Hunde spielen im Schnee."),
        ("translate-en-fr", "Two dogs are playing in the snow.", "Deux chiens jouent dans la neige."),
        ("translate-en-zh", "I know.", "我知道。"),
        ("rnn-en-de", "Two dogs are playing in the snow.", "Zwei Hunde spielen im Schnee."),
        ("rnn-attention-en-de", "Two dogs are playing in the snow.", "Zwei Hunde spielen im Schnee."),
        ("rnn-attention-en-zh", "I know.", "我知道。"),
    ],
)
def test_the_translators_translate(name, source, target):
    assert ch.load(name).generate(source, num_beams=5) == target


def test_the_others_have_learned_something():
    """Each is far better than chance at what its card says: the weights came through the packing."""
    stories = ch.load("stories")
    text = "Once upon a time there was a king who had three sons, and the youngest was called Hans."
    ids = stories.tokenizer(text, return_tensors="pt")["input_ids"]
    assert float(stories.model(input_ids=ids, labels=ids).loss.detach()) < 3.2  # chance: 9
    words = ch.load("awd-lstm")
    ids = words.tokenizer(text, return_tensors="pt")["input_ids"]
    assert float(words.model(input_ids=ids, labels=ids).loss.detach()) < 4.5  # chance: 9.9
    [guesses] = ch.load("bert-mini").fill("The [MASK] was sitting on the throne and the queen beside him.")
    assert guesses[0].token == "king"
    cat, kitten, prices = ch.load("sentences").embed(["A cat.", "A kitten.", "Stock prices."])
    assert cat @ kitten > 0.6 > 0.4 > cat @ prices
    sentences = (
        "The dog ran after the stick.\nShe broke the stick.\n\nThe pages stick together.\nLeaves stick to his shoes."
    )
    uses = ch.explain.word_in_context(ch.load("elmo-small"), sentences, word="stick")
    assert uses.within - uses.across > 0.1
    for name, sentence, label in (
        ("sentiment", "A warm, funny and clever film.", "positive"),
        ("sentiment", "The plot makes no sense and the actors are bored.", "negative"),
        ("intents", "My card has not arrived yet.", "card_arrival"),
        ("intents-rnn", "My card has not arrived yet.", "card_arrival"),
    ):
        pipe = ch.load(name)
        scores = pipe.model(**pipe.tokenizer(sentence, return_tensors="pt")).logits[0]
        assert pipe.model.config.id2label[int(scores.argmax())] == label

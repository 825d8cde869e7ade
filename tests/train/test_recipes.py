"""Every shipped recipe, end to end, with small settings on data made here: the model is written, loads, and works."""

import dataclasses
import json
import random
import re
from importlib.util import find_spec
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
from PIL import Image

import clearhead as ch
from clearhead import models
from clearhead.errors import ConfigError
from clearhead.text import train_tokenizer
from clearhead.train import Recipe, read_recipe, read_stages, train
from clearhead.train.engine.schedules import SCHEDULES
from clearhead.train.objectives import OBJECTIVES
from clearhead.zoo.recipes import FOLDER, find_recipe, recipes
from tests.train.runs import check_command

NOUNS = "cat dog girl wolf house tree river king".split()
VERBS = "sees likes finds leaves".split()
GERMAN = dict(zip(NOUNS, "Katze Hund Kind Wolf Haus Baum Fluss Herr".split(), strict=True))


def sentences(count, seed=1):
    rng = random.Random(seed)
    return [f"The {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}." for _ in range(count)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One folder with a file of each kind, a small encoder to start from, and a small GPT-2."""
    folder = tmp_path_factory.mktemp("data")
    texts = sentences(240)
    documents = [" ".join(texts[n : n + 6]) for n in range(0, len(texts), 6)]
    (folder / "text.txt").write_text("\n\n".join(documents))
    for name, some in {"a": texts, "b": texts[:8]}.items():
        german = [" ".join(GERMAN.get(word.strip("."), word) for word in text.split()) for text in some]
        (folder / f"{name}.en").write_text("\n".join(some))
        (folder / f"{name}.de").write_text("\n".join(german))
    with (folder / "classes.csv").open("w") as file:
        file.write("text,label\n" + "".join(f"{t},{'pet' if 'cat' in t or 'dog' in t else 'other'}\n" for t in texts))
    with (folder / "tags.conll").open("w") as file:
        for text in texts:
            file.write("".join(f"{w}\t{'B-PET' if w in ('cat', 'dog') else 'O'}\n" for w in text[:-1].split()) + "\n")
    paragraphs = []  # SQuAD's own file
    for number, text in enumerate(texts[:60]):
        start, word = text.index(text.split()[2]), text.split()[2]
        asked = {"id": str(number), "question": f"What does the {text.split()[1]} do?"}
        asked["answers"] = [{"text": word, "answer_start": start}] * 2
        paragraphs.append({"context": text, "qas": [asked]})
    squad = {"version": "1.1", "data": [{"title": "animals", "paragraphs": paragraphs}]}
    (folder / "questions.json").write_text(json.dumps(squad))
    with (folder / "pairs.jsonl").open("w") as file:
        file.writelines(json.dumps({"anchor": t, "positive": t.replace("The", "A")}) + "\n" for t in texts)
    (folder / "pictures").mkdir()
    for n, colour in enumerate(["red", "green", "blue", "white", "black"] * 5):
        Image.new("RGB", (16 + n, 20), colour).save(folder / "pictures" / f"{n}.png")
        (folder / "pictures" / f"{n}.txt").write_text(f"a {colour} thing")
    torch.manual_seed(1)
    words = train_tokenizer(texts, "wordpiece", 120, show_progress=False)
    bert = models.family("bert")
    config = bert.config(vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                         intermediate_size=64, max_position_embeddings=64)  # fmt: skip
    ch.pipeline.TextPipeline(bert.make(config, "masked-lm"), words).save(folder / "encoder")
    ch.load("random-gpt2").save(folder / "gpt2")
    passages = [ch.retrieval.Document(str(n), text) for n, text in enumerate(documents[:8])]
    ch.retrieval.build(folder / "store", passages, encoder=str(folder / "encoder"), chunk_size=8)
    return folder


STAGED = {"ulmfit": "classifier"}  # with its last stage
SMALL = ["batch.length=32", "evaluation.every=2", "log_every=1", "schedule.warmup=1", "device=cpu"]
NARROW = "hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2"
SETTINGS = {
    "language-model": [
        "data.train={data}/text.txt", "data.validation_fraction=0.1", "tokenizer.vocab_size=300",
        f"model.config={{{NARROW}, max_position_embeddings: 32}}", "batch.size=4", "steps=4",
    ],
    "finetune-gpt2": ["data.train={data}/text.txt", "model.start={data}/gpt2", "batch.size=4", "epochs=0.2"],
    "translation": [
        "data.train.source={data}/a.en", "data.train.target={data}/a.de", "tokenizer.vocab_size=100", "steps=4",
        f"model.config={{{NARROW}, encoder_layers: 1, feedforward_size: 64}}", "batch.tokens=256",
        "data.valid={{source: {data}/b.en, target: {data}/b.de}}", "data.validation_fraction=0",
        *(["data.test={{source: {data}/b.en, target: {data}/b.de}}"] if find_spec("sacrebleu") else []),
    ],
    "rnn-translation": [
        "data.train.source={data}/a.en", "data.train.target={data}/a.de", "tokenizer.vocab_size=100", "steps=4",
        "model.config.embedding_size=16", "model.config.readout_size=16", "model.config.hidden_size=32",
        "batch.tokens=256", "data.valid={{source: {data}/b.en, target: {data}/b.de}}", "data.validation_fraction=0",
    ],
    "word-vectors": [
        "data.train={data}/text.txt", "data.validation_fraction=0.1", "objective.vector_size=8", "epochs=1",
    ],
    "elmo": [
        "data.train={data}/text.txt", "data.validation_fraction=0.1", "tokenizer.vocab_size=40", "batch.tokens=128",
        "epochs=0.3", "model.config={{lstm_size: 16, projection_size: 8, filters: [[1, 8], [2, 8]], num_highways: 1}}",
    ],
    "bert-pretraining": [
        "data.train={data}/text.txt", "data.validation_fraction=0.2", "tokenizer.vocab_size=120", "batch.size=8",
        "steps=4",
        f"model.config={{{NARROW}, intermediate_size: 64, max_position_embeddings: 32}}",
    ],
    "classification": ["data.train={data}/classes.csv", "model.start={data}/encoder", "epochs=0.4",
                       "data.test={data}/classes.csv"],
    "rnn-classifier": [
        "data.train={data}/classes.csv", "tokenizer.vocab_size=120", "epochs=0.4", "data.test={data}/classes.csv",
        "model.config.embedding_size=16", "model.config.hidden_size=16",
    ],
    "tagging": ["data.train={data}/tags.conll", "model.start={data}/encoder", "epochs=0.3",
                "data.test={data}/tags.conll"],
    "question-answering": [
        "data.train={data}/questions.json", "data.validation_fraction=0.2", "data.test={data}/questions.json",
        "model.start={data}/encoder", "batch.size=8", "epochs=1",
    ],
    "sentence-embeddings": ["data.train={data}/pairs.jsonl", "model.start={data}/encoder", "batch.size=16"],
    "clip": [
        "data.train={data}/pictures", "data.validation_fraction=0.2", "objective.image_size=16", "batch.size=8",
        "batch.length=16", "batch.gradient_accumulation_steps=2", "tokenizer.vocab_size=540", "epochs=null", "steps=4",
        f"model.config.text_config={{{NARROW}, intermediate_size: 64, max_position_embeddings: 16}}",
        f"model.config.vision_config={{{NARROW}, intermediate_size: 64, patch_size: 8}}",
    ],
    "retrofit": [
        "data.train={data}/text.txt", "data.documents=blank-lines", "data.validation_fraction=0.2", "epochs=0.2",
        "objective.store={data}/store", "objective.chunk_size=8", "model.retrofit={data}/gpt2", "batch.size=4",
        "model.config={{chunk_size: 8, chunked_attention_layers: [2], encoder_hidden_size: 16, encoder_heads: 2}}",
    ],
    "distillation": [
        "data.train={data}/text.txt", "data.validation_fraction=0.2", "objective.teacher={data}/encoder",
        "batch.size=8", "steps=4",
    ],
    "t5-pretraining": [
        "data.train={data}/text.txt", "data.validation_fraction=0.2", "tokenizer.vocab_size=200", "batch.size=4",
        "steps=4",
        f"model.config={{{NARROW}, head_dim: 16, intermediate_size: 64, feed_forward_proj: gated-gelu}}",
    ],
    "bart-pretraining": [
        "data.train={data}/text.txt", "data.validation_fraction=0.2", "tokenizer.vocab_size=300", "batch.tokens=256",
        "steps=4",
        f"model.config={{{NARROW}, decoder_layers: 1, decoder_attention_heads: 2, encoder_ffn_dim: 64, "
        "decoder_ffn_dim: 64, max_position_embeddings: 32}",
    ],
}  # fmt: skip


def logits(pipe, *texts):
    return pipe.model(**pipe.tokenizer(*texts, return_tensors="pt"))


def writes(pipe):
    return isinstance(pipe.generate("The cat sees", max_new_tokens=4), str)


VERBS_OF = {
    "language-model": writes,
    "finetune-gpt2": writes,
    "translation": writes,
    "rnn-translation": writes,
    "word-vectors": lambda pipe: pipe["cat"].shape == (8,) and len(pipe.nearest("cat", k=3)) == 3,
    "elmo": lambda pipe: pipe.embed_words([["The", "cat"]]).shape == (1, 2, 2, 16),
    "bert-pretraining": lambda pipe: len(pipe.fill("The [MASK] sees the dog.")[0]) == 5,
    "classification": lambda pipe: (
        pipe.model.config.id2label == {0: "other", 1: "pet"} and logits(pipe, "The cat.").logits.shape == (1, 2)
    ),
    "rnn-classifier": lambda pipe: pipe.classify("The cat.")[0].label in ("other", "pet"),
    "tagging": lambda pipe: (
        pipe.model.config.id2label == {0: "O", 1: "B-PET"} and logits(pipe, "The cat.").logits.shape[-1] == 2
    ),
    "question-answering": lambda pipe: logits(pipe, "Who?", "The cat.").start_logits.shape[0] == 1,
    "sentence-embeddings": lambda pipe: pipe.embed(["a cat", "a dog"]).norm(dim=-1).allclose(torch.ones(2), atol=1e-4),
    "clip": lambda pipe: (
        pipe.similarity(["a red thing", "a blue thing"], Image.new("RGB", (20, 30), "red")).shape == (2, 1)
    ),
    "retrofit": lambda pipe: pipe.model.family.name == "retro" and writes(pipe),
    "distillation": lambda pipe: (
        pipe.model.family.name == "distilbert"
        and pipe.model.config.num_hidden_layers == 1
        and bool(pipe.fill("The [MASK] sees."))
    ),
    "t5-pretraining": lambda pipe: writes(pipe) and "<extra_id_99>" in pipe.tokenizer.get_vocab(),
    "bart-pretraining": lambda pipe: writes(pipe) and pipe.tokenizer.mask_token == "<mask>",
}


def test_all_are_tried():
    """Those of several stages are tried in test_stages.py."""
    assert [name for name in recipes() if name not in STAGED] == list(SETTINGS) == list(VERBS_OF)
    assert len(recipes()) == len(list(FOLDER.glob("*.yaml")))


@pytest.mark.parametrize("name", SETTINGS)
def test_end_to_end(name, data, tmp_path):
    settings = [s.replace("{data}", str(data)).replace("{{", "{").replace("}}", "}") for s in SETTINGS[name]]
    recipe = read_recipe(find_recipe(name), [*SMALL, *settings, f"out={tmp_path / 'run'}"])
    events = []
    result = train(recipe, watchers=[events.append])
    assert result.finished
    assert {"begin", "step", "evaluation", "end"} <= {event["event"] for event in events}
    assert ("sample" in {event["event"] for event in events}) == (recipe.evaluation.sample is not None)
    assert bool(result.test) == (recipe.data.test is not None)
    pipe = ch.load(result.model)
    assert VERBS_OF[name](pipe)
    check_command(recipe, result.model)


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_reads_well(name):
    """It says what it is for and how to call it, names no data, and has a folder of its own."""
    text = (FOLDER / f"{name}.yaml").read_text()
    first = text.splitlines()[0]
    assert first.startswith("# ") and first.endswith(".") and len(first) < 70
    assert f"clearhead train {name} " in text

    def read(*settings):
        return (
            read_stages(find_recipe(name), settings)[-1].recipe
            if name in STAGED
            else read_recipe(find_recipe(name), settings)
        )

    with pytest.raises(ConfigError, match=r"data\.train is missing"):
        read()
    assert read("data.train=x").out == (f"runs/{name}" if name not in STAGED else f"runs/{name}/{STAGED[name]}")
    assert max(map(len, text.splitlines())) <= 120


def test_finding_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe("tagging") == find_recipe("tagging.yaml") == FOLDER / "tagging.yaml"
    with pytest.raises(ConfigError, match="Did you mean tagging"):
        find_recipe("taging")
    with pytest.raises(ConfigError, match=r"Did you mean stories\?.*of the shipped models: awd-lstm, bert-mini"):
        find_recipe("storys")
    (tmp_path / "tagging.yaml").write_text("steps: 1\n")
    assert find_recipe("tagging.yaml").resolve() == tmp_path / "tagging.yaml"


GUIDE = Path(__file__).parents[2] / "docs" / "training.md"


def keys_of(kind, path=""):
    for name, hint in get_type_hints(kind).items():
        inner = next((c for c in (hint, *get_args(hint)) if dataclasses.is_dataclass(c)), None)
        yield from keys_of(inner, f"{name}.") if inner else [path + name]


def test_the_guide_knows_every_key():
    table = GUIDE.read_text().split("### What a recipe can say")[1].split("\n\n")[1]
    told = [key for row in table.splitlines()[2:] for key in re.findall(r"`([\w.]+)`", row.split("|")[1])]
    assert sorted(told) == sorted(set(keys_of(Recipe)))


def test_the_guide_names_what_there_is():
    text = GUIDE.read_text()
    for name in (*OBJECTIVES, *SCHEDULES, *recipes()):
        assert f"`{name}`" in text, name
    shipped = set(re.findall(r"clearhead train ([a-z][\w-]+)(?= |\n)", text))
    assert shipped and all(find_recipe(name).is_file() for name in shipped)
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (GUIDE.parent / target).exists(), target
    for path in set(re.findall(r"`((?:train|views)/\w+\.py)`", text)):
        assert (GUIDE.parents[1] / "src" / "clearhead" / path).exists(), path

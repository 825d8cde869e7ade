"""A model's tokens begin as word vectors where they are words: which, how large, and what is refused."""

import random

import pytest
import torch

import clearhead as ch
from clearhead import models
from clearhead.errors import ClearheadError
from clearhead.pipeline.vector_files import pipeline_of
from clearhead.text import train_tokenizer
from clearhead.text.word_vectors import Words, matching_words, token_words
from clearhead.train import train
from clearhead.train.run.embeddings import start_from
from tests.train.runs import recipe, weights

KNOWN = "the cat dog bird Paris sat".split()


def vectors(width=16, scale=7.0):
    torch.manual_seed(3)
    return pipeline_of(Words.of(KNOWN), scale * torch.randn(len(KNOWN), width), "mine")


@pytest.mark.parametrize("kind", ["words", "wordpiece", "bpe"])
def test_tokens_that_are_words(kind):
    draw = random.Random(0)
    text = [" ".join(draw.choices("the cat sat in paris unhappily on a mat".split(), k=8)) for _ in range(90)]
    tokenizer = train_tokenizer(iter(text), kind, 330 if kind == "bpe" else 70, show_progress=False)
    tokens, rows = matching_words(tokenizer, Words.of(KNOWN))
    words, found = token_words(tokenizer), {}
    for token, row in zip(tokens, rows, strict=True):
        assert words[token].lower() == KNOWN[row].lower()
        assert token not in tokenizer.all_special_ids
        found[KNOWN[row]] = found.get(KNOWN[row], 0) + 1
    assert {"the", "cat", "sat"} <= set(found) and not {"dog", "bird"} & set(found)
    assert "Paris" in found  # by its capital


@pytest.mark.parametrize("family", ["rnn", "rnn-seq2seq", "gpt2", "bert", "transformer", "albert"])
def test_rows_of_any_family(family):
    tokenizer = train_tokenizer(iter(["the cat sat on a mat"] * 9), "wordpiece", 60, show_progress=False)
    kind = models.family(family)
    sizes = {"vocab_size": 64, "hidden_size": 16, "embedding_size": 16, "num_attention_heads": 2, "readout_size": 16}
    sizes |= {"intermediate_size": 16, "feedforward_size": 16, "num_hidden_layers": 1}
    config = kind.config(**{name: size for name, size in sizes.items() if hasattr(kind.config, name)})
    torch.manual_seed(1)
    model = kind.make(config)
    before = [table.weight.detach().clone() for table in model.token_tables()]
    mine = vectors()
    said = start_from(model, mine, tokenizer)
    tokens, rows = matching_words(tokenizer, mine.words)
    assert f"{len(tokens)} of the {len(tokenizer)} tokens" in said and "mine" in said and len(tokens) >= 3
    others = sorted(set(range(64)) - set(tokens))
    language, wanted = model.head.language, mine.table[rows]
    for table, old in zip(model.token_tables(), before, strict=True):
        scale = old[tokens].norm(dim=1).mean() / wanted.norm(dim=1).mean()
        if language is not None and table.weight is language.output.weight:  # scores stay as large as they were
            assert torch.equal(table.weight[others], old[others])
            torch.testing.assert_close(table.weight[tokens], wanted * scale)
        else:
            torch.testing.assert_close(table.weight[others], old[others] / scale)
            assert torch.equal(table.weight[tokens], wanted)


def asked(folder, **changes):
    own = {"model__family": "rnn", "model__config": {"embedding_size": 16, "hidden_size": 8}, "steps": 1}
    own |= {"objective": "recurrent-lm", "tokenizer": {"kind": "words", "vocab_size": 60}}
    return recipe(folder, **own | changes)


def test_a_run_begins_with_them(tmp_path):
    vectors().save(tmp_path / "vectors.txt")
    notes = []
    said = asked(tmp_path, model__embeddings=str(tmp_path / "vectors.txt"), optimizer={"lr": 1e-12, "weight_decay": 0})
    train(said, watchers=[lambda event: notes.append(event.get("text", ""))])
    assert any("tokens" in note and "begin with their vectors" in note for note in notes)
    pipe = ch.load(tmp_path / "run")
    row = weights(tmp_path / "run")["embedding.weight"][pipe.tokenizer.get_vocab()["cat"]]
    assert torch.cosine_similarity(row, torch.from_numpy(vectors()["cat"]), dim=0) > 0.9999


def test_frozen_ones_stay_and_others_learn(tmp_path):
    vectors().save(tmp_path / "vectors.txt")
    cosines = {}
    for part in (None, "embeddings"):
        said = asked(tmp_path, model__embeddings=str(tmp_path / "vectors.txt"), steps=6, out=str(tmp_path / str(part)),
                     optimizer={"lr": 0.05, "freeze": part})  # fmt: skip
        train(said)
        pipe = ch.load(tmp_path / str(part))
        row = pipe.model.token_tables()[0].weight[pipe.tokenizer.get_vocab()["cat"]].detach()
        cosines[part] = float(torch.cosine_similarity(row, torch.from_numpy(vectors()["cat"]), dim=0))
    assert cosines["embeddings"] == pytest.approx(1, abs=1e-6) and cosines[None] < 0.99999


def test_a_run_goes_on_without_them(tmp_path):
    """They are in its checkpoint: the file may be gone by then."""
    path = tmp_path / "vectors.txt"
    vectors().save(path)
    whole = asked(tmp_path, model__embeddings=str(path), steps=4, out=str(tmp_path / "whole"))
    whole["schedule"] = {"name": "constant"}
    train(whole)
    train({**whole, "out": str(tmp_path / "cut"), "steps": 2})
    path.unlink()
    assert train({**whole, "out": str(tmp_path / "cut")}).finished
    ours, wanted = weights(tmp_path / "cut"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"model__config": {"embedding_size": 12}}, r"16 numbers.*12 wide\. Set model\.config\.embedding_size to 16"),
        ({"model__family": "gpt2", "model__config": {"n_embd": 8, "n_head": 2, "n_layer": 1}}, r"config\.n_embd to 16"),
        ({"model__embeddings": "random-gpt2"}, "no table of word vectors"),
        ({"model__embeddings": "nowhere.txt"}, "nowhere"),
        (
            {"model__family": None, "model__start": "random-gpt2", "model__config": {}, "tokenizer": {}},
            "random weights",
        ),
        ({"data__train": "greek.txt"}, "None of the"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path, changes, words):
    vectors().save(tmp_path / "vectors.txt")
    (tmp_path / "greek.txt").write_text("\n".join("αβγ δεζ ηθι".split() * 40))
    changes = {k: str(tmp_path / v) if v == "greek.txt" else v for k, v in changes.items()}
    said = asked(tmp_path, **{"model__embeddings": str(tmp_path / "vectors.txt"), **changes})
    with pytest.raises(ClearheadError, match=words):
        train(said)
    assert not (tmp_path / "run" / "checkpoints").exists() and not (tmp_path / "run" / "model").exists()

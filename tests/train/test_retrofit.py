"""RETROfit: a GPT-2 becomes a RETRO that gives its numbers, and only what is new learns."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch

import clearhead as ch
from clearhead.errors import ClearheadError, ConfigError, InputError
from clearhead.models.retrieval import RetrievalModel
from clearhead.models.retro import retrofit
from clearhead.train import train
from clearhead.train.data.neighbors import overlap, with_neighbors
from clearhead.train.engine.freezing import freeze
from tests.tiny import CORPUS, shake, tiny, tiny_pipeline, tokenizer
from tests.train.runs import weights

NEW = {"chunk_size": 4, "chunked_attention_layers": [2, 3], "encoder_hidden_size": 8, "encoder_heads": 2}


def inputs(vocabulary: int = 40):
    torch.manual_seed(1)
    return torch.randint(3, vocabulary, (2, 14)), torch.randint(3, vocabulary, (2, 3, 2, 8))


@pytest.mark.parametrize("tied", [True, False])
def test_a_retrofitted_gpt2_gives_its_numbers_at_first(tied, tmp_path):
    base = tiny("gpt2", tie_word_embeddings=tied)
    model = retrofit(base, NEW)
    ids, neighbors = inputs()
    with torch.no_grad():
        want = base(input_ids=ids).logits
        assert torch.equal(model(input_ids=ids).logits, want)
        assert torch.equal(model(input_ids=ids, neighbor_ids=neighbors).logits, want)
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learning == set(model.retrieval_parameters()) and learning
    assert not learning & {name for name, _ in base.named_parameters()}

    loss = model(input_ids=ids, neighbor_ids=neighbors, labels=ids).loss
    loss.backward()
    assert model.stack.layers[1].chunked_attention.output.weight.grad.any()  # where learning begins
    with torch.no_grad():
        for p in model.retrieval_parameters().values():
            p.add_(torch.randn_like(p) * 0.1)
        changed = model(input_ids=ids, neighbor_ids=neighbors).logits
        assert torch.allclose(changed[:, :3], want[:, :3], atol=1e-6)
        assert not torch.allclose(changed[:, 3:], want[:, 3:], atol=1e-3)
        assert torch.equal(model(input_ids=ids).logits, want)  # without neighbours it stays the GPT-2
        ch.hub.save_model(model, tmp_path / "retro")
        again = ch.load(tmp_path / "retro").model
        assert torch.equal(again(input_ids=ids, neighbor_ids=neighbors).logits, changed)


def test_what_cannot_be_retrofitted_is_said():
    with pytest.raises(InputError, match="GPT-2"):
        retrofit(tiny("gptj"))
    with pytest.raises(ConfigError, match="scale_attn_by_inverse_layer_idx"):
        retrofit(tiny("gpt2", scale_attn_by_inverse_layer_idx=True))
    with pytest.raises(ConfigError, match="hidden_size"):
        retrofit(tiny("gpt2"), {"hidden_size": 12})


def test_all_but_retrieval_can_be_frozen():
    model = tiny("retro", chunk_size=4, embedding_size=None, encoder_hidden_size=8)
    assert isinstance(model, RetrievalModel)
    freeze(model, "all-but-retrieval")
    assert {n for n, p in model.named_parameters() if p.requires_grad} == set(model.retrieval_parameters())
    with pytest.raises(InputError, match="retrieval"):
        freeze(tiny("gpt2"), "all-but-retrieval")


# ---- neighbours looked up before training


@dataclass(frozen=True)
class Hit:
    text: str
    continuation: str
    document: str


class Store:
    """Every passage of a list, in its order."""

    def __init__(self, *hits: Hit) -> None:
        self.hits = list(hits)

    def search(self, text: str, *, k: int) -> list[Hit]:
        return self.hits[:k]


def test_neighbours_that_give_the_text_away_are_left_out():
    tok = tokenizer("bpe")
    own, other = CORPUS[0], "a dog sat on the sofa and the cat ran on the mat"
    store = Store(
        Hit(own, "", "mine"), Hit(own[:40], own[40:], "a copy"), Hit("a dog", " ran", "b"), Hit(other, "", "c")
    )
    records = list(with_neighbors([("mine", own)], store, tok, length=48, chunk_size=16, neighbors=3))
    ids = tok.encode(own, add_special_tokens=False)
    assert [token for record in records for token in record["input_ids"]] == ids
    assert len(records[0]["neighbor_ids"]) == min(len(ids), 48) // 16
    first = records[0]["neighbor_ids"][0]
    pad = tok.pad_token_id if tok.pad_token_id is not None else tok.eos_token_id
    expected = [tok.encode("a dog ran", add_special_tokens=False), tok.encode(other, add_special_tokens=False)[:32], []]
    assert first == [row + [pad] * (32 - len(row)) for row in expected]
    with pytest.raises(InputError, match="chunk"):
        next(with_neighbors([("mine", own)], store, tok, length=8, chunk_size=16))


def test_overlap_is_the_share_of_runs_that_both_have():
    assert overlap(range(20), range(20)) == 1.0 and overlap(range(20), range(100, 120)) == 0.0
    assert overlap(range(10), range(10)) == 0.0  # too short to tell
    assert overlap(range(0, 20), range(4, 24)) == pytest.approx(4 / 12)


# ---- a run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A GPT-2 folder, and records whose neighbours hold the answer: what follows a chunk, in another document."""
    folder = tmp_path_factory.mktemp("retrofit")
    pipe = tiny_pipeline("gpt2", max_position_embeddings=48, num_attention_heads=4)
    shake(pipe.model)
    pipe.save(folder / "gpt2")
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(48):
        ids = torch.randint(5, 45, (24,), generator=generator).tolist()
        neighbors = [[(ids[n : n + 16] + [pipe.model.config.pad_token_id] * 16)[:16]] for n in range(0, 24, 8)]
        rows.append({"input_ids": ids, "neighbor_ids": neighbors})
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def recipe(folder, out, **changes):
    config = {"chunk_size": 8, "chunked_attention_layers": [1, 2], "encoder_hidden_size": 16, "encoder_heads": 2}
    return {
        "objective": "retrieval-lm",
        "out": str(out),
        "data": {"train": str(folder / "train.jsonl"), "validation_fraction": 0.1},
        "model": {"retrofit": str(folder / "gpt2"), "config": config},
        "batch": {"size": 8, "length": 24},
        "optimizer": {"lr": 0.01},
        "steps": 12,
    } | changes


def test_a_run_trains_the_new_parts_alone(data, tmp_path):
    train(recipe(data, tmp_path / "run"))
    pipe, base = ch.load(tmp_path / "run"), ch.load(data / "gpt2")
    assert isinstance(pipe.model, RetrievalModel)
    ids, neighbors = inputs(45)
    with torch.no_grad():
        want = base.model(input_ids=ids).logits
        assert torch.allclose(pipe.model(input_ids=ids).logits, want, atol=1e-5)
        found = pipe.model(input_ids=ids, neighbor_ids=neighbors[:, :1]).logits
        assert not torch.allclose(found, want, atol=1e-3)
    stored = weights(tmp_path / "run")
    for name, parameter in base.model.named_parameters():
        assert torch.equal(stored[name], parameter), name
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    metrics = next(event for event in reversed(logged) if event["event"] == "evaluation")
    assert "loss_without_neighbors" in json.dumps(metrics)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"model": {"retrofit": "x", "family": "retro"}}, "give one of model.start"),
        ({"objective": "retrieval-lm", "model": {"start": "GPT2"}}, "looks at neighbours"),
        ({"batch": {"size": 8, "length": 12}}, "batch.length is 12"),
    ],
)
def test_mistakes_are_said_before_anything_is_trained(data, tmp_path, changes, said):
    if "start" in changes.get("model", {}):
        changes = {**changes, "model": {"start": str(data / "gpt2")}}
    with pytest.raises(ClearheadError, match=said):
        train(recipe(data, tmp_path / "run", **changes))


# ---- from texts and a store


class CountingStore(Store):
    """A store with a fingerprint, which counts how often it is asked."""

    fingerprint = "one"

    def __init__(self, *hits: Hit) -> None:
        super().__init__(*hits)
        self.asked = 0

    def search(self, text: str, *, k: int) -> list[Hit]:
        self.asked += 1
        return super().search(text, k=k)


def test_neighbours_of_texts_are_looked_up_once_and_kept_beside_the_data(data, tmp_path, monkeypatch):
    store = CountingStore(Hit("a dog sat", " on the mat", "b"), Hit("the cat ran", "", "mine.jsonl"))
    monkeypatch.setattr("clearhead.train.objectives.retrieval_lm.open_store", lambda where: store)
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": f"{line} {n}"}) + "\n" for n, line in enumerate(CORPUS * 3)))
    changes = {
        "objective": {"name": "retrieval-lm", "store": "library", "neighbors": 1, "chunk_size": 8},
        "data": {"train": str(texts), "validation_fraction": 0.2},
        "steps": 2,
    }
    train(recipe(data, tmp_path / "run", **changes))
    assert store.asked
    metrics = json.loads((tmp_path / "run" / "result.json").read_text())
    assert {"loss_without_neighbors", "loss_random_neighbors"} <= set(json.dumps(metrics).replace('"', " ").split())

    asked = store.asked
    train(recipe(data, tmp_path / "run", **changes | {"steps": 4}))  # trained on: nothing is looked up again
    assert store.asked == asked
    store.fingerprint = "two"
    train(recipe(data, tmp_path / "other", **changes))
    assert store.asked == 2 * asked


def test_a_text_needs_a_store_and_chunks_of_the_models_size(data, tmp_path, monkeypatch):
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": f"{line} {n}"}) + "\n" for n, line in enumerate(CORPUS)))
    changes = {"data": {"train": str(texts), "validation_fraction": 0.2}}
    with pytest.raises(InputError, match=r"objective\.store"):
        train(recipe(data, tmp_path / "run", **changes))
    monkeypatch.setattr("clearhead.train.objectives.retrieval_lm.open_store", lambda where: CountingStore())
    changes["objective"] = {"name": "retrieval-lm", "store": "library", "chunk_size": 4}
    with pytest.raises(InputError, match=r"objective\.chunk_size=8"):
        train(recipe(data, tmp_path / "run", **changes))

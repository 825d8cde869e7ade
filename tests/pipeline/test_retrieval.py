"""A RETRO that writes with a store of passages: `generate(…, store=, neighbors=)` and `clearhead generate --store`."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import dataclass

import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.pipeline.ask import question_prompt
from clearhead.pipeline.retrieval import StoreNeighbors, open_store
from tests.cli.test_generate import inside
from tests.tiny import TEXT, tiny_pipeline

SIZES = {
    "num_hidden_layers": 2, "chunked_attention_layers": [1, 2], "chunk_size": 4, "embedding_size": None,
    "encoder_hidden_size": 8, "encoder_heads": 2, "encoder_head_dim": 4, "max_position_embeddings": 80,
}  # fmt: skip


@dataclass(frozen=True)
class Hit:
    text: str
    continuation: str


class FakeStore:
    """As `clearhead.retrieval.Store`, with a passage list of its own; remembers what it was asked."""

    def __init__(self, folder: object = "", passages: tuple[str, ...] = ("a dog sat", "the cat ran", "on the mat")):
        self.folder, self.passages = folder, passages
        self.asked: list[tuple[str, int]] = []

    def search(self, text: str, *, k: int) -> list[Hit]:
        self.asked.append((text, k))
        return [Hit(passage, " and ran on the sofa") for passage in self.passages[:k]]


@pytest.fixture(scope="module")
def retro():
    return tiny_pipeline("retro", **SIZES)


@pytest.fixture
def stores(monkeypatch):
    """A module `clearhead.retrieval` whose Store is the fake one; the stores it has opened."""
    opened = []

    def store(folder):
        opened.append(FakeStore(folder))
        return opened[-1]

    monkeypatch.setitem(sys.modules, "clearhead.retrieval", types.SimpleNamespace(Store=store))
    return opened


def test_finished_chunks_are_asked_about_while_writing(retro):
    store = FakeStore()
    asked = {"max_new_tokens": 9, "store": store, "neighbors": 3, "eos_token_id": []}
    written = retro.write(TEXT, **asked)[0]
    read = (retro.tokenizer.encode(TEXT) + written.token_ids)[:-1]  # the last token is written, not read
    chunks = [read[n : n + 4] for n in range(0, len(read) // 4 * 4, 4)]
    assert sorted(store.asked) == sorted((retro.tokenizer.decode(chunk, True), 3) for chunk in chunks)
    assert "".join(retro.stream(TEXT, **asked)) == written.new_text


def test_neighbours_are_passages_with_their_continuation_cut_and_padded(retro):
    tokenizer, size, pad = retro.tokenizer, 4, retro.model.hidden_id
    provider = StoreNeighbors(FakeStore(passages=("the", "a dog sat on the mat and ran")), tokenizer, 3, size, pad)
    found = provider(torch.tensor([tokenizer.encode(TEXT)[:size]]))
    assert found.shape == (1, 3, 2 * size)
    for row, passage in enumerate(provider.store.passages):
        whole = tokenizer.encode(passage + " and ran on the sofa", add_special_tokens=False)[: 2 * size]
        assert found[0, row].tolist() == whole + [pad] * (2 * size - len(whole))
    assert (found[0, 2] == pad).all()  # the store had two


def test_another_store_writes_another_text_and_none_writes_as_before(retro):
    asked = {"max_new_tokens": 24, "eos_token_id": []}
    one = retro.generate(TEXT, store=FakeStore(), **asked)
    other = retro.generate(TEXT, store=FakeStore(passages=("我喜欢猫", "unbelievably")), **asked)
    none = retro.generate(TEXT, store=None, **asked)
    assert len({one, other, none}) == 3
    assert none == retro.generate(TEXT, **asked)


def test_short_prompts_batches_beams_and_log_probabilities(retro):
    store = FakeStore()
    asked = {"store": store, "max_new_tokens": 12, "eos_token_id": []}
    short, long = "the", TEXT
    assert retro.generate([short, long], **asked) == [retro.generate(short, **asked), retro.generate(long, **asked)]
    assert len(retro.generate(short, num_beams=3, num_return_sequences=3, **asked)) == 3
    written = retro.write(short, top_k=5, seed=1, **asked)[0]
    assert len(written.log_probs) == 12 and written.text == retro.generate(short, top_k=5, seed=1, **asked)


def test_a_store_by_its_folder_or_with_the_model(retro, stores, tmp_path):
    asked = {"max_new_tokens": 8, "eos_token_id": []}
    want = retro.generate(TEXT, store=FakeStore(), **asked)
    assert retro.generate(TEXT, store="factbook", **asked) == want and stores[-1].folder == "factbook"
    retro.save(tmp_path / "retro")
    loaded = ch.load(tmp_path / "retro", store=tmp_path)
    assert stores[-1].folder == tmp_path
    assert loaded.generate(TEXT, **asked) == want
    assert loaded.generate(TEXT, store=None, **asked) == retro.generate(TEXT, **asked)


def test_with_a_real_store(retro, tmp_path):
    """By its folder or opened, a store gives the same text, and another store another one."""
    pytest.importorskip("lancedb")
    from clearhead.retrieval import Document, Store, build

    tiny_pipeline("bert", "features").save(tmp_path / "encoder")
    retro.save(tmp_path / "retro")
    asked = {"max_new_tokens": 24, "eos_token_id": []}
    written = []
    for name, text in (("one", "a dog sat on the mat and ran"), ("other", "the cat ran unbelievably on the sofa")):
        build(tmp_path / name, [Document("a", text)], encoder=str(tmp_path / "encoder"), chunk_size=4)
        store = Store(tmp_path / name)
        written.append(ch.load(tmp_path / "retro", store=tmp_path / name).generate(TEXT, **asked))
        assert written[-1] == retro.generate(TEXT, store=store, neighbors=2, **asked)
    assert written[0] != written[1]


def test_the_command_line(retro, stores, tmp_path):
    retro.save(tmp_path / "retro")
    words = ["generate", TEXT, "-m", str(tmp_path / "retro"), "-n", "8", "--json"]
    out = json.loads(inside(*words, "--store", "factbook", "--neighbors", "1").stdout)
    want = retro.write(TEXT, store=FakeStore(), neighbors=1, max_new_tokens=8)[0]
    assert out["answers"][0]["token_ids"] == want.token_ids
    assert stores[-1].folder == "factbook" and {k for _, k in stores[-1].asked} == {1}
    bare = json.loads(inside(*words).stdout)["answers"][0]["token_ids"]
    assert bare == retro.write(TEXT, max_new_tokens=8)[0].token_ids
    lines = inside("generate", TEXT, "the cat", "-m", str(tmp_path / "retro"), "-n", "8", "--store", "factbook").stdout
    one = retro.generate("the cat", store=FakeStore(), max_new_tokens=8)
    assert " ".join(one.split("\n")) in lines


def test_mistakes_are_said(retro, tmp_path):
    gpt = tiny_pipeline("gpt2")
    for options in ({"store": FakeStore()}, {"neighbors": 2}):
        with pytest.raises(InputError, match="looks at no neighbours"):
            gpt.generate(TEXT, **options)
    gpt.save(tmp_path / "gpt")
    with pytest.raises(InputError, match="looks at no neighbours"):
        ch.load(tmp_path / "gpt", store=FakeStore())
    with pytest.raises(InputError, match="no store to look in"):
        retro.generate(TEXT, neighbors=2)
    for count in (0, "two", True):
        with pytest.raises(InputError, match="how many passages"):
            retro.generate(TEXT, store=FakeStore(), neighbors=count)
    with pytest.raises(InputError, match="search"):
        open_store(3)


# ---- ask


@pytest.mark.parametrize("question", ["a cat", "on the mat and on the sofa and on the mat"])
def test_a_question_ends_with_a_chunk_and_its_passages_act_on_the_first_word(retro, question):
    """The answer is what the model writes after the filled-up question, with the passages that are told."""
    store = FakeStore()
    prompt = question_prompt(retro, question)
    ids = retro.tokenizer.encode(prompt)
    assert len(ids) % retro.model.chunk_size == 0
    assert prompt.endswith(f"Question: {question}\nAnswer:")
    options = {"max_new_tokens": 3, "eos_token_id": [], "stop_strings": []}
    answer = retro.ask(question, store=store, neighbors=2, **options)
    assert [p.text for p in answer.passages] == ["a dog sat", "the cat ran"]
    written = retro.write(prompt, store=FakeStore(), neighbors=2, max_new_tokens=3, eos_token_id=[])[0]
    assert answer.answer == written.new_text.strip()

    provider = StoreNeighbors(FakeStore(), retro.tokenizer, 2, retro.model.chunk_size, retro.model.hidden_id)
    row = torch.tensor([ids])
    found = provider(row.view(-1, retro.model.chunk_size))[None]
    first = retro.model(input_ids=row, neighbor_ids=found).logits[0, -1]
    assert int(first.argmax()) == written.token_ids[0]
    assert not torch.equal(first, retro.model(input_ids=row).logits[0, -1])  # they do act there


def test_several_questions_have_their_own_answers_and_passages(retro):
    questions, options = ["a cat", "the mat and the sofa"], {"max_new_tokens": 4, "eos_token_id": [], "neighbors": 1}
    together = retro.ask(questions, store=FakeStore(), **options)
    assert together == [retro.ask(one, store=FakeStore(), **options) for one in questions]
    assert retro.ask("a cat", store=None).passages == []


def test_only_a_retro_is_asked_and_only_questions_are(retro):
    with pytest.raises(InputError, match="looks nothing up"):
        tiny_pipeline("gpt2").ask("Why?", store=FakeStore())
    with pytest.raises(InputError, match="empty"):
        retro.ask("  ", store=FakeStore())
    with pytest.raises(InputError, match="store must be"):
        retro.ask("Why?", store=3)


def test_ask_on_the_command_line(retro, stores, monkeypatch, tmp_path):
    retro.save(tmp_path / "retro")
    told = json.loads(inside("ask", "a cat", "--store", "here", "-m", str(tmp_path / "retro"), "--json").stdout)
    assert told["store"] == "here" and isinstance(told["answer"], str)
    assert [p["text"] for p in told["passages"]] == ["a dog sat", "the cat ran"]
    told = json.loads(inside("ask", "a cat", "--no-store", "-m", str(tmp_path / "retro"), "--json").stdout)
    assert told["passages"] == [] and told["store"] is None

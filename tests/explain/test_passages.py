"""What a RETRO does with its neighbours: every number is that of a direct call of the model."""

import math

import numpy as np
import pytest
import torch

from clearhead import explain
from clearhead.errors import InputError
from clearhead.explain.questions import QUESTIONS
from clearhead.explain.retrieved import shared_runs
from clearhead.nn.tracing import trace
from clearhead.text.units import units_of_ids
from tests.explain.library import Shelf, retro
from tests.explain.test_questions import assert_alike
from tests.tiny import TEXT, tiny_pipeline


def read(pipe, found, shelf, k=2):
    """Ids, and the neighbours of each whole chunk, made anew."""
    ids = [token.id for token in found.tokens]
    chunks = [pipe.tokenizer.decode(ids[n : n + 4], True) for n in range(0, (len(ids) - 1) // 4 * 4, 4)]
    return torch.tensor([ids[:-1]]), torch.tensor([[_rows(pipe, shelf.search(chunk, k)) for chunk in chunks]])


def _rows(pipe, hits):
    own = [pipe.tokenizer.encode(hit.text + hit.continuation, add_special_tokens=False)[:8] for hit in hits]
    return [row + [pipe.model.hidden_id] * (8 - len(row)) for row in own]


def log_probs(pipe, ids, neighbors):
    with torch.no_grad():
        logits = pipe.model(input_ids=ids, neighbor_ids=neighbors).logits[0, 3:]
    return logits.double().log_softmax(-1)


# ---- passages


@pytest.mark.parametrize("null_key", [False, True])
def test_attention_to_passages_is_that_of_the_model(null_key):
    pipe, shelf = retro(null_key), Shelf()
    found = explain.passages(pipe, TEXT, store=shelf, max_new_tokens=6)
    ids, neighbors = read(pipe, found, shelf)
    with trace(
        pipe.model, "layers.*.chunked_attention.weights", "neighbor_encoder.layers.*.cross_attention.weights"
    ) as seen:
        log_probs(pipe, ids, neighbors)
    assert found.layers == [0, 1] and found.weights.shape[:3] == (2, 3, len(ids[0]) - 3)
    total = found.weights.sum((-1, -2)) + (found.null if null_key else 0)
    np.testing.assert_allclose(total, 1, atol=1e-5)
    assert (found.null is not None) == null_key
    for n, row in enumerate(found.rows):
        theirs = seen["layers.1.chunked_attention.weights"][row // 4 - 1, :, row % 4].numpy()  # (heads, keys)
        ours = found.weights[1, :, n]
        theirs = theirs[:, 1:] if null_key else theirs
        np.testing.assert_allclose(ours, theirs.reshape(3, 2, 8)[:, :, : ours.shape[-1]], atol=1e-6)
    theirs = seen["neighbor_encoder.layers.1.cross_attention.weights"].mean(1).view(-1, 2, 8, 4)
    np.testing.assert_allclose(found.encoder[1], theirs[:, :, : found.encoder.shape[3]], atol=1e-6)


def test_passages_are_what_the_store_has_and_what_writing_used():
    pipe, shelf = retro(), Shelf()
    found = explain.passages(pipe, TEXT, store=shelf, neighbors=3, max_new_tokens=6)
    written = pipe.write(TEXT, store=shelf, neighbors=3, max_new_tokens=6)[0]
    assert [token.id for token in found.tokens[found.begin :]] == written.token_ids
    assert found.answer == written.new_text.strip()
    ids = [token.id for token in found.tokens]
    for one in found.passages:
        hit = shelf.search(pipe.tokenizer.decode(ids[one.chunk * 4 : one.chunk * 4 + 4], True), 3)[one.rank]
        assert (one.document, one.score, one.text) == (hit.document, pytest.approx(hit.score), hit.text)
        assert (one.continuation, one.source) == (hit.continuation, "shelf.txt")
        assert [token.id for token in one.tokens] == pipe.tokenizer.encode(hit.text + hit.continuation)[:8]
    assert found.store == "shelf" and found.metric == "cosine"
    chunks = {one.chunk for one in found.passages}
    assert chunks == set(range((len(ids) - 1) // 4))  # the last whole chunk acts on what is still written
    shares = sum(found.share(one) for one in found.passages)
    np.testing.assert_allclose(shares, 1, atol=1e-5)


def test_where_a_passage_agrees_with_what_it_acts_on():
    pipe, shelf = retro(), Shelf("sat on the mat", "a dog")
    found = explain.passages(pipe, "the cat sat on", store=shelf, target=" the mat and")
    one = next(one for one in found.passages if one.text == "sat on the mat")
    runs = [("".join(unit.text for unit in one.tokens[a : a + n]), b) for a, b, n in one.agrees]
    assert runs == [(" the mat and", 4)]  # it goes on with " and ran"
    for a, b, n in one.agrees:
        assert [unit.id for unit in one.tokens[a : a + n]] == [unit.id for unit in found.tokens[b : b + n]]


def test_a_run_has_two_tokens_or_is_a_word():
    tok = retro().tokenizer
    texts = [" the cat ran unbelievably", " the dog unbelievably ran the cat"]
    one, other = (tok.encode(text) for text in texts)
    runs = shared_runs(one, other, units_of_ids(tok, one, texts[0]))
    said = {tok.decode(one[a : a + n]).strip() for a, _, n in runs}
    assert "the cat" in said and "the" not in said and "ran" not in said
    assert all(one[a : a + n] == other[b : b + n] for a, b, n in runs)
    taken = [b + k for _, b, n in runs for k in range(n)]
    assert len(taken) == len(set(taken))


# ---- ablation


@pytest.mark.parametrize("null_key", [False, True])
def test_ablation_is_the_model_without_that_neighbour(null_key):
    pipe, shelf = retro(null_key), Shelf()
    found = explain.retrieval_ablation(pipe, TEXT, store=shelf, max_new_tokens=5, seed=3)
    ids, neighbors = read(pipe, found, shelf)
    whole = log_probs(pipe, ids, neighbors)
    chosen = [token.id for token in found.tokens[4:]]
    own = whole[range(len(chosen)), chosen]
    np.testing.assert_allclose(found.probability, own.exp(), rtol=1e-5)
    assert [change.how for change in found.changes] == ["one"] * len(found.passages) + ["all", "random"]
    for n, change in enumerate(found.changes):
        first = 0
        if change.how == "one":
            one = found.passages[change.passage]
            first = one.chunk * 4
            others = neighbors.clone()
            others[0, one.chunk, one.rank] = pipe.model.hidden_id
        elif change.how == "all":
            others = None
        else:
            drawn = [_drawn(shelf, found, chunk, 3) for chunk in range(neighbors.shape[1])]
            others = torch.tensor([[_rows(pipe, hits) for hits in drawn]])
        after = log_probs(pipe, ids, others)
        gain = (own - after[range(len(chosen)), chosen]) / math.log(2)
        moved = (whole.exp() * (whole - after)).sum(-1) / math.log(2)
        assert np.isnan(found.gain[n, :first]).all()
        np.testing.assert_allclose(found.gain[n, first:], gain[first:], atol=1e-5)
        np.testing.assert_allclose(found.moved[n, first:], moved[first:], atol=1e-5)
        assert change.gain == pytest.approx(float(gain[first:].mean()), abs=1e-5)
        assert change.moved == pytest.approx(float(moved[first:].mean()), abs=1e-5)
        assert change.others == int((whole.argmax(-1) != after.argmax(-1))[first:].sum())
    assert found.without.how == "all" and found.random.how == "random"
    assert found.without.moved > 0.01  # shaken weights look at what they are given


def _drawn(shelf, found, chunk, seed, k=2):
    known = {one.document for one in found.passages if one.chunk == chunk}
    return [hit for hit in shelf.sample(2 * k, seed + chunk) if hit.document not in known][:k]


def test_hiding_a_neighbour_is_as_if_it_had_not_been_found():
    """One of two left out: the same as a model that was given the other alone."""
    pipe, shelf = retro(), Shelf()
    found = explain.retrieval_ablation(pipe, "the cat sat on", store=shelf, target=" the mat")
    ids, neighbors = read(pipe, found, shelf)
    assert neighbors.shape[1] == 1
    alone = log_probs(pipe, ids, neighbors[:, :, 1:])
    own = [token.id for token in found.tokens[4:]]
    gain = (np.log(found.probability) - alone[range(len(own)), own].numpy()) / math.log(2)
    np.testing.assert_allclose(found.gain[0], gain, atol=1e-5)


def test_random_passages_and_the_model_alone():
    pipe, shelf = retro(), Shelf()
    asked = {"store": shelf, "neighbors": 1, "max_new_tokens": 3}
    found = explain.retrieval_ablation(pipe, "the cat sat on", **asked)
    ids, neighbors = read(pipe, found, shelf, k=1)
    others = torch.tensor([[_rows(pipe, _drawn(shelf, found, 0, 0, k=1))]])
    after = log_probs(pipe, ids, others)
    whole = log_probs(pipe, ids, neighbors)
    np.testing.assert_allclose(found.moved[-1], (whole.exp() * (whole - after)).sum(-1) / math.log(2), atol=1e-5)
    assert found.alone == pipe.write("the cat sat on", store=None, max_new_tokens=3)[0].new_text.strip()
    assert explain.retrieval_ablation(pipe, "the cat sat on", store=shelf, target=" the mat").alone is None

    class Plain:
        search = shelf.search

    assert explain.retrieval_ablation(pipe, TEXT, store=Plain(), max_new_tokens=1).random is None


def test_a_model_that_looks_at_nothing_is_told_so():
    """Neighbours whose attention adds nothing: the store does not matter, and the number says it."""
    pipe = tiny_pipeline("retro", **{"chunk_size": 4, "num_hidden_layers": 2, "chunked_attention_layers": [2],
                                     "embedding_size": None, "encoder_hidden_size": 8, "encoder_heads": 2,
                                     "encoder_head_dim": 4, "max_position_embeddings": 80})  # fmt: skip
    with torch.no_grad():
        pipe.model.stack.layers[1].chunked_attention.output.weight.zero_()
    found = explain.retrieval_ablation(pipe, TEXT, store=Shelf(), max_new_tokens=2)
    assert found.without.moved == pytest.approx(0, abs=1e-6) and found.without.gain == pytest.approx(0, abs=1e-6)
    assert found.without.others == 0


# ---- questions, and what does not fit


def test_a_question_ends_with_a_chunk():
    pipe, shelf = retro(), Shelf()
    found = explain.passages(pipe, "a dog?", store=shelf, ask=True, max_new_tokens=2)
    assert found.begin % 4 == 0
    fill = pipe.tokenizer.eos_token_id
    assert [token.id for token in found.tokens[: found.filler]] == [fill] * found.filler
    text = "".join(token.text for token in found.tokens[found.filler : found.begin])
    assert text == "Question: a dog?\nAnswer:"
    answer = pipe.ask("a dog?", store=shelf, max_new_tokens=2)
    assert (found.answer, [one.text for one in found.passages if one.chunk == found.begin // 4 - 1]) == (
        answer.answer, [hit.text for hit in answer.passages])  # fmt: skip
    plain = explain.passages(pipe, "a dog? the cat sat on the mat", store=shelf, max_new_tokens=2)
    assert plain.filler == 0
    mapped = explain.store_map(pipe, "a dog?", store=shelf, ask=True)
    assert (
        mapped.asked == "a dog?"
        and mapped.passages[0].score != explain.store_map(pipe, "a dog?", store=shelf, ask=False).passages[0].score
    )


def test_what_cannot_be_asked_is_said():
    shelf = Shelf()
    with pytest.raises(InputError, match="GPT-2 looks no passages up"):
        explain.passages(tiny_pipeline("gpt2"), TEXT, store=shelf)
    with pytest.raises(InputError, match="has no store to look passages up in"):
        explain.retrieval_ablation(retro(), TEXT)
    with pytest.raises(InputError, match="whole chunks of 4"):
        explain.passages(retro(), "a", store=shelf, max_new_tokens=1)
    with pytest.raises(InputError, match="shows no vectors"):
        explain.store_map(retro(), TEXT, store=type("Bare", (), {"search": shelf.search})())
    with pytest.raises(InputError, match="must be the name or the folder of a store"):
        QUESTIONS["passages"].ask(retro(), TEXT, store=3)
    with pytest.raises(InputError, match="neighbors"):
        explain.passages(retro(), TEXT, store=shelf, neighbors=0)
    for name in ("passages", "retrieval-ablation", "store-map"):
        assert "looks no passages up" in QUESTIONS[name].fits(tiny_pipeline("gpt2"))
        assert QUESTIONS[name].fits(retro()) is None


def test_the_pipelines_own_store_is_used(monkeypatch):
    pipe, shelf = retro(), Shelf()
    monkeypatch.setattr(pipe, "store", shelf)
    ours = explain.passages(pipe, TEXT, max_new_tokens=2)
    assert_alike(ours.to_dict(), explain.passages(pipe, TEXT, store=shelf, max_new_tokens=2).to_dict())


def test_as_questions_they_answer_as_the_functions_do():
    pipe, shelf = retro(), Shelf()
    common = {"store": shelf, "neighbors": 1}
    for given, more in (
        ({"target": " a dog sat", "ask": "yes"}, {"target": " a dog sat", "ask": True}),
        ({"max_new_tokens": 2, "ask": "no"}, {"max_new_tokens": 2, "ask": False}),
    ):
        found = QUESTIONS["passages"].ask(pipe, TEXT, **common, **given)
        assert_alike(found.to_dict(), explain.passages(pipe, TEXT, **common, **more).to_dict())
        found = QUESTIONS["retrieval-ablation"].ask(pipe, TEXT, **common, **given, seed=4)
        assert_alike(found.to_dict(), explain.retrieval_ablation(pipe, TEXT, **common, **more, seed=4).to_dict())
    found = QUESTIONS["store-map"].ask(pipe, TEXT, store=shelf, k=2, background=3, seed=1, ask="no")
    again = explain.store_map(pipe, TEXT, store=shelf, near=2, background=3, seed=1, ask=False)
    assert_alike(found.to_dict(), again.to_dict())


# ---- the map


def test_the_map_shows_the_nearest_and_some_others():
    pipe, shelf = retro(), Shelf()
    found = explain.store_map(pipe, "the cat", store=shelf, near=2, background=3)
    hits = shelf.search("the cat", 2)
    assert [one.document for one in found.passages[:2]] == [hit.document for hit in hits]
    assert [one.rank for one in found.passages] == [0, 1, None, None, None]
    assert len({one.document for one in found.passages}) == 5 and found.count == 6
    vectors = np.stack([shelf.keys(["the cat"])[0], *(shelf.keys([one.text])[0] for one in found.passages)])
    for one, vector in zip(found.passages, vectors[1:], strict=True):
        assert one.score == pytest.approx(float(vector @ vectors[0]), abs=1e-6)
    middle = vectors - vectors.mean(0)
    _, _, directions = np.linalg.svd(middle, full_matrices=False)
    np.testing.assert_allclose(np.abs(found.places), np.abs(middle @ directions[:2].T), atol=1e-5)
    rows = list(found.table())
    assert len(rows) == 6 and rows[0][0] == "rank"

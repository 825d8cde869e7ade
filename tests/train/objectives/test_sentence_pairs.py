"""Sentence-BERT's four objectives against direct formulas and sentence-transformers, and the folder that comes out."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead import load
from clearhead.errors import ConfigError, InputError
from clearhead.pipeline import TextPipeline
from clearhead.train.objectives import sentence_pairs
from clearhead.train.objectives.sentence_pairs import (
    SentenceContrastive,
    SentenceSimilarity,
    SentenceSoftmax,
    SentenceTriplet,
)
from tests.train.objectives.small import bpe, encoded, learns, small, wordpiece

A = ["the cat sat", "a dog ran away from berlin", "the sea"]
B = ["on the mat .", "the old house", "who wrote the book"]
C = ["angela merkel", "the red one is new", "a cat"]
NLI = [
    {"sentence1": a, "sentence2": b, "label": label, "where": "n:1"} for a, b, label in zip(A, B, "ync", strict=True)
]
STS = [
    {"sentence1": a, "sentence2": b, "score": s, "where": "s:1"} for a, b, s in zip(A, B, ("5", 2.5, 0), strict=True)
]
MATCHES = [{"anchor": a, "positive": b, "where": "m:1"} for a, b in zip(A, B, strict=True)]
TRIPLETS = [{**match, "negative": c} for match, c in zip(MATCHES, C, strict=True)]


def theirs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("sentence_transformers.sentence_transformer.losses")


def ready(objective, records):
    objective.learn_labels(iter(records))
    model = small("bert", "features", wordpiece())
    return model, objective.training_module(model).eval(), objective.collate(encoded(objective, records))


def vectors_of(model, texts, pooling="mean"):
    """By the pipeline, one by one: (texts, width)"""
    return torch.stack([TextPipeline(model, wordpiece()).embed(text, pooling=pooling) for text in texts])


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_rows_of_about_one_length_are_read_together(padding_side, monkeypatch):
    monkeypatch.setattr(sentence_pairs, "ROWS_OF_A_LENGTH", 2)
    tok = wordpiece()
    tok.padding_side = padding_side
    objective = SentenceContrastive(tok, 16)
    model = small("bert", "features", tok)
    encoder = objective.training_module(model).eval()
    inputs = objective.model_inputs(objective.collate(encoded(objective, TRIPLETS)))
    inputs = {name: tensor for name, tensor in inputs.items() if name != "texts"}
    widths = []
    hook = model.output_stack.register_forward_pre_hook(
        lambda _module, _args, given: widths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    parts = encoder(**inputs)
    hook.remove()
    assert len(widths) == 5 and widths == sorted(widths)
    assert padding_side == "left" or widths[0] < widths[-1]
    torch.testing.assert_close(parts, encoder._vectors(inputs))
    for vector, ids, mask in zip(parts, inputs["input_ids"], inputs["attention_mask"].bool(), strict=True):
        alone = {"input_ids": ids[mask][None], "attention_mask": mask[mask][None].long()}
        if padding_side == "right":  # BERT counts places from the left, padding or not
            torch.testing.assert_close(vector, encoder._vectors(alone)[0])


def test_both_sides_in_one_pass():
    tok, objective = wordpiece(), SentenceContrastive(wordpiece(), 16)
    batch = objective.collate(encoded(objective, TRIPLETS))
    ids, mask = batch.inputs["input_ids"], batch.inputs["attention_mask"].bool()
    rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    assert rows == [tok.encode(text) for text in (*A, *B, *C)]  # all anchors, then all positives, then all negatives
    assert batch.extra["sides"] == 3 and batch.counts == {"loss": 3} and batch.units == sum(map(len, rows))
    objective = SentenceContrastive(wordpiece(), 16)
    pairs = objective.collate(encoded(objective, MATCHES))
    assert len(pairs.inputs["input_ids"]) == 6 and pairs.extra["sides"] == 2


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_are_the_pipelines(pooling):
    objective = SentenceContrastive(wordpiece(), 16, pooling=pooling)
    model, module, batch = ready(objective, MATCHES)
    vectors = objective.vectors(module, batch)
    assert vectors.shape == (2, 3, 16)
    assert torch.allclose(vectors[0], vectors_of(model, A, pooling), atol=1e-5)
    assert torch.allclose(vectors[1], vectors_of(model, B, pooling), atol=1e-5)


def test_softmax_reads_u_v_and_their_difference():
    objective = SentenceSoftmax(wordpiece(), 16)
    model, module, batch = ready(objective, NLI)
    assert objective.labels.names == ["c", "n", "y"] and batch.inputs["labels"].tolist() == [2, 1, 0]
    u, v = vectors_of(model, A), vectors_of(model, B)
    scores = torch.cat([u, v, (u - v).abs()], -1) @ module.classifier.weight.T + module.classifier.bias
    loss = objective.losses(module, batch)["loss"]
    assert torch.allclose(loss, F.cross_entropy(scores, batch.inputs["labels"]), atol=1e-5)
    told = objective.report(objective.measure(module, batch))
    assert list(told) == ["loss", "accuracy", "macro_f1"]
    assert told["accuracy"] == pytest.approx(float((scores.argmax(1) == batch.inputs["labels"]).float().mean()))
    with pytest.raises(InputError, match="n:9: the label 'q' does not occur"):
        list(objective.encode({**NLI[0], "label": "q", "where": "n:9"}))


def test_cosine_regression():
    objective = SentenceSimilarity(wordpiece(), 16, max_score=5)
    model, module, batch = ready(objective, STS)
    cosine = F.cosine_similarity(vectors_of(model, A), vectors_of(model, B))
    scores = torch.tensor([1.0, 0.5, 0.0])
    assert torch.allclose(objective.losses(module, batch)["loss"], ((cosine - scores) ** 2).mean(), atol=1e-5)
    told = objective.report(objective.measure(module, batch))
    assert told["pearson"] == pytest.approx(np.corrcoef(cosine.detach(), scores)[0, 1], abs=1e-4)
    with pytest.raises(InputError, match=r"s:1: score is 5.*highest"):
        list(SentenceSimilarity(wordpiece(), 16).encode(STS[0]))
    with pytest.raises(InputError, match="score must be a number"):
        list(objective.encode({**STS[0], "score": "much"}))


@pytest.mark.parametrize("records", [MATCHES, TRIPLETS])
@pytest.mark.parametrize("symmetric", [False, True])
def test_contrastive_is_sentence_transformers(records, symmetric):
    losses = theirs()
    objective = SentenceContrastive(wordpiece(), 16, symmetric=symmetric)
    _, module, batch = ready(objective, records)
    sides = list(objective.vectors(module, batch))
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    reference = losses.MultipleNegativesRankingLoss(None, **(both if symmetric else {}))
    expected = reference.compute_loss_from_embeddings(sides, None)
    assert torch.allclose(objective.losses(module, batch)["loss"], expected, atol=1e-5)


def test_contrastive_by_hand():
    objective = SentenceContrastive(wordpiece(), 16, scale=3.0)
    model, module, batch = ready(objective, TRIPLETS)
    a, b, c = (F.normalize(vectors_of(model, texts), dim=-1) for texts in (A, B, C))
    scores = torch.stack([torch.stack([3 * (x @ y) for y in (*b, *c)]) for x in a])  # (anchors, candidates)
    expected = torch.stack([-scores[n].log_softmax(-1)[n] for n in range(3)]).mean()
    assert torch.allclose(objective.losses(module, batch)["loss"], expected, atol=1e-5)
    told = objective.report(objective.measure(module, batch))
    assert told["accuracy"] == pytest.approx(float((scores.argmax(1) == torch.arange(3)).float().mean()))


@pytest.mark.parametrize("symmetric", [False, True])
def test_what_cannot_be_wrong_is_no_negative(symmetric):
    """Two questions about one passage, two answers to one question, a text with itself: by loops."""
    cat, dog, mat, sea, book = "the cat sat", "a dog ran", "on the mat .", "the sea", "who wrote the book"
    rows = [(cat, mat, book), (dog, mat, sea), (cat, sea, dog), (book, book, mat), (sea, dog, "berlin")]
    objective = SentenceContrastive(wordpiece(), 16, symmetric=symmetric)
    records = [dict(zip(("anchor", "positive", "negative"), row, strict=True)) for row in rows]
    model, module, batch = ready(objective, records)
    unit = {text: F.normalize(vectors_of(model, [text]), dim=-1)[0] for row in rows for text in row}

    def loss(own, right, rivals):
        """A text, its right answer, and those of the others as (what they belong to, answer)."""
        wrong = [b for a, b in rivals if b not in (own, right) and a != own]
        scores = torch.stack([20 * (unit[own] @ unit[text]) for text in (right, *wrong)])
        return -scores.log_softmax(-1)[0], bool(scores.argmax() == 0)

    others = [[(a, b) for m, (a, b, _) in enumerate(rows) if m != n] + [("", c) for *_, c in rows] for n in range(5)]
    told = [loss(a, b, others[n]) for n, (a, b, _) in enumerate(rows)]
    expected = torch.stack([value for value, _ in told]).mean()
    if symmetric:
        back = [[(b, a) for m, (a, b, _) in enumerate(rows) if m != n] for n in range(5)]
        expected = (expected + torch.stack([loss(b, a, back[n])[0] for n, (a, b, _) in enumerate(rows)]).mean()) / 2
    assert torch.allclose(objective.losses(module, batch)["loss"], expected, atol=1e-5)
    assert objective.report(objective.measure(module, batch))["accuracy"] == pytest.approx(sum(r for _, r in told) / 5)


def test_a_pair_alone_in_its_batch_proves_nothing():
    objective = SentenceContrastive(wordpiece(), 16)
    _, module, batch = ready(objective, MATCHES[:1])
    assert batch.counts == {"loss": 0}
    with pytest.raises(InputError, match="Hold out more pairs"):
        objective.report(objective.measure(module, batch))
    _, _, batch = ready(SentenceContrastive(wordpiece(), 16), TRIPLETS[:1])  # a negative is something
    assert batch.counts == {"loss": 1}
    objective.check_rows(2)
    with pytest.raises(InputError, match=r"Raise batch\.size, or lower batch\.gradient_accumulation_steps"):
        objective.check_rows(1)
    with pytest.raises(InputError, match="scale is -1"):
        SentenceContrastive(wordpiece(), 16, scale=-1)


def test_triplets():
    objective = SentenceTriplet(wordpiece(), 16, margin=0.5)
    model, module, batch = ready(objective, TRIPLETS)
    a, b, c = (vectors_of(model, texts) for texts in (A, B, C))
    near, far = (a - b).norm(dim=-1), (a - c).norm(dim=-1)
    expected = (near - far + 0.5).clamp(min=0).mean()
    loss = objective.losses(module, batch)["loss"]
    assert torch.allclose(loss, expected, atol=1e-4)
    told = objective.report(objective.measure(module, batch))
    assert told["accuracy"] == pytest.approx(float((near < far).float().mean()))
    reference = theirs().TripletLoss(None, triplet_margin=0.5)
    sides = list(objective.vectors(module, batch))
    assert torch.allclose(loss, reference.compute_loss_from_embeddings(sides, None), atol=1e-5)
    with pytest.raises(InputError, match="m:1 has no column 'negative'"):
        list(objective.encode(MATCHES[0]))


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2"])
@pytest.mark.parametrize(
    ("kind", "records", "options"),
    [
        (SentenceSoftmax, NLI, {}),
        (SentenceSimilarity, STS, {"max_score": 5}),
        (SentenceContrastive, MATCHES, {"normalize": True}),
        (SentenceTriplet, TRIPLETS, {"pooling": "cls"}),
    ],
)
def test_it_is_learned(kind, records, options, name):
    tok = bpe() if name == "gpt2" else wordpiece()
    if name == "gpt2" and kind is SentenceTriplet:
        options = {"pooling": "lasttoken"}  # the first one has seen nothing else
    objective = kind(tok, 40, **options)
    objective.learn_labels(iter(records))
    model = small(name, objective.task, tok)
    before, after = learns(objective, model, encoded(objective, records), lr=3e-3)
    assert after < before
    assert not any(parameter.requires_grad for parameter in model.head.parameters())  # a pooler nobody reads


def test_what_comes_out_is_a_sentence_bert_folder(tmp_path):
    objective = SentenceContrastive(wordpiece(), 16, normalize=True)
    model, module, batch = ready(objective, MATCHES)
    pipe = TextPipeline(model, wordpiece(), sentence=objective.sentence())
    pipe.save(tmp_path / "out")
    again = load(tmp_path / "out")
    assert again.sentence.max_seq_length == 16
    vectors = again.embed(A)
    assert torch.allclose(vectors, objective.vectors(module, batch)[0], atol=1e-5)
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(3), atol=1e-5)
    # trained on short texts for speed, and used on longer ones
    assert SentenceContrastive(wordpiece(), 16, max_seq_length=32).sentence().max_seq_length == 32
    with pytest.raises(InputError, match="max_seq_length is 0"):
        SentenceContrastive(wordpiece(), 16, max_seq_length=0)


def test_what_does_not_fit():
    objective = SentenceContrastive(wordpiece(), 16)
    objective.learn_labels(iter(TRIPLETS))
    with pytest.raises(InputError, match="m:1 has no column 'negative', unlike the first"):
        encoded(objective, [TRIPLETS[0], MATCHES[1]])
    objective.learn_labels(iter(MATCHES))
    with pytest.raises(InputError, match="m:1 has a column 'negative'"):
        encoded(objective, [MATCHES[0], TRIPLETS[1]])
    with pytest.raises(InputError, match="m:1: positive is empty"):
        list(objective.encode({**MATCHES[0], "positive": " "}))
    with pytest.raises(InputError, match="encoder–decoder"):
        objective.training_module(small("transformer", "seq2seq-lm", wordpiece()))
    with pytest.raises(ConfigError, match="pooling"):
        SentenceContrastive(wordpiece(), 16, pooling="meen")
    with pytest.raises(InputError, match="max_score"):
        SentenceSimilarity(wordpiece(), 16, max_score=0)

"""Classification against transformers' pipelines, and labels that are given only now against the model's own scores."""

import logging

import pytest
import torch

from clearhead.errors import InputError
from tests.pipeline.reference import TEXTS, reference
from tests.tiny import tiny_pipeline

PAIRS = ["a dog sat", "the mat", "the cat", "sofa"]
NAMES = {0: "bad", 1: "good", 2: "so-so"}
# with the kind of tokenizer that the family has
FAMILIES = {
    "bert": "wordpiece", "roberta": "bpe", "distilbert": "wordpiece", "electra": "wordpiece", "albert": "unigram",
    "mpnet": "wordpiece", "big_bird": "unigram", "deberta": "bpe", "deberta-v2": "unigram", "xlm": "bpe",
    "xlnet": "unigram", "gpt2": "bpe", "gpt_neo": "bpe", "gptj": "bpe", "openai-gpt": "bpe", "ctrl": "bpe",
    "bart": "unigram", "mbart": "unigram", "bigbird_pegasus": "unigram", "t5": "unigram",
}  # fmt: skip


def classifier(name="bert", kind=None, names=NAMES, **options):
    return tiny_pipeline(name, "sequence-classification", kind, id2label=dict(names), **options)


def compare(ours, theirs):
    assert len(ours) == len(theirs)
    for labels, expected in zip(ours, theirs, strict=True):
        assert [one.label for one in labels] == [one["label"] for one in expected]
        assert [one.score for one in labels] == pytest.approx([one["score"] for one in expected], abs=5e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_as_in_transformers_padded_or_not(name, tmp_path):
    pipe = classifier(name, FAMILIES[name])
    theirs = reference(pipe, "text-classification", tmp_path / "model")
    compare(pipe.classify(TEXTS, batch_size=3), theirs(TEXTS, top_k=None))
    pairs = [{"text": text, "text_pair": pair} for text, pair in zip(TEXTS, PAIRS, strict=True)]
    compare(pipe.classify(TEXTS, PAIRS), theirs(pairs, top_k=None))


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        ("multi_label_classification", NAMES),
        ("regression", {0: "LABEL_0"}),
        ("regression", NAMES),
        (None, {0: "LABEL_0"}),
        (None, NAMES),
    ],
)
def test_what_a_score_is_depends_on_the_problem(problem, names, tmp_path):
    pipe = classifier(names=names, problem_type=problem)
    theirs = reference(pipe, "text-classification", tmp_path / "model")
    compare([pipe.classify(TEXTS[0])], theirs([TEXTS[0]], top_k=None))


def test_one_text_gives_its_labels_and_calling_does_the_same():
    pipe = classifier()
    one = pipe.classify(TEXTS[0])
    assert sum(label.score for label in one) == pytest.approx(1)
    assert pipe(TEXTS[0]) == one
    assert [pytest.approx(label.score, abs=1e-6) for label in one] == [x.score for x in pipe(TEXTS)[0]]


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_texts_that_cannot_share_a_batch_do_not(name):
    """GPT-2 without a padding token; end tokens in a text, which BART's head counts."""
    pipe = classifier(name, FAMILIES[name])
    texts = list(TEXTS)
    if name == "gpt2":
        pipe.model.config.pad_token_id = None
    else:
        texts[1] += pipe.tokenizer.eos_token
    together = pipe.classify(texts)
    for labels, text in zip(together, texts, strict=True):
        assert [x.score for x in labels] == pytest.approx([x.score for x in pipe.classify(text)], abs=1e-6)


def test_block_sparse_attention_is_not_padded_into_another_block():
    pipe = classifier("big_bird", attention_type="block_sparse", block_size=2, num_random_blocks=1)
    texts = [" ".join(["cat"] * n) for n in (3, 14, 15, 17, 20, 29)]
    assert max(len(pipe.tokenizer.encode(text)) for text in texts) > 14  # the last that full attention reads
    for labels, text in zip(pipe.classify(texts), texts, strict=True):
        assert [x.score for x in labels] == pytest.approx([x.score for x in pipe.classify(text)], abs=1e-6)


def test_a_long_text_is_cut_with_a_warning(caplog):
    pipe = classifier()
    with caplog.at_level(logging.WARNING, "clearhead"):
        cut = pipe.classify(["the cat " * 200, "a dog"])
    assert "1 of 2 texts were cut to the 48 tokens" in caplog.text
    ids = pipe.tokenizer("the cat " * 200, truncation=True, max_length=48, return_tensors="pt")
    scores = pipe.model(**ids).logits.softmax(-1)[0]
    assert cut[0][0].score == pytest.approx(float(scores.max().detach()), abs=1e-6)


# ---- labels of one's own


@pytest.mark.parametrize("labels", [["cat", "a dog", "sofa"], ["cat"]])
@pytest.mark.parametrize("names", [{0: "contradiction", 1: "neutral", 2: "ENTAILMENT"}, {0: "entailment", 1: "not"}])
def test_an_inference_model_classifies_as_in_transformers(labels, names, tmp_path):
    pipe = classifier(names=names)
    theirs = reference(pipe, "zero-shot-classification", tmp_path / "model")
    for template in ("This example is {}.", "the {} sat"):
        expected = theirs(TEXTS, labels, hypothesis_template=template)
        for ours, their in zip(pipe.classify(TEXTS, labels=labels, template=template), expected, strict=True):
            assert [one.label for one in ours] == their["labels"]
            assert [one.score for one in ours] == pytest.approx(their["scores"], abs=1e-6)


def test_a_causal_model_ranks_labels_by_their_words():
    pipe = tiny_pipeline("gpt2")
    labels = ["cat", "unbelievably", "dog ran"]
    scores = []
    for label in labels:
        start = pipe.tokenizer.encode("a dog sat the")
        ids = pipe.tokenizer.encode(f"a dog sat the {label}!")
        stop = pipe.tokenizer.encode(f"a dog sat the {label}")
        assert ids[: len(stop)] == stop and stop[: len(start)] == start
        log_probs = pipe.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        scores.append(sum(log_probs[n - 1, ids[n]] for n in range(len(start), len(stop))) / (len(stop) - len(start)))
    expected = torch.stack(scores).softmax(-1)
    found = pipe.classify(["a dog sat", "the mat and the sofa"], labels=labels, template="the {}!")
    by_label = {one.label: one.score for one in found[0]}
    assert [by_label[label] for label in labels] == pytest.approx(expected.tolist(), abs=1e-6)
    assert sum(one.score for one in found[1]) == pytest.approx(1)
    assert found[0] == sorted(found[0], key=lambda one: -one.score)


def test_a_masked_model_ranks_labels_by_the_words_in_their_place():
    pipe = tiny_pipeline("bert")
    single = [word for word in ("cat", "dog", "mat") if len(pipe.tokenizer.tokenize(word)) == 1]
    assert len(single) > 1
    filled = pipe.fill("the sofa ran a [MASK] on", top_k=1000)[0]
    expected = {one.token: one.probability for one in filled if one.token in single}
    total = sum(expected.values())
    for one in pipe.classify("the sofa ran", labels=single, template="a {} on"):
        assert one.score == pytest.approx(expected[one.label] / total, abs=1e-6)
    # several tokens from left to right: those that are still to come are masked
    before, after = pipe.tokenizer.encode("the sofa ran a")[:-1], pipe.tokenizer.encode("on")[1:]
    first, second = pipe.tokenizer.encode("unbelievably sat", add_special_tokens=False)
    mask = pipe.tokenizer.mask_token_id
    scores = []
    for n, (token, hidden) in enumerate([(first, [mask, mask]), (second, [first, mask])]):
        logits = pipe.model(torch.tensor([[*before, *hidden, *after]])).logits[0, len(before) + n]
        scores.append(logits.log_softmax(-1)[token])
    cat = pipe.model(torch.tensor([[*before, mask, *after]])).logits[0, len(before)].log_softmax(-1)
    both = torch.stack([torch.stack(scores).mean(), cat[pipe.tokenizer.convert_tokens_to_ids("cat")]]).softmax(-1)
    found = {
        one.label: one.score
        for one in pipe.classify("the sofa ran", labels=["unbelievably sat", "cat"], template="a {} on")
    }
    assert found["unbelievably sat"] == pytest.approx(float(both[0].detach()), abs=1e-6)


def test_an_encoder_decoder_ranks_labels_by_what_it_would_write():
    pipe = tiny_pipeline("t5")
    source = torch.tensor([pipe.tokenizer.encode("a dog sat")])
    scores = []
    for label in ("cat", "unbelievably"):
        ids = torch.tensor([pipe.tokenizer(text_target=label)["input_ids"]])
        log_probs = pipe.model(source, labels=ids).logits[0].log_softmax(-1)
        scores.append(log_probs[range(ids.shape[1] - 1), ids[0, :-1]].mean())  # the end token is not of the label
    found = {one.label: one.score for one in pipe.classify("a dog sat", labels=["cat", "unbelievably"], template="{}")}
    expected = torch.stack(scores).softmax(-1).tolist()
    assert [found["cat"], found["unbelievably"]] == pytest.approx(expected, abs=1e-6)


def test_a_long_text_leaves_room_for_the_label(caplog):
    for pipe in (tiny_pipeline("gpt2"), tiny_pipeline("bert")):
        with caplog.at_level(logging.WARNING, "clearhead"):
            found = pipe.classify("the cat " * 100, labels=["cat", "dog"])
        assert sum(one.score for one in found) == pytest.approx(1)
        assert "1 of 1 texts were cut" in caplog.text


@pytest.mark.parametrize(
    ("name", "task", "arguments", "says"),
    [
        ("bert", "masked-lm", {"text": "a cat"}, "Give some to be ranked"),
        ("bert", "token-classification", {"text": "a cat"}, "of its own. Load a model"),
        ("bert", "token-classification", {"text": "a cat", "labels": ["x", "y"]}, "language model"),
        ("bert", "sequence-classification", {"text": "a cat", "labels": ["x", "y"]}, "labels of its own"),
        ("bert", "masked-lm", {"text": "a cat", "labels": ["x", "x"]}, "different names"),
        ("bert", "masked-lm", {"text": "a cat", "labels": "x,y"}, "labels"),
        ("bert", "masked-lm", {"text": "a cat", "labels": ["x", "y"], "template": "no place"}, "template"),
        ("bert", "sequence-classification", {"text": ["a cat", " "]}, "Text 2 of 2 is empty"),
        ("bert", "sequence-classification", {"text": ["a cat"], "pair": "a dog"}, "pair"),
        ("bert", "sequence-classification", {"text": ["a", "b"], "pair": ["a dog"]}, "2 texts but 1"),
        ("bert", "sequence-classification", {"text": "a cat", "batch_size": 0}, "batch_size"),
    ],
)
def test_what_cannot_be_classified_says_why(name, task, arguments, says):
    with pytest.raises(InputError, match=says):
        tiny_pipeline(name, task).classify(**arguments)

"""GPT's input transformations, their two terms, and the new tokens."""

import pytest
import torch
import torch.nn.functional as F

from clearhead.errors import InputError
from clearhead.models.heads import HeadInputs
from clearhead.train.objectives.gpt_tasks import (
    DELIMITER,
    EXTRACT,
    START,
    GPTClassification,
    GPTEntailment,
    GPTMultipleChoice,
    GPTSimilarity,
)
from clearhead.train.objectives.padding import IGNORED
from tests.train.objectives.small import bpe, encoded, learns, small, wordpiece

TEXTS = [
    {"text": "the cat sat", "label": "x", "where": "a:1"},
    {"text": "a dog ran away from berlin", "label": "y", "where": "a:2"},
]
PAIRS = [{**record, "text_pair": "the sea ."} for record in TEXTS]
NLI = [{"premise": r["text"], "hypothesis": r["text_pair"], "label": r["label"], "where": r["where"]} for r in PAIRS]
QUESTIONS = [
    {"prompt": "the cat sat", "choices": ["on the mat", "a dog", "in berlin"], "label": 2, "where": "q:1"},
    {"prompt": "who ran", "choices": ["a dog", "the house"], "label": 0, "where": "q:2"},
]


def made(kind, records, length=30, **options):
    objective = kind(bpe(), length, **options)
    objective.learn_labels(iter(records))
    return objective


def tokens(objective, ids):
    """Special tokens by name, and the text between them."""
    return objective.tokenizer.decode(ids)


def model_for(objective, name="gpt2"):
    """As a checkpoint comes: with rows for the words of before."""
    return small(name, objective.task, bpe(), **objective.configure({}))


@pytest.mark.parametrize(
    ("kind", "records", "expected"),
    [
        (GPTClassification, TEXTS, f"{START}the cat sat{EXTRACT}"),
        (GPTClassification, PAIRS, f"{START}the cat sat{DELIMITER}the sea .{EXTRACT}"),
        (GPTEntailment, NLI, f"{START}the cat sat{DELIMITER}the sea .{EXTRACT}"),
        (GPTSimilarity, PAIRS, f"{START}the cat sat{DELIMITER}the sea .{EXTRACT}"),
    ],
)
def test_transformations(kind, records, expected):
    objective = made(kind, records)
    example = encoded(objective, records)[0]
    assert tokens(objective, example["input_ids"]) == expected
    if kind is GPTSimilarity:
        assert tokens(objective, example["swapped_ids"]) == f"{START}the sea .{DELIMITER}the cat sat{EXTRACT}"
    ids = [objective.tokenizer.convert_tokens_to_ids(token) for token in (START, DELIMITER, EXTRACT)]
    assert ids == [len(bpe()), len(bpe()) + 1, len(bpe()) + 2]
    assert example["input_ids"].tolist().count(ids[2]) == 1 and example["input_ids"][-1] == ids[2]


def test_multiple_choice_rows():
    objective = made(GPTMultipleChoice, QUESTIONS)
    batch = objective.collate(encoded(objective, QUESTIONS))
    ids, last = batch.inputs["input_ids"], batch.inputs["mc_token_ids"]
    for n, record in enumerate(QUESTIONS):
        for c, choice in enumerate(record["choices"]):
            expected = f"{START}{record['prompt']}{DELIMITER}{choice}{EXTRACT}"
            assert tokens(objective, ids[n, c, : last[n, c] + 1]) == expected
    assert (batch.inputs["lm_labels"][1, 2] == IGNORED).all()  # a choice that is not there teaches no words
    real = batch.inputs["attention_mask"].sum(-1)[batch.inputs["choice_mask"]]
    assert batch.counts == {"task": 2, "lm": int((real - 1).sum())}
    assert batch.units == int(real.sum())


def test_the_longer_text_gives_way():
    objective = made(GPTClassification, PAIRS, length=10)
    long = {"text": "the red house is old and the green one is new .", "text_pair": "the sea", "label": "x"}
    (example,) = objective.encode(long)
    pair = objective.tokenizer.encode("the sea", add_special_tokens=False)
    assert len(example["input_ids"]) == 10
    assert example["input_ids"][-1 - len(pair) : -1].tolist() == pair
    with pytest.raises(InputError, match="no room"):
        list(made(GPTClassification, PAIRS, length=4).encode(long))


def test_two_terms_by_hand():
    objective = made(GPTClassification, TEXTS)
    assert objective.loss_weights == {"task": 1.0, "lm": 0.5}
    model = model_for(objective)
    module = objective.training_module(model).eval()
    examples = encoded(objective, TEXTS)
    terms = objective.losses(module, objective.collate(examples))
    surprise, scores = [], []
    for example in examples:
        ids = torch.from_numpy(example["input_ids"]).long()[None]
        hidden = model.stack(ids)
        words = hidden[0, :-1] @ model.stack.embed.tokens.weight.T
        surprise.append(F.cross_entropy(words, ids[0, 1:], reduction="none"))  # extract is a word to learn too
        scores.append(model.head.output(hidden[0, -1]))  # the state at extract
    labels = torch.tensor([0, 1])
    assert torch.allclose(terms["task"], F.cross_entropy(torch.stack(scores), labels), atol=1e-5)
    assert torch.allclose(terms["lm"], torch.cat(surprise).mean(), atol=1e-5)
    batch = objective.collate(examples)
    assert batch.counts == {"task": 2, "lm": sum(len(e["input_ids"]) - 1 for e in examples)}
    told = objective.report(objective.measure(module, batch))
    assert told["loss"] == pytest.approx(float((terms["task"] + 0.5 * terms["lm"]).detach()), rel=1e-5)
    assert {"task", "lm", "accuracy", "macro_f1"} <= set(told)


def test_similarity_adds_the_states_of_both_orders():
    objective = made(GPTSimilarity, PAIRS)
    model = model_for(objective)
    module = objective.training_module(model).eval()
    examples = encoded(objective, PAIRS)
    terms = objective.losses(module, objective.collate(examples))
    scores = []
    for example in examples:
        both = [
            model.stack(torch.from_numpy(example[name]).long()[None])[0, -1] for name in ("input_ids", "swapped_ids")
        ]
        scores.append(model.head.output(both[0] + both[1]))
    assert torch.allclose(terms["task"], F.cross_entropy(torch.stack(scores), torch.tensor([0, 1])), atol=1e-5)
    swapped = [{**r, "text": r["text_pair"], "text_pair": r["text"]} for r in PAIRS]
    again = objective.losses(module, objective.collate(encoded(objective, swapped)))
    assert torch.allclose(terms["task"], again["task"], atol=1e-6)  # neither comes first
    with pytest.raises(InputError, match="without a bias"):
        objective.training_module(small("bert", "sequence-classification", wordpiece()))


def test_choices_against_the_double_heads():
    """Where every question has as many choices, both terms are those of the published model."""
    objective = made(GPTMultipleChoice, QUESTIONS[:1])
    model = objective.training_module(model_for(objective)).eval()
    batch = objective.collate(encoded(objective, QUESTIONS[:1]))
    terms = objective.losses(model, batch)
    out = model(**{name: t for name, t in batch.inputs.items() if name != "choice_mask"})
    assert torch.allclose(out.loss, terms["task"] + terms["lm"], atol=1e-5)
    assert torch.allclose(terms["task"], F.cross_entropy(out.logits, torch.tensor([2])), atol=1e-6)


def test_rows_that_fill_up_change_nothing():
    objective = made(GPTMultipleChoice, QUESTIONS)
    model = objective.training_module(model_for(objective)).eval()
    examples = encoded(objective, QUESTIONS)
    together, parts = objective.collate(examples), [objective.collate([e]) for e in examples]
    for name in ("task", "lm"):
        alone = sum(objective.losses(model, b)[name] * b.counts[name] for b in parts)
        assert torch.allclose(objective.losses(model, together)[name] * together.counts[name], alone, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "openai-gpt"])
@pytest.mark.parametrize(
    ("kind", "records"),
    [(GPTClassification, TEXTS), (GPTEntailment, NLI), (GPTSimilarity, PAIRS), (GPTMultipleChoice, QUESTIONS)],
)
def test_it_is_learned(kind, records, name):
    objective = made(kind, records)
    tiny = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
            "attn_pdrop": 0.0, "summary_first_dropout": 0.0}  # fmt: skip
    model = small(name, objective.task, bpe(), **objective.configure(tiny))
    before, after = learns(objective, model, encoded(objective, records))
    assert after < before
    assert model.config.vocab_size == len(objective.tokenizer) == len(bpe()) + 3


def test_the_words_can_be_left_out():
    objective = made(GPTClassification, TEXTS, lm=0)
    batch = objective.collate(encoded(objective, TEXTS))
    assert objective.loss_weights == {"task": 1.0} and set(batch.counts) == {"task"} and "lm_labels" not in batch.inputs
    assert set(objective.losses(objective.training_module(model_for(objective)), batch)) == {"task"}


def test_the_output_matrix_is_the_embedding():
    objective = made(GPTClassification, TEXTS)
    model = model_for(objective)
    module = objective.training_module(model)
    table = model.stack.embed.tokens.weight
    assert module.words.output.weight is table
    assert len(list(module.parameters())) == len(list(model.parameters()))
    hidden = torch.randn(1, 3, 16)
    assert module.words(hidden, HeadInputs()).logits.shape[-1] == len(objective.tokenizer)


def test_wrong_models_and_records():
    objective = made(GPTClassification, TEXTS)
    with pytest.raises(InputError, match="left to right"):
        objective.training_module(small("bert", "sequence-classification", wordpiece()))
    with pytest.raises(InputError, match="double heads"):
        made(GPTMultipleChoice, QUESTIONS).training_module(small("bert", "multiple-choice", wordpiece()))
    with pytest.raises(InputError, match="a:9: the label 'z' does not occur"):
        list(objective.encode({"text": "the cat", "label": "z", "where": "a:9"}))
    with pytest.raises(InputError, match="a:9 has no column 'hypothesis'"):
        list(made(GPTEntailment, NLI).encode({"premise": "the cat", "label": "x", "where": "a:9"}))
    with pytest.raises(InputError, match="a:9: text_pair is empty"):
        list(made(GPTSimilarity, PAIRS).encode({"text": "the cat", "text_pair": "", "label": "x", "where": "a:9"}))

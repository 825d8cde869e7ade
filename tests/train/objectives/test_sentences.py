"""Two segments: BERT's next sentence and ALBERT's order, with their rates, shapes and never the same document."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.train.objectives.sentences import (
    NextSentence,
    SentenceOrder,
    chunks_of,
    parts_of,
    sentences_of,
    shortened,
)
from tests.train.objectives.pretraining import (
    SENTENCES,
    batch_of,
    byte_bpe,
    documents,
    model_of,
    rng,
    same,
    steps_lower_the_loss,
    wordpiece,
)

TOK = wordpiece()
CLS, SEP, MASK = TOK.cls_token_id, TOK.sep_token_id, TOK.mask_token_id
# documents that share no word: every token tells where it comes from
LETTERS = [" ".join([letter * 2] * 4) + "." for letter in "abcdefgh"]
TEXTS = [" ".join([text] * 6) for text in LETTERS]


def next_sentence(length=48, texts=TEXTS, **options):
    objective = NextSentence(TOK, length, **options)
    objective.training_data = documents(objective, texts)
    return objective


def seen(made):
    """A and B as they were before masking, and what is around them."""
    ids = np.where(made["labels"] >= 0, made["labels"], made["input_ids"])
    ends = np.flatnonzero(ids == SEP)
    assert ids[0] == CLS and len(ends) == 2 and ends[1] == len(ids) - 1
    assert made["token_type_ids"].tolist() == [0] * (ends[0] + 1) + [1] * (ends[1] - ends[0])
    return ids[1 : ends[0]], ids[ends[0] + 1 : ends[1]]


def test_sentences():
    assert sentences_of("One. Two? Three! four") == ["One.", " Two?", " Three!", " four"]
    assert sentences_of("π is 3.14. So?") == ["π is 3.14.", " So?"]
    assert sentences_of('He said "no." She left.') == ['He said "no."', " She left."]
    assert sentences_of("你好。再见！真的？！好") == ["你好。", "再见！", "真的？！", "好"]
    assert sentences_of("他说：“好。”走了。") == ["他说：“好。”", "走了。"]
    assert sentences_of("One. Two.\nThree.") == ["One. Two.\n", "Three."]
    assert sentences_of("") == []


@given(st.text(alphabet="ab .!?。！？\n”\"'"))
def test_no_character_is_lost(text):
    assert "".join(sentences_of(text)) == text


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), max_size=12), st.integers(1, 12))
def test_chunks_fill_the_room(sentences, room):
    found = list(chunks_of(sentences, room))
    assert [s for run in found for s in run] == sentences
    for run in found[:-1]:
        assert sum(map(len, run)) >= room > sum(map(len, run[:-1]))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 50), st.integers(0, 5))
def test_the_longer_gives_way_at_either_end(n, m, room, seed):
    a, b = shortened(np.arange(n), np.arange(100, 100 + m), room, rng(seed))
    assert len(a) + len(b) == min(room, n + m)
    assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()
    if n + m > room:
        assert abs(len(a) - len(b)) <= 1 or (len(a) == n if n < m else len(b) == m)


def test_both_ends_are_cut():
    fronts = [int(shortened(np.arange(60), np.arange(0), 40, rng(n))[0][0]) for n in range(200)]
    assert np.mean(fronts) == pytest.approx(10, abs=0.6)


def test_next_or_random():
    objective = next_sentence(short_seq_prob=0.0)
    several = [example for example in objective.training_data if len(example["sentences"]) > 1]
    answers = []
    for seed in range(400):
        example = several[seed % len(several)]
        made = objective.noise(example, rng(seed))
        a, b = seen(made)
        assert len(a) and len(b) and len(a) + len(b) <= objective.capacity
        own = set(example["input_ids"]) - set(TOK.encode(".", add_special_tokens=False))
        assert not own.isdisjoint(a)
        if made["answer"] == 0:
            text = "".join(map(chr, example["input_ids"]))
            assert set(b) <= set(example["input_ids"]) and "".join(map(chr, b)) in text
        else:
            assert own.isdisjoint(b)  # never the same document
        answers.append(made["answer"])
    assert np.mean(answers) == pytest.approx(0.5, abs=0.06)


def test_a_followed_by_b_is_the_text():
    objective = next_sentence(short_seq_prob=0.0, length=400)
    example = objective.training_data[0]
    for seed in range(20):
        made = objective.noise(example, rng(seed))
        a, b = seen(made)
        if made["answer"] == 0:
            assert np.concatenate((a, b)).tolist() == example["input_ids"].tolist()
            assert len(a) in np.cumsum(example["sentences"])  # cut between sentences


def test_one_sentence_alone_has_no_next():
    objective = next_sentence(texts=LETTERS)
    assert all(objective.noise(e, rng(n))["answer"] == 1 for n in range(5) for e in objective.training_data)


def test_some_sequences_are_short():
    texts = [" ".join([text] * 40) for text in LETTERS]
    lengths = {}
    for short in (0.0, 0.1, 1.0):
        objective = next_sentence(texts=texts, short_seq_prob=short)
        full = [example for example in objective.training_data if example["sentences"].sum() >= objective.capacity]
        objective.training_data = full
        lengths[short] = [len(objective.noise(full[n % len(full)], rng(n))["input_ids"]) for n in range(300)]
    assert all(length == 48 for length in lengths[0.0])  # a random B is as long as wanted, too
    assert 0.03 < np.mean(np.array(lengths[0.1]) < 48) < 0.13
    assert np.mean(lengths[1.0]) < 40 and min(lengths[1.0]) < 20


def test_masking_of_pairs():
    objective = next_sentence(length=64, max_predictions=5)
    for n in range(40):
        made = objective.noise(objective.training_data[n % 8], rng(n))
        chosen = (made["labels"] >= 0).sum()
        assert chosen == min(5, max(1, round(0.15 * len(made["input_ids"]))))
        assert not np.isin(made["labels"], TOK.all_special_ids).any()


def test_order():
    objective = SentenceOrder(TOK, 400, short_seq_prob=0.0)
    example = documents(objective, TEXTS)[0]
    swapped = []
    for seed in range(200):
        made = objective.noise(example, rng(seed))
        a, b = seen(made)
        first, second = (b, a) if made["answer"] == 1 else (a, b)
        assert np.concatenate((first, second)).tolist() == example["input_ids"].tolist()
        assert len(first) in np.cumsum(example["sentences"])
        swapped.append(made["answer"])
    assert np.mean(swapped) == pytest.approx(0.5, abs=0.08)


def test_order_of_a_lone_sentence():
    objective = SentenceOrder(TOK, 48)
    (example,) = documents(objective, SENTENCES[:1])
    assert len(example["sentences"]) == 1
    for seed in range(30):
        made = objective.noise(example, rng(seed))
        a, b = seen(made)
        assert len(a) and len(b)
    assert documents(objective, ["a"]) == []


def test_order_masks_whole_words_in_ngrams():
    objective = SentenceOrder(TOK, 200)
    assert objective.masking.ngrams == 3 and objective.masking.begins is not None
    (example, *_) = documents(objective, [" ".join(SENTENCES)])
    begins = objective.masking.begins
    for seed in range(20):
        made = objective.noise(example, rng(seed))
        ids = np.where(made["labels"] >= 0, made["labels"], made["input_ids"])
        chosen = np.append(made["labels"] >= 0, False)
        inside = ~begins[ids] & ~np.isin(ids, TOK.all_special_ids)
        where = np.flatnonzero(inside)
        cut = np.isin(ids[where - 1], [CLS, SEP])  # a sentence may have been cut within a word
        assert (chosen[where] == chosen[where - 1])[~cut].all()


@pytest.mark.parametrize(("kind", "family"), [(NextSentence, "bert"), (SentenceOrder, "albert")])
def test_they_learn(kind, family):
    objective = kind(TOK, 48)
    examples = documents(objective, TEXTS)
    objective.training_data = examples
    made = objective.noise(examples[0], rng(3))
    assert same(made, objective.noise(examples[0], rng(3))) and not same(made, objective.noise(examples[0], rng(4)))
    batch = batch_of(objective, examples)
    assert batch.counts == {"mlm": int((batch.inputs["labels"] >= 0).sum()), objective.question: len(examples)}
    model = model_of(family, TOK, "pretraining")
    losses = objective.losses(model, batch)
    whole = float(model(**batch.inputs).loss.detach())
    assert sum(float(loss.detach()) for loss in losses.values()) == pytest.approx(whole, rel=1e-5)
    report = steps_lower_the_loss(objective, model, batch)
    names = ["loss", "mlm", objective.question, "masked_accuracy", f"{objective.question}_accuracy"]
    assert list(report) == names
    assert report["loss"] == pytest.approx(report["mlm"] + report[objective.question])


def test_the_two_terms_are_what_they_say():
    objective = next_sentence()
    batch = batch_of(objective, objective.training_data)
    model = model_of("bert", TOK, "pretraining").train()
    whole = objective.losses(model, batch)
    model.head.words.chunk = 4  # no scores, as in training
    chunked = objective.losses(model, batch)
    for name in whole:
        assert float(chunked[name].detach()) == pytest.approx(float(whole[name].detach()), rel=1e-5)
    words = model_of("bert", TOK, "masked-lm")
    words.load_state_dict(
        {k.replace("head.words.", "head."): v for k, v in model.state_dict().items() if "next_sentence" not in k}
    )
    inputs = {k: v for k, v in batch.inputs.items() if k != "next_sentence_label"}
    assert float(words(**inputs).loss.detach()) == pytest.approx(float(whole["mlm"].detach()), rel=1e-4)


def test_examples_are_runs_of_sentences():
    objective = NextSentence(TOK, 48)
    for text in TEXTS:
        found = documents(objective, [text])
        ids = [token for example in found for token in example["input_ids"]]
        assert ids == TOK.encode(text, add_special_tokens=False)
        assert len({example["document"] for example in found}) == 1
        assert all(len(part) for example in found for part in parts_of(example))
    assert documents(objective, ["", "\n \n"]) == []


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=8), st.integers(8, 60), st.integers(0, 100))
def test_it_always_fits(sentences, length, seed):
    for objective in (next_sentence(length), SentenceOrder(TOK, length)):
        for n, example in enumerate(documents(objective, [" ".join(sentences)])):
            made = objective.noise(example, rng(seed, n))
            a, b = seen(made)
            assert len(made["input_ids"]) <= length and len(a) and len(b)


def test_what_is_refused():
    objective = NextSentence(TOK, 48)
    examples = documents(objective, [TEXTS[0] * 9])
    with pytest.raises(InputError, match="training_data"):
        for n in range(9):
            objective.noise(examples[0], rng(n))
    objective.training_data = examples
    with pytest.raises(InputError, match=r"one document only.*masked-lm"):
        for n in range(9):
            objective.noise(examples[0], rng(n))
    objective.training_data = [*examples, *documents(objective, TEXTS[1:2])]  # rare, but found
    assert {objective.noise(examples[0], rng(n))["answer"] for n in range(9)} == {0, 1}
    with pytest.raises(InputError, match="cls_token"):
        NextSentence(byte_bpe(), 48)

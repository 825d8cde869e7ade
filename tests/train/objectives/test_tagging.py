"""Tags on first pieces, windows that lose nothing, and names judged as conlleval judges them."""

import pytest
import torch

from clearhead.errors import InputError
from clearhead.train.objectives.padding import IGNORED
from clearhead.train.objectives.tagging import Tagging, entities
from tests.train.objectives.small import bpe, encoded, learns, small, wordpiece

WORDS = "a dog ran from angela sandal in berlin".split()
TAGS = "O O O O B-PER I-PER O B-LOC".split()
RECORD = {"tokens": WORDS, "tags": TAGS, "where": "train.conll:3"}


def made(tokenizer=None, length=40, records=(RECORD,), **options):
    objective = Tagging(tokenizer or wordpiece(), length, **options)
    objective.learn_labels(iter(records))
    return objective


def test_first_pieces_carry_the_tag():
    tok, objective = wordpiece(), made()
    assert objective.labels.names == ["O", "B-LOC", "B-PER", "I-PER"]
    (example,) = objective.encode(RECORD)
    encoding = tok(WORDS, is_split_into_words=True)
    assert example["input_ids"].tolist() == encoding["input_ids"]
    expected, last = [], None
    for word in encoding.word_ids():
        new = word is not None and word != last
        expected.append(objective.labels.names.index(TAGS[word]) if new else IGNORED)
        last = word
    assert example["labels"].tolist() == expected
    assert expected.count(IGNORED) > 2  # "sandal" has further pieces


def test_all_pieces_go_on_inside():
    (example,) = made(all_pieces=True).encode(RECORD)
    names = made().labels.names
    tags = [names[n] for n in example["labels"].tolist() if n != IGNORED]
    pieces = len(wordpiece().tokenize("sandal"))
    assert pieces > 1 and tags.count("I-PER") == pieces and tags.count("B-PER") == 1
    assert example["first"].sum() == len(WORDS)
    splits = {"tokens": ["sandal"], "tags": ["B-PER"]}
    (example,) = made(all_pieces=True).encode(splits)
    assert [names[n] for n in example["labels"][1:-1].tolist()] == ["B-PER"] + ["I-PER"] * (pieces - 1)


def test_a_byte_level_tokenizer_sees_a_text():
    """Words get the space before them that the model knows, and tags stand on the piece that begins the word."""
    tok, objective = bpe(), made(bpe())
    (example,) = objective.encode(RECORD)
    assert example["input_ids"].tolist() == tok.encode(" ".join(WORDS))
    tagged = example["labels"] != IGNORED
    assert tagged.sum() == len(WORDS)
    pieces = [tok.readable([n])[0] for n in example["input_ids"].tolist()]
    assert [piece for piece, is_first in zip(pieces, tagged, strict=True) if is_first][:3] == ["a", " dog", " ran"]


@pytest.mark.parametrize("length", [4, 5, 7, 9, 12])
def test_long_sentences_become_windows(length):
    tok, objective = wordpiece(), made(length=length)
    examples = encoded(objective, [RECORD])
    assert len(examples) > 1
    fits = length >= 2 + len(tok.tokenize("sandal"))  # the longest word, in one window
    text, tags = [], []
    for example in examples:
        assert len(example["input_ids"]) <= length
        assert example["input_ids"][0] == tok.cls_token_id and example["input_ids"][-1] == tok.sep_token_id
        text += example["input_ids"][1:-1].tolist()
        tags += [n for n in example["labels"].tolist() if n != IGNORED]
        assert not fits or example["labels"][1] != IGNORED  # cut between words
    assert [objective.labels.names[n] for n in tags] == TAGS  # each once, in order
    if fits:
        assert text == tok.encode(" ".join(WORDS))[1:-1]


@pytest.mark.parametrize(
    ("tags", "names"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("O I-PER I-PER O", [("PER", 1, 3)]),  # a missing B- is forgiven
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),  # another kind begins anew
        ("I-LOC B-LOC I-LOC", [("LOC", 0, 1), ("LOC", 1, 3)]),
        ("O O", []),
        ("B-A-B I-A-B", [("A-B", 0, 2)]),
        ("NOUN VERB", []),
    ],
)
def test_names_as_conlleval_reads_them(tags, names):
    assert entities(tags.split()) == names


class Says(torch.nn.Module):
    """A model that gives one tag sequence, whatever it reads."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, **inputs):
        from clearhead.models import Output

        loss = torch.nn.functional.cross_entropy(self.logits.flatten(0, 1), inputs["labels"].flatten())
        return Output(logits=self.logits, loss=loss)


@pytest.mark.parametrize("all_pieces", [False, True])
def test_figures_of_a_hand_worked_example(all_pieces):
    objective = made(all_pieces=all_pieces)
    (example,) = objective.encode(RECORD)
    batch = objective.collate([example])
    first = example["first"] if all_pieces else example["labels"] != IGNORED
    # said: PER is cut short, LOC is right, and "dog" is taken for a LOC -> found 3, true 1, of 2
    said = iter("O B-LOC O O B-PER O O B-LOC".split())
    names = objective.labels.names
    numbers = torch.tensor([names.index(next(said)) if is_first else 0 for is_first in first.tolist()])
    logits = torch.nn.functional.one_hot(numbers, len(names)).float()[None] * 9
    told = objective.report(objective.measure(Says(logits), batch))
    assert told["precision"] == pytest.approx(1 / 3)
    assert told["recall"] == pytest.approx(1 / 2)
    assert told["f1"] == pytest.approx(2 / 5)
    assert told["accuracy"] == pytest.approx(6 / 8)
    learned = batch.inputs["labels"][batch.inputs["labels"] != IGNORED]
    expected = torch.nn.functional.cross_entropy(logits[0][batch.inputs["labels"][0] != IGNORED], learned)
    assert told["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_parts_of_speech_have_accuracy_only():
    objective = made(records=[{"tokens": ["a", "dog"], "tags": ["DET", "NOUN"]}])
    assert objective.labels.names == ["DET", "NOUN"]
    sums = {"loss": 1.0, "loss.count": 2, "words": 2, "correct": 1, "gold": 0, "predicted": 0, "true_positives": 0}
    assert objective.report(sums) == {"loss": 0.5, "accuracy": 0.5}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"tokens": ["a", "dog"], "tags": ["O"]}, "x:1: there are 2 tokens but 1 tags"),
        ({"tokens": ["a"], "tags": ["B-ORG"]}, "x:1: the label 'B-ORG' does not occur"),
        ({"tokens": "a dog", "tags": ["O"]}, "x:1: tokens must be a list"),
        ({"tokens": [], "tags": []}, "x:1: tokens is an empty list"),
        ({"tokens": ["a", ""], "tags": ["O", "O"]}, "x:1: tokens must be words"),
        ({"tokens": ["a"]}, "x:1 has no column 'tags'"),
    ],
)
def test_bad_records_say_where(record, message):
    with pytest.raises(InputError, match=message):
        list(made().encode({**record, "where": "x:1"}))


def test_it_is_learned():
    records = [RECORD, {"tokens": ["the", "sea"], "tags": ["O", "O"]}]
    objective = made(records=records)
    batch = objective.collate(encoded(objective, records))
    assert batch.counts["loss"] == 10 and (batch.inputs["labels"][1, 4:] == IGNORED).all()
    config = objective.configure({})
    assert config["id2label"] == {"0": "O", "1": "B-LOC", "2": "B-PER", "3": "I-PER"}
    before, after = learns(objective, small("bert", objective.task, wordpiece(), **config), encoded(objective, records))
    assert after < before

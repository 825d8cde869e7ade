"""Examples of every task objective come back from a table on disk as they were, and make the same batch."""

import pickle

import pytest
import torch

from clearhead.train.data.table import Table, TableWriter
from clearhead.train.objectives.classification import Classification
from clearhead.train.objectives.distillation import ClassificationDistillation, Distillation
from clearhead.train.objectives.gpt_tasks import GPTEntailment, GPTMultipleChoice, GPTSimilarity
from clearhead.train.objectives.multiple_choice import MultipleChoice
from clearhead.train.objectives.question_answering import QuestionAnswering
from clearhead.train.objectives.sentence_pairs import (
    SentenceContrastive,
    SentenceSimilarity,
    SentenceSoftmax,
    SentenceTriplet,
)
from clearhead.train.objectives.seq2seq import PromptedLM, Seq2Seq
from clearhead.train.objectives.tagging import Tagging
from tests.train.objectives.small import bpe, encoded, small, wordpiece

A, B, C = "the cat sat on the mat", "a dog ran away", "the sea"
TEXTS = [{"text": A, "text_pair": B, "label": "x"}, {"text": B, "text_pair": C, "label": "y"}]
LISTS = [{**record, "label": [record["label"]]} for record in TEXTS]
NUMBERS = [{**record, "label": n} for n, record in enumerate(TEXTS, 3)]
PAIRS = [
    {"sentence1": a, "premise": a, "source": a, "anchor": a, "negative": C}
    | {"sentence2": b, "hypothesis": b, "target": b, "positive": b, "label": label, "score": 1}
    for a, b, label in ((A, B, "x"), (B, A, "y"))
]
CHOICES = [{"prompt": A, "choices": [A, B, C], "label": 1}, {"prompt": B, "choices": [C, B], "label": 0}]
ANSWERS = [{"question": "who ran ?", "context": f"{A} . {B}", "answer": "a dog"}]
TAGS = [{"tokens": A.split(), "tags": ["O", "B-X", "O", "O", "O", "I-X"]}]
CASES = {
    "class": (Classification, wordpiece, TEXTS, {}),
    "labels": (Classification, wordpiece, LISTS, {"problem_type": "multi_label_classification"}),
    "number": (Classification, wordpiece, NUMBERS, {"problem_type": "regression"}),
    "tagging": (Tagging, wordpiece, TAGS, {"all_pieces": True}),
    "answers": (QuestionAnswering, wordpiece, ANSWERS, {}),
    "choices": (MultipleChoice, wordpiece, CHOICES, {}),
    "gpt choices": (GPTMultipleChoice, bpe, CHOICES, {}),
    "gpt entailment": (GPTEntailment, bpe, PAIRS, {}),
    "gpt similarity": (GPTSimilarity, bpe, TEXTS, {}),
    "seq2seq": (Seq2Seq, wordpiece, PAIRS, {}),
    "prompted": (PromptedLM, bpe, PAIRS, {}),
    "softmax": (SentenceSoftmax, wordpiece, PAIRS, {}),
    "similarity": (SentenceSimilarity, wordpiece, PAIRS, {}),
    "contrastive": (SentenceContrastive, wordpiece, PAIRS, {}),
    "triplet": (SentenceTriplet, wordpiece, PAIRS, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_batch_from_disk(case, tmp_path):
    kind, tokenizer, records, options = CASES[case]
    objective = kind(tokenizer(), 40, **options)
    objective.learn_labels(iter(records))
    examples = encoded(objective, records)
    with TableWriter(tmp_path / "table") as writer:
        for example in examples:
            writer.add(example)
    before, after = objective.collate(examples), objective.collate(list(Table(tmp_path / "table")))
    assert before.counts == after.counts and before.units == after.units
    assert before.inputs.keys() == after.inputs.keys()
    for name, tensor in before.inputs.items():
        assert tensor.dtype == after.inputs[name].dtype, name
        assert torch.equal(tensor, after.inputs[name]), name


@pytest.mark.parametrize("case", CASES)
def test_a_copy_in_another_process_encodes_alike(case):
    kind, tokenizer, records, options = CASES[case]
    objective = kind(tokenizer(), 40, **options)
    objective.learn_labels(iter(records))
    copied = pickle.loads(pickle.dumps(objective))
    assert [{n: str(v) for n, v in e.items()} for e in encoded(copied, records)] == [
        {n: str(v) for n, v in e.items()} for e in encoded(objective, records)
    ]


@pytest.mark.parametrize(
    ("kind", "task"), [(Distillation, "masked-lm"), (ClassificationDistillation, "sequence-classification")]
)
def test_the_teacher_stays_behind(kind, task):
    objective = kind(wordpiece(), 40, teacher=small("bert", task, wordpiece()))
    assert pickle.loads(pickle.dumps(objective)).teacher is None
    assert objective.teacher is not None

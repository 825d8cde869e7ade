"""DistilBERT's three terms against direct formulas, students cut from teachers, and distilled classifiers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.errors import InputError
from clearhead.train.objectives.distillation import (
    ClassificationDistillation,
    Distillation,
    cosine_loss,
    soft_targets,
    student_of,
)
from clearhead.train.objectives.padding import IGNORED
from tests.train.objectives.small import encoded, learns, small, wordpiece

RECORDS = [{"text": "the cat sat on the mat ."}, {"text": "a dog ran away from angela merkel in berlin ."}]


def teacher(task="masked-lm", layers=4, **more):
    torch.manual_seed(5)
    made = small("bert", task, wordpiece(), num_hidden_layers=layers, **more)
    for parameter in made.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)  # so that no bias is 0 and no gain is 1
    return made


def noised(objective):
    return [objective.noise(example, np.random.default_rng(n)) for n, example in enumerate(encoded(objective, RECORDS))]


def test_soft_targets_by_hand():
    student, large = torch.randn(5, 7), torch.randn(5, 7)
    p, q = (large / 2).softmax(-1), (student / 2).softmax(-1)
    expected = (p * (p.log() - q.log())).sum(-1).mean() * 4
    assert torch.allclose(soft_targets(student, large, 2.0), expected, atol=1e-6)
    published = torch.nn.KLDivLoss(reduction="batchmean")(
        F.log_softmax(student / 2, dim=-1), F.softmax(large / 2, dim=-1)
    )
    assert torch.allclose(soft_targets(student, large, 2.0), published * 2**2, atol=1e-6)
    assert soft_targets(large, large, 2.0).abs() < 1e-6


def test_cosine_is_torchs_embedding_loss():
    a, b = torch.randn(6, 9), torch.randn(6, 9)
    assert torch.allclose(cosine_loss(a, b), torch.nn.CosineEmbeddingLoss()(a, b, torch.ones(6)), atol=1e-6)


def test_three_terms_at_real_positions():
    objective = Distillation(wordpiece(), 20, teacher=teacher())
    assert objective.loss_weights == {"soft": 5.0, "mlm": 2.0, "cosine": 1.0}
    student = student_of(objective.teacher, 2)
    module = objective.training_module(student).eval()
    batch = objective.collate(noised(objective))
    real = batch.inputs["attention_mask"].bool()
    labels = batch.inputs["labels"]
    assert batch.counts == {"soft": int(real.sum()), "mlm": int((labels != IGNORED).sum()), "cosine": int(real.sum())}
    terms = objective.losses(module, batch)
    inputs = {name: batch.inputs[name] for name in ("input_ids", "attention_mask")}
    ours = student(**inputs, output_hidden_states=True)
    theirs = objective.teacher(**inputs, output_hidden_states=True)
    soft = soft_targets(ours.logits[real], theirs.logits[real], 2.0)
    cosine = cosine_loss(ours.hidden_states[-1][real], theirs.hidden_states[-1][real])
    words = F.cross_entropy(ours.logits.flatten(0, 1), labels.flatten())
    for name, value in {"soft": soft, "mlm": words, "cosine": cosine}.items():
        assert torch.allclose(terms[name], value, atol=1e-5), name
    told = objective.report(objective.measure(module, batch))
    assert told["loss"] == pytest.approx(float((5 * soft + 2 * words + cosine).detach()), rel=1e-4)
    assert "masked_accuracy" in told


def test_a_student_that_is_its_teacher_has_nothing_to_learn():
    objective = Distillation(wordpiece(), 20, teacher=teacher(type_vocab_size=0), mlm=0)
    student = student_of(objective.teacher, 4)
    terms = objective.losses(objective.training_module(student).eval(), objective.collate(noised(objective)))
    assert set(terms) == {"soft", "cosine"}
    assert all(value.abs() < 1e-5 for value in terms.values())


def test_published_layers():
    large = teacher(layers=12)
    student = student_of(large, 6)
    assert student.family.name == "distilbert" and student.task == "masked-lm"
    for n, taken in enumerate([0, 2, 4, 7, 9, 11]):
        for name, tensor in student.stack.layers[n].state_dict().items():
            assert torch.equal(tensor, large.stack.layers[taken].state_dict()[name]), name
    assert torch.equal(student.stack.embed.tokens.weight, large.stack.embed.tokens.weight)
    assert torch.equal(student.stack.embed.positions.weight, large.stack.embed.positions.weight)
    assert torch.equal(student.stack.embed.norm.weight, large.stack.embed.norm.weight)
    assert torch.equal(student.head.transform.dense.weight, large.head.transform.dense.weight)
    assert torch.equal(student.head.output.bias, large.head.output.bias)
    assert student.head.output.weight is student.stack.embed.tokens.weight
    chosen = student_of(large, [1, 5])
    assert torch.equal(chosen.stack.layers[1].feedforward.up.weight, large.stack.layers[5].feedforward.up.weight)
    student.stack.embed.tokens.weight.data.zero_()  # a copy, not the teacher's own
    assert large.stack.embed.tokens.weight.abs().sum() > 0


def test_students_of_other_heads_and_families():
    both = teacher("pretraining")
    student = student_of(both, 2)
    assert torch.equal(student.head.transform.dense.weight, both.head.words.transform.dense.weight)
    gpt = small("gpt2", "causal-lm", wordpiece())
    assert student_of(gpt, 1).family.name == "gpt2"
    for wrong in (0, 5, [9], []):
        with pytest.raises(InputError, match="teacher has"):
            student_of(both, wrong)


def test_only_the_student_learns():
    large = teacher()
    before = {name: tensor.clone() for name, tensor in large.state_dict().items()}
    objective = Distillation(wordpiece(), 20, teacher=large)
    student = student_of(large, 2)
    first, last = learns(objective, student, noised(objective), lr=1e-3)
    assert last < first
    assert all(torch.equal(tensor, before[name]) for name, tensor in large.state_dict().items())
    assert torch.equal(student.stack.embed.positions.weight, large.stack.embed.positions.weight)  # frozen, as published
    assert not torch.equal(student.stack.layers[0].feedforward.up.weight, large.stack.layers[0].feedforward.up.weight)


def test_positions_of_its_own_are_learned():
    objective = Distillation(wordpiece(), 20, teacher=teacher())
    student = small("distilbert", "masked-lm", wordpiece())
    objective.training_module(student)
    assert student.stack.embed.positions.weight.requires_grad


def test_what_does_not_fit():
    objective = Distillation(wordpiece(), 20, teacher=teacher())
    with pytest.raises(InputError, match="cosine=0"):
        objective.training_module(small("distilbert", "masked-lm", wordpiece(), dim=8))
    with pytest.raises(InputError, match="words"):
        objective.training_module(small("distilbert", "masked-lm", wordpiece(), vocab_size=50))
    with pytest.raises(InputError, match="masked words"):
        objective.training_module(small("distilbert", "sequence-classification", wordpiece()))
    with pytest.raises(InputError, match="masked-lm"):
        Distillation(wordpiece(), 20, teacher=teacher("sequence-classification"))
    with pytest.raises(InputError, match="nothing to learn"):
        Distillation(wordpiece(), 20, teacher=teacher(), soft=0, mlm=0, cosine=0)
    with pytest.raises(InputError, match=r"soft is -1"):
        Distillation(wordpiece(), 20, teacher=teacher(), soft=-1)
    with pytest.raises(InputError, match="temperature"):
        Distillation(wordpiece(), 20, teacher=teacher(), temperature=0)


def test_options_of_masking_reach_it():
    objective = Distillation(wordpiece(), 20, teacher=teacher(), mlm_probability=0.5, dynamic=False)
    (example, _) = noised(objective)
    assert (example["labels"] != IGNORED).sum() == round(0.5 * len(example["labels"]))


def test_classifiers():
    records = [{"text": "the cat", "label": "x"}, {"text": "a dog", "text_pair": "the sea", "label": "y"}]
    names = {"id2label": {"0": "x", "1": "y"}}
    large = teacher("sequence-classification", **names)
    objective = ClassificationDistillation(wordpiece(), 20, teacher=large)
    objective.learn_labels(iter(records))
    student = small("distilbert", objective.task, wordpiece(), **objective.configure({}))
    module = objective.training_module(student).eval()
    batch = objective.collate(encoded(objective, records))
    terms = objective.losses(module, batch)
    inputs = {name: t for name, t in batch.inputs.items() if name != "labels"}
    theirs = large(**inputs).logits
    ours = student(batch.inputs["input_ids"], batch.inputs["attention_mask"]).logits
    assert torch.allclose(terms["soft"], soft_targets(ours, theirs, 2.0), atol=1e-6)
    assert torch.allclose(terms["hard"], F.cross_entropy(ours, torch.tensor([0, 1])), atol=1e-6)
    told = objective.report(objective.measure(module, batch))
    assert {"loss", "soft", "hard", "accuracy"} <= set(told)
    first, last = learns(objective, student, encoded(objective, records))
    assert last < first
    other = ClassificationDistillation(wordpiece(), 20, teacher=large, labels=["y", "x"])
    with pytest.raises(InputError, match="name them alike"):
        other.training_module(student)


def test_a_teacher_by_its_folder(tmp_path):
    from clearhead.pipeline import TextPipeline

    large = teacher()
    TextPipeline(large, wordpiece()).save(tmp_path / "teacher")
    objective = Distillation(wordpiece(), 20, teacher=str(tmp_path / "teacher"))
    assert torch.equal(objective.teacher.stack.embed.tokens.weight, large.stack.embed.tokens.weight)
    assert not any(parameter.requires_grad for parameter in objective.teacher.parameters())

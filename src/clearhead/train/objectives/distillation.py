"""A small model learns from a large one: DistilBERT's three terms (Sanh et al., 2019), and the same for classes.

soft     the teacher's whole distribution at temperature 2: KL divergence · T², over all real positions
mlm      the masked words
cosine   the direction of the last hidden states, over all real positions
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Model, family
from clearhead.models.config import NO_OPTIONS
from clearhead.models.heads import HeadInputs, language_loss
from clearhead.models.output import Output
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.base import check_weights, term_sums
from clearhead.train.objectives.classification import Classification, Problem
from clearhead.train.objectives.masked import MaskedLM


def soft_targets(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL(teacher ‖ student) of distributions softened by the temperature, times its square: the mean over rows.

    The square keeps the gradients as large as those of hard labels, whatever the temperature (Hinton et al., 2015).
    """
    ours, theirs = (F.log_softmax(scores.float() / temperature, -1) for scores in (student, teacher))
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * temperature**2


def cosine_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """1 − cosine between vectors (rows, width): the mean over rows."""
    return (1 - F.cosine_similarity(student.float(), teacher.float(), dim=-1)).mean()


class WithHiddenStates(nn.Module):
    """A model that gives its last hidden states beside its answer."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        hidden = self.model.output_stack(input_ids, attention_mask=attention_mask)
        out: Output = self.model.head(hidden, HeadInputs(input_ids=input_ids))
        out.last_hidden_state = hidden
        return out


class WithTeacher:
    """Has a teacher, which never learns. A copy for another process, where texts are encoded, does without it."""

    teacher: Model

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "teacher": None}


class Distillation(WithTeacher, MaskedLM):
    """
    teacher             a model with a head for masked words, or where one is (a folder, a name); it does not change
    temperature         of both distributions
    soft, mlm, cosine   what each term counts: 5, 2 and 1 as for the published DistilBERT; 0 leaves a term out
    freeze_positions    a student that began with the teacher's position table keeps it, as published

    The other options are those of masked-lm. `student_of` makes a student to begin with.
    """

    name = "distillation"

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        teacher: Model | str,
        temperature: float = 2.0,
        soft: float = 5.0,
        mlm: float = 2.0,
        cosine: float = 1.0,
        freeze_positions: bool = True,
        **masking: Any,
    ) -> None:
        super().__init__(tokenizer, length, **masking)
        self.teacher = _teacher(teacher, self.task)
        self.temperature, self.freeze_positions = _checked(temperature), freeze_positions
        self.weights = {"soft": soft, "mlm": mlm, "cosine": cosine}
        check_weights(**self.weights)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {name: weight for name, weight in self.weights.items() if weight}

    def collate(self, examples: Sequence[Example]) -> Batch:
        batch = super().collate(examples)
        counts = {"soft": batch.units, "mlm": batch.counts["loss"], "cosine": batch.units}
        return Batch(batch.inputs, {name: counts[name] for name in self.loss_weights}, batch.units)

    def training_module(self, model: Model) -> nn.Module:
        teacher = self.teacher
        if model.is_encoder_decoder or model.language_head is None:
            raise InputError(f"A student needs a head for masked words (task={self.task}), not {model.task}.")
        for field, quantity in (("vocab_size", "words"), ("hidden_size", "numbers per hidden state")):
            ours, theirs = getattr(model.config, field), getattr(teacher.config, field)
            if ours != theirs and (field == "vocab_size" or self.weights["cosine"]):
                advice = "" if field == "vocab_size" else " Give it the teacher's width, or set cosine=0."
                raise InputError(
                    f"The teacher has {theirs} {quantity}, the student {ours}: they cannot be compared.{advice}"
                )
        ours, theirs = (getattr(m.output_stack.token_embedder.positions, "weight", None) for m in (model, teacher))
        if self.freeze_positions and isinstance(ours, nn.Parameter) and isinstance(theirs, nn.Parameter):
            ours.requires_grad_(not (ours.shape == theirs.shape and bool((ours == theirs.to(ours)).all())))
        return WithHiddenStates(model)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return self._terms(model, batch)[0]

    def _terms(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        ids, mask = batch.inputs["input_ids"], batch.inputs.get("attention_mask")
        out = model(ids, attention_mask=mask)
        teacher = self.teacher.to(ids.device)
        with torch.no_grad():
            hidden = teacher.output_stack(ids, attention_mask=mask)
            scores = _language_head(teacher)(hidden, HeadInputs()).logits if self.weights["soft"] else None

        def real(states: Tensor) -> Tensor:  # (batch, time, …) -> (real positions, …)
            return states.flatten(0, 1) if mask is None else states[mask.bool()]

        terms: dict[str, Tensor] = {}
        if scores is not None:
            terms["soft"] = soft_targets(real(out.logits), real(scores), self.temperature)
        if self.weights["mlm"]:
            words = language_loss(out.logits, batch.inputs["labels"], shift=False)
            assert words is not None
            terms["mlm"] = words
        if self.weights["cosine"]:
            terms["cosine"] = cosine_loss(real(out.last_hidden_state), real(hidden))
        return terms, out.logits

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        terms, logits = self._terms(model, batch)
        return term_sums(terms, batch) | self.metric_sums(logits, batch.inputs["labels"])


class ClassificationDistillation(WithTeacher, Classification):
    """A classifier learns from a larger one: the teacher's scores at a temperature, beside the labels.

    soft, hard   what the teacher's distribution and the labels count
    """

    name = "classification-distillation"

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        teacher: Model | str,
        temperature: float = 2.0,
        soft: float = 0.5,
        hard: float = 0.5,
        labels: Sequence[str] | None = None,
        problem_type: Problem = "single_label_classification",
    ) -> None:
        if problem_type != "single_label_classification":
            raise InputError("A teacher's soft targets are a distribution over classes: one label for each text.")
        super().__init__(tokenizer, length, labels=labels)
        self.teacher = _teacher(teacher, self.task)
        self.temperature, self.soft, self.hard = _checked(temperature), soft, hard
        check_weights(**self.loss_weights)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"soft": self.soft, "hard": self.hard}

    def collate(self, examples: Sequence[Example]) -> Batch:
        batch = super().collate(examples)
        return Batch(batch.inputs, dict.fromkeys(self.loss_weights, len(examples)), batch.units)

    def training_module(self, model: Model) -> nn.Module:
        ours, theirs = self.labels.names, list(self.teacher.config.id2label.values())
        if ours != theirs:
            raise InputError(
                f"The teacher's labels are {theirs[:10]}, the data's {ours[:10]}: name them alike (labels=…)."
            )
        return super().training_module(model)

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return self._terms(model, batch)[0]

    def _terms(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        out = model(**self.model_inputs(batch))
        teacher = self.teacher.to(out.logits.device)
        reads = ("input_ids", "attention_mask", *(["token_type_ids"] if teacher.reads_segments else []))
        with torch.no_grad():
            scores = teacher(**{name: t for name, t in batch.inputs.items() if name in reads}).logits
        return {"soft": soft_targets(out.logits, scores, self.temperature), "hard": out.loss}, out.logits

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        terms, logits = self._terms(model, batch)
        return term_sums(terms, batch) | self.metric_sums(logits, batch.inputs["labels"])


def student_of(teacher: Model, layers: int | Sequence[int] | None = None) -> Model:
    """A student that begins as a part of its teacher: its embedding, its head, and some of its layers.

    layers   their numbers in the teacher, or how many: then they are spread evenly from the first to the last, for
             half of twelve 0, 2, 4, 7, 9, 11 as published; by default half of them

    BERT's student is a DistilBERT (no segments, no pooler); other families stay what they are.
    """
    if teacher.is_encoder_decoder:
        raise InputError("A student is made of a model with one stack, not of an encoder–decoder.")
    depth = teacher.config.num_hidden_layers
    layers = (depth + 1) // 2 if layers is None else layers
    layer_numbers = _evenly_spaced(depth, layers) if isinstance(layers, int) else list(layers)
    if not layer_numbers or any(not 0 <= n < depth for n in layer_numbers):
        raise InputError(f"The teacher has layers 0 to {depth - 1}; the student cannot be made of {layer_numbers}.")
    student_family = family("distilbert" if teacher.family.name == "bert" else teacher.family.name)
    names = {f.name for f in dataclasses.fields(student_family.config)} & {
        f.name for f in dataclasses.fields(teacher.config)
    }
    values = {name: getattr(teacher.config, name) for name in names - NO_OPTIONS}
    config = student_family.config(**values | {"num_hidden_layers": len(layer_numbers)})
    task = "masked-lm" if teacher.task == "pretraining" else teacher.task
    student = student_family.make(config, task, teacher.device)
    teacher_state = teacher.state_dict()

    def teacher_name(name: str) -> str:
        name = re.sub(r"(?<=layers\.)\d+", lambda n: str(layer_numbers[int(n[0])]), name)
        return name.replace("head.", "head.words.", 1) if teacher.task == "pretraining" else name

    student_state = student.state_dict()
    shared = {
        name: weight
        for name in student_state
        if (weight := teacher_state.get(teacher_name(name))) is not None and weight.shape == student_state[name].shape
    }
    student.load_state_dict(shared, strict=False)
    return student.to(dtype=teacher.dtype)


def _evenly_spaced(depth: int, count: int) -> list[int]:
    if not 1 <= count <= depth:
        raise InputError(f"The teacher has {depth} layers; the student can have 1 to {depth}, not {count}.")
    return [int(n) for n in np.rint(np.linspace(0, depth - 1, count))]


def _language_head(teacher: Model) -> nn.Module:
    head = teacher.language_head
    if head is None:
        raise InputError(f"The teacher is loaded for {teacher.task}; load it for masked words (task=masked-lm).")
    return head


def _teacher(teacher: Model | str, task: str) -> Model:
    """Loaded where it is named; it only reads, and never learns."""
    if isinstance(teacher, str):
        from clearhead.pipeline import load  # only to load: a teacher that is given needs no files

        loaded: Model = load(teacher, task=task).model
    else:
        loaded = teacher
    if loaded.is_encoder_decoder:
        raise InputError("The teacher must be a model with one stack, not an encoder–decoder.")
    if task == "masked-lm":
        _language_head(loaded)
    return loaded.eval().requires_grad_(False)


def _checked(temperature: float) -> float:
    if not temperature > 0:
        raise InputError(f"temperature is {temperature}; it must be greater than 0.")
    return temperature

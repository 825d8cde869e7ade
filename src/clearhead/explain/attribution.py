"""Attribution methods: how much each unit of an input adds to a score. See saliency.py for what they measure.

The gradients of all outputs come from one recorded forward pass. Each output has a gradient of its own in every
position, so the work does not go away; but the backward passes run as one batch of large products, none of them goes
through the vocabulary, and outputs that stand together share the shortest input that holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.explain.scores import repeated
from clearhead.models.model import Model
from clearhead.nn.tracing import trace
from clearhead.units import Unit

ROWS = 1024  # vectors that go back through the layers at a time; more would not be faster, only larger
SCORES = 2**25  # of words, held at a time: 128 MiB


@dataclass(frozen=True)
class Explained:
    """
    units       everything that could matter; the first `source` of them an encoder has read (0: there is one stack)
    positions   of the outputs among the units; None for a label of all of the input
    rows        at which position of the last hidden states each output is read, in order; None: one answer for all
    ids         which of that row's scores is explained; others: which one it is compared with
    names       of the scores, words or labels
    baselines   for each stack a neutral vector that says nothing, (width,), or the number 0
    activation  what makes probabilities of scores; None: they are numbers of their own
    """

    model: Model
    inputs: dict[str, Tensor]
    units: Sequence[Unit]
    source: int
    positions: Sequence[int | None]
    rows: list[int] | None
    ids: list[int]
    others: list[int] | None
    names: Callable[[list[int]], list[str]]
    baselines: list[Tensor]
    activation: Literal["softmax", "sigmoid"] | None

    @property
    def inputs_taps(self) -> list[str]:
        """Where units have become vectors, and nothing has been added to them yet: each embedder's first tensor."""
        stacks = self.model.stacks.items()
        return [f"{name}.embed.{stack.embed.content}".removeprefix(".") for name, stack in stacks]

    @property
    def last(self) -> str:
        """The name of the hidden states that the head reads."""
        return ("decoder." if self.source else "") + self.model.output_stack.last_tap

    def batches(self) -> Iterator[list[int]]:
        """Outputs whose gradients go back through the layers together."""
        size = max(1, ROWS // len(self.units))
        for begin in range(0, len(self.ids), size):
            yield list(range(begin, min(begin + size, len(self.ids))))

    def blank(self) -> np.ndarray:
        """(outputs, units), nothing known yet."""
        return np.full((len(self.ids), len(self.units)), np.nan)

    def fill(self, table: np.ndarray, chosen: list[int], sides: Sequence[Tensor]) -> None:
        """Put numbers of each side, (outputs, time), in their places; what comes after an output's row stays nan."""
        for begin, numbers in zip((0, self.source), sides, strict=False):
            known = numbers.cpu().numpy()
            reads_on = begin == self.source and self.model.is_causal and self.rows is not None
            for n, row in zip(chosen, known, strict=True):
                end = self.rows[n] + 1 if reads_on and self.rows is not None else len(row)
                table[n, begin : begin + end] = row[:end]


@dataclass(frozen=True)
class ForwardPass:
    """One forward pass, for some of the outputs.

    logits, probabilities   (copies, outputs): what is explained, and the probabilities
    entered   for each stack the vectors that went in, (copies, time, width)
    hidden    the last hidden states, (copies, time, width), where they are kept
    classes   how many scores each row has
    """

    logits: Tensor
    probabilities: Tensor
    entered: list[Tensor]
    hidden: Tensor | None
    classes: int


def forward(
    explained: Explained, chosen: list[int], enter: Callable[[int, Tensor], Tensor], copies: int = 1, keep: bool = False
) -> ForwardPass:
    """enter: given a side (0, or 1 for a decoder) and its token vectors, what goes in; keep: the hidden states too."""
    entered: list[Tensor] = []

    def put(side: int) -> Callable[[Tensor], Tensor]:
        def instead(x: Tensor) -> Tensor:
            entered.append(enter(side, x))
            return entered[-1]

        return instead

    inputs, rows = dict(explained.inputs), None
    device = explained.model.device
    if explained.rows is not None:
        rows = torch.tensor([explained.rows[n] for n in chosen], device=device)
        if explained.model.is_causal:  # nothing after the last of the rows can be seen from them
            for name in ["decoder_input_ids"] if explained.source else list(inputs):
                inputs[name] = inputs[name][:, : int(rows[-1]) + 1]
    by_row = explained.model.language_head is not None
    options = {"logits_to_keep": rows} if by_row and rows is not None else {}
    replaced = {name: put(side) for side, name in enumerate(explained.inputs_taps)}
    with trace(explained.model, *([explained.last] if keep else []), replace=replaced) as seen:
        logits = explained.model(**{name: repeated(t, copies) for name, t in inputs.items()}, **options).logits
    if rows is None:
        logits = logits[:, None]  # (copies, labels) -> (copies, 1, labels)
    elif not by_row:
        logits = logits[:, rows]
    each = torch.arange(len(chosen), device=device)
    ids = torch.tensor([explained.ids[n] for n in chosen], device=device)
    with torch.no_grad():
        wide = _wide(logits)
        probabilities = wide.sigmoid() if explained.activation == "sigmoid" else wide.softmax(-1)
        probabilities = probabilities[:, each, ids]
    scores = logits[:, each, ids]
    if explained.others is not None:
        scores = scores - logits[:, each, torch.tensor([explained.others[n] for n in chosen], device=device)]
    return ForwardPass(scores, probabilities, entered, seen[explained.last] if keep else None, logits.shape[-1])


# ---- the four ways


@dataclass
class Attributions:
    """logits, probabilities: (outputs,); the rest as in Saliency. strength is not normalised yet."""

    logits: np.ndarray
    probabilities: np.ndarray
    strength: np.ndarray
    contributions: np.ndarray | None = None
    unexplained: np.ndarray | None = None

    @classmethod
    def nothing(cls, explained: Explained) -> Attributions:
        count = len(explained.ids)
        return cls(np.zeros(count), np.zeros(count), explained.blank())

    def note(self, chosen: list[int], run: ForwardPass) -> None:
        self.logits[chosen] = _wide(run.logits[0].detach()).cpu().numpy()
        self.probabilities[chosen] = run.probabilities[0].cpu().numpy()


def _gradients(
    explained: Explained, chosen: list[int], enter: Callable[[int, Tensor], Tensor]
) -> tuple[ForwardPass, list[Tensor]]:
    """A forward pass, and for each side every output's gradient with respect to what entered: (outputs, time, width)"""
    with torch.enable_grad():
        run = forward(
            explained, chosen, lambda side, x: enter(side, x.detach()).requires_grad_(), keep=explained.rows is not None
        )
        if explained.rows is None:
            return run, list(torch.autograd.grad(run.logits.sum(), run.entered))
        # After the last layer rows do not meet any more: one pass takes all outputs back to their own rows, so that
        # the batch of passes from there on need not go through the vocabulary.
        assert run.hidden is not None
        rows = [explained.rows[n] for n in chosen]
        (above,) = torch.autograd.grad(run.logits.sum(), run.hidden, retain_graph=True)
        start = above.new_zeros(len(rows), *above.shape)
        start[range(len(rows)), 0, rows] = above[0, rows]
        gradients = torch.autograd.grad(run.hidden, run.entered, start, is_grads_batched=True)
    return run, [gradient[:, 0] for gradient in gradients]


def gradient(explained: Explained, times_input: bool) -> Attributions:
    result = Attributions.nothing(explained)
    contributions = explained.blank()
    for chosen in explained.batches():
        run, gradients = _gradients(explained, chosen, lambda side, x: x.clone())
        result.note(chosen, run)
        gradients = [_wide(gradient) for gradient in gradients]
        if times_input:
            gradients = [g * _wide(x.detach()) for g, x in zip(gradients, run.entered, strict=True)]
            explained.fill(contributions, chosen, [product.sum(-1) for product in gradients])
        explained.fill(result.strength, chosen, [gradient.norm(dim=-1) for gradient in gradients])
    result.contributions = contributions if times_input else None
    return result


def integrated_gradients(explained: Explained, steps: int) -> Attributions:
    """The average of the gradients on the straight path from the baselines, by Gauss–Legendre points."""
    result, contributions = Attributions.nothing(explained), explained.blank()
    result.unexplained = np.zeros(len(explained.ids))
    baselines = explained.baselines
    points, weights = np.polynomial.legendre.leggauss(steps)  # on (-1, 1)
    path = [(float(x + 1) / 2, float(weight) / 2) for x, weight in zip(points, weights, strict=True)]

    def between(fraction: float) -> Callable[[int, Tensor], Tensor]:
        return lambda side, x: baselines[side] + fraction * (x - baselines[side])

    for chosen in explained.batches():
        mean: list[Tensor] = []
        for fraction, weight in path:
            gradients = [_wide(gradient) * weight for gradient in _gradients(explained, chosen, between(fraction))[1]]
            mean = [a + b for a, b in zip(mean, gradients, strict=True)] if mean else gradients
        begin, end = (forward(explained, chosen, between(fraction)) for fraction in (0.0, 1.0))
        result.note(chosen, end)
        apart = [_wide(x - n) for x, n in zip(end.entered, baselines, strict=True)]
        explained.fill(contributions, chosen, [(g * d).sum(-1) for g, d in zip(mean, apart, strict=True)])
        risen = _wide(end.logits - begin.logits)[0].cpu().numpy()
        result.unexplained[chosen] = risen - np.nansum(contributions[chosen], axis=1)
    result.strength, result.contributions = np.abs(contributions), contributions
    return result


def occlusion(explained: Explained) -> Attributions:
    result, contributions = Attributions.nothing(explained), explained.blank()
    chosen = list(range(len(explained.ids)))
    plain = forward(explained, chosen, lambda side, x: x)
    result.note(chosen, plain)
    lengths = [x.shape[1] for x in plain.entered]
    at_once = max(1, min(ROWS // sum(lengths), SCORES // (len(chosen) * plain.classes)))
    drops = [torch.zeros(len(chosen), length, dtype=plain.probabilities.dtype) for length in lengths]
    for where, length in enumerate(lengths):
        for begin in range(0, length, at_once):
            gone = list(range(begin, min(begin + at_once, length)))

            def without(side: int, x: Tensor, where: int = where, gone: list[int] = gone) -> Tensor:
                if side == where:
                    x = x.clone()
                    x[range(len(gone)), gone] = explained.baselines[side]
                return x

            logits = forward(explained, chosen, without, copies=len(gone)).logits  # (gone, outputs)
            drops[where][:, gone] = _wide(plain.logits - logits).T.cpu()
    explained.fill(contributions, chosen, drops)
    result.strength, result.contributions = np.abs(contributions), contributions
    return result


def _wide(numbers: Tensor) -> Tensor:
    """In fp32 at least."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))

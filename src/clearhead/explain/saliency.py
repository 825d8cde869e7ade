"""Why did it say that? How much each token of a text, and of the answer so far, mattered for each token of the answer.

gradient-x-input       gradient of the output's logit, times the token's vector, elementwise; the L2 norm of that
gradient-norm          the L2 norm of the gradient alone
integrated-gradients   the gradient's average on the way from a neutral vector to the token's, times their difference
occlusion              how the logit changes when the token's vector is replaced by the neutral one

The neutral vector is that of the mask token, else of the unknown, padding or end token, as the tokenizer has them.

The gradients of all outputs come from one recorded forward pass. Each output has a gradient of its own in every
position, so the work does not go away; but the backward passes run as one batch of large products, none of them goes
through the vocabulary, and outputs that stand together share the shortest text that holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.answering import answer, writes
from clearhead.explain.attention import Places
from clearhead.explain.finding import Finding
from clearhead.explain.reading import at_rest, places
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.heads import TokenHead
from clearhead.models.model import Model
from clearhead.models.stack_model import TokenModel
from clearhead.nn.stack import Stack
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.text.units import display_texts, token_id
from clearhead.units import TokenUnit

Method = Literal["gradient-x-input", "gradient-norm", "integrated-gradients", "occlusion"]
METHODS: tuple[Method, ...] = ("gradient-x-input", "gradient-norm", "integrated-gradients", "occlusion")
Choice = str | int

ROWS = 1024  # vectors that go back through the layers at a time; more would not be faster, only larger
SCORES = 2**25  # of words, held at a time: 128 MiB


@dataclass(frozen=True)
class Output:
    """What is explained.

    text, id      a token, or a label
    position      where it stands in the tokens; None for a label of the whole text
    probability   what the model gives it; None where its outputs are no choice among several
    logit         its score, or how far it lies above the score of `against`: the number that is explained
    against       the token or label it is compared with
    """

    text: str
    id: int
    position: int | None
    probability: float | None
    logit: float
    against: str | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Saliency(Finding):
    """
    tokens          everything that could matter: what was read, then what was written
    source          how many of them an encoder has read; the decoder reads the others. 0 where there is one stack
    scores          (outputs, tokens): shares that sum to one; nan where a token came too late to matter
    contributions   (outputs, tokens): what each token adds to the logit, or takes from it; None for a norm
    unexplained     of integrated gradients, (outputs): the change of the logit that the contributions do not add up to
    """

    kind: ClassVar[str] = "saliency"

    model: str
    method: Method
    tokens: list[TokenUnit]
    source: int
    outputs: list[Output]
    scores: np.ndarray
    contributions: np.ndarray | None
    unexplained: np.ndarray | None

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["output", "against", "probability", "position", "token", "share", "contribution"]
        for n, output in enumerate(self.outputs):
            for i, token in enumerate(self.tokens):
                if np.isfinite(self.scores[n, i]):
                    signed = "" if self.contributions is None else float(self.contributions[n, i])
                    yield [output.text, output.against or "", output.probability, i, token.text,
                           float(self.scores[n, i]), signed]  # fmt: skip


def saliency(
    pipe: Pipeline,
    text: str,
    *,
    method: Method = "gradient-x-input",
    max_new_tokens: int | None = None,
    outputs: Places = None,
    against: Choice | Sequence[Choice] | None = None,
    target: Choice | Sequence[Choice] | None = None,
    pair: str | None = None,
    steps: int = 32,
) -> Saliency:
    """How much each token mattered for what the model says.

    A model that writes goes on with the text (or answers it), and every new token is explained. A masked model's
    guess for each hidden word is, and a classifier's label.

    max_new_tokens   how many tokens to write; 0 explains those of the text itself
    outputs          which positions to explain instead: of the text and what was written (of an encoder–decoder, of
                     what the decoder reads and writes), or of the text of a masked model
    target           what it is made to say: a text; for masked models a word (or one for each place); a label
    against          why this and not that: a token, or one for each output; or a label
    pair             the second text, for models that read two
    steps            how many points of the way integrated gradients looks at
    """
    if method not in METHODS:
        raise InputError(f"There is no method {method!r}.{did_you_mean(str(method), METHODS)} {', '.join(METHODS)}.")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError(f"steps is {steps!r}; take at least one step.")
    if method != "occlusion" and pipe.model.quantized:
        raise InputError(
            f"A model of {pipe.model.quantized} weights has no gradients. Use method='occlusion', or load it without "
            "quantize=."
        )
    with at_rest(pipe.model):
        asked = _ask(pipe, text, pair, target, against, outputs, max_new_tokens)
        if method == "occlusion":
            found = _occlusion(asked)
        elif method == "integrated-gradients":
            found = _integrated(asked, steps)
        else:
            found = _gradient(asked, times_input=method == "gradient-x-input")
    total = np.nansum(found.strength, axis=1, keepdims=True)
    scores = np.divide(found.strength, total, out=found.strength * 0, where=total > 0)
    shown = [
        Output(name, id_, position, None if share is None else float(share), float(logit), other)
        for name, id_, position, share, logit, other in zip(
            asked.names(asked.ids),
            asked.ids,
            asked.positions,
            found.shares if asked.chances is not None else [None] * len(asked.ids),
            found.logits,
            [None] * len(asked.ids) if asked.others is None else asked.names(asked.others),
            strict=True,
        )
    ]
    return Saliency(
        pipe.name, method, asked.tokens, asked.source, shown, scores, found.contributions, found.unexplained
    )


# ---- what is asked


@dataclass(frozen=True)
class _Asked:
    """
    rows      at which position of the last hidden states each output is read, in order; None: one answer for the text
    ids       which of that row's scores is explained; others: which one it is compared with
    names     of the scores, words or labels
    neutral   for each side a vector that says nothing, (width,)
    chances   what makes probabilities of scores; None: they are numbers of their own
    """

    model: TokenModel | EncoderDecoderModel
    inputs: dict[str, Tensor]
    tokens: list[TokenUnit]
    source: int
    positions: Sequence[int | None]
    rows: list[int] | None
    ids: list[int]
    others: list[int] | None
    names: Callable[[list[int]], list[str]]
    neutral: list[Tensor]
    chances: Literal["softmax", "sigmoid"] | None

    @property
    def sides(self) -> list[str]:
        """Where tokens have become vectors, and nothing has been added to them yet."""
        return [f"{side}embed.tokens" for side in (("encoder.", "decoder.") if self.source else ("",))]

    @property
    def top(self) -> Stack:
        """The stack whose last hidden states the head reads."""
        return self.model.decoder if isinstance(self.model, EncoderDecoderModel) else self.model.stack

    @property
    def last(self) -> str:
        """The name of those hidden states."""
        side = "decoder." if self.source else ""
        return f"{side}final.norm" if self.top.taps else f"{side}layers.{len(self.top.layers) - 1}.output"

    @property
    def width(self) -> int:
        """How many tokens all sides read."""
        return sum(t.shape[1] for name, t in self.inputs.items() if name.endswith("input_ids"))

    def batches(self) -> Iterator[list[int]]:
        """Outputs whose gradients go back through the layers together."""
        size = max(1, ROWS // self.width)
        for begin in range(0, len(self.ids), size):
            yield list(range(begin, min(begin + size, len(self.ids))))

    def blank(self) -> np.ndarray:
        """(outputs, tokens), nothing known yet."""
        return np.full((len(self.ids), len(self.tokens)), np.nan)

    def fill(self, table: np.ndarray, chosen: list[int], sides: Sequence[Tensor]) -> None:
        """Put numbers of each side, (outputs, time), in their places; what comes after an output's row stays nan."""
        for begin, numbers in zip((0, self.source), sides, strict=False):
            known = numbers.cpu().numpy()
            reads_on = begin == self.source and self.top.causal and self.rows is not None
            for n, row in zip(chosen, known, strict=True):
                end = self.rows[n] + 1 if reads_on and self.rows is not None else len(row)
                table[n, begin : begin + end] = row[:end]


@dataclass(frozen=True)
class _Run:
    """One forward pass, asked for some of the outputs.

    logits, shares   (copies, outputs): what is explained, and the probabilities
    entered          for each side the vectors that went in, (copies, time, width)
    hidden           the last hidden states, (copies, time, width), where they are kept
    """

    logits: Tensor
    shares: Tensor
    entered: list[Tensor]
    hidden: Tensor | None


def _run(
    asked: _Asked, chosen: list[int], enter: Callable[[int, Tensor], Tensor], copies: int = 1, keep: bool = False
) -> _Run:
    """enter: given a side (0, or 1 for a decoder) and its token vectors, what goes in; keep: the hidden states too."""
    entered: list[Tensor] = []

    def put(side: int) -> Callable[[Tensor], Tensor]:
        def instead(x: Tensor) -> Tensor:
            entered.append(enter(side, x))
            return entered[-1]

        return instead

    inputs, rows = dict(asked.inputs), None
    device = asked.model.device
    if asked.rows is not None:
        rows = torch.tensor([asked.rows[n] for n in chosen], device=device)
        if asked.top.causal:  # nothing after the last of the rows can be seen from them
            for name in ["decoder_input_ids"] if asked.source else list(inputs):
                inputs[name] = inputs[name][:, : int(rows[-1]) + 1]
    by_row = asked.model.language_head is not None
    options = {"logits_to_keep": rows} if by_row and rows is not None else {}
    replaced = {name: put(side) for side, name in enumerate(asked.sides)}
    with trace(asked.model, *([asked.last] if keep else []), replace=replaced) as seen:
        logits = asked.model(**{name: t.expand(copies, -1) for name, t in inputs.items()}, **options).logits
    if rows is None:
        logits = logits[:, None]  # (copies, labels) -> (copies, 1, labels)
    elif not by_row:
        logits = logits[:, rows]
    each, ids = torch.arange(len(chosen), device=device), torch.tensor([asked.ids[n] for n in chosen], device=device)
    with torch.no_grad():
        wide = _wide(logits)
        shares = wide.sigmoid() if asked.chances == "sigmoid" else wide.softmax(-1)
        shares = shares[:, each, ids]
    found = logits[:, each, ids]
    if asked.others is not None:
        found = found - logits[:, each, torch.tensor([asked.others[n] for n in chosen], device=device)]
    return _Run(found, shares, entered, seen[asked.last] if keep else None)


# ---- the four ways


@dataclass
class _Found:
    """logits, shares: (outputs,); the rest as in Saliency. strength is not normalised yet."""

    logits: np.ndarray
    shares: np.ndarray
    strength: np.ndarray
    contributions: np.ndarray | None = None
    unexplained: np.ndarray | None = None

    @classmethod
    def nothing(cls, asked: _Asked) -> _Found:
        count = len(asked.ids)
        return cls(np.zeros(count), np.zeros(count), asked.blank())

    def note(self, chosen: list[int], run: _Run) -> None:
        self.logits[chosen] = _wide(run.logits[0].detach()).cpu().numpy()
        self.shares[chosen] = run.shares[0].cpu().numpy()


def _gradients(asked: _Asked, chosen: list[int], enter: Callable[[int, Tensor], Tensor]) -> tuple[_Run, list[Tensor]]:
    """A forward pass, and for each side every output's gradient with respect to what entered: (outputs, time, width)"""
    with torch.enable_grad():
        run = _run(asked, chosen, lambda side, x: enter(side, x.detach()).requires_grad_(), keep=asked.rows is not None)
        if asked.rows is None:
            return run, list(torch.autograd.grad(run.logits.sum(), run.entered))
        # After the last layer rows do not meet any more: one pass takes all outputs back to their own rows, so that
        # the batch of passes from there on need not go through the vocabulary.
        assert run.hidden is not None
        rows = [asked.rows[n] for n in chosen]
        (above,) = torch.autograd.grad(run.logits.sum(), run.hidden, retain_graph=True)
        start = above.new_zeros(len(rows), *above.shape)
        start[range(len(rows)), 0, rows] = above[0, rows]
        gradients = torch.autograd.grad(run.hidden, run.entered, start, is_grads_batched=True)
    return run, [gradient[:, 0] for gradient in gradients]


def _gradient(asked: _Asked, times_input: bool) -> _Found:
    found = _Found.nothing(asked)
    contributions = asked.blank()
    for chosen in asked.batches():
        run, gradients = _gradients(asked, chosen, lambda side, x: x.clone())
        found.note(chosen, run)
        gradients = [_wide(gradient) for gradient in gradients]
        if times_input:
            gradients = [g * _wide(x.detach()) for g, x in zip(gradients, run.entered, strict=True)]
            asked.fill(contributions, chosen, [product.sum(-1) for product in gradients])
        asked.fill(found.strength, chosen, [gradient.norm(dim=-1) for gradient in gradients])
    found.contributions = contributions if times_input else None
    return found


def _integrated(asked: _Asked, steps: int) -> _Found:
    """The average of the gradients on the straight way from the neutral vectors, by Gauss–Legendre points."""
    found, contributions = _Found.nothing(asked), asked.blank()
    found.unexplained = np.zeros(len(asked.ids))
    neutral = asked.neutral
    points, weights = np.polynomial.legendre.leggauss(steps)  # on (-1, 1)
    way = [(float(point + 1) / 2, float(weight) / 2) for point, weight in zip(points, weights, strict=True)]

    def between(share: float) -> Callable[[int, Tensor], Tensor]:
        return lambda side, x: neutral[side] + share * (x - neutral[side])

    for chosen in asked.batches():
        mean: list[Tensor] = []
        for share, weight in way:
            gradients = [_wide(gradient) * weight for gradient in _gradients(asked, chosen, between(share))[1]]
            mean = [a + b for a, b in zip(mean, gradients, strict=True)] if mean else gradients
        begin, end = (_run(asked, chosen, between(share)) for share in (0.0, 1.0))
        found.note(chosen, end)
        apart = [_wide(x - n) for x, n in zip(end.entered, neutral, strict=True)]
        asked.fill(contributions, chosen, [(g * d).sum(-1) for g, d in zip(mean, apart, strict=True)])
        risen = _wide(end.logits - begin.logits)[0].cpu().numpy()
        found.unexplained[chosen] = risen - np.nansum(contributions[chosen], axis=1)
    found.strength, found.contributions = np.abs(contributions), contributions
    return found


def _occlusion(asked: _Asked) -> _Found:
    found, contributions = _Found.nothing(asked), asked.blank()
    chosen = list(range(len(asked.ids)))
    plain = _run(asked, chosen, lambda side, x: x)
    found.note(chosen, plain)
    lengths = [x.shape[1] for x in plain.entered]
    at_once = max(1, min(ROWS // sum(lengths), SCORES // (len(chosen) * asked.model.config.vocab_size)))
    drops = [torch.zeros(len(chosen), length, dtype=plain.shares.dtype) for length in lengths]
    for where, length in enumerate(lengths):
        for begin in range(0, length, at_once):
            gone = list(range(begin, min(begin + at_once, length)))

            def without(side: int, x: Tensor, where: int = where, gone: list[int] = gone) -> Tensor:
                if side == where:
                    x = x.clone()
                    x[range(len(gone)), gone] = asked.neutral[side]
                return x

            logits = _run(asked, chosen, without, copies=len(gone)).logits  # (gone, outputs)
            drops[where][:, gone] = _wide(plain.logits - logits).T.cpu()
    asked.fill(contributions, chosen, drops)
    found.strength, found.contributions = np.abs(contributions), contributions
    return found


def _wide(numbers: Tensor) -> Tensor:
    """In fp32 at least."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


# ---- from a call to a question


def _ask(
    pipe: Pipeline,
    text: str,
    pair: str | None,
    target: Choice | Sequence[Choice] | None,
    against: Choice | Sequence[Choice] | None,
    outputs: Places,
    max_new_tokens: int | None,
) -> _Asked:
    model = pipe.model
    assert isinstance(model, TokenModel | EncoderDecoderModel)
    written = writes(pipe)
    said = target if written else None
    if said is not None and not isinstance(said, str):
        raise InputError(f"The target is a text that the model is made to write, not {said!r}.")
    told = answer(pipe, text, pair, said, max_new_tokens)
    reading, source = told.reading, len(told.reading.units) if told.reading.target else 0
    tokens = reading.units + reading.target
    here = reading.outputs
    words = pipe.tokenizer.target
    language = model.language_head is not None
    rows: list[int] | None
    positions: Sequence[int | None]
    if written:
        found = _written(outputs, told.begin, len(here))
        rows, positions = [n - 1 for n in found], [source + n for n in found]
    elif language or isinstance(model.head, TokenHead):
        rows = _places_to_fill(pipe, here, outputs, language)
        positions = list(rows)
    elif _labels(model):
        if outputs is not None:
            raise InputError("A label is one answer for the whole text: leave out which tokens to explain.")
        rows, positions = None, [None]
    else:
        raise InputError(
            f"{pipe.name or 'This model'} is loaded for {model.task}, whose answer saliency does not explain. Load it "
            "for a language, a sequence-classification or a token-classification task."
        )
    count = len(positions)
    if written:
        ids = [here[row + 1].id for row in rows or ()]
    else:
        with torch.no_grad():
            logits = model(**reading.inputs).logits[0]  # (time, classes) or (labels,)
        best = (logits if rows is None else logits[rows]).argmax(-1).reshape(-1).tolist()
        ids = best if target is None else _choices(pipe, "target", target, count, language)
    return _Asked(
        model,
        reading.inputs,
        tokens,
        source,
        positions,
        rows,
        ids,
        None if against is None else _choices(pipe, "against", against, count, language),
        (lambda found: display_texts(words, found))
        if language
        else (lambda found: [model.config.id2label[n] for n in found]),
        _neutral(pipe, model),
        _chances(model, language),
    )


def _labels(model: Model) -> bool:
    return model.task == "sequence-classification"


def _chances(model: Model, language: bool) -> Literal["softmax", "sigmoid"] | None:
    if not language and _labels(model) and (model.config.num_labels == 1 or model.config.problem_type == "regression"):
        return None
    return "sigmoid" if not language and model.config.problem_type == "multi_label_classification" else "softmax"


def _written(outputs: Places, begin: int, length: int) -> list[int]:
    """Which of the tokens are explained: those asked for, else those written, else all that have one before them."""
    if outputs is not None:
        found = sorted(places("position", outputs, length, f"there are {length} tokens"))
        if found[0] == 0:
            raise InputError("Nothing comes before the first token, so there is nothing to explain it with.")
        return found
    found = list(range(begin if begin < length else 1, length))
    if not found:
        raise InputError("There is no token to explain. Give a longer text, or let the model write.")
    return found


def _places_to_fill(pipe: Pipeline, tokens: list[TokenUnit], outputs: Places, language: bool) -> list[int]:
    if outputs is not None:
        return sorted(places("position", outputs, len(tokens), f"the text has {len(tokens)} tokens"))
    if pipe.model.task == "permutation-lm":
        raise InputError("This model guesses words in a stream of its own, which saliency does not explain.")
    if not language:
        return [n for n, token in enumerate(tokens) if not token.special] or [0]
    mask = pipe.tokenizer.mask_token_id
    found = [n for n, token in enumerate(tokens) if token.id == mask]
    if not found:
        raise InputError(
            f"There is no gap in the text. Write {pipe.tokenizer.mask_token or 'the mask token'} where a word is "
            "hidden, or say which tokens to explain."
        )
    return found


def _choices(pipe: Pipeline, name: str, asked: Choice | Sequence[Choice], count: int, language: bool) -> list[int]:
    """One id for each output, from one for all of them or one for each."""
    listed = [asked] * count if isinstance(asked, str | int) else list(asked)
    if len(listed) != count:
        raise InputError(f"{name} has {len(listed)} entries for {count} outputs. Give one for all, or one for each.")
    if language:
        head = pipe.model.language_head
        vocabulary = getattr(head.output if head is not None else None, "out_features", len(pipe.tokenizer.target))
        return [token_id(pipe.tokenizer.target, choice, vocabulary) for choice in listed]
    labels = pipe.model.config.id2label
    by_name = {label: n for n, label in labels.items()}
    found = []
    for choice in listed:
        if choice in by_name:
            found.append(by_name[choice])
        elif isinstance(choice, int) and not isinstance(choice, bool) and choice in labels:
            found.append(choice)
        else:
            raise InputError(
                f"There is no label {choice!r}.{did_you_mean(str(choice), by_name)} The labels are: "
                f"{', '.join(by_name)}."
            )
    return found


def _neutral(pipe: Pipeline, model: TokenModel | EncoderDecoderModel) -> list[Tensor]:
    """For each side the vector of a token that says nothing; zeros where the tokenizer has no such token."""
    if isinstance(model, EncoderDecoderModel):
        sides = [
            (pipe.tokenizer, model.encoder.token_embedder),
            (pipe.tokenizer.target, model.decoder.token_embedder),
        ]
    else:
        sides = [(pipe.tokenizer, model.stack.token_embedder)]
    found = []
    for tokenizer, embed in sides:
        names = (tokenizer.mask_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id)
        known = [n for n in names if n is not None and n < embed.tokens.num_embeddings]
        with torch.no_grad():
            vector = embed.tokens(torch.tensor([[known[0] if known else 0]], device=model.device))[0, 0] * embed.scale
        found.append(vector if known else torch.zeros_like(vector))
    return found

"""The walk: one token of a prompt followed through one layer of a real model, with the actual numbers.

Embedding and position → q, k, v → split into heads → score → mask → softmax → weighted sum → merge → project →
feed-forward → the layers above → scores for every word → the choice. A decoder's token looks at the source, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.finding import Finding
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.model import Model
from clearhead.models.stack_model import TokenModel
from clearhead.nn.stack import Stack
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline

Role = Literal["query", "key", "value", "plain"]


@dataclass(frozen=True)
class Vector:
    """A named vector: its first numbers, and how long it is."""

    label: str
    numbers: list[float]
    length: int
    role: Role = "plain"


@dataclass(frozen=True)
class Column:
    """One number for every token that the followed one could look at. None: it is hidden from view."""

    label: str
    numbers: list[float | None]
    is_share: bool = False  # the numbers are parts of a whole and sum to one


@dataclass(frozen=True)
class Step:
    """One stop on the way. `tap` is the name under which a trace keeps the tensor shown.

    tokens   those that the columns speak of, where they are not the walk's own: what an encoder has read
    """

    title: str
    says: str
    tap: str
    vectors: list[Vector] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    guesses: list[tuple[str, float]] = field(default_factory=list)
    tokens: list[str] | None = None


@dataclass(frozen=True, repr=False)
class Walk(Finding):
    """The finding. `tokens` are those the columns speak of; `token` is the followed one.

    side   "" for a model of one stack, else "encoder" or "decoder"; `source` is then what the encoder reads
    """

    kind: ClassVar[str] = "walk"

    model: str
    tokens: list[str]
    position: int
    layer: int
    head: int
    layers: int
    heads: int
    steps: list[Step]
    side: str = ""
    source: list[str] = field(default_factory=list)

    @property
    def token(self) -> str:
        return self.tokens[self.position]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["step", "title", "tap", "what", "place", "number"]
        for n, step in enumerate(self.steps, start=1):
            at = [n, step.title, step.tap]
            for vector in step.vectors:
                yield from ([*at, vector.label, d, value] for d, value in enumerate(vector.numbers))
            for column in step.columns:
                pairs = zip(step.tokens or self.tokens, column.numbers, strict=True)
                yield from ([*at, column.label, token, value] for token, value in pairs)
            yield from ([*at, "chance", token, chance] for token, chance in step.guesses)


def walk(
    pipe: Pipeline,
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
    position: int | None = None,
    numbers: int = 6,
    top_k: int = 10,
    side: str | None = None,
    target: str | None = None,
) -> Walk:
    """Follow the token at `position` (counted from the end if negative) through `layer`, looking at one `head`.

    side     of an encoder–decoder: which stack is followed, "decoder" (the default) or "encoder"
    target   what the decoder has written so far; by default the model's own answer
    """
    model = pipe.model
    if not text.strip():
        raise InputError("The text is empty. Give at least one word to follow.")
    inputs, ids, tokens, stack, side, source = _read(pipe, text, side, target)
    path = f"{side}." if side else ""
    if position is None:
        special = set(pipe.tokenizer.all_special_ids) - {pipe.tokenizer.mask_token_id}
        position = next((n for n in reversed(range(len(ids))) if ids[n] not in special), -1)
    where = _index("position", position, len(ids), "the text has {} tokens")
    layer = _index("layer", layer, len(stack.layers), "the model has {} layers")
    block = stack.blocks[layer]
    attention = block.attention
    head = _index("head", head, attention.heads, "a layer has {} heads")

    with torch.no_grad(), trace(model, *_wanted(model, stack, path, layer)) as seen:
        model(**inputs)

    def vector(label: str, name: str, role: Role = "plain", of_head: bool = False) -> Vector:
        tensor = seen[name]
        row = tensor[0, head, where] if of_head else tensor[min(0, tensor.shape[0] - 1), where]
        return Vector(label, [round(v, 4) for v in row[:numbers].float().tolist()], row.shape[-1], role)

    at = f"{path}layers.{layer}."
    heads, head_dim = attention.heads, attention.head_dim
    steps = [
        Step(
            "Embedding",
            f"Token {ids[where]} becomes a vector of {model.config.hidden_size} numbers; its position has one too.",
            f"{path}embed.output",
            [
                vector(label, f"{path}embed.{part}")
                for part, label in (("tokens", "token"), ("positions", "position"), ("segments", "segment"))
                if f"{path}embed.{part}" in seen
            ]
            + [vector("what enters the stack", f"{path}embed.output")],
        )
    ]
    if layer > 0:
        says = "The layer below has rewritten it." if layer == 1 else f"The {layer} layers below have rewritten it."
        steps.append(Step("The layers below", says, f"{at}input", [vector(f"input of layer {layer}", f"{at}input")]))
    steps.append(
        Step(
            "Query, key, value",
            f"Three matrices turn each vector into three; cut into {heads} heads of {head_dim}. This is head {head}.",
            f"{at}attention.query",
            [
                vector("query: what it looks for", f"{at}attention.query", "query", of_head=True),
                vector("key: what it offers", f"{at}attention.key", "key", of_head=True),
                vector("value: what it hands over", f"{at}attention.value", "value", of_head=True),
            ],
        )
    )
    scores = seen[f"{at}attention.scores"][0, head, where].float().tolist()
    if len(scores) != len(ids):
        raise InputError(f"{model.family.title} also looks at what it remembers, which has no tokens to show.")
    weights = seen[f"{at}attention.weights"][0, head, where].float().tolist()
    visible = _visible(stack, layer, where, len(ids))
    masked = [s if v else None for s, v in zip(scores, visible, strict=True)]
    steps.append(
        Step(
            "Score, scale, mask, softmax",
            f"Its query is dotted with every key and multiplied by {attention.scale:.4g}; "
            + ("later tokens are hidden; " if not all(visible) else "")
            + "softmax turns scores into shares of one.",
            f"{at}attention.weights",
            columns=[
                Column("score", scores),
                Column("after the mask", masked),
                Column("weight", weights, True),
            ],
        )
    )
    steps += [
        Step(
            "Weighted sum",
            "The values, each taken in proportion to its weight, add up to this head's answer.",
            f"{at}attention.heads",
            [vector(f"head {head}", f"{at}attention.heads", "value", of_head=True)],
        ),
        Step(
            "Merge and project",
            f"The {heads} answers stand side by side ({heads} × {head_dim}) and one more matrix mixes them.",
            f"{at}attention.output",
            [vector("attention output", f"{at}attention.output")],
        ),
    ]
    if side == "decoder" and block.cross_attention is not None:
        looked = f"{at}cross_attention."
        scores, weights = (seen[f"{looked}{name}"][0, head, where].float().tolist() for name in ("scores", "weights"))
        steps += [
            Step(
                "Look at the source",
                f"A new query is dotted with the keys of the {len(source)} tokens that the encoder has read.",
                f"{looked}weights",
                [vector("query: what it looks for", f"{looked}query", "query", of_head=True)],
                [Column("score", scores), Column("weight", weights, True)],
                tokens=source,
            ),
            Step(
                "Take from the source",
                "The encoder's values, each in proportion to its weight; all heads, mixed by one more matrix.",
                f"{looked}output",
                [
                    vector(f"head {head}", f"{looked}heads", "value", of_head=True),
                    vector("what it read", f"{looked}output"),
                ],
            ),
        ]
    steps += [
        Step(
            "Feed-forward",
            f"Added to the token's own vector, widened to {seen[at + 'feedforward.hidden'].shape[-1]}, bent, "
            "and narrowed again.",
            f"{at}feedforward.output",
            [
                vector("widened", f"{at}feedforward.hidden"),
                vector("feed-forward output", f"{at}feedforward.output"),
                vector(f"output of layer {layer}", f"{at}output"),
            ],
        ),
    ]
    above = len(stack.layers) - 1 - layer
    top = f"{path}layers.{len(stack.layers) - 1}.output"
    if above:
        says = f"The same happens {above} more time{'s' if above > 1 else ''}, with other weights."
        steps.append(Step("The layers above", says, top, [vector("output of the last layer", top)]))
    norm = f"{path}final.norm"
    if norm in seen:
        says = "A last normalisation brings the vector to a known size."
        steps.append(Step("Final norm", says, norm, [vector("normalised", norm)]))
    if "logits" in seen and model.language_head is not None:
        steps.append(
            _choice(pipe, seen["logits"][0, where], top_k, shifts=model.language_head.shift or side == "decoder")
        )
    return Walk(pipe.name, tokens, where, layer, head, len(stack.layers), heads, steps, side, source)


def _read(
    pipe: Pipeline, text: str, side: str | None, target: str | None
) -> tuple[dict[str, Tensor], list[int], list[str], Stack, str, list[str]]:
    """What the model is called with; ids, tokens and stack of the side that is followed; its name; the source."""
    model = pipe.model
    if not isinstance(model, EncoderDecoderModel):
        assert isinstance(model, TokenModel)
        if side or target is not None:
            raise InputError(f"{model.family.title} has one stack: leave side and target out.")
        ids = pipe.tokenizer.encode(text)
        return (
            {"input_ids": torch.tensor([ids], device=model.device)},
            ids,
            pipe.tokenizer.readable(ids),
            model.stack,
            "",
            [],
        )
    side = side or "decoder"
    if side not in ("encoder", "decoder"):
        raise InputError(f"The walk follows the encoder or the decoder, not {side!r}.")
    reading = pipe.read(text, None, "" if side == "encoder" and model.language_head is not None else target)
    followed = reading.units if side == "encoder" else reading.target
    source = [token.text for token in reading.units]
    stack = model.encoder if side == "encoder" else model.decoder
    return reading.inputs, [token.id for token in followed], [token.text for token in followed], stack, side, source


def _choice(pipe: Pipeline, logits: Tensor, top_k: int, shifts: bool) -> Step:
    best = logits.float().softmax(-1).topk(min(top_k, len(logits)))
    words = pipe.tokenizer.target.readable(best.indices.tolist())
    return Step(
        "Scores for every word" if not shifts else "The next token",
        f"The vector is compared with all {len(logits):,} words of the vocabulary; softmax turns scores into chances. "
        + (
            "Greedy decoding takes the first; sampling draws by these chances."
            if shifts
            else "This is what stands here."
        ),
        "logits",
        guesses=list(zip(words, best.values.tolist(), strict=True)),
    )


def _wanted(model: Model, stack: Stack, path: str, layer: int) -> list[str]:
    embed, at = stack.embed, f"{path}layers.{layer}."
    names = [f"{path}embed.{name}" for name in embed.taps if name != "segments" or embed.segments is not None]
    names += [f"{at}input|output", f"{at}attention.*", f"{at}feedforward.*"]
    if path == "decoder.":
        names.append(f"{at}cross_attention.*")
    names.append(f"{path}layers.{len(stack.layers) - 1}.output")
    if stack.final_norm is not None:
        names.append(f"{path}final.norm")
    if model.language_head is not None and path != "encoder.":
        names.append("logits")
    return names


def _visible(stack: Stack, layer: int, position: int, length: int) -> list[bool]:
    window = stack.blocks[layer].window
    return [
        (not stack.causal or j <= position) and (window is None or abs(position - j) < window) for j in range(length)
    ]


def _index(name: str, value: int, size: int, words: str) -> int:
    if not -size <= value < size:
        raise InputError(f"{name} {value} is out of range: {words.format(size)}, counted from 0.")
    return value % size

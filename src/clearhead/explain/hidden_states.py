"""The logit lens: what the model would say after each layer, its hidden states taken through final norm and head.

The last layer is the model's own answer; the layers before it show when the answer appears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, overload

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.capabilities import has_language_head, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import Indices, checked_count, checked_indices
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import POSITION, POSITIONS, TARGET, WRITTEN_SO_FAR, Setting, chosen_word, count
from clearhead.explain.word_choice import comma_separated, token_of, token_or_label, vocabulary_size
from clearhead.messages import say
from clearhead.models.heads import HeadInputs
from clearhead.models.model import Model
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline, Reading
from clearhead.text.units import display_texts, token_id
from clearhead.units import TokenUnit

_AT_ONCE = 2**27  # scores held at a time: 512 MiB


@dataclass(frozen=True)
class FollowedToken:
    """A token whose way through the layers is followed."""

    text: str
    id: int


@dataclass(frozen=True, repr=False, eq=False)
class HiddenStates(Finding):
    """
    tokens          what stands in the text; of an encoder–decoder, what is written. `source` is what was read
    positions       the positions looked at
    predicts        "next": a position speaks of the token after it; "here": of the one that stands or is hidden there
    layers          0 is the embedding, n what the nth layer puts out; the last one is the model's answer
    chosen          the token followed at each position
    ranks           (layers, positions): 1 is the likeliest
    probabilities   (layers, positions)
    top             for each layer and position the likeliest tokens, with their probabilities
    """

    kind: ClassVar[str] = "hidden-states"

    model: str
    tokens: list[TokenUnit]
    source: list[TokenUnit]
    positions: list[int]
    predicts: Literal["next", "here"]
    layers: list[int]
    chosen: list[FollowedToken]
    ranks: np.ndarray
    probabilities: np.ndarray
    top: list[list[list[tuple[str, float]]]]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer", "position", "token", "chosen", "rank", "probability", "likeliest", "its_probability"]
        for n, layer in enumerate(self.layers):
            for p, position in enumerate(self.positions):
                row = [layer, position, self.tokens[position].text, self.chosen[p].text]
                yield [*row, int(self.ranks[n, p]), float(self.probabilities[n, p]), *self.top[n][p][0]]


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Finding):
    """Several candidates for one place. ranks, probabilities: (layers, candidates); the rest as in HiddenStates."""

    kind: ClassVar[str] = "comparison"

    model: str
    tokens: list[TokenUnit]
    source: list[TokenUnit]
    position: int
    predicts: Literal["next", "here"]
    layers: list[int]
    candidates: list[FollowedToken]
    ranks: np.ndarray
    probabilities: np.ndarray

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["layer", "candidate", "rank", "probability"]
        for n, layer in enumerate(self.layers):
            for c, candidate in enumerate(self.candidates):
                yield [layer, candidate.text, int(self.ranks[n, c]), float(self.probabilities[n, c])]


@overload
def hidden_states(
    pipe: Pipeline,
    text: str,
    positions: Indices = None,
    chosen: str | int | Sequence[str | int] | None = None,
    top_k: int = 5,
    candidates: None = None,
    pair: str | None = None,
    target: str | None = None,
) -> HiddenStates: ...
@overload
def hidden_states(
    pipe: Pipeline,
    text: str,
    positions: Indices = None,
    *,
    candidates: Sequence[str | int],
    pair: str | None = None,
    target: str | None = None,
) -> Comparison: ...
def hidden_states(
    pipe: Pipeline,
    text: str,
    positions: Indices = None,
    chosen: str | int | Sequence[str | int] | None = None,
    top_k: int = 5,
    candidates: Sequence[str | int] | None = None,
    pair: str | None = None,
    target: str | None = None,
) -> HiddenStates | Comparison:
    """After every layer: the rank and probability of the chosen token, and the likeliest ones.

    positions    where to look; by default everywhere in a model that writes, at the masks in one that fills in
    chosen       which token to follow, by its text or id: one for all positions, or one for each. By default the token
                 that comes next in the text (or stands there); where there is none, the model's own first choice
    candidates   two or more tokens to be compared at one position (by default the last one, or the first mask)
    pair, target as for `attention`
    """
    model = pipe.model
    _check_head(pipe)
    checked_count("top_k", top_k)
    reading = pipe.read(text, pair, target)
    tokens, source, causal = reading.outputs, reading.units if reading.target else [], model.is_causal
    predicts: Literal["next", "here"] = "next" if causal else "here"
    at = _positions(pipe, tokens, positions, causal, one=candidates is not None)
    layers, states = _states(pipe, reading, at)
    if candidates is not None:
        if chosen is not None:
            raise InputError(say("explain.chosen_or_candidates"))
        ids, ranks, probabilities = _compare(pipe, states, candidates)
        return Comparison(pipe.name, tokens, source, at[0], predicts, layers, _named(pipe, ids), ranks, probabilities)
    wanted = _wanted(pipe, chosen, tokens, at, causal)
    ids = []
    columns: list[tuple[np.ndarray, np.ndarray]] = []
    top: list[list[list[tuple[str, float]]]] = [[] for _ in layers]
    step = max(1, _AT_ONCE // vocabulary_size(pipe))
    for first in range(0, len(at), step):  # as many positions at a time as memory is meant for
        some = states[:, first : first + step]
        best = to_words(model, some[-1:])[0].argmax(-1).tolist()
        here = [n if id_ is None else id_ for id_, n in zip(wanted[first : first + step], best, strict=True)]
        rows = []
        for layer, state in enumerate(some):
            scores = to_words(model, state[None])[0]
            rows.append(_ranked(scores, here))
            top[layer] += _likeliest(pipe, scores, top_k)
        columns.append(_stacked(rows))
        ids += here
    ranks, probabilities = (np.concatenate(part, axis=1) for part in zip(*columns, strict=True))
    return HiddenStates(pipe.name, tokens, source, at, predicts, layers, _named(pipe, ids), ranks, probabilities, top)


@torch.no_grad()
def to_words(model: Model, hidden: Tensor) -> Tensor:
    """What the model would answer if these hidden states (batch, time, width) were its last: (batch, time, vocabulary).

    The states of its last layer give its own scores, to the bit.
    """
    head, norm = model.language_head, model.output_stack.final_norm
    assert head is not None
    scores: Tensor = head(hidden if norm is None else norm(hidden), HeadInputs()).logits
    return scores


def _check_head(pipe: Pipeline) -> None:
    model = pipe.model
    if model.task == "permutation-lm":
        raise InputError(say("explain.words_in_a_second_stream", family=model.family.title))
    if model.language_head is None:
        raise InputError(say("explain.says_no_words", task=model.task))


def _positions(pipe: Pipeline, tokens: list[TokenUnit], wanted: Indices, causal: bool, one: bool) -> list[int]:
    if wanted is not None:
        at = checked_indices("position", wanted, len(tokens), say("explain.there_are_units", count=len(tokens)))
        if one and len(at) > 1:
            raise InputError(say("explain.candidates_at_one_position", count=len(at)))
        return at
    if causal:
        return [len(tokens) - 1] if one else list(range(len(tokens)))
    masks = [n for n, token in enumerate(tokens) if token.id == pipe.tokenizer.mask_token_id]
    if not masks:
        raise InputError(say("explain.no_mask", mask=pipe.tokenizer.mask_token))
    return masks[:1] if one else masks


def _states(pipe: Pipeline, reading: Reading, at: list[int]) -> tuple[list[int], Tensor]:
    """The layers whose states the head could read, and these states: (layers, positions, width), nowhere else.

    0 is the embedding. Layers of another width than the last (recurrent ones may be) say nothing to the head.
    """
    prefix = "decoder." if pipe.model.is_encoder_decoder else ""
    states: list[Tensor] = []

    def keep(hidden: Tensor) -> Tensor:
        states.append(hidden[0, at])
        return hidden

    stack = pipe.model.output_stack
    last = len(stack.layers) - 1
    # the head reads the last layer, or what a recurrent decoder makes of it and of what it has looked at
    final = f"layers.{last}.output" if stack.final_norm is not None else stack.last_tap
    names = [f"{prefix}{name}" for name in ("layers.0.input", *(f"layers.{n}.output" for n in range(last)), final)]
    with eval_mode(pipe.model), trace(pipe.model, replace=dict.fromkeys(names, keep)):
        call(pipe, reading, logits_to_keep=1)
    layers = [n for n, state in enumerate(states) if state.shape[-1] == states[-1].shape[-1]]
    return layers, torch.stack([states[n] for n in layers])


def _wanted(
    pipe: Pipeline, chosen: str | int | Sequence[str | int] | None, tokens: list[TokenUnit], at: list[int], causal: bool
) -> list[int | None]:
    """The token to follow at each position; None: the model's own first choice."""
    vocabulary = vocabulary_size(pipe)
    if chosen is None:
        spoken_of = [position + causal for position in at]
        known = [tokens[n].id if n < len(tokens) else None for n in spoken_of]
        return [None if id_ == pipe.tokenizer.mask_token_id else id_ for id_ in known]
    words = [chosen] * len(at) if isinstance(chosen, str | int) else list(chosen)
    if len(words) != len(at):
        raise InputError(say("explain.one_for_each", count=len(words), places=len(at)))
    return [token_id(pipe.tokenizer.target, word, vocabulary) for word in words]


def _compare(
    pipe: Pipeline, states: Tensor, candidates: Sequence[str | int]
) -> tuple[list[int], np.ndarray, np.ndarray]:
    """The candidates' ids, and their ranks and probabilities, (layers, candidates)."""
    if isinstance(candidates, str | int) or len(candidates) < 2:
        raise InputError(say("explain.two_candidates"))
    ids = [token_id(pipe.tokenizer.target, word, vocabulary_size(pipe)) for word in candidates]
    scores = (to_words(pipe.model, state[None])[0] for state in states)  # (1, vocabulary) each
    return ids, *_stacked([_ranked(row.expand(len(ids), -1), ids) for row in scores])


def _ranked(scores: Tensor, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The rank (1 is the likeliest) and the probability of one token in each row."""
    here = torch.tensor(ids, device=scores.device)[:, None]
    ranks = (scores > scores.gather(-1, here)).sum(-1) + 1
    probabilities = scores.float().softmax(-1).gather(-1, here)[:, 0]
    return ranks.cpu().numpy(), probabilities.cpu().numpy()


def _stacked(rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    ranks, probabilities = zip(*rows, strict=True)
    return np.stack(ranks), np.stack(probabilities)


def _likeliest(pipe: Pipeline, scores: Tensor, top_k: int) -> list[list[tuple[str, float]]]:
    """For each row the likeliest tokens, with their probabilities."""
    best = scores.float().softmax(-1).topk(min(top_k, scores.shape[-1]))
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        list(zip(display_texts(pipe.tokenizer.target, ids), probabilities, strict=True)) for ids, probabilities in rows
    ]


def _named(pipe: Pipeline, ids: list[int]) -> list[FollowedToken]:
    return [FollowedToken(text, id_) for text, id_ in zip(display_texts(pipe.tokenizer.target, ids), ids, strict=True)]


# ---- as a question


def _answer(
    pipe: Pipeline, text: str, second: str | None, positions: list[int] | None, chosen: str | None, k: int,
    target: str | None,
) -> HiddenStates:  # fmt: skip
    followed = token_or_label(pipe, chosen, text)
    return hidden_states(pipe, text, positions, followed, k, pair=second, target=target)


def _answer_comparison(
    pipe: Pipeline, text: str, second: str | None, candidates: str | None, position: int | None, target: str | None
) -> Comparison:
    both = pipe.model.is_encoder_decoder
    if both and target is None and position is None:
        target = ""  # the first token that would be written
    if candidates is None:
        words = _two_likeliest(pipe, text, second, position, target)
    else:
        before = (target or "") if both else text
        words = [token_of(pipe, word, before) for word in comma_separated(candidates)]
    return hidden_states(pipe, text, position, candidates=words, pair=second, target=target)


def _two_likeliest(
    pipe: Pipeline, text: str, second: str | None, position: int | None, target: str | None
) -> list[int]:
    lens = hidden_states(pipe, text, position, top_k=1, pair=second, target=target)
    where = lens.positions[-1 if lens.predicts == "next" else 0]
    with eval_mode(pipe.model):
        scores = call(pipe, pipe.read(text, second, target)).logits[0, where]
    best: list[int] = scores.topk(2).indices.tolist()
    return best


QUESTION = Question(
    name="hidden-states", kind="hidden-states", group="layers", answer=_answer,
    checks=(reads_one_input, has_language_head), second="pair",
    params=(
        replace(POSITIONS, key="hidden-states.positions"), chosen_word("hidden-states.chosen"),
        count("hidden-states.k", 5), TARGET,
    ),
)  # fmt: skip
COMPARISON_QUESTION = Question(
    name="comparison", kind="comparison", group="layers", answer=_answer_comparison,
    checks=(reads_one_input, has_language_head), second="pair",
    params=(
        Setting(name="candidates", key="comparison.candidates", type=str),
        replace(POSITION, key="comparison.position"), WRITTEN_SO_FAR,
    ),
)  # fmt: skip

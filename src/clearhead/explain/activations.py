"""The activations of neurons, over one text or a whole corpus.

A neuron is (layer, index): one number of the widened vector of a feed-forward part, after the activation function
(`layers.N.feedforward.hidden`), or of what a recurrent layer remembers: an LSTM's cell (`layers.N.cell`), else its
hidden state. A layer that reads both ways has the neurons of both directions, those that read forward first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.continuation import continued
from clearhead.explain.indices import Indices, checked_indices
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.recurrence import recurrent_layers
from clearhead.messages import say
from clearhead.models.model import Model
from clearhead.nn.tracing import Trace, trace
from clearhead.pipeline import Pipeline, Reading
from clearhead.text.units import units_of_ids
from clearhead.units import Unit

StackSide = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class Activations:
    """
    activations   (neurons of all layers, tokens)
    widths        how many neurons each layer has
    truncated     whether the text was longer than the model reads, so that only its beginning counts
    """

    side: StackSide | None
    tokens: Sequence[Unit]
    layers: list[int]
    widths: list[int]
    activations: np.ndarray
    truncated: bool = False

    def name(self, row: int) -> tuple[int, int]:
        """(layer, index) of a row."""
        n = 0
        while row >= self.widths[n]:
            row, n = row - self.widths[n], n + 1
        return self.layers[n], row


def neuron_taps(model: Model, side: str | None) -> list[list[str]]:
    """For each layer of a stack the tensors whose numbers, side by side, are its neurons; [] where it has none."""
    prefix = f"{side}." if side else ""
    taps: list[list[str]] = [
        [f"{prefix}layers.{n}.feedforward.hidden"] if getattr(layer, "feedforward", None) is not None else []
        for n, layer in enumerate(model.stacks[side or ""].layers)
    ]
    for one in recurrent_layers(model, side or ""):
        taps[one.layer].append(one.prefix + one.memory)
    return taps


def check_side(pipe: Pipeline, side: StackSide | None, default: StackSide) -> StackSide | None:
    if not pipe.model.is_encoder_decoder:
        if side is not None:
            raise InputError(say("explain.side_of_one_stack"))
        return None
    if side not in (None, "encoder", "decoder"):
        raise InputError(say("explain.encoder_or_decoder", side=repr(side)))
    return side or default


def side_or_none(side: str) -> Any:
    """As a setting has it."""
    return None if side == "auto" else side


# ---- one text


def activations_of(
    pipe: Pipeline,
    text: str,
    layers: Indices,
    *,
    side: StackSide | None,
    pair: str | None,
    target: str | None,
    max_new_tokens: int | None,
) -> Activations:
    """The activations of some layers over a text and, where it is asked for, over what the model writes after it."""
    side = check_side(pipe, side, "decoder")
    model = pipe.model
    chosen, names = _chosen(pipe, layers, side)
    translates = model.is_encoder_decoder and model.can_generate
    if target is not None or (translates and side == "decoder") or (max_new_tokens and model.can_generate):
        reading = continued(pipe, text, pair, target, max_new_tokens).reading
    elif translates:  # the encoder has read before anything is written
        reading = pipe.read(text, pair, "")
    else:
        reading = continued(pipe, text, pair, None, max_new_tokens or 0).reading
    with eval_mode(model), trace(model, *itertools.chain(*names), detach=True) as seen:
        _through(pipe, reading, side)
    hidden = [_joined(seen, taps)[0] for taps in names]  # (time, width) each
    tokens = reading.target if side == "decoder" else reading.units
    return Activations(side, tokens, chosen, [part.shape[1] for part in hidden], np.concatenate(hidden, axis=1).T)


def _chosen(pipe: Pipeline, layers: Indices, side: StackSide | None) -> tuple[list[int], list[list[str]]]:
    """The layers that are meant, by their numbers, and the tensors that hold the neurons of each."""
    taps = neuron_taps(pipe.model, side)
    chosen = checked_indices("layer", layers, len(taps), say("explain.there_are_layers", count=len(taps)))
    return chosen, [taps[n] for n in chosen]


def _joined(seen: Trace, taps: list[str]) -> np.ndarray:
    """(batch, time, neurons of a layer)"""
    parts = [seen[name].float().cpu().numpy() for name in taps]
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
    if not np.isfinite(whole).all():
        raise InputError(say("explain.not_finite"))
    return whole


def _through(pipe: Pipeline, reading: Reading, side: StackSide | None) -> None:
    """Run the layers of a stack, and as little else as can be."""
    model: Any = pipe.model
    inputs = reading.inputs
    if side == "encoder":
        model.encode(inputs["input_ids"], inputs.get("attention_mask"), None)
    elif side == "decoder":
        call(pipe, reading, **({} if model.language_head is None else {"logits_to_keep": 1}))
    else:
        run = model.stack if model.stack.embed.reads_tokens else model  # without scoring any words
        run(**inputs)


# ---- a corpus


def corpus_activations(
    pipe: Pipeline, texts: Iterable[Any], layers: Indices, side: StackSide | None, batch_size: int
) -> Iterator[Activations]:
    """The activations of some layers over each text of a corpus, which is read in batches.

    side   as check_side gives it. For the decoder each text is a pair (source, target)
    """
    if pipe.model.reads_choices:
        raise InputError(say("explain.reads_several_texts", task=pipe.model.task))
    chosen, names = _chosen(pipe, layers, side)
    corpus = iter(texts)
    while group := list(itertools.islice(corpus, 1 if side == "decoder" else batch_size)):
        readings = [_one(pipe, text, side) for text in group]
        with eval_mode(pipe.model), trace(pipe.model, *itertools.chain(*names), detach=True) as seen:
            _through(pipe, _batch(pipe, [reading for reading, _ in readings], side), side)
        hidden = [_joined(seen, taps) for taps in names]
        for row, (reading, truncated) in enumerate(readings):
            tokens = reading.target if side == "decoder" else reading.units
            parts = [part[row, : len(tokens)].T for part in hidden]
            whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
            yield Activations(side, tokens, chosen, [len(part) for part in parts], whole, truncated)


def _one(pipe: Pipeline, text: Any, side: StackSide | None) -> tuple[Reading, bool]:
    """How one text of a corpus is read, and whether it was too long and is cut."""
    if side == "decoder":
        if not isinstance(text, tuple | list) or len(text) != 2:
            raise InputError(say("explain.decoder_needs_pairs"))
        return pipe.read(text[0], target=text[1]), False
    if not isinstance(text, str) or not text.strip():
        raise InputError(say("explain.corpus_text", value=repr(text)))
    tokenizer, most = pipe.tokenizer, pipe.model.stacks[side or ""].embed.max_length
    ids = tokenizer.encode(text)
    kept = ids[:most]
    return Reading({"input_ids": torch.tensor([kept])}, units_of_ids(tokenizer, kept, text), []), len(ids) > len(kept)


def _batch(pipe: Pipeline, readings: list[Reading], side: StackSide | None) -> Reading:
    """Several texts, padded, as one; of a decoder, the only one."""
    model = pipe.model
    if side == "decoder":
        return readings[0]
    rows = [reading.inputs["input_ids"][0].tolist() for reading in readings]
    pad, longest = model.config.pad_token_id or 0, max(map(len, rows))
    padded = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=model.device)
    inputs: dict[str, Tensor] = {"input_ids": padded}
    causal = not side and model.is_causal  # which does not see what comes after a text
    if not causal and min(map(len, rows)) < longest:
        real = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        inputs["attention_mask"] = torch.tensor(real, device=model.device)
    return Reading(inputs, [], [])

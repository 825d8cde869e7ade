"""What a word becomes on its way: the states of a text after the embedding and after each layer, token by token."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clearhead.explain.inference import call, eval_mode
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline, Reading


def read_for_states(pipe: Pipeline, text: str) -> Reading:
    """A text as the model's first stack reads it; of an encoder–decoder nothing is written."""
    model: Any = pipe.model
    reads_two = model.is_encoder_decoder and (model.language_head is not None or not model.target_is_source)
    return pipe.read(text, target="" if reads_two else None)


def layer_states(pipe: Pipeline, reading: Reading) -> list[Tensor]:
    """(time, width) after the embedding and after each layer. Layers may differ in width."""
    model = pipe.model
    side, stack = next(iter(model.stacks.items()))  # the only one, or the encoder
    prefix = f"{side}." if side else ""
    names = [f"{prefix}layers.0.input", *(f"{prefix}layers.{n}.output" for n in range(len(stack.layers)))]
    few = {} if model.language_head is None else {"logits_to_keep": 1}
    with eval_mode(model), trace(model, *names) as seen:
        call(pipe, reading, **few)
    return [seen[name][0].float().cpu() for name in names]


def text_spans(reading: Reading, text: str) -> list[tuple[int, int]]:
    """Where each token stands in the text, without the spaces around it; (0, 0) where it stands for none of it."""
    spans = []
    for token in reading.units:
        part = text[token.start : token.end]
        if token.special or not part.strip():
            spans.append((0, 0))
        else:
            leading, trailing = len(part) - len(part.lstrip()), len(part) - len(part.rstrip())
            spans.append((token.start + leading, token.end - trailing))
    return spans

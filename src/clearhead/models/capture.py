"""`output_hidden_states` and `output_attentions`, as users of `transformers` know them: a trace under another name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from clearhead.models.model import Model
from clearhead.nn.tracing import Trace


@contextmanager
def captured(model: Model, hidden_states: bool, attentions: bool) -> Iterator[Trace | None]:
    """`output_hidden_states` and `output_attentions` are a trace under another name."""
    if not hidden_states and not attentions:
        yield None
        return
    patterns = []
    if hidden_states:
        patterns += ["embed.output", "layers.*.output"]
    if attentions:
        patterns += ["layers.*.attention.weights"]
        if any(layer.cross_attention is not None for stack in model.stacks.values() for layer in stack.blocks):
            patterns += ["layers.*.cross_attention.weights"]
    if model.is_encoder_decoder:
        patterns = [f"encoder|decoder.{p}" if "cross" not in p else f"decoder.{p}" for p in patterns]
    with Trace(model, *patterns) as seen:
        yield seen


def by_layer(seen: Trace, name: str, side: str = "") -> tuple[Tensor, ...]:
    layers: list[Tensor] = []
    while f"{side}layers.{len(layers)}.{name}" in seen:
        layers.append(seen[f"{side}layers.{len(layers)}.{name}"])
    return tuple(layers)


def hidden_states_in(seen: Trace, side: str, last: Tensor) -> tuple[Tensor, ...]:
    """The embedding, then every layer's output; the last one as the model hands it on, after the final norm."""
    return (seen[f"{side}embed.output"], *by_layer(seen, "output", side)[:-1], last)

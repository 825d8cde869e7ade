"""`output_hidden_states` and `output_attentions`, as users of `transformers` know them: a trace under another name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from clearhead.models.model import Model
from clearhead.nn.tracing import Trace, compile_pattern, tap_points


@contextmanager
def captured(model: Model, hidden_states: bool, attentions: bool) -> Iterator[Trace | None]:
    """`output_hidden_states` and `output_attentions` are a trace under another name."""
    if not hidden_states and not attentions:
        yield None
        return
    ends = ["embed.output", "layers.*.output"] if hidden_states else []
    ends += ["attention.weights", "**.attention|cross_attention.weights"] if attentions else []
    sides = [f"{name}." if name else "" for name in model.stacks]
    wanted = [compile_pattern(side + end) for side in sides for end in ends]
    patterns = [name for name in tap_points(model) if any(pattern.fullmatch(name) for pattern in wanted)]
    with Trace(model, *patterns) as seen:
        yield seen


def by_layer(seen: Trace, name: str, side: str = "") -> tuple[Tensor, ...]:
    layers: list[Tensor] = []
    while f"{side}layers.{len(layers)}.{name}" in seen:
        layers.append(seen[f"{side}layers.{len(layers)}.{name}"])
    return tuple(layers)


def hidden_states_in(seen: Trace, side: str, last: Tensor | None) -> tuple[Tensor, ...]:
    """The embedding, then every layer's output; the last one as the model hands it on, after the final norm (None: as
    the layer leaves it)."""
    states = by_layer(seen, "output", side)
    return (seen[f"{side}embed.output"], *(states if last is None else (*states[:-1], last)))

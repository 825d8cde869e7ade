"""The shape of recurrent models of one stack: token ids in, a head's answer out, an LSTM's states carried along."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.capture import captured, hidden_states_in
from clearhead.models.config import Config
from clearhead.models.heads import Head, HeadInputs
from clearhead.models.output import Output
from clearhead.models.stack_model import StackModel
from clearhead.nn.masks import can_inspect
from clearhead.nn.recurrent_stack import RecurrentStack
from clearhead.nn.state import TensorState

Pooling = Literal["last", "mean", "max", "concat"]


class RecurrentModel(StackModel):
    """One stack of recurrent layers that reads token ids."""

    stack: RecurrentStack

    def __init__(self, config: Config, stack: RecurrentStack, head: Head) -> None:
        super().__init__(config, stack, head)

    @property
    def first_position(self) -> None:
        """It counts no positions."""
        return None

    def start_state(self, capacity: int) -> TensorState:
        return TensorState()

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, time)
        attention_mask: Tensor | None = None,  # (batch, earlier and new positions)
        labels: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        past_key_values: TensorState | None = None,  # what was read before; brought up to date
        use_cache: bool = False,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool = False,
        next_ids: Tensor | None = None,  # in place of labels: what follows each token; nothing is shifted
        token_type_ids: Tensor | None = None,  # zeros: some tokenizers give them to every model
    ) -> Output:
        if token_type_ids is not None and can_inspect(token_type_ids) and bool(token_type_ids.any()):
            raise InputError("This model has no segment embeddings: leave token_type_ids out.")
        state = state_for(past_key_values, use_cache)
        with captured(self, output_hidden_states, False) as seen:
            hidden = self.read(input_ids, attention_mask, inputs_embeds, state)
        inputs = HeadInputs(input_ids, labels, logits_to_keep=logits_to_keep, attention_mask=attention_mask)
        if next_ids is not None:
            inputs.labels, inputs.labels_shifted = next_ids, True
        out: Output = self.head(hidden, inputs)
        out.past_key_values = state
        if seen is not None:
            out.hidden_states = hidden_states_in(seen, "", hidden)
        return out

    def read(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
        state: TensorState | None,
    ) -> Tensor:
        """The last layer's states, (batch, time, width)."""
        hidden: Tensor = self.stack(input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, state=state)
        return hidden


def state_for(past: TensorState | None, use_cache: bool) -> TensorState | None:
    """What a call carries on: what it was given, or a new one where it is asked for one."""
    if past is None:
        return TensorState() if use_cache else None
    if not isinstance(past, TensorState):
        raise InputError(f"past_key_values must be a clearhead TensorState, not {type(past).__name__}.")
    return past


class RecurrentSummary(nn.Module):
    """One vector for a whole text, out of the states (batch, time, width) of all its tokens; padding does not count.

    last     the last state; of two directions, each one's last: the forward one after the last token, the backward one
             after the first
    mean     the average of all; max: the largest of each number
    concat   last, max and mean side by side (ULMFiT), three times as wide
    """

    def __init__(self, pooling: Pooling = "last", bidirectional: bool = False) -> None:
        super().__init__()
        self.pooling, self.bidirectional = pooling, bidirectional

    def forward(self, hidden: Tensor, inputs: HeadInputs) -> Tensor:
        mask = inputs.attention_mask
        real = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device) if mask is None else mask != 0
        parts = [self._pooled(hidden, real, kind) for kind in self._kinds()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _kinds(self) -> tuple[str, ...]:
        return ("last", "max", "mean") if self.pooling == "concat" else (self.pooling,)

    def width(self, width: int) -> int:
        """Of the vector, where the states have `width` numbers."""
        return width * len(self._kinds())

    def _pooled(self, hidden: Tensor, real: Tensor, kind: str) -> Tensor:
        if kind == "mean":
            return (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
        if kind == "max":
            largest = hidden.masked_fill(~real[..., None], -torch.inf).amax(1)
            return largest.masked_fill(~real.any(1, keepdim=True), 0)  # of a row that is padding only
        rows = torch.arange(len(hidden), device=hidden.device)
        places = torch.arange(hidden.shape[1], device=hidden.device) * real
        last = hidden[rows, places.argmax(-1)]
        if not self.bidirectional:
            return last
        forward, backward = last.chunk(2, -1)[0], hidden[rows, real.int().argmax(-1)].chunk(2, -1)[1]
        return torch.cat([forward, backward], -1)

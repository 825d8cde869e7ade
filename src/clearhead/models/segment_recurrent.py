"""The shape of Transformer-XL and XLNet: one stack that takes a memory of earlier text and gives a new one."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.heads import HeadInputs
from clearhead.models.output import Output
from clearhead.models.stack_model import TokenModel, count_choices, flatten_choices
from clearhead.nn import Trace
from clearhead.nn.segment_recurrence import Mems, SegmentMemory, SegmentRecurrentStack


class SegmentRecurrentModel(TokenModel):
    """`mems` in, `mems` out: one tensor (remembered, batch, width) per layer, as published code hands them around.

    Its `forward` lists its own arguments, though some are every model's: they come in the published order, with `mems`
    third, and most of them mean something else here. No cache, no cross-attention and no languages are taken, the mask
    has two spellings and leaves the memory out, positions are only checked, and there may be two streams to show.
    """

    stack: SegmentRecurrentStack

    @property
    def reads_segments(self) -> bool:
        return self.stack.blocks[0].attention.segments is not None

    def start_state(self, capacity: int) -> SegmentMemory:
        return SegmentMemory()

    @property
    def first_position(self) -> None:
        """It knows distances only."""
        return None

    def uses_mems(self) -> bool:
        """Whether `mems` are returned where the caller does not say."""
        return self.stack.mem_len != 0

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, time); multiple choice: (batch, choices, time)
        attention_mask: Tensor | None = None,  # 1: seen, 0: hidden; of the new positions, the memory is seen by all
        mems: Mems | None = None,
        perm_mask: Tensor | None = None,  # (batch, time, time): 1 where query i must not see key j
        target_mapping: Tensor | None = None,  # (batch, targets, time): 1 where the target stands
        token_type_ids: Tensor | None = None,
        input_mask: Tensor | None = None,  # attention_mask upside down: 1 where a position is hidden
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        use_mems: bool | None = None,
        position_ids: Tensor | None = None,
        past_key_values: SegmentMemory | None = None,  # a memory that each call brings up to date, as generate uses it
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Output:
        if input_mask is not None:
            if attention_mask is not None:
                raise InputError("Give attention_mask (1 = seen) or input_mask (1 = hidden), and not both.")
            attention_mask = input_mask == 0
        if past_key_values is not None:
            if attention_mask is not None:
                raise InputError("A memory cannot tell padding from text: continue texts of one length together.")
            mems, use_mems = past_key_values.tensors, True
        _check_positions(position_ids)
        choices = count_choices(self.head, input_ids, inputs_embeds)
        if choices is not None:
            input_ids, inputs_embeds = flatten_choices(input_ids, inputs_embeds)
            attention_mask, token_type_ids = flatten_choices(attention_mask, token_type_ids)
        names = ["layers.*.input|output"] * output_hidden_states + ["layers.*.attention.weights"] * output_attentions
        with Trace(self, *names, every=True) if names else nullcontext() as seen:
            hidden, new_mems = self.stack(
                input_ids,
                attention_mask=attention_mask,
                token_type_ids=token_type_ids,
                inputs_embeds=inputs_embeds,
                mems=mems,
                perm_mask=perm_mask,
                target_mapping=target_mapping,
                # a model without a memory still has to see the text that it is writing
                remember_all=past_key_values is not None and self.stack.mem_len == 0,
            )
        out: Output = self.head(
            hidden,
            HeadInputs(
                input_ids,
                labels,
                start_positions=start_positions,
                end_positions=end_positions,
                logits_to_keep=logits_to_keep,
                choices=choices,
            ),
        )
        if use_mems if use_mems is not None else self.uses_mems():
            out.mems = new_mems
        if past_key_values is not None:
            past_key_values.replace(new_mems, new_mems[0].shape[0])
            out.past_key_values = past_key_values
        if seen is None:
            return out
        # With targets there are two streams, content and targets, and both are listed, one after the other.
        count = range(len(self.stack.layers))
        if output_hidden_states:
            states = [seen.calls("layers.0.input"), *(seen.calls(f"layers.{n}.output") for n in count)]
            out.hidden_states = tuple(state for streams in states for state in streams)
        if output_attentions:
            out.attentions = tuple(w for n in count for w in seen.calls(f"layers.{n}.attention.weights"))
        return out


def _check_positions(position_ids: Tensor | None) -> None:
    if position_ids is None or position_ids.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if bool((position_ids.diff(dim=-1) != 1).any()):
        raise InputError("This model knows distances only: position_ids, if given, must count up by one.")

"""One stack and a head. What the stack embeds is the embedder's business: tokens, image patches, note events."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.capture import by_layer, captured, hidden_states_in
from clearhead.models.config import Config
from clearhead.models.heads import Head, HeadInputs
from clearhead.models.model import Model
from clearhead.models.output import Output
from clearhead.nn.kv_cache import KVCache
from clearhead.nn.stack import Stack


class StackModel(Model):
    """Whatever its embedder takes, through the layers, to the head's answer: a picture, say.

    A family whose input has a name of its own (`pixel_values`) overrides `forward` to give it that name.
    """

    tap_names = {"stack": "", "head": ""}
    raw_last_state: ClassVar[bool] = False  # the last of `hidden_states` is before the final norm

    def __init__(self, config: Config, stack: Stack, head: Head) -> None:
        super().__init__(config, head)
        self.stack = stack

    @property
    def stacks(self) -> dict[str, Stack]:
        return {"": self.stack}

    def forward(
        self,
        inputs: Tensor,  # what the embedder takes
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        **embedding: Any,  # what else the embedder takes
    ) -> Output:
        with captured(self, output_hidden_states, output_attentions) as seen:
            hidden = self.stack.run(self.stack.embed(inputs, **embedding), attention_mask=attention_mask)
        out: Output = self.head(hidden, HeadInputs(labels=labels, attention_mask=attention_mask))
        if seen is not None:
            out.hidden_states = (
                hidden_states_in(seen, "", None if self.raw_last_state else hidden) if output_hidden_states else None
            )
            out.attentions = by_layer(seen, "attention.weights") if output_attentions else None
        return out


class TokenModel(StackModel):
    """One stack that reads token ids: BERT, GPT-2 and their relatives."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, time); multiple choice: (batch, choices, time)
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        sentence_order_label: Tensor | None = None,  # the same, by the name ALBERT gives it
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        mc_token_ids: Tensor | None = None,  # (batch, choices): where a "double heads" model reads each choice
        lm_labels: Tensor | None = None,  # (batch, choices, time): what it learns of the words, beside the choice
        past_key_values: KVCache | None = None,
        use_cache: bool = False,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        langs: Tensor | None = None,  # (batch, time): the language of each token, for models that know languages
    ) -> Output:
        if not self.has_double_heads and (mc_token_ids is not None or lm_labels is not None):
            raise InputError("mc_token_ids and lm_labels are for models that choose and predict words at once.")
        choices = count_choices(self.head, input_ids, inputs_embeds)
        if choices is not None:
            input_ids, inputs_embeds, attention_mask = flatten_choices(input_ids, inputs_embeds, attention_mask)
            token_type_ids, position_ids, langs = flatten_choices(token_type_ids, position_ids, langs)
            mc_token_ids, lm_labels = flatten_choices(mc_token_ids, lm_labels)
        cache = cache_for(self.stack, past_key_values, use_cache)
        if encoder_hidden_states is not None and self.stack.blocks[0].cross_attention is None:
            raise InputError(
                "This model has no cross-attention, so it cannot use encoder_hidden_states. "
                "Its configuration would need add_cross_attention: true."
            )
        with captured(self, output_hidden_states, output_attentions) as seen:
            hidden = self.stack(
                input_ids,
                attention_mask=attention_mask,
                token_type_ids=token_type_ids,
                position_ids=position_ids,
                inputs_embeds=inputs_embeds,
                memory=encoder_hidden_states,
                memory_mask=encoder_attention_mask,
                cache=cache,
                langs=langs,
            )
        inputs = HeadInputs(
            input_ids,
            labels,
            next_sentence_label if sentence_order_label is None else sentence_order_label,
            start_positions,
            end_positions,
            logits_to_keep,
            choices,
            mc_token_ids,
            lm_labels,
            attention_mask,
        )
        out: Output = self.head(hidden, inputs)
        out.past_key_values = cache
        if seen is not None:
            out.hidden_states = (
                hidden_states_in(seen, "", None if self.raw_last_state else hidden) if output_hidden_states else None
            )
            out.attentions = by_layer(seen, "attention.weights") if output_attentions else None
            out.cross_attentions = by_layer(seen, "cross_attention.weights") or None
        return out


def count_choices(head: Head, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> int | None:
    """How many answers each question has; None where the task is not multiple choice."""
    if head.answers != "choice":
        return None
    tensor = input_ids if input_ids is not None else inputs_embeds
    if not isinstance(tensor, Tensor) or tensor.ndim != (3 if input_ids is not None else 4):
        raise InputError("Multiple choice takes input_ids of the shape (batch, choices, time).")
    return tensor.shape[1]


def flatten_choices(*tensors: Tensor | None) -> list[Tensor | None]:
    """Every answer as a text of its own: (batch, choices, …) -> (batch · choices, …)"""
    return [None if tensor is None else tensor.flatten(0, 1) for tensor in tensors]


def cache_for(stack: Stack, past: KVCache | None, use_cache: bool) -> KVCache | None:
    if past is None:
        return KVCache(len(stack.layers)) if use_cache else None
    if not isinstance(past, KVCache):
        raise InputError(f"past_key_values must be a clearhead KVCache, not {type(past).__name__}.")
    if not stack.causal:
        raise InputError("This model reads in both directions, so it cannot continue from a cache.")
    return past

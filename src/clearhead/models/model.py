"""The two shapes a model can have: one stack with a head, or an encoder and a decoder with a head.

A family assembles one of these; it has no forward pass of its own unless it is truly different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.config import Config
from clearhead.models.heads import ChoiceHead, Given, LanguageHead, PretrainingHead
from clearhead.models.output import Output
from clearhead.nn.cache import Cache
from clearhead.nn.fast.quantized import QuantizedMatrix
from clearhead.nn.stack import Stack
from clearhead.nn.tracing import Trace

if TYPE_CHECKING:
    from clearhead.models.family import Family


class Model(nn.Module):
    """What every model can do, whatever its shape."""

    family: Family
    task: str

    def __init__(self, config: Config, head: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.head = head
        self.generation: dict[str, Any] = {}  # defaults of `generate`, from a checkpoint's generation_config.json

    def __call__(self, *args: Any, **options: Any) -> Any:
        # A trace cannot be opened from inside compiled code: what needs one runs eagerly.
        watched = options.get("output_attentions") or options.get("output_hidden_states")
        if watched and torch.compiler.is_compiling():
            return torch.compiler.disable(super().__call__)(*args, **options)
        return super().__call__(*args, **options)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def num_parameters(self) -> int:
        """Each tensor counted once, however many places share it; a quantised weight is a parameter like another."""
        rounded = sum(m.in_features * m.out_features for m in self._quantized())
        return rounded + sum(p.numel() for p in self.parameters())

    @property
    def quantized(self) -> str | None:
        """The bits that weights are rounded to, "int8" or "int4"; None where they are not."""
        return next((m.kind for m in self._quantized()), None)

    def _quantized(self) -> list[QuantizedMatrix]:
        return [m for m in self.modules() if isinstance(m, QuantizedMatrix)]

    def train(self, mode: bool = True) -> Self:
        if mode and self.quantized:
            raise InputError(
                "A quantised model cannot be trained: its weights are whole numbers. Load it without quantize=."
            )
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        for matrix in self._quantized():
            matrix.refuse_to_leave(fn)  # before anything has moved
        return super()._apply(fn, recurse)

    @property
    def language_head(self) -> LanguageHead | None:
        head = self.head.words if isinstance(self.head, PretrainingHead) else self.head
        return head if isinstance(head, LanguageHead) else None

    def token_tables(self) -> list[nn.Embedding]:
        """The embedding tables, first the one that a tied output shares."""
        raise NotImplementedError

    def tie_weights(self) -> None:
        """Make the output matrix the embedding matrix, where the config says so."""
        head = self.head.words if isinstance(self.head, ChoiceHead) else self.language_head
        if head is not None and self.config.tie_word_embeddings:
            head.output.weight = self.token_tables()[0].weight

    def new_cache(self, stack: Stack, capacity: int) -> Cache:
        """What carries a text being written from one token to the next."""
        return Cache(len(stack.layers), capacity, [layer.window for layer in stack.blocks])

    @torch.no_grad()
    def generate(self, input_ids: Tensor | None = None, **options: Any) -> Any:
        """Tokens in, tokens out: see clearhead.generate.generate for the options."""
        from clearhead.generate import generate  # the one door that opens upward, at call time

        return generate(self, input_ids, **options)


class StackModel(Model):
    """One stack and a head: BERT, GPT-2 and their relatives."""

    tap_names = {"stack": "", "head": ""}

    def __init__(self, config: Config, stack: Stack, head: nn.Module) -> None:
        super().__init__(config, head)
        self.stack = stack

    def token_tables(self) -> list[nn.Embedding]:
        return [self.stack.embed.tokens]

    def forward(
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
        past_key_values: Cache | None = None,
        use_cache: bool = False,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        langs: Tensor | None = None,  # (batch, time): the language of each token, for models that know languages
    ) -> Output:
        words_too = isinstance(self.head, ChoiceHead) and self.head.words is not None
        if not words_too and (mc_token_ids is not None or lm_labels is not None):
            raise InputError("mc_token_ids and lm_labels are for models that choose and predict words at once.")
        choices = choices_in(self.head, input_ids, inputs_embeds)
        if choices is not None:
            input_ids, inputs_embeds, attention_mask = apart(input_ids, inputs_embeds, attention_mask)
            token_type_ids, position_ids, langs = apart(token_type_ids, position_ids, langs)
            mc_token_ids, lm_labels = apart(mc_token_ids, lm_labels)
        cache = _cache_for(self, self.stack, past_key_values, use_cache)
        if encoder_hidden_states is not None and self.stack.blocks[0].cross_attention is None:
            raise InputError(
                "This model has no cross-attention, so it cannot use encoder_hidden_states. "
                "Its configuration would need add_cross_attention: true."
            )
        with _watching(self, output_hidden_states, output_attentions) as seen:
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
        given_all = Given(
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
        out: Output = self.head(hidden, given_all)
        out.past_key_values = cache
        if seen is not None:
            out.hidden_states = _hidden_states(seen, "", hidden) if output_hidden_states else None
            out.attentions = _by_layer(seen, "attention.weights") if output_attentions else None
            out.cross_attentions = _by_layer(seen, "cross_attention.weights") or None
        return out


class EncoderDecoderModel(Model):
    """An encoder reads the source; a decoder writes the target, looking at the encoder's output."""

    tap_names = {"head": ""}

    def __init__(
        self, config: Config, encoder: Stack, decoder: Stack, head: nn.Module, *, target_is_source: bool = False
    ) -> None:
        """target_is_source: a decoder given nothing reads the source itself, one step late (BART)."""
        super().__init__(config, head)
        self.encoder = encoder
        self.decoder = decoder
        self.target_is_source = target_is_source

    def token_tables(self) -> list[nn.Embedding]:
        return [self.decoder.embed.tokens, self.encoder.embed.tokens]

    def shift_right(self, labels: Tensor) -> Tensor:
        """Teacher forcing: the decoder reads the target one step late, from the start token on."""
        start = getattr(self.config, "decoder_start_token_id", None)
        pad = self.config.pad_token_id
        if start is None or pad is None:
            raise InputError("To learn from labels the config needs decoder_start_token_id and pad_token_id.")
        shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == -100, pad)

    def encode(self, input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        memory: Tensor = self.encoder(input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds)
        return memory

    def forward(
        self,
        input_ids: Tensor | None = None,  # (batch, source)
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,  # (batch, target)
        decoder_attention_mask: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        encoder_outputs: Tensor | Output | None = None,  # the encoder's output, if it is known already
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool = False,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Output:
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            learns_words = labels is not None and self.language_head is not None
            shifted = labels if learns_words else input_ids if self.target_is_source else None
            if shifted is None:
                raise InputError(
                    "The decoder has nothing to read: give decoder_input_ids, or labels to learn from. "
                    "To produce text, use generate."
                )
            if not isinstance(shifted, Tensor) or shifted.ndim != 2 or shifted.shape[1] == 0:
                name = "labels" if learns_words else "input_ids"
                raise InputError(f"{name} must be a tensor of the shape (batch, time) with at least one token.")
            decoder_input_ids = self.shift_right(shifted)
        cache = _cache_for(self, self.decoder, past_key_values, use_cache)
        with _watching(self, output_hidden_states, output_attentions) as seen:
            if isinstance(encoder_outputs, Output):
                encoder_outputs = encoder_outputs.last_hidden_state
            if encoder_outputs is None:
                encoder_outputs = self.encode(input_ids, attention_mask, inputs_embeds)
            hidden = self.decoder(
                decoder_input_ids,
                attention_mask=decoder_attention_mask,
                position_ids=decoder_position_ids,
                inputs_embeds=decoder_inputs_embeds,
                memory=encoder_outputs,
                memory_mask=attention_mask,
                cache=cache,
            )
        # a head that reads one token of the text (BART's end token) finds it in the source
        given = Given(
            input_ids if self.target_is_source else decoder_input_ids,
            labels,
            start_positions=start_positions,
            end_positions=end_positions,
            logits_to_keep=logits_to_keep,
        )
        out: Output = self.head(hidden, given)
        out.past_key_values, out.encoder_last_hidden_state = cache, encoder_outputs
        if seen is not None and output_hidden_states:
            out.hidden_states = _hidden_states(seen, "decoder.", hidden)
            if "encoder.embed.output" in seen:
                out.encoder_hidden_states = _hidden_states(seen, "encoder.", encoder_outputs)
        if seen is not None and output_attentions:
            out.attentions = _by_layer(seen, "attention.weights", "decoder.")
            out.cross_attentions = _by_layer(seen, "cross_attention.weights", "decoder.")
            out.encoder_attentions = _by_layer(seen, "attention.weights", "encoder.") or None
        return out


def choices_in(head: nn.Module, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> int | None:
    """How many answers each question has; None where the task is not multiple choice."""
    if not isinstance(head, ChoiceHead):
        return None
    given = input_ids if input_ids is not None else inputs_embeds
    if not isinstance(given, Tensor) or given.ndim != (3 if input_ids is not None else 4):
        raise InputError("Multiple choice takes input_ids of the shape (batch, choices, time).")
    return given.shape[1]


def apart(*given: Tensor | None) -> list[Tensor | None]:
    """Every answer as a text of its own: (batch, choices, …) -> (batch · choices, …)"""
    return [None if tensor is None else tensor.flatten(0, 1) for tensor in given]


def _cache_for(model: Model, stack: Stack, given: Cache | None, use_cache: bool) -> Cache | None:
    if given is None:
        return Cache(len(stack.layers)) if use_cache else None
    if not isinstance(given, Cache):
        raise InputError(f"past_key_values must be a clearhead Cache, not {type(given).__name__}.")
    if not stack.causal:
        raise InputError("This model reads in both directions, so it cannot continue from a cache.")
    return given


@contextmanager
def _watching(model: Model, hidden_states: bool, attentions: bool) -> Iterator[Trace | None]:
    """`output_hidden_states` and `output_attentions` are a trace under another name."""
    if not hidden_states and not attentions:
        yield None
        return
    patterns = []
    if hidden_states:
        patterns += ["embed.output", "layers.*.output"]
    if attentions:
        patterns += ["layers.*.attention.weights"]
        if any(layer.cross_attention is not None for stack in _stacks(model) for layer in stack.blocks):
            patterns += ["layers.*.cross_attention.weights"]
    if isinstance(model, EncoderDecoderModel):
        patterns = [f"encoder|decoder.{p}" if "cross" not in p else f"decoder.{p}" for p in patterns]
    with Trace(model, *patterns) as seen:
        yield seen


def _stacks(model: Model) -> list[Stack]:
    return [module for module in model.modules() if isinstance(module, Stack)]


def _by_layer(seen: Trace, name: str, side: str = "") -> tuple[Tensor, ...]:
    found: list[Tensor] = []
    while f"{side}layers.{len(found)}.{name}" in seen:
        found.append(seen[f"{side}layers.{len(found)}.{name}"])
    return tuple(found)


def _hidden_states(seen: Trace, side: str, last: Tensor) -> tuple[Tensor, ...]:
    """The embedding, then every layer's output; the last one as the model hands it on, after the final norm."""
    return (seen[f"{side}embed.output"], *_by_layer(seen, "output", side)[:-1], last)

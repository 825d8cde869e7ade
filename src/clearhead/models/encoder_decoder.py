"""An encoder and a decoder with a head: the 2017 Transformer, T5, BART and their relatives."""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.capture import by_layer, captured, hidden_states_in
from clearhead.models.config import Config
from clearhead.models.heads import Head, HeadInputs
from clearhead.models.model import Model
from clearhead.models.output import Output
from clearhead.models.stack_model import cache_for
from clearhead.nn.kv_cache import KVCache
from clearhead.nn.stack import Stack


class EncoderDecoderModel(Model):
    """An encoder reads the source; a decoder writes the target, looking at the encoder's output."""

    tap_names = {"head": ""}
    is_encoder_decoder = True

    def __init__(
        self, config: Config, encoder: Stack, decoder: Stack, head: Head, *, target_is_source: bool = False
    ) -> None:
        """target_is_source: a decoder given nothing reads the source itself, one step late (BART)."""
        super().__init__(config, head)
        self.encoder = encoder
        self.decoder = decoder
        self.target_is_source = target_is_source

    @property
    def stacks(self) -> dict[str, Stack]:
        return {"encoder": self.encoder, "decoder": self.decoder}

    def shift_right(self, labels: Tensor) -> Tensor:
        """Teacher forcing: the decoder reads the target one step late, from the start token on."""
        start = getattr(self.config, "decoder_start_token_id", None)
        pad = self.config.pad_token_id
        if start is None or pad is None:
            raise InputError("To learn from labels the config needs decoder_start_token_id and pad_token_id.")
        shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == -100, pad)

    def target_for(self, labels: Tensor | None, input_ids: Tensor | None) -> Tensor:
        """What the decoder reads where nobody says: what it is to write, one step late."""
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
        return self.shift_right(shifted)

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
        past_key_values: KVCache | None = None,
        use_cache: bool = False,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Output:
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.target_for(labels, input_ids)
        cache = cache_for(self.decoder, past_key_values, use_cache)
        with captured(self, output_hidden_states, output_attentions) as seen:
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
        inputs = HeadInputs(
            input_ids if self.target_is_source else decoder_input_ids,
            labels,
            start_positions=start_positions,
            end_positions=end_positions,
            logits_to_keep=logits_to_keep,
        )
        out: Output = self.head(hidden, inputs)
        out.past_key_values, out.encoder_last_hidden_state = cache, encoder_outputs
        if seen is not None and output_hidden_states:
            out.hidden_states = hidden_states_in(seen, "decoder.", hidden)
            if "encoder.embed.output" in seen:
                out.encoder_hidden_states = hidden_states_in(seen, "encoder.", encoder_outputs)
        if seen is not None and output_attentions:
            out.attentions = by_layer(seen, "attention.weights", "decoder.")
            out.cross_attentions = by_layer(seen, "cross_attention.weights", "decoder.")
            out.encoder_attentions = by_layer(seen, "attention.weights", "encoder.") or None
        return out

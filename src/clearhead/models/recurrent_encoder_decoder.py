"""The shape of recurrent encoder–decoders: an encoder's last states start a decoder, which may attend to all.

`encode` returns an `Output`: the states of all words, and in `past_key_values` those after the last one.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clearhead.errors import InputError
from clearhead.models.capture import captured, hidden_states_in
from clearhead.models.config import Config
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.heads import Head, HeadInputs
from clearhead.models.output import Output
from clearhead.nn.recurrent_decoder import DecoderState, RecurrentDecoder
from clearhead.nn.recurrent_stack import RecurrentStack
from clearhead.nn.state import TensorState


class RecurrentEncoderDecoder(EncoderDecoderModel):
    """A recurrent encoder reads the source; a recurrent decoder writes the target from where the encoder ended."""

    encoder: RecurrentStack
    decoder: RecurrentDecoder

    def __init__(self, config: Config, encoder: RecurrentStack, decoder: RecurrentDecoder, head: Head) -> None:
        super().__init__(config, encoder, decoder, head)

    @property
    def first_position(self) -> None:
        """It counts no positions."""
        return None

    def start_state(self, capacity: int) -> DecoderState:
        return DecoderState()

    def encode(self, input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None) -> Output:  # type: ignore[override]
        state = TensorState()
        memory = self.encoder(input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, state=state)
        return Output(last_hidden_state=memory, past_key_values=state)

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, source)
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,  # (batch, target)
        decoder_attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        encoder_outputs: Output | None = None,  # what `encode` gave, if it is known already
        labels: Tensor | None = None,
        past_key_values: DecoderState | None = None,  # what was written before; brought up to date
        use_cache: bool = False,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Output:
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.target_for(labels, input_ids)
        state = _state_for(past_key_values, use_cache)
        with captured(self, output_hidden_states, output_attentions) as seen:
            if encoder_outputs is None:
                encoder_outputs = self.encode(input_ids, attention_mask, inputs_embeds)
            memory, ends = _parts_of(encoder_outputs)
            hidden = self.decoder(
                decoder_input_ids,
                attention_mask=decoder_attention_mask,
                inputs_embeds=decoder_inputs_embeds,
                memory=memory,
                memory_mask=attention_mask,
                memory_states=ends,
                state=state,
            )
        out: Output = self.head(hidden, HeadInputs(decoder_input_ids, labels, logits_to_keep=logits_to_keep))
        out.past_key_values, out.encoder_last_hidden_state = state, memory
        if seen is not None and output_hidden_states:
            out.hidden_states = hidden_states_in(seen, "decoder.", hidden)
            if "encoder.embed.output" in seen:
                out.encoder_hidden_states = hidden_states_in(seen, "encoder.", memory)
        if seen is not None and "decoder.attention.weights" in seen:
            out.cross_attentions = (seen["decoder.attention.weights"][:, None],)  # as of one head
        return out


def _state_for(past: Any, use_cache: bool) -> DecoderState | None:
    if past is None:
        return DecoderState() if use_cache else None
    if not isinstance(past, DecoderState):
        raise InputError(f"past_key_values must be a clearhead DecoderState, not {type(past).__name__}.")
    return past


def _parts_of(encoded: Any) -> tuple[Tensor, Any]:
    """The encoder's states, and those after the last word."""
    ends = encoded.past_key_values if isinstance(encoded, Output) else None
    if not isinstance(ends, TensorState) or ends.tensors is None or encoded.last_hidden_state is None:
        raise InputError(
            "A recurrent decoder starts from its encoder's last states, which encoder_outputs must hold: "
            "give what model.encode returns."
        )
    return encoded.last_hidden_state, ends.tensors

"""The shape of RETRO: a causal stack whose layers look at the encoded neighbours of the text's chunks."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.capture import by_layer, captured, hidden_states_in
from clearhead.models.config import Config
from clearhead.models.heads import Head, HeadInputs
from clearhead.models.output import Output
from clearhead.models.stack_model import TokenModel
from clearhead.nn.neighbor_encoder import NeighborEncoder
from clearhead.nn.neighbors import ChunkedKVCache, NeighborReading
from clearhead.nn.stack import Stack, shape_of


class RetrievalModel(TokenModel):
    """`neighbor_ids` beside `input_ids`: for every whole chunk of the text, k retrieved texts.

    chunk_size   tokens to a chunk
    hidden_id    neighbours are padded with this token, which nobody sees; None: nothing is hidden
    """

    def __init__(
        self,
        config: Config,
        stack: Stack,
        head: Head,
        neighbor_encoder: NeighborEncoder,
        *,
        chunk_size: int,
        hidden_id: int | None,
    ) -> None:
        super().__init__(config, stack, head)
        self.neighbor_encoder = neighbor_encoder
        self.chunk_size, self.hidden_id = chunk_size, hidden_id

    def start_state(self, capacity: int) -> ChunkedKVCache:
        return ChunkedKVCache(len(self.stack.layers), capacity)

    def retrieval_parameters(self) -> dict[str, nn.Parameter]:
        """What it has beside a language model's own: what RETROfit trains."""
        names = ("neighbor_encoder.", ".chunked_attention.", ".chunked_attention_norm.")
        return {name: p for name, p in self.named_parameters() if any(part in name for part in names)}

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, time)
        attention_mask: Tensor | None = None,
        neighbor_ids: Tensor | None = None,  # (batch, chunks, k, tokens); with a cache: of the chunks that are finished
        labels: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        past_key_values: ChunkedKVCache | None = None,
        use_cache: bool = False,
        logits_to_keep: int | Tensor = 0,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Output:
        """Neighbours of chunk n act from its last token on. A text of n tokens has n // chunk_size chunks; the rest of
        it has no neighbours, and chunks for which none are given look at none. neighbor_ids None: nothing is retrieved.
        """
        batch, time, _ = shape_of(input_ids, inputs_embeds)
        cache = self.start_state(time) if past_key_values is None and use_cache else past_key_values
        if cache is not None and not isinstance(cache, ChunkedKVCache):
            raise InputError(f"past_key_values must come from model.start_state, not be a {type(cache).__name__}.")
        encode = partial(self.neighbor_encoder.encode, lent=self.stack.token_embedder.tokens, hidden_id=self.hidden_id)
        neighbors = NeighborReading(
            encode,
            neighbor_ids,
            chunk_size=self.chunk_size,
            hidden_id=self.hidden_id,
            batch=batch,
            time=time,
            cache=cache,
            attention_mask=attention_mask,
        )
        with captured(self, output_hidden_states, output_attentions) as seen:
            hidden = self.stack(
                input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                inputs_embeds=inputs_embeds,
                cache=cache,
                neighbors=neighbors,
            )
        inputs = HeadInputs(input_ids, labels, logits_to_keep=logits_to_keep, attention_mask=attention_mask)
        out: Output = self.head(hidden, inputs)
        out.past_key_values = cache
        if seen is not None:
            out.hidden_states = hidden_states_in(seen, "", hidden) if output_hidden_states else None
            out.attentions = by_layer(seen, "attention.weights") if output_attentions else None
        return out

"""Embedders: from what a stack reads to vectors. For tokens: token + position + segment, normalised and dropped out."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.nn.masks import can_inspect
from clearhead.nn.tracing import tap


class Embedder(nn.Module):
    """Turns what a codec gives (ids, patches, events) into vectors (batch, time, width), and announces `output`.

    content        which of its taps holds what was read, before positions are added: what attribution asks about
    reads_tokens   whether it looks ids up in a table of tokens
    """

    content: ClassVar[str] = "output"
    reads_tokens: ClassVar[bool] = False

    @property
    def taps(self) -> tuple[str, ...]:
        return ("output",)

    @property
    def max_length(self) -> int | None:
        """How many positions fit (None: no limit)."""
        return None

    @property
    def first_position(self) -> int:
        """The position of the first one."""
        return 0


class TokenEmbedder(Embedder):
    """token (· scale) + position + segment → norm → dropout → project. Parts that a family lacks are None.

    segments="tokens"   looks segments up in the token table (and scales them alike), as GPT, GPT-2 and CTRL do
    languages           a table of languages, added where the caller names them (XLM)
    project             from a narrow embedding to the width of the layers (ALBERT, ELECTRA)
    padding_position    positions count real tokens from padding_position + 1 on; padding itself gets
                        padding_position (RoBERTa and its relatives, where it is the padding token's id)
    norm_last           dropout → norm (BigBird)
    scale_given         scale vectors that the caller gives in place of words too (BART does not)
    """

    content = "tokens"
    reads_tokens = True

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: nn.Module | None = None,
        segments: nn.Embedding | Literal["tokens"] | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        scale: float = 1.0,
        max_positions: int | None = None,
        project: nn.Module | None = None,
        padding_position: int | None = None,
        languages: nn.Embedding | None = None,
        norm_last: bool = False,
        scale_given: bool = True,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.segments = segments if isinstance(segments, nn.Embedding) else None
        self.segments_from_tokens = segments == "tokens"
        self.languages = languages
        self.norm = norm
        self.project = project
        self.dropout, self.scale, self.padding_position = dropout, scale, padding_position
        self.norm_last, self.scale_given = norm_last, scale_given
        # how many positions the model has: its table's length, unless told otherwise (None: no limit)
        table = getattr(positions, "length", None)
        self.max_positions: int | None = max_positions if max_positions is not None else table

    @property
    def taps(self) -> tuple[str, ...]:
        parts = {
            "tokens": True,
            "positions": self.positions is not None,
            "segments": self.has_segments,
            "languages": self.languages is not None,
        }
        return (*(name for name, there in parts.items() if there), "output")

    @property
    def has_segments(self) -> bool:
        return self.segments is not None or self.segments_from_tokens

    @property
    def first_position(self) -> int:
        return 0 if self.padding_position is None else self.padding_position + 1

    @property
    def max_length(self) -> int | None:
        return None if self.max_positions is None else self.max_positions - self.first_position

    def default_positions(self, input_ids: Tensor | None, past: int, time: int, device: torch.device) -> Tensor:
        """(batch or 1, time): where each token stands, after `past` cached ones."""
        if self.padding_position is None:
            return torch.arange(past, past + time, device=device)[None]
        if input_ids is None:  # vectors do not tell which of them are padding
            return torch.arange(past, past + time, device=device)[None] + self.first_position
        real = (input_ids != self.padding_position).long()
        return (real.cumsum(1) + past) * real + self.padding_position

    def forward(
        self,
        input_ids: Tensor | None,  # (batch, time)
        position_ids: Tensor,  # (batch or 1, time)
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,  # (batch, time, width), instead of input_ids
        langs: Tensor | None = None,  # (batch or 1, time)
    ) -> Tensor:
        if inputs_embeds is None:
            assert input_ids is not None
            check_ids("input_ids", input_ids, self.tokens.num_embeddings)
            inputs_embeds = self.look_up(input_ids)
            scale = self.scale
        else:
            width = self.tokens.embedding_dim
            if inputs_embeds.shape[-1] != width or not inputs_embeds.is_floating_point():
                raise InputError(f"inputs_embeds must hold vectors of {width} floating-point numbers.")
            scale = self.scale if self.scale_given else 1.0
        x = tap(self, "tokens", inputs_embeds * scale if scale != 1.0 else inputs_embeds)
        check_positions(position_ids, self.max_positions)
        if self.segments is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros_like(position_ids)
            check_ids("token_type_ids", token_type_ids, self.segments.num_embeddings)
            x = x + tap(self, "segments", self.segments(token_type_ids))
        elif self.segments_from_tokens and token_type_ids is not None:
            check_ids("token_type_ids", token_type_ids, self.tokens.num_embeddings)
            looked_up = self.tokens(token_type_ids)
            x = x + tap(self, "segments", looked_up * self.scale if self.scale != 1.0 else looked_up)
        elif token_type_ids is not None and can_inspect(token_type_ids) and bool(token_type_ids.any()):
            raise InputError("This model has no segment embeddings: leave token_type_ids out.")
        if langs is not None:
            if self.languages is None:
                raise InputError("This model has no language embeddings: leave langs out.")
            check_ids("langs", langs, self.languages.num_embeddings)
            x = x + tap(self, "languages", self.languages(langs))
        if self.positions is not None:
            x = x + tap(self, "positions", self.positions(position_ids)).to(x.dtype)
        if self.norm is not None and not self.norm_last:
            x = self.norm(x)
        x = self.drop(x)
        if self.norm is not None and self.norm_last:
            x = self.norm(x)
        return tap(self, "output", x if self.project is None else self.project(x))

    def look_up(self, input_ids: Tensor) -> Tensor:
        """The vectors of the tokens, (batch, time, width)."""
        vectors: Tensor = self.tokens(input_ids)
        return vectors

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


def check_ids(name: str, ids: Tensor, size: int) -> None:
    """Ids must be whole numbers inside the table; values are looked at on the CPU only (elsewhere it would stall)."""
    if ids.dtype not in (torch.int64, torch.int32):
        raise InputError(f"{name} must hold whole numbers (int64 or int32), not {ids.dtype}.")
    if ids.numel() and can_inspect(ids):
        low, high = (int(v) for v in torch.aminmax(ids))
        if low < 0 or high >= size:
            wrong = high if high >= size else low
            raise InputError(
                f"{name} holds {wrong}, but this model knows ids 0 to {size - 1}. "
                "Was the text encoded with this model's own tokenizer?"
            )


def check_positions(position_ids: Tensor, limit: int | None) -> None:
    if position_ids.dtype not in (torch.int64, torch.int32):
        raise InputError(f"position_ids must hold whole numbers (int64 or int32), not {position_ids.dtype}.")
    if limit is None:
        return
    if position_ids.shape[-1] > limit or (can_inspect(position_ids) and int(position_ids.max()) >= limit):
        needed = max(position_ids.shape[-1], int(position_ids.max()) + 1)
        raise InputError(
            f"The input reaches position {needed}, but this model has {limit}. "
            "Shorten the text, or choose a model with more positions."
        )
    if can_inspect(position_ids) and int(position_ids.min()) < 0:
        raise InputError(f"position_ids must not be negative; the smallest is {int(position_ids.min())}.")

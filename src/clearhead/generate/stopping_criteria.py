"""Stopping criteria: when a text is finished, beside having no room left. An end token, or a string."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

# (tokens so far (rows, time), the next of each row (rows,)) -> (rows,) bool: whether it finishes the row
StoppingCriterion = Callable[[Tensor, Tensor], Tensor]


class Decoder(Protocol):
    def decode(self, ids: list[int], *, skip_special_tokens: bool = ...) -> str: ...


def stop_at_tokens(ids: list[int], device: torch.device) -> StoppingCriterion:
    eos = torch.tensor(ids, device=device, dtype=torch.long)
    return lambda tokens, token: torch.isin(token, eos)


def stop_at_strings(strings: list[str], tokenizer: Decoder, prompt_length: int) -> StoppingCriterion:
    """A row whose new text holds one of the strings, wherever the pieces of its tokens begin and end."""
    window = max(len(string.encode()) for string in strings) + 8  # a token holds at least a byte; some hold none

    def stop(tokens: Tensor, token: Tensor) -> Tensor:
        recent = torch.cat([tokens[:, max(prompt_length, tokens.shape[1] - window) :], token[:, None]], 1).tolist()
        texts = [tokenizer.decode(row, skip_special_tokens=True) for row in recent]
        stopped = [any(string in text for string in strings) for text in texts]
        return torch.tensor(stopped, device=tokens.device)

    return stop


def cut_after(text: str, strings: list[str]) -> str:
    """The text up to the end of the first of these strings in it."""
    ends = [text.index(string) + len(string) for string in strings if string in text]
    return text[: min(ends)] if ends else text

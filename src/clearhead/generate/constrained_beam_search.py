"""Constrained beam search: a search that must write certain words (after Post and Vilar, 2018).

Beams are kept in banks by how much of the words they have written, and each bank keeps its best: so a beam that
spends a step on a word is compared with beams that did so too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.errors import InputError

IMPOSSIBLE = -1e9  # a score so low that nothing real falls below it
MAX_OVERLAPPING = 5  # missing words that are looked at in every order; more are taken to share nothing


class PhraseConstraints:
    """words: each a phrase of token ids, or a list of phrases of which one must be written."""

    def __init__(
        self,
        words: Sequence[Sequence[int] | Sequence[Sequence[int]]],
        eos: list[int],
        prompt_length: int,
        max_new_tokens: int,
        vocab: int,
    ) -> None:
        self._words, self._eos = [_alternatives(word) for word in words], set(eos)
        self._prompt_length, self._max_new_tokens = prompt_length, max_new_tokens
        unknown = [token for word in self._words for phrase in word for token in phrase if not 0 <= token < vocab]
        if unknown:
            raise InputError(f"A forced token is {unknown[0]}, but this model writes 0 to {vocab - 1}.")
        self._needed = sum(min(map(len, word)) for word in self._words)
        self._fewest_known: dict[tuple[tuple[int, int], ...], int] = {}
        if (fewest := self.fewest_more([])) > max_new_tokens:
            raise InputError(f"The forced words take {fewest} tokens, and there is room for {max_new_tokens}.")

    def progress(self, written: Sequence[int]) -> tuple[int, set[int]]:
        """How many tokens of the words these tokens have brought, and which tokens would bring the next.

        A word counts once it is whole; of the words still missing, the one that the text ends in the middle of counts
        as far as it has come.
        """
        text = list(written)
        missing = [word for word in self._words if not any(_holds(text, phrase) for phrase in word)]
        gained = self._needed - sum(min(map(len, word)) for word in missing)
        best, next_tokens = 0, {phrase[0] for word in missing for phrase in word}
        for word in missing:
            for phrase in word:
                begun = _begun(text, phrase)
                if begun:
                    next_tokens.add(phrase[begun])
                    best = max(best, min(begun, min(map(len, word)) - 1))
        return gained + best, next_tokens

    def fewest_more(self, text: list[int]) -> int:
        """With how few more tokens all the words can be there. They may share tokens: 3 4 5 holds 3 4 and 4 5."""
        missing = [n for n, word in enumerate(self._words) if not any(_holds(text, phrase) for phrase in word)]
        if len(missing) > MAX_OVERLAPPING:
            return sum(min(map(len, self._words[n])) for n in missing)
        begun = tuple((n, _begun(text, phrase)) for n in missing for phrase in self._words[n])
        if begun not in self._fewest_known:
            self._fewest_known[begun] = self._fewest(frozenset(missing), text)
        return self._fewest_known[begun]

    def _fewest(self, missing: frozenset[int], text: list[int]) -> int:
        """The missing words after this text, in the best order, each begun by what stands before it."""
        fewest = 0 if not missing else 1 << 30
        for phrase in (phrase for n in missing for phrase in self._words[n]):
            more = phrase[_begun(text, phrase) :]
            rest = frozenset(
                n for n in missing if not any(_holds(phrase, alternative) for alternative in self._words[n])
            )
            fewest = min(fewest, len(more) + self._fewest(rest, phrase))
        return fewest

    def complete(self, tokens: Tensor) -> Tensor:
        """Which of these texts (…, time) hold all the words: (…) bool."""
        rows = tokens[..., self._prompt_length :].flatten(0, -2).tolist()
        complete = [self.progress(row)[0] == self._needed for row in rows]
        return torch.tensor(complete, device=tokens.device).view(tokens.shape[:-1])

    def choose(self, total: Tensor, tokens: Tensor, candidates: int) -> tuple[Tensor, Tensor]:
        """(texts, candidates) of scores and indices in `total` (texts, beams · vocab), in the order of choice."""
        vocab = total.shape[1] // tokens.shape[1]
        written = tokens[:, :, self._prompt_length :].tolist()
        scores = total.new_full((len(total), candidates), IMPOSSIBLE)
        indices = torch.zeros(len(total), candidates, dtype=torch.long, device=total.device)
        for text, row in enumerate(total):
            chosen = self._banked(row, written[text], vocab, candidates)
            indices[text, : len(chosen)] = torch.tensor(chosen, dtype=torch.long, device=row.device)
            scores[text, : len(chosen)] = row[indices[text, : len(chosen)]]
        return scores, indices

    def _banked(self, row: Tensor, beams: list[list[int]], vocab: int, candidates: int) -> list[int]:
        remaining = self._max_new_tokens - len(beams[0]) - 1  # tokens that can be written after this one
        pool = set(row.topk(min(2 * candidates, len(row))).indices.tolist())
        # each beam has a way on of its own
        best_tokens = row.view(-1, vocab).topk(min(len(self._eos) + 2, vocab)).indices
        pool |= {beam * vocab + token for beam, best in enumerate(best_tokens.tolist()) for token in best}
        before = [self.progress(text) for text in beams]
        for beam, (_, next_tokens) in enumerate(before):
            pool |= {beam * vocab + token for token in next_tokens}
        banks: dict[int, list[int]] = {}
        for index in sorted(pool, key=lambda index: -float(row[index])):
            beam, token = divmod(index, vocab)
            text = [*beams[beam], token]
            gained = self.progress(text)[0]
            complete = before[beam][0] == self._needed
            if (
                float(row[index]) > IMPOSSIBLE / 2
                and self.fewest_more(text) <= remaining
                and (complete or token not in self._eos)
            ):
                banks.setdefault(gained, []).append(index)
        chosen: list[int] = []
        while len(chosen) < candidates and any(banks.values()):  # one of each bank in turn, the furthest first
            for bank in sorted(banks, reverse=True):
                if banks[bank] and len(chosen) < candidates:
                    chosen.append(banks[bank].pop(0))
        return chosen


def _alternatives(word: Sequence[int] | Sequence[Sequence[int]]) -> list[list[int]]:
    return [[*word]] if isinstance(word[0], int) else [[*phrase] for phrase in word]  # type: ignore[misc]


def _holds(text: list[int], phrase: list[int]) -> bool:
    return any(text[n : n + len(phrase)] == phrase for n in range(len(text) - len(phrase) + 1))


def _begun(text: list[int], phrase: list[int]) -> int:
    """How many tokens of the phrase the text ends with."""
    return next((n for n in range(min(len(phrase) - 1, len(text)), 0, -1) if text[-n:] == phrase[:n]), 0)

"""One call of generate, in text: streamed token by token, or run to its end.

What stands when it is interrupted is an answer like any other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate import Generation, GenerationRun, Grammar, NeighborProvider, Options, PromptCache, cut_after
from clearhead.models.model import Model
from clearhead.text import TextStream, Tokenizer


@dataclass(frozen=True)
class GeneratedText:
    """One answer."""

    text: str  # the prompt and what follows; of an encoder–decoder, the answer
    new_text: str  # the answer alone; in a given form, without the space that parts it from the prompt
    token_ids: list[int]
    tokens: list[str]  # the same, as one can read them
    log_probs: list[float]  # what the model gave each token, where it was asked for
    finish_reason: str  # "end" (an end token), "stop" (a stop string), "length" (no room left) or "interrupted"
    score: float | None = None  # a beam search's ranking


class TextGeneration:
    """
    options     the options in force: those given, and what the model's own files say where they are silent
    run         the call itself
    answers     one for each text that is written, complete or not
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        prompts: list[str],
        ids: Tensor,  # (prompts, time), padded on the left
        mask: Tensor,
        options: dict[str, Any],
        *,
        past: PromptCache | None = None,
        log_probs: bool = True,
        preferred: Mapping[str, Any] | None = None,  # beside what the model's files prefer for all texts
        neighbors: NeighborProvider | None = None,
    ) -> None:
        self._start_time = time.perf_counter()
        self._started = False
        self._times: list[float] = []  # when each token was there
        self.model, self._tokenizer, self._log_probs = model, tokenizer, log_probs
        keywords = {**options, "return_dict_in_generate": log_probs}
        self.options = Options.for_call(keywords, {**model.generation, **(preferred or {})}, model.config)
        if self.options.grammar is not None and not self.options.eos_ids(model.config):
            # an answer of a given form must be able to end
            self.options = replace(self.options, eos_token_id=tokenizer.eos_token_id)
        self.run = GenerationRun(model, ids, mask, self.options, tokenizer, past, neighbors)
        answers_only = model.is_encoder_decoder  # it answers its text rather than continuing it
        pairs = zip(ids.tolist(), mask.tolist(), strict=True)
        real = [[token for token, is_real in zip(*pair, strict=True) if is_real] for pair in pairs]
        self._rows = [
            _Row(tokenizer, "" if answers_only else prompt, [] if answers_only else tokens, self.run.stop_strings)
            for prompt, tokens in zip(prompts, real, strict=True)
            for _ in range(self.options.num_return_sequences)
        ]

    @property
    def streams(self) -> bool:
        """Whether there is one text that grows: neither a search, which decides at the end, nor several at once."""
        return self.options.num_beams == 1 and len(self._rows) == 1

    @torch.no_grad()
    def pieces(self) -> Iterator[str]:
        """The new text of the first answer, as it is written."""
        if self.options.num_beams > 1:
            self.finish()
            yield self._rows[0].text
            return
        self._start()
        for step in self.run.steps():
            log_probs = step.log_probs().tolist() if self._log_probs else None
            chosen, finished = step.tokens.tolist(), step.finished.tolist()
            self._times.append(time.perf_counter())
            written = [
                row.add(chosen[n], None if log_probs is None else log_probs[n], finished[n])
                for n, row in enumerate(self._rows)
            ]
            if written[0]:
                yield written[0]
            if all(finished):  # an accelerator may go on a little
                break
        rest = [row.close() for row in self._rows]
        if rest[0]:
            yield rest[0]

    @torch.no_grad()
    def finish(self) -> list[GeneratedText]:
        """Write to the end, without a look on the way."""
        self._start()
        generation = self.run.finish()
        self._times.append(time.perf_counter())
        for n, row in enumerate(self._rows):
            self._fill(row, generation, n)
        return self.answers

    def _start(self) -> None:
        if self._started:
            raise InputError("This generation runs or has run: see its answers, or call start_generation again.")
        self._started = True

    def _fill(self, row: _Row, generation: Generation, n: int) -> None:
        count = int(generation.lengths[n])
        new = generation.new_tokens[n, :count].tolist()
        log_probs = generation.log_probs[n, :count].tolist() if self._log_probs else [None] * count
        for token, log_prob in zip(new, log_probs, strict=True):
            row.add(token, log_prob, False)
        row.close()
        row.reason = generation.finish_reason[n] if generation.finish_reason else None
        row.score = None if generation.sequences_scores is None else float(generation.sequences_scores[n])

    @property
    def answers(self) -> list[GeneratedText]:
        if self.options.num_beams > 1 and not self._times:
            return []  # a search has no answer before it has ended
        eos = set(self.run.eos)
        return [row.answer(eos, self._tokenizer, self.options.grammar) for row in self._rows]

    @property
    def full(self) -> bool:
        """Whether the text has come to the end of the model's positions."""
        limit = self.run.session.max_length
        return limit is not None and self.run.session.prompt_length + len(self._rows[0].ids) > limit

    @property
    def new_tokens(self) -> int:
        """Of all answers; beams are one text until the end, so there the longest counts."""
        counts = [len(row.ids) for row in self._rows]
        return max(counts) if self.options.num_beams > 1 else sum(counts)

    @property
    def times(self) -> list[float]:
        """Seconds from the beginning to each token (or only to the last, where nobody looked on the way)."""
        return [moment - self._start_time for moment in self._times]


class _Row:
    """One text as it grows."""

    def __init__(self, tokenizer: Tokenizer, prompt: str, prompt_ids: list[int], stops: list[str]) -> None:
        self._prompt, self._stops = prompt, stops
        self._pieces = TextStream(tokenizer, skip_special_tokens=True)
        for token in prompt_ids:  # so that a first piece gets its space right
            self._pieces.push(token)
        self._pieces.mark_shown()
        self.text = ""
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.reason: str | None = None  # where the call has said it
        self.score: float | None = None
        self._finished = self._closed = False  # it has ended itself; there is no room for more

    def add(self, token: int, log_prob: float | None, finished: bool) -> str:
        """The text that this token completes."""
        if self._finished:
            return ""
        self.ids.append(token)
        if log_prob is not None:
            self.log_probs.append(log_prob)
        self._finished = finished
        return self._shown(self._pieces.push(token))

    def close(self) -> str:
        """The rest, at the end of the text."""
        self._closed = True
        return self._shown(self._pieces.flush())

    def _shown(self, piece: str) -> str:
        kept = cut_after(self.text + piece, self._stops)[len(self.text) :]
        self.text += kept
        return kept

    def answer(self, eos: set[int], tokenizer: Tokenizer, form: object) -> GeneratedText:
        reason = self.reason or ("length" if self._closed else "interrupted")
        if self._finished:
            reason = "end" if self.ids[-1] in eos else "stop"
        tokens = tokenizer.readable(self.ids)
        new = form.without_free_space(self.text) if isinstance(form, Grammar) else self.text
        text = self._prompt + self.text if self._prompt else new
        return GeneratedText(text, new, self.ids, tokens, self.log_probs, reason, self.score)

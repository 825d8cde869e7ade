"""Decoding: from scores to tokens. One loop yields a token for every row at a time; `generate` collects them.

loop          the loop, and how a token is chosen        session       the model's side of it, and its cache
options       what can be asked for                      filters       rules and chances: scores in, scores out
stops         when a text is finished                    grammar       only texts that fit: choices, regex, JSON
beam, forced  beam search, and words it must write       contrastive   contrastive search
ahead         guessing ahead (speculative decoding)      graphs        steps replayed from CUDA graphs
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate import contrastive, graphs
from clearhead.generate.beam import Considered, beam_search
from clearhead.generate.grammar import Grammar, grammar_filter
from clearhead.generate.graphs import why_not
from clearhead.generate.loop import Choice, Step, decode, greedy, sampling, throw
from clearhead.generate.options import SEARCH, Options
from clearhead.generate.processors import Filter, chances, rules
from clearhead.generate.session import PromptCache, Session
from clearhead.generate.speculative import Ahead, Draft, Lookup, check_draft
from clearhead.generate.stops import Stop, cut_after, end_tokens, stop_strings
from clearhead.models.model import Model
from clearhead.nn.fast import cpu_kernels

log = logging.getLogger("clearhead")


@dataclass
class Generation:
    """What was written, and how. Names are those that users of `transformers` know, where they have one."""

    sequences: Tensor  # (rows, time): prompt and answer, padded after the end
    prompt: int  # how many of those positions are the prompt
    log_probs: Tensor  # (rows, new): what the model itself gave each token; 0 after the end. Beams: after the rules
    lengths: Tensor  # (rows,): how many new tokens each row has, its end token included
    finish_reason: list[str]  # per row: "end" (an end token), "stop" (a stop string) or "length"
    sequences_scores: Tensor | None = None  # (rows,): a beam search's ranking
    scores: tuple[Tensor, ...] | None = None  # with output_scores, per step (rows, vocab): after rules and chances
    logits: tuple[Tensor, ...] | None = None  # with output_logits, per step: as the model gave them
    model_steps: int | None = None  # looking ahead: how often the model was asked, of so many tokens

    @property
    def new_tokens(self) -> Tensor:
        return self.sequences[:, self.prompt :]


@torch.no_grad()
def generate(
    model: Model,
    input_ids: Tensor | None,
    attention_mask: Tensor | None = None,
    *,
    tokenizer: Any = None,
    past: PromptCache | None = None,
    **options: Any,
) -> Tensor | Generation:
    """Tokens in, tokens out: (rows, prompt + new), padded after the end token. Options: see `Options`.

    A causal model returns the prompt and what follows; an encoder–decoder returns the target from its start token.

    tokenizer   for stop_strings and grammar, which speak of text
    past        what earlier calls have read, to be used again where the prompt begins the same
    """
    asked = Options.from_keywords(options, model.generation).filled_in(model.config)
    run = Run(model, input_ids, attention_mask, asked, tokenizer, past)
    answer = run.search() if asked.num_beams > 1 else run.collect()
    return answer if asked.return_dict_in_generate else answer.sequences


def stream(
    model: Model,
    input_ids: Tensor | None,
    attention_mask: Tensor | None = None,
    *,
    tokenizer: Any = None,
    past: PromptCache | None = None,
    **options: Any,
) -> Iterator[Tensor]:
    """One token for every row at a time, (rows,); a finished row yields padding."""
    stored = {name: value for name, value in model.generation.items() if name not in SEARCH}
    asked = Options.from_keywords(options, stored).filled_in(model.config)
    if asked.num_beams > 1:
        raise InputError("A beam search knows its answer only at the end, so it cannot stream. Use generate.")
    with torch.no_grad():
        steps = Run(model, input_ids, attention_mask, asked, tokenizer, past).steps()
    while True:
        with torch.no_grad():  # not while the caller has the word
            step = next(steps, None)
        if step is None:
            return
        yield step.tokens.clone()
        if bool(step.finished.all()):  # an accelerator may look less often
            return


class Run:
    """One call: the options made into parts, and the parts put together."""

    def __init__(
        self,
        model: Model,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        options: Options,
        tokenizer: Any,
        past: PromptCache | None,
    ) -> None:
        self.model, self.options = model, options
        self.eos, self.pad = options.eos_ids(model.config), options.pad_id(model.config)
        ids = _checked(model, input_ids)
        if past is not None and not isinstance(past, PromptCache):
            raise InputError(f"past must be a clearhead.generate.PromptCache, not {type(past).__name__}.")
        if model.device.type == "cpu":
            cpu_kernels.load()  # products of one row are most of the work
        not_done = Options.not_done(model.generation)
        if not_done:
            log.warning("generation_config.json asks for %s, which is not done here.", ", ".join(not_done))
        wanted = options.max_new_tokens or options.max_length or 50
        self.session = Session(
            model,
            ids,
            attention_mask,
            room=wanted,
            start=options.decoder_start_token_id,
            past=past,
            keep_hidden=options.penalty_alpha is not None,
        )
        prompt, limit = self.session.prompt, self.session.limit
        self.new_tokens = new_tokens = options.new_tokens(prompt, limit)
        if options.max_new_tokens is not None and new_tokens < options.max_new_tokens:
            log.warning(
                "The model has %s positions, so it stops after %s new tokens instead of %s.",
                limit,
                new_tokens,
                options.max_new_tokens,
            )
        self.filters: list[Filter] = rules(options, prompt, self.eos, new_tokens, self.session.source)
        if options.grammar is not None:
            if not isinstance(options.grammar, Grammar):
                raise InputError(
                    "grammar must be a clearhead.generate.Grammar: Grammar.choices([...]), .regex or .json."
                )
            reader = _needed(tokenizer, "grammar")
            self.filters.append(grammar_filter(options.grammar, reader, self.eos, prompt, new_tokens))
        self.filters += chances(options, self.eos)
        device = self.session.tokens.device
        self.stops: list[Stop] = [end_tokens(self.eos, device)] if self.eos else []
        self.strings = [options.stop_strings] if isinstance(options.stop_strings, str) else options.stop_strings or []
        if self.strings:
            self.stops.append(stop_strings(self.strings, _needed(tokenizer, "stop_strings"), prompt))
        self.ahead: Ahead | None = None

    def steps(self) -> Iterator[Step]:
        options = self.options
        if options.penalty_alpha is not None:
            assert options.top_k is not None
            how: dict[str, Any] = {"alpha": options.penalty_alpha, "top_k": options.top_k}
            return contrastive.decode(self.session, self.filters, self.stops, self.pad, self.new_tokens, **how)
        prompts, device = len(self.session.tokens), self.session.tokens.device
        thrown: Tensor | None = None
        choose: Choice = greedy
        if options.samples:
            rows = prompts * options.num_return_sequences
            thrown = throw(rows, self.new_tokens, options.seeds(prompts)).to(device)
            choose = sampling(thrown)
        session: Any = self.session
        if options.looks_ahead:
            session = self.ahead = Ahead(self.session, self._guesser(choose), self.new_tokens)
        elif options.cuda_graphs is not False:
            reason = why_not(self.model)
            if reason is None:
                return self._graphed(thrown, choose)
            if options.cuda_graphs or options.compile:
                raise InputError(f"{'compile' if options.compile else 'cuda_graphs'} cannot be used: {reason}")
        return self._decode(session, choose)

    def _decode(self, session: Any, choose: Choice) -> Iterator[Step]:
        copies = self.options.num_return_sequences
        return decode(session, self.filters, choose, self.stops, self.pad, self.new_tokens, copies)

    def _graphed(self, thrown: Tensor | None, choose: Choice) -> Iterator[Step]:
        """Where only chance and end tokens count, the choice is recorded too; rules act between recorded steps."""
        copies = self.options.num_return_sequences
        if len(self.filters) > len(chances(self.options, self.eos)) or self.strings or self.options.output_scores:
            session = graphs.GraphedSession(self.session, self.new_tokens, copies, self.options.compile)
            try:
                yield from self._decode(session, choose)
            finally:
                session.close()
        else:
            choosing = graphs.Choosing(self.options, self.eos, self.pad)
            yield from graphs.decode(self.session, choosing, thrown, self.new_tokens, copies, self.options.compile)

    def _guesser(self, choose: Choice) -> Draft | Lookup:
        options = self.options
        if options.prompt_lookup_num_tokens is not None:
            return Lookup(options.prompt_lookup_num_tokens)
        draft = check_draft(self.model, options.assistant_model)
        ids, mask = self.session.asked()
        session = Session(draft, ids, mask, self.new_tokens, options.decoder_start_token_id)
        return Draft(session, self.filters, choose, options.num_assistant_tokens, self.new_tokens)

    def collect(self) -> Generation:
        """Greedy, sampled and contrastive texts."""
        options = self.options
        tokens, done, log_probs, scores, logits = ([] for _ in range(5))
        before: Tensor | None = None  # rows that were finished before the step
        for step in self.steps():
            if options.return_dict_in_generate:
                own = step.log_probs()
                log_probs.append(own if before is None else own.masked_fill(before, 0.0))
            tokens.append(step.tokens)
            done.append(step.finished)
            if options.output_scores:
                scores.append(step.scores.clone())  # a recorded step writes in the same place again
            if options.output_logits:
                logits.append(step.logits.clone())
            before = step.finished
        new, over = torch.stack(tokens, 1), torch.stack(done, 1)  # (rows, new)
        length = min(int((~over).sum(1).max()) + 1, new.shape[1])  # an accelerator may have gone on a little
        prompt = self.session.given.repeat_interleave(options.num_return_sequences, 0)
        written = ((~over).sum(1) + 1).clamp(max=length)
        return Generation(
            torch.cat([prompt, new[:, :length]], 1),
            self.session.prompt,
            torch.stack(log_probs[:length], 1) if log_probs else new[:, :0].float(),
            written,
            self._reasons(new, written, over[:, length - 1]),
            scores=tuple(scores[:length]) if options.output_scores else None,
            logits=tuple(logits[:length]) if options.output_logits else None,
            model_steps=self.ahead.steps + 1 if self.ahead is not None else None,
        )

    def search(self, watch: Callable[[Considered], None] | None = None) -> Generation:
        """Beams. watch: is told what was considered at every step."""
        if self.options.output_scores or self.options.output_logits:
            raise InputError(
                "A beam search changes places between steps, so it keeps no scores of every step. Drop them."
            )
        how = (self.session, self.options, self.filters, self.stops, self.pad, self.new_tokens, self.eos)
        found = beam_search(*how, watch=watch)
        prompt = self.session.prompt
        found.tokens[:, :prompt] = self.session.given.repeat_interleave(self.options.num_return_sequences, 0)
        texts = zip(found.tokens, (found.written + prompt).tolist(), strict=True)
        finished = torch.tensor([self._stopped(text[:length]) for text, length in texts])
        reasons = self._reasons(found.tokens[:, prompt:], found.written, finished)
        return Generation(found.tokens, prompt, found.log_probs, found.written, reasons, sequences_scores=found.scores)

    def _stopped(self, text: Tensor) -> bool:
        """Whether the last token of this one text finishes it."""
        return any(bool(stop(text[None, :-1], text[-1:])) for stop in self.stops)

    def _reasons(self, new: Tensor, written: Tensor, finished: Tensor) -> list[str]:
        if not self.options.return_dict_in_generate:
            return []
        last = new.gather(1, written[:, None] - 1)[:, 0].tolist()  # padding may be the end token: look before it
        return [
            "end" if token in self.eos else "stop" if over else "length"
            for token, over in zip(last, finished.tolist(), strict=True)
        ]


def _checked(model: Model, input_ids: Tensor | None) -> Tensor:
    if input_ids is None:
        if model.config.bos_token_id is None:
            raise InputError("There is no prompt, and the model has no token to begin with. Give input_ids.")
        return torch.tensor([[model.config.bos_token_id]], device=model.device)
    if not isinstance(input_ids, Tensor) or input_ids.ndim != 2 or input_ids.shape[1] == 0 or len(input_ids) == 0:
        shape = tuple(input_ids.shape) if isinstance(input_ids, Tensor) else type(input_ids).__name__
        raise InputError(f"input_ids must be a tensor of the shape (batch, time) with at least one token, not {shape}.")
    return input_ids.long() if input_ids.dtype == torch.int32 else input_ids  # rules look tokens up by int64


def _needed(tokenizer: Any, option: str) -> Any:
    if tokenizer is None:
        raise InputError(f"{option} speaks of text: pass tokenizer= too (a model from clearhead.load has its own).")
    return tokenizer


__all__ = ["Generation", "Grammar", "Options", "PromptCache", "Run", "cut_after", "generate", "stream"]

"""One call of generate: the options made into parts, the parts put together, and what comes of it.

generate, stream → GenerationRun → decode (loop.py), or a search → DecodingSession.step → the model
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate import cuda_graphs
from clearhead.generate.beam_search import BeamStep, beam_search
from clearhead.generate.constraint import constrain, token_constraint
from clearhead.generate.contrastive_search import contrastive_search
from clearhead.generate.loop import DecodingStep, Session, TokenChooser, decode, draw_uniforms, greedy, sampling
from clearhead.generate.memory import check_fits
from clearhead.generate.options import SEARCH, Options
from clearhead.generate.processors import LogitsProcessor, logits_processors
from clearhead.generate.session import DecodingSession, NeighborProvider, PromptCache
from clearhead.generate.speculative import DraftModel, PromptLookup, Proposer, SpeculativeSession, check_draft_model
from clearhead.generate.stopping_criteria import StoppingCriterion, stop_at_strings, stop_at_tokens
from clearhead.generate.warpers import warpers
from clearhead.messages import say
from clearhead.models.model import Model
from clearhead.nn.fast import cpu_kernels

log = logging.getLogger("clearhead")


@dataclass
class Generation:
    """What was written, and how. Names are those that users of `transformers` know, where they have one."""

    sequences: Tensor  # (rows, time): prompt and answer, padded after the end
    prompt_length: int  # how many of those positions are the prompt
    log_probs: Tensor  # (rows, new): what the model gave each token; 0 after the end. Beams: after the processors
    lengths: Tensor  # (rows,): how many new tokens each row has, its end token included
    finish_reason: list[str]  # per row: "end" (an end token), "stop" (a stop string) or "length"
    sequences_scores: Tensor | None = None  # (rows,): a beam search's ranking
    scores: tuple[Tensor, ...] | None = None  # with output_scores, per step (rows, vocab): processed and warped
    logits: tuple[Tensor, ...] | None = None  # with output_logits, per step: as the model gave them
    model_calls: int | None = None  # speculative decoding: how often the model was run, for so many tokens

    @property
    def new_tokens(self) -> Tensor:
        return self.sequences[:, self.prompt_length :]


@torch.no_grad()
def generate(
    model: Model,
    input_ids: Tensor | None,
    attention_mask: Tensor | None = None,
    *,
    tokenizer: Any = None,
    past: PromptCache | None = None,
    neighbors: NeighborProvider | None = None,
    **options: Any,
) -> Tensor | Generation:
    """Tokens in, tokens out: (rows, prompt + new), padded after the end token. Options: see `Options`.

    A causal model returns the prompt and what follows; an encoder–decoder returns the target from its start token.

    tokenizer   for stop_strings and grammar, which speak of text
    past        what earlier calls have read, to be used again where the prompt begins the same
    neighbors   what finds the neighbours of a chunk, for a model that looks at them (RETRO); None: it looks at none
    """
    chosen = Options.for_call(options, model.generation, model.config)
    generation = GenerationRun(model, input_ids, attention_mask, chosen, tokenizer, past, neighbors).finish()
    return generation if chosen.return_dict_in_generate else generation.sequences


def stream(
    model: Model,
    input_ids: Tensor | None,
    attention_mask: Tensor | None = None,
    *,
    tokenizer: Any = None,
    past: PromptCache | None = None,
    neighbors: NeighborProvider | None = None,
    **options: Any,
) -> Iterator[Tensor]:
    """One token for every row at a time, (rows,); a finished row yields padding."""
    stored = {name: value for name, value in model.generation.items() if name not in SEARCH}
    chosen = Options.for_call(options, stored, model.config)
    if chosen.num_beams > 1:
        raise InputError(say("generation.beams_do_not_stream"))
    with torch.no_grad():
        steps = GenerationRun(model, input_ids, attention_mask, chosen, tokenizer, past, neighbors).steps()
    while True:
        with torch.no_grad():  # not while the caller has the word
            step = next(steps, None)
        if step is None:
            return
        yield step.tokens.clone()
        if bool(step.finished.all()):  # an accelerator may look less often
            return


class GenerationRun:
    """
    session          the model's side: what it has read, and its state
    max_new_tokens   how many tokens may be written
    processors       logits processors, a grammar's among them, and then the `warpers`
    stopping         the stopping criteria; `stop_strings` are the strings among them
    speculative      the session that reads ahead, where one does
    """

    def __init__(
        self,
        model: Model,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        options: Options,
        tokenizer: Any = None,
        past: PromptCache | None = None,
        neighbors: NeighborProvider | None = None,
    ) -> None:
        self.model, self.options = model, options
        self.eos, self.pad = options.eos_ids(model.config), options.pad_id(model.config)
        if past is not None and not isinstance(past, PromptCache):
            raise InputError(f"past must be a clearhead.generate.PromptCache, not {type(past).__name__}.")
        ids = _checked_ids(model, input_ids)
        if model.device.type == "cpu":
            cpu_kernels.load()  # products of one row are most of the work
        not_done = Options.not_done(model.generation)
        if not_done:
            log.warning("generation_config.json asks for %s, which is not done here.", ", ".join(not_done))
        self.session = DecodingSession(
            model,
            ids,
            attention_mask,
            capacity=options.max_new_tokens or options.max_length or 50,
            decoder_start_token_id=options.decoder_start_token_id,
            past=past,
            keep_hidden=options.penalty_alpha is not None,
            neighbors=neighbors,
        )
        self.max_new_tokens = options.token_budget(self.session.prompt_length, self.session.max_length)
        if options.max_new_tokens is not None and self.max_new_tokens < options.max_new_tokens:
            log.warning(
                "The model has %s positions, so it stops after %s new tokens instead of %s.",
                self.session.max_length,
                self.max_new_tokens,
                options.max_new_tokens,
            )
        for name, minimum in (("min_new_tokens", options.min_new_tokens), ("min_length", options.min_length)):
            if minimum - (name == "min_length") * self.session.prompt_length > self.max_new_tokens:
                log.warning("%s", say("options.least_length", name=name, least=minimum, most=self.max_new_tokens))
        # A row has its scores, with a copy that the processors change, and an int64 or two for each token.
        rows = len(ids) * max(options.num_beams, options.num_return_sequences)
        check_fits(rows, 8 * model.config.vocab_size + 16 * self.max_new_tokens, model.device)
        strings = options.stop_strings
        self.stop_strings = [strings] if isinstance(strings, str) else list(strings or [])
        self.warpers = warpers(options, self.eos)
        self.processors = self._logits_processors(tokenizer) + self.warpers
        self.stopping = self._stopping_criteria(tokenizer)
        self.speculative: SpeculativeSession | None = None

    def _logits_processors(self, tokenizer: Any) -> list[LogitsProcessor]:
        options, prompt_length = self.options, self.session.prompt_length
        processors = logits_processors(options, prompt_length, self.eos, self.max_new_tokens, self.session.encoder_ids)
        if options.grammar is not None:
            reader, vocab_size = _needed(tokenizer, "grammar"), self.model.config.vocab_size
            continues = not self.model.is_encoder_decoder  # rather than answers
            constraint = token_constraint(options.grammar, reader, self.eos, vocab_size, leading_space=continues)
            processors.append(constrain(constraint, prompt_length, self.max_new_tokens))
        return processors

    def _stopping_criteria(self, tokenizer: Any) -> list[StoppingCriterion]:
        criteria = [stop_at_tokens(self.eos, self.session.tokens.device)] if self.eos else []
        if self.stop_strings:
            reader = _needed(tokenizer, "stop_strings")
            criteria.append(stop_at_strings(self.stop_strings, reader, self.session.prompt_length))
        return criteria

    def steps(self) -> Iterator[DecodingStep]:
        """A token for every row at a time: greedy, sampled or contrastive; a beam search has no such steps."""
        options = self.options
        if options.penalty_alpha is not None:
            assert options.top_k is not None
            return contrastive_search(
                self.session, self.processors, self.stopping, self.pad, self.max_new_tokens,
                alpha=options.penalty_alpha, top_k=options.top_k,
            )  # fmt: skip
        uniforms: Tensor | None = None
        choose: TokenChooser = greedy
        if options.samples:
            prompts, device = len(self.session.tokens), self.session.tokens.device
            rows = prompts * options.num_return_sequences
            uniforms = draw_uniforms(rows, self.max_new_tokens, options.seeds(prompts)).to(device)
            choose = sampling(uniforms)
        if options.speculative:
            self.speculative = SpeculativeSession(self.session, self._proposer(choose), self.max_new_tokens)
            return self._decode(self.speculative, choose)
        if options.cuda_graphs is not False:
            reason = cuda_graphs.why_not_recordable(self.model)
            if reason is None:
                return self._replayed(uniforms, choose)
            if options.cuda_graphs or options.compile:
                raise InputError(f"{'compile' if options.compile else 'cuda_graphs'} cannot be used: {reason}")
        return self._decode(self.session, choose)

    def _decode(self, session: Session, choose: TokenChooser) -> Iterator[DecodingStep]:
        copies = self.options.num_return_sequences
        return decode(session, self.processors, choose, self.stopping, self.pad, self.max_new_tokens, copies)

    def _replayed(self, uniforms: Tensor | None, choose: TokenChooser) -> Iterator[DecodingStep]:
        """Where only warpers and end tokens count, the choice is recorded too; processors act between the steps."""
        options, copies = self.options, self.options.num_return_sequences
        if len(self.processors) > len(self.warpers) or self.stop_strings or options.output_scores:
            session = cuda_graphs.CudaGraphSession(self.session, self.max_new_tokens, copies, options.compile)
            try:
                yield from self._decode(session, choose)
            finally:
                session.close()
        else:
            choice = cuda_graphs.RecordedChoice(options, self.eos, self.pad)
            yield from cuda_graphs.decode(self.session, choice, uniforms, self.max_new_tokens, copies, options.compile)

    def _proposer(self, choose: TokenChooser) -> Proposer:
        options = self.options
        if options.prompt_lookup_num_tokens is not None:
            return PromptLookup(options.prompt_lookup_num_tokens)
        draft = check_draft_model(self.model, options.assistant_model)
        session = DecodingSession(draft, *self.session.inputs(), self.max_new_tokens, options.decoder_start_token_id)
        return DraftModel(session, self.processors, choose, options.num_assistant_tokens, self.max_new_tokens)

    def finish(self, on_beam_step: Callable[[BeamStep], None] | None = None) -> Generation:
        """Write to the end. on_beam_step: is told what a beam search considered at every step."""
        return self._search(on_beam_step) if self.options.num_beams > 1 else self._collect()

    def _collect(self) -> Generation:
        """Greedy, sampled and contrastive texts."""
        options = self.options
        tokens, done, log_probs, scores, logits = ([] for _ in range(5))
        finished_before: Tensor | None = None  # rows that were finished before the step
        for step in self.steps():
            if options.return_dict_in_generate:
                step_log_probs = step.log_probs()
                log_probs.append(
                    step_log_probs if finished_before is None else step_log_probs.masked_fill(finished_before, 0.0)
                )
            tokens.append(step.tokens)
            done.append(step.finished)
            if options.output_scores:
                scores.append(step.scores.clone())  # a recorded step writes in the same place again
            if options.output_logits:
                logits.append(step.logits.clone())
            finished_before = step.finished
        new, finished = torch.stack(tokens, 1), torch.stack(done, 1)  # (rows, new)
        length = min(int((~finished).sum(1).max()) + 1, new.shape[1])  # an accelerator may have gone on a little
        prompt = self.session.prompt_ids.repeat_interleave(options.num_return_sequences, 0)
        written = ((~finished).sum(1) + 1).clamp(max=length)
        return Generation(
            torch.cat([prompt, new[:, :length]], 1),
            self.session.prompt_length,
            torch.stack(log_probs[:length], 1) if log_probs else new[:, :0].float(),
            written,
            self._finish_reasons(new, written, finished[:, length - 1]),
            scores=tuple(scores[:length]) if options.output_scores else None,
            logits=tuple(logits[:length]) if options.output_logits else None,
            model_calls=None if self.speculative is None else self.speculative.model_calls,
        )

    def _search(self, on_step: Callable[[BeamStep], None] | None) -> Generation:
        if self.options.output_scores or self.options.output_logits:
            raise InputError(
                "A beam search changes places between steps, so it keeps no scores of every step. Drop them."
            )
        result = beam_search(
            self.session, self.options, self.processors, self.stopping, self.pad, self.max_new_tokens, self.eos,
            on_step=on_step,
        )  # fmt: skip
        prompt_length, copies = self.session.prompt_length, self.options.num_return_sequences
        result.tokens[:, :prompt_length] = self.session.prompt_ids.repeat_interleave(copies, 0)
        texts = zip(result.tokens, (result.written + prompt_length).tolist(), strict=True)
        finished = torch.tensor([self._stops(text[:length]) for text, length in texts])
        reasons = self._finish_reasons(result.tokens[:, prompt_length:], result.written, finished)
        return Generation(
            result.tokens, prompt_length, result.log_probs, result.written, reasons, sequences_scores=result.scores
        )

    def _stops(self, text: Tensor) -> bool:
        """Whether the last token of this one text finishes it."""
        return any(bool(criterion(text[None, :-1], text[-1:])) for criterion in self.stopping)

    def _finish_reasons(self, new: Tensor, written: Tensor, finished: Tensor) -> list[str]:
        if not self.options.return_dict_in_generate:
            return []
        last = new.gather(1, written[:, None] - 1)[:, 0].tolist()  # padding may be the end token: look before it
        return [
            "end" if token in self.eos else "stop" if stopped else "length"
            for token, stopped in zip(last, finished.tolist(), strict=True)
        ]


def _checked_ids(model: Model, input_ids: Tensor | None) -> Tensor:
    if input_ids is None:
        if model.config.bos_token_id is None:
            raise InputError("There is no prompt, and the model has no token to begin with. Give input_ids.")
        return torch.tensor([[model.config.bos_token_id]], device=model.device)
    if not isinstance(input_ids, Tensor) or input_ids.ndim != 2 or input_ids.shape[1] == 0 or len(input_ids) == 0:
        shape = tuple(input_ids.shape) if isinstance(input_ids, Tensor) else type(input_ids).__name__
        raise InputError(f"input_ids must be a tensor of the shape (batch, time) with at least one token, not {shape}.")
    return input_ids.long() if input_ids.dtype == torch.int32 else input_ids  # processors look tokens up by int64


def _needed(tokenizer: Any, option: str) -> Any:
    if tokenizer is None:
        raise InputError(f"{option} speaks of text: pass tokenizer= too (a model from clearhead.load has its own).")
    return tokenizer

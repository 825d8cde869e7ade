"""Beam search: follow the likeliest hypotheses side by side, and keep the best that end.

Follows what users of `transformers` get, to the token: 2 × beams candidates a step, a finished hypothesis counts
only among the first `beams` of them, and the three early-stopping rules. What fills a row after its end is the
padding token (transformers takes the end token where the padding token is 0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.constrained_beam_search import IMPOSSIBLE, PhraseConstraints
from clearhead.generate.options import Options
from clearhead.generate.processors import LogitsProcessor
from clearhead.generate.session import DecodingSession
from clearhead.generate.stopping_criteria import StoppingCriterion
from clearhead.messages import say

Generators = list[torch.Generator] | None  # one for each text, so that its draws do not depend on others


@dataclass
class BeamSearchResult:
    """What a search ends with: the best hypotheses of each text, best first."""

    tokens: Tensor  # (texts · returned, time), padded
    scores: Tensor  # (texts · returned,): log-probability / length ** length_penalty
    log_probs: Tensor  # (texts · returned, new): of each token, after the processors; 0 after the end
    written: Tensor  # (texts · returned,): how many tokens each has written


@dataclass(frozen=True)
class BeamStep:
    """One step of a group, as it is told to `on_step`: its candidates, best first; all (texts, candidates)."""

    parent: Tensor  # the beam that each goes on from
    token: Tensor
    log_prob: Tensor  # of the token, after the processors
    total: Tensor  # of all that was written with it
    ended: Tensor  # bool: its text ends here and competes for a place among the answers
    score: Tensor  # total / length ** length_penalty: by this the answers are ranked
    keep: Tensor  # (texts, beams): the candidates that go on, in the order of the beams


class BeamGroup:
    """Some beams of every text: those still running, and the best that have ended."""

    on_step: Callable[[BeamStep], None] | None = None

    def __init__(
        self,
        session: DecodingSession,
        options: Options,
        beams: int,
        max_new_tokens: int,
        pad: int,
        num_eos: int,
        vocab: int,
    ) -> None:
        """num_eos: how many tokens can end a text, so that enough candidates remain beside them."""
        self.texts, self.beams, self.options, self.max_new_tokens = len(session.tokens), beams, options, max_new_tokens
        self.prompt_length, self.pad = session.prompt_length, pad
        device = session.tokens.device
        self.candidates = min(max(2, 1 + num_eos), vocab) * beams
        self.rows = torch.arange(self.texts, device=device)[:, None]
        # Only the first beam counts at first, or all beams would say the same.
        self.running_scores = torch.full((self.texts, beams), IMPOSSIBLE, device=device)
        self.running_scores[:, 0] = 0.0
        self.running_log_probs = torch.zeros(self.texts, beams, 0, device=device)
        self.done = torch.zeros(self.texts, beams, dtype=torch.bool, device=device)
        self.done_scores = torch.full((self.texts, beams), -torch.inf, device=device)
        shape = (self.texts, beams, self.prompt_length + max_new_tokens)
        self.done_tokens = torch.full(shape, pad, device=device, dtype=torch.long)
        self.done_log_probs = torch.zeros(self.texts, beams, max_new_tokens, device=device)
        self.done_length = torch.zeros(self.texts, beams, dtype=torch.long, device=device)
        self.improvable = torch.ones(self.texts, 1, dtype=torch.bool, device=device)
        self.first = torch.arange(self.candidates, device=device) < beams
        # texts whose answer may still change
        self.unfinished = torch.ones(self.texts, 1, dtype=torch.bool, device=device)
        self.active = True

    def advance(
        self,
        log_probs: Tensor,  # (texts, beams, vocab)
        tokens: Tensor,  # (texts, beams, time): what the beams have written
        written: int,  # how many tokens there will be with this one
        stopping: list[StoppingCriterion],
        constraints: PhraseConstraints | None,
        generators: Generators,
    ) -> tuple[Tensor, Tensor]:
        """Choose each beam's parent and token, both (texts, beams)."""
        vocab, rows = log_probs.shape[-1], self.rows
        total = (log_probs + self.running_scores[:, :, None]).flatten(1)  # (texts, beams · vocab)
        if constraints is not None:
            top, index = constraints.choose(total, tokens, self.candidates)
        else:
            top, index = _choose(total, self.candidates, self.options.samples, generators)
        parent, token = index // vocab, index % vocab  # (texts, candidates)
        log_prob = log_probs.flatten(1).gather(1, index)
        so_far = tokens[rows, parent]
        ended = torch.zeros_like(token, dtype=torch.bool)
        for criterion in stopping:
            ended |= criterion(so_far.flatten(0, 1), token.flatten()).view_as(token)
        if constraints is not None and bool(ended.any()):  # a stop string must not cut a text off before its words
            top = top.masked_fill(ended & ~constraints.complete(torch.cat([so_far, token[:, :, None]], -1)), -torch.inf)
        last = written == self.max_new_tokens
        counted = self._finish(top, ended | last, so_far, token, log_prob, parent, written)

        # the rest go on (after the last step nobody does, but other groups are still charged for what was chosen)
        continuing = top + ended * IMPOSSIBLE
        if constraints is None:
            keep = continuing.topk(self.beams).indices
        else:  # in the order of the banks
            keep = torch.where(ended, self.candidates, 0).add(torch.arange(top.shape[1], device=top.device))
            keep = keep.topk(self.beams, largest=False).indices
        self.running_scores = continuing[rows, keep]
        if self.on_step is not None:
            score = top / written**self.options.length_penalty
            self.on_step(BeamStep(parent, token, log_prob, top, counted, score, keep))
        parent, token, log_prob = parent[rows, keep], token[rows, keep], log_prob[rows, keep]
        self.running_log_probs = torch.cat([self.running_log_probs[rows, parent], log_prob[:, :, None]], -1)
        self._close(written, bool((ended | last).all()))
        return parent, token

    def _finish(
        self, top: Tensor, ended: Tensor, so_far: Tensor, token: Tensor, log_prob: Tensor, parent: Tensor, written: int
    ) -> Tensor:
        """Hypotheses that end now compete with those that ended before. Gives which do, (texts, candidates) bool."""
        ended = ended & (top > IMPOSSIBLE / 2)  # what is forbidden, and what follows from it, is no answer
        full = self.done.all(-1, keepdim=True) & (self.options.early_stopping is True)
        counted = ended & self.first & ~full & self.improvable
        if not bool(counted.any()):
            return counted
        ranked = (top / written**self.options.length_penalty).masked_fill(~counted, -torch.inf)
        texts, candidates = token.shape
        new = so_far.new_full((texts, candidates, self.prompt_length + self.max_new_tokens), self.pad)
        new[:, :, : self.prompt_length + written - 1] = so_far
        new[:, :, self.prompt_length + written - 1] = token
        new_log_probs = log_prob.new_zeros(texts, candidates, self.max_new_tokens)
        new_log_probs[:, :, : written - 1] = self.running_log_probs[self.rows, parent]
        new_log_probs[:, :, written - 1] = log_prob
        length = torch.full_like(token, self.prompt_length + written)
        self.done_scores, keep = torch.cat([self.done_scores, ranked], 1).topk(self.beams)
        self.done_tokens = torch.cat([self.done_tokens, new], 1)[self.rows, keep]
        self.done_log_probs = torch.cat([self.done_log_probs, new_log_probs], 1)[self.rows, keep]
        self.done = torch.cat([self.done, ended & self.first], 1)[self.rows, keep]
        self.done_length = torch.cat([self.done_length, length], 1)[self.rows, keep]
        return counted

    def _close(self, written: int, all_ended: bool) -> None:
        """Whether going on can still change the answer."""
        penalty, early = self.options.length_penalty, self.options.early_stopping
        length = self.max_new_tokens if early == "never" and penalty > 0 else written
        worst = torch.where(self.done, self.done_scores.min(1, keepdim=True).values, -torch.inf)
        best = self.running_scores.amax(1, keepdim=True)
        better = (best / length**penalty > worst).any(-1, keepdim=True)
        self.improvable = self.improvable & better & (best > IMPOSSIBLE / 2)
        self.unfinished = self.improvable & ~(self.done.all(-1, keepdim=True) & (early is True))
        self.active = not all_ended and bool(self.unfinished.any())


def beam_search(
    session: DecodingSession,
    options: Options,
    processors: list[LogitsProcessor],
    stopping: list[StoppingCriterion],
    pad: int,
    max_new_tokens: int,
    eos: list[int],
    on_step: Callable[[BeamStep], None] | None = None,
) -> BeamSearchResult:
    """The best num_return_sequences hypotheses of each text. With groups, each is charged for what others chose.

    on_step   is told what every group considered, step by step
    """
    beams, texts = options.num_beams, len(session.tokens)
    size = beams // options.num_beam_groups
    scores = session.prefill()
    vocab = scores.shape[-1]
    groups = [
        BeamGroup(session, options, size, max_new_tokens, pad, len(eos), vocab) for _ in range(options.num_beam_groups)
    ]
    for group in groups:
        group.on_step = on_step
    session.repeat(beams)
    scores = scores.repeat_interleave(beams, 0)
    seeds = options.seeds(texts)
    generators: Generators = [torch.Generator(scores.device).manual_seed(seed) for seed in seeds] if seeds else None
    constraints = None
    if options.force_words_ids:
        constraints = PhraseConstraints(options.force_words_ids, eos, session.prompt_length, max_new_tokens, vocab)
    start = torch.arange(texts, device=scores.device)[:, None] * beams

    for written in range(1, max_new_tokens + 1):
        log_probs = scores.log_softmax(-1)
        for process in processors:
            log_probs = process(session.tokens, log_probs)
        log_probs = log_probs.view(texts, beams, -1)
        tokens = session.tokens.view(texts, beams, -1)
        chosen = torch.zeros_like(log_probs[:, 0])  # (texts, vocab): how often earlier groups chose each token
        parents, next_tokens = [], []
        for n, group in enumerate(groups):
            part = slice(n * size, (n + 1) * size)
            own = log_probs[:, part]  # of this group's beams
            if n:
                own = own - options.diversity_penalty * chosen[:, None]
            if group.active:
                weight = group.unfinished.to(chosen.dtype)  # a text that has its answer charges nobody
                parent, token = group.advance(own, tokens[:, part], written, stopping, constraints, generators)
                chosen = chosen.scatter_add(1, token, weight.expand_as(token))
            else:
                parent = torch.arange(size, device=scores.device).expand(texts, size)
                token = torch.full_like(parent, pad)
            parents.append(parent + n * size)
            next_tokens.append(token)
        if not any(group.active for group in groups):
            break
        session.reorder((torch.cat(parents, 1) + start).flatten())
        scores = session.step(torch.cat(next_tokens, 1).flatten())
    return _best(groups, options.num_return_sequences)


def _best(groups: list[BeamGroup], num_return_sequences: int) -> BeamSearchResult:
    """The best of all groups together."""
    scores, keep = torch.cat([group.done_scores for group in groups], 1).topk(num_return_sequences)
    rows = groups[0].rows
    complete = int(torch.cat([group.done for group in groups], 1)[rows, keep].sum(1).min())
    if complete == 0:
        raise InputError(say("generation.no_token_left"))
    if complete < num_return_sequences:
        raise InputError(
            f"Only {complete} of the {num_return_sequences} answers asked for were found that processors and "
            "constraints allow. Lower num_return_sequences, or raise num_beams."
        )
    lengths = torch.cat([group.done_length for group in groups], 1)[rows, keep]
    longest = int(lengths.max())
    tokens = torch.cat([group.done_tokens for group in groups], 1)[rows, keep]
    log_probs = torch.cat([group.done_log_probs for group in groups], 1)[rows, keep]
    new = longest - groups[0].prompt_length
    return BeamSearchResult(
        tokens[:, :, :longest].flatten(0, 1),
        scores.flatten(),
        log_probs[:, :, :new].flatten(0, 1),
        (lengths - groups[0].prompt_length).flatten(),
    )


def _choose(total: Tensor, candidates: int, sample: bool, generators: Generators) -> tuple[Tensor, Tensor]:
    if not sample:
        best = total.topk(candidates)
        return best.values, best.indices
    probabilities = total.clamp(min=4 * IMPOSSIBLE).softmax(-1)  # a text that cannot go on is not to stop the others
    if generators is None:
        index = probabilities.multinomial(candidates)
    else:
        index = torch.stack(
            [row.multinomial(candidates, generator=g) for row, g in zip(probabilities, generators, strict=True)]
        )
    return total.gather(1, index), index

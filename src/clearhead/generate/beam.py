"""Beam search: follow the likeliest hypotheses side by side, and keep the best that end.

Follows what users of `transformers` get, to the token: 2 × beams candidates a step, a finished hypothesis counts
only among the first `beams` of them, and the three early-stopping rules. What fills a row after its end is the
padding token (transformers takes the end token where the padding token is 0).
"""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.generate.filters import Filter
from clearhead.generate.options import Options
from clearhead.generate.session import Session

_NEVER = -1e9


def beam_search(
    session: Session, options: Options, filters: list[Filter], eos: list[int], pad: int, new_tokens: int
) -> tuple[Tensor, Tensor]:
    """The best num_return_sequences hypotheses of each row: (rows · returned, time) padded, and their scores."""
    beams, prompt = options.num_beams, session.prompt
    batch, device = session.tokens.shape[0], session.tokens.device
    scores = session.start()
    vocab = scores.shape[-1]
    rows = torch.arange(batch, device=device)[:, None]
    session.select(rows.expand(batch, beams).flatten())
    scores = scores.repeat_interleave(beams, 0)
    ends = torch.tensor(eos, device=device, dtype=torch.long)
    candidates = max(2, 1 + len(eos)) * beams

    # Only the first beam counts at first, or all beams would say the same.
    running = torch.full((batch, beams), _NEVER, device=device)
    running[:, 0] = 0.0
    done_scores = torch.full((batch, beams), _NEVER, device=device)
    done = torch.zeros(batch, beams, dtype=torch.bool, device=device)
    done_tokens = torch.full((batch, beams, prompt + new_tokens), pad, device=device, dtype=torch.long)
    done_length = torch.zeros(batch, beams, dtype=torch.long, device=device)
    improvable = torch.ones(batch, 1, dtype=torch.bool, device=device)
    first = torch.arange(candidates, device=device) < beams
    chance = torch.Generator(device).manual_seed(options.seed) if options.seed is not None else None

    for written in range(1, new_tokens + 1):
        log_probs = scores.log_softmax(-1)
        for apply in filters:
            log_probs = apply(session.tokens, log_probs)
        total = (log_probs.view(batch, beams, vocab) + running[:, :, None]).flatten(1)  # (batch, beams · vocab)
        top, index = _choose(total, candidates, options.samples, chance)
        parent, token = index // vocab, index % vocab  # (batch, candidates)
        ended = torch.isin(token, ends) | (written == new_tokens)

        # finished hypotheses compete with those that finished before
        ranked = top / written**options.length_penalty
        full = done.all(-1, keepdim=True) & (options.early_stopping is True)
        ranked = ranked.masked_fill(full | ~improvable | ~(ended & first), _NEVER)
        so_far = session.tokens.view(batch, beams, -1)[rows, parent]
        new = torch.full((batch, candidates, prompt + new_tokens), pad, device=device, dtype=torch.long)
        new[:, :, : prompt + written - 1] = so_far
        new[:, :, prompt + written - 1] = token
        done_scores, keep = torch.cat([done_scores, ranked], 1).topk(beams)
        done_tokens = torch.cat([done_tokens, new], 1)[rows, keep]
        done = torch.cat([done, ended & first], 1)[rows, keep]
        lengths = torch.full((batch, candidates), prompt + written, device=device)
        done_length = torch.cat([done_length, lengths], 1)[rows, keep]

        # the rest go on
        running, keep = (top + ended * _NEVER).topk(beams)
        parent, token = parent[rows, keep], token[rows, keep]
        length = new_tokens if options.early_stopping == "never" and options.length_penalty > 0 else written
        worst = torch.where(done, done_scores.min(1, keepdim=True).values, _NEVER)
        improvable &= (running[:, :1] / length**options.length_penalty > worst).any(-1, keepdim=True)
        closed = bool(done.all()) and options.early_stopping is True
        if closed or not bool(improvable.any()) or bool(ended.all()):
            break
        session.select((parent + rows * beams).flatten())
        scores = session.step(token.flatten())

    kept = options.num_return_sequences
    longest = int(done_length[:, :kept].max())
    return done_tokens[:, :kept, :longest].flatten(0, 1), done_scores[:, :kept].flatten()


def _choose(total: Tensor, candidates: int, sample: bool, chance: torch.Generator | None) -> tuple[Tensor, Tensor]:
    if not sample:
        best = total.topk(candidates)
        return best.values, best.indices
    index = total.softmax(-1).multinomial(candidates, generator=chance)
    return total.gather(1, index), index

"""Contrastive search (Su and others, 2022): likely tokens whose hidden state is unlike all that came before.

Of the top_k likeliest tokens it takes the one with the largest (1 - α) · probability - α · similarity, where
similarity is the largest cosine between the token's hidden state and those of the text so far.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from clearhead.generate.loop import DecodingStep, check_some_token_left
from clearhead.generate.processors import LogitsProcessor
from clearhead.generate.session import DecodingSession
from clearhead.generate.stopping_criteria import StoppingCriterion


def contrastive_search(
    session: DecodingSession,
    processors: list[LogitsProcessor],
    stopping: list[StoppingCriterion],
    pad: int,
    max_new_tokens: int,
    *,
    alpha: float,
    top_k: int,
) -> Iterator[DecodingStep]:
    """The loop again, but every step reads all candidates at once, as copies of their text, and keeps one of them."""
    logits = session.prefill()
    assert session.hidden is not None, "a contrastive session keeps its hidden states"
    context = F.normalize(session.hidden.float(), dim=-1)  # (rows, time, width), of unit length
    real = session.real_positions()  # (rows, time) bool
    rows = len(logits)
    finished = torch.zeros(rows, dtype=torch.bool, device=logits.device)
    top_k = min(top_k, logits.shape[-1])
    session.repeat(top_k)
    row = torch.arange(rows, device=logits.device)
    for written in range(max_new_tokens):
        scores = logits
        for process in processors:
            scores = process(session.tokens[::top_k], scores)
        if processors:
            check_some_token_left(scores, finished)
        best = scores.softmax(-1).topk(top_k)  # (rows, top_k)
        next_logits = session.step(best.indices.flatten()).view(rows, top_k, -1)
        hidden = F.normalize(session.hidden[:, -1].float(), dim=-1).view(rows, top_k, -1)
        similarity = (hidden @ context.transpose(1, 2)).masked_fill(~real[:, None], -1.0).amax(-1)  # (rows, top_k)
        value = (1 - alpha) * best.values - alpha * similarity
        chosen = value.masked_fill(best.values == 0, -torch.inf).argmax(-1)  # (rows,); what is forbidden stays so
        token = best.indices[row, chosen].masked_fill(finished, pad)
        so_far = session.tokens[::top_k, :-1]
        for criterion in stopping:
            finished = finished | criterion(so_far, token)
        yield DecodingStep(token, logits, scores, finished)
        if written + 1 == max_new_tokens or (stopping and bool(finished.all())):
            return
        session.reorder((row * top_k + chosen).repeat_interleave(top_k))
        context = torch.cat([context, hidden[row, chosen][:, None]], 1)
        real = F.pad(real, (0, 1), value=True)
        logits = next_logits[row, chosen]

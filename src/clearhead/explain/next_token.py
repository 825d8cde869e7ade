"""What may come next: the likeliest tokens after a text, with the chances that the model itself gives them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.finding import Finding
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.stack_model import TokenModel
from clearhead.pipeline import Pipeline, as_text


@dataclass(frozen=True)
class Candidate:
    """One token that may come next."""

    token: str  # as one can read it
    token_id: int
    probability: float
    logit: float  # the score before the softmax


@dataclass(frozen=True, repr=False)
class NextTokens(Finding):
    """The finding. `text` is what stands before the next token; of an encoder–decoder, what it has written so far."""

    kind: ClassVar[str] = "next-tokens"

    model: str
    text: str
    source: str | None  # what an encoder has read; None without one
    candidates: list[Candidate]  # the likeliest first
    entropy: float  # of all chances, in bits: 0 is certain, log2(vocabulary) knows nothing
    vocabulary: int  # how many tokens there are to choose from

    @property
    def shown(self) -> float:
        """The share of all chances that the candidates hold."""
        return sum(candidate.probability for candidate in self.candidates)

    @property
    def as_many(self) -> float:
        """As unsure as a fair choice among so many tokens (the perplexity of this step)."""
        return float(2**self.entropy)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["rank", "token", "token_id", "probability", "logit"]
        for rank, found in enumerate(self.candidates, start=1):
            yield [rank, found.token, found.token_id, found.probability, found.logit]


def next_token(
    pipe: Pipeline,
    text: str | None = None,
    top_k: int = 10,
    *,
    target: str = "",
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> NextTokens:
    """The `top_k` likeliest tokens after a text; without one, those that begin a text.

    target     of an encoder–decoder, which reads `text`: what it has written so far
    src_lang,  for models that know languages; by default those of the tokenizer
    tgt_lang
    """
    source, given = begin(pipe, text, target, src_lang, tgt_lang)
    with torch.no_grad():
        if source is None:
            logits = pipe.model(input_ids=given).logits
        else:
            logits = pipe.model(input_ids=source, decoder_input_ids=given).logits
    if source is None:
        return likeliest(pipe, logits[0, -1], text or "", top_k)
    return likeliest(pipe, logits[0, -1], target, top_k, source=text)


def likeliest(pipe: Pipeline, logits: Tensor, text: str, top_k: int = 10, source: str | None = None) -> NextTokens:
    """The finding from scores (vocab,) that are there already, as when a text is followed token by token."""
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise InputError(f"top_k is {top_k!r}; ask for at least one token.")
    scores = logits.float()
    log_chances = scores.log_softmax(-1)
    best = scores.topk(min(top_k, len(scores)))
    ids = best.indices.tolist()
    words = pipe.tokenizer.target.readable(ids)
    rows = zip(words, ids, log_chances[best.indices].exp().tolist(), best.values.tolist(), strict=True)
    entropy = -(log_chances.exp() * log_chances.clamp(min=-1e30)).sum().item() / math.log(2)
    return NextTokens(pipe.name, text, source, [Candidate(*row) for row in rows], max(0.0, entropy), len(scores))


def begin(
    pipe: Pipeline, text: str | None, target: str = "", src_lang: str | None = None, tgt_lang: str | None = None
) -> tuple[Tensor | None, Tensor]:
    """What the encoder reads (None without one) and what stands before the next token, as ids: both (1, time)."""
    model = pipe.model
    if isinstance(model, EncoderDecoderModel) and model.language_head is not None:
        return _begin_writing(pipe, text, target, src_lang, tgt_lang)
    head = model.language_head
    if not isinstance(model, TokenModel) or not model.stack.causal or head is None or not head.shift:
        raise InputError(
            f"{model.family.title} loaded for {model.task} has no next token: it does not read left to right with a "
            "language head. To guess hidden words, use fill."
        )
    for name, value in (("target", target), ("src_lang", src_lang), ("tgt_lang", tgt_lang)):
        if value:
            raise InputError(
                f"{name} is for a model that reads one text and writes another; {_name(pipe)} only goes on."
            )
    return None, as_text(pipe).encode_prompts(text)[1]


def _begin_writing(
    pipe: Pipeline, text: str | None, target: str, src_lang: str | None, tgt_lang: str | None
) -> tuple[Tensor, Tensor]:
    model, asked = pipe.model, {"src_lang": src_lang, "tgt_lang": tgt_lang}
    if pipe.tokenizer.languages is None and (src_lang or tgt_lang):
        raise InputError(f"{_name(pipe)} knows no languages by name: leave src_lang and tgt_lang out.")
    reader, options = as_text(pipe).in_languages(asked)
    start = options.get("decoder_start_token_id", getattr(model.config, "decoder_start_token_id", None))
    forced = options.get("forced_bos_token_id", getattr(model.config, "forced_bos_token_id", None))
    if start is None:
        raise InputError("The configuration does not say which token starts the output. For mBART, give tgt_lang.")
    given = [start] if forced is None else [start, forced]
    given += pipe.tokenizer.target.encode(target, add_special_tokens=False) if target else []
    return as_text(pipe).encode_prompts(text, reader)[1], torch.tensor([given], device=model.device)


def _name(pipe: Pipeline) -> str:
    return pipe.name or "This model"

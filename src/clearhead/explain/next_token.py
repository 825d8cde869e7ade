"""Next-token probabilities: the likeliest tokens after a text, as the model itself scores them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.capabilities import can_generate, has_tokenizer
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_count
from clearhead.explain.question import Question
from clearhead.explain.scores import Candidate
from clearhead.explain.settings import WRITTEN_SO_FAR, count
from clearhead.explain.word_choice import text_or_none
from clearhead.messages import say
from clearhead.pipeline import Pipeline, as_text


@dataclass(frozen=True, repr=False)
class NextTokens(Finding):
    """The finding. `text` is what stands before the next token; of an encoder–decoder, what it has written so far."""

    kind: ClassVar[str] = "next-tokens"

    model: str
    text: str
    source: str | None  # what an encoder has read; None without one
    candidates: list[Candidate]  # the likeliest first
    entropy: float  # of all probabilities, in bits: 0 is certain, log2(vocabulary) knows nothing
    vocabulary: int  # how many tokens there are to choose from

    @property
    def shown(self) -> float:
        """The share of all probability that the candidates hold."""
        return sum(candidate.probability for candidate in self.candidates)

    @property
    def as_many(self) -> float:
        """As unsure as a fair choice among so many tokens (the perplexity of this step)."""
        return float(2**self.entropy)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["rank", "token", "token_id", "probability", "logit"]
        for rank, one in enumerate(self.candidates, start=1):
            yield [rank, one.token, one.token_id, one.probability, one.logit]


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
    source, ids = begin(pipe, text, target, src_lang, tgt_lang)
    with torch.no_grad():
        if source is None:
            logits = pipe.model(input_ids=ids).logits
        else:
            logits = pipe.model(input_ids=source, decoder_input_ids=ids).logits
    if source is None:
        return likeliest(pipe, logits[0, -1], text or "", top_k)
    return likeliest(pipe, logits[0, -1], target, top_k, source=text)


def likeliest(pipe: Pipeline, logits: Tensor, text: str, top_k: int = 10, source: str | None = None) -> NextTokens:
    """The finding from scores (vocab,) that are there already, as when a text is followed token by token."""
    checked_count("top_k", top_k)
    scores = logits.float()
    log_probs = scores.log_softmax(-1)
    best = scores.topk(min(top_k, len(scores)))
    ids = best.indices.tolist()
    words = pipe.tokenizer.target.readable(ids)
    rows = zip(words, ids, log_probs[best.indices].exp().tolist(), best.values.tolist(), strict=True)
    entropy = -(log_probs.exp() * log_probs.clamp(min=-1e30)).sum().item() / math.log(2)
    return NextTokens(pipe.name, text, source, [Candidate(*row) for row in rows], max(0.0, entropy), len(scores))


def begin(
    pipe: Pipeline, text: str | None, target: str = "", src_lang: str | None = None, tgt_lang: str | None = None
) -> tuple[Tensor | None, Tensor]:
    """What the encoder reads (None without one) and what stands before the next token, as ids: both (1, time)."""
    model = pipe.model
    if not model.can_generate:
        raise InputError(say("explain.no_next_token", family=model.family.title, task=model.task))
    if model.is_encoder_decoder:
        return _begin_writing(pipe, text, target, src_lang, tgt_lang)
    for name, value in (("target", target), ("src_lang", src_lang), ("tgt_lang", tgt_lang)):
        if value:
            raise InputError(say("explain.only_goes_on", name=name))
    return None, as_text(pipe).encode_prompts(text)[1]


def _begin_writing(
    pipe: Pipeline, text: str | None, target: str, src_lang: str | None, tgt_lang: str | None
) -> tuple[Tensor, Tensor]:
    model, languages = pipe.model, {"src_lang": src_lang, "tgt_lang": tgt_lang}
    if pipe.tokenizer.languages is None and (src_lang or tgt_lang):
        raise InputError(say("explain.knows_no_languages"))
    reader, options = as_text(pipe).in_languages(languages)
    start = options.get("decoder_start_token_id", getattr(model.config, "decoder_start_token_id", None))
    forced = options.get("forced_bos_token_id", getattr(model.config, "forced_bos_token_id", None))
    if start is None:
        raise InputError(say("explain.no_start_token"))
    ids = [start] if forced is None else [start, forced]
    ids += pipe.tokenizer.target.encode(target, add_special_tokens=False) if target else []
    return as_text(pipe).encode_prompts(text, reader)[1], torch.tensor([ids], device=model.device)


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, k: int, target: str | None) -> NextTokens:
    return next_token(pipe, text_or_none(text), k, target=target or "")


QUESTION = Question(
    name="next-token", kind="next-tokens", group="answer", answer=_answer, checks=(has_tokenizer, can_generate),
    text=False, params=(count("next-token.k", 10), WRITTEN_SO_FAR),
)  # fmt: skip

"""How likely a language model finds the words of a label in a sentence about the text: zero-shot classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import InputError, TokenizerError
from clearhead.pipeline.batches import (
    Row,
    TextBatch,
    encode_cut,
    log,
    logits_at,
    max_input_length,
    rows_of,
    run_batches,
)  # fmt: skip

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline


def check_template(template: str) -> None:
    if not isinstance(template, str) or template.count("{}") != 1:
        raise InputError(f'template is {template!r}; it must be a sentence with {{}} for the label: "It is {{}}."')


def label_log_probs(pipe: TextPipeline, texts: list[str], labels: list[str], template: str, batch_size: int) -> Tensor:
    """(texts, labels): the mean log-probability of the label's tokens in `template`, which stands after the text.

    A causal model predicts each token from what is before it. A masked model does the same with the token, and those of
    the label after it, masked. An encoder–decoder reads the text and writes the sentence. The mean, and not the sum,
    so that a label of many tokens is not unlikely for its length alone.
    """
    model = pipe.model
    if model.language_head is None or model.task == "permutation-lm":
        raise InputError(
            f"{pipe.title} is loaded for {model.task}; labels= takes a masked or causal language model, "
            "or a classifier with a label 'entailment'."
        )
    score: Any = _written if model.is_encoder_decoder else _continued if model.language_head.shift else _unmasked
    return score(pipe, texts, labels, template, batch_size)


@dataclass(frozen=True)
class _Sentence:
    """A text followed by a label's sentence."""

    row: Row
    label: list[int]  # which of its tokens are the label's


def _sentences(pipe: TextPipeline, texts: list[str], labels: list[str], template: str) -> list[_Sentence]:
    """Every text with every label."""
    before, after = template.split("{}")
    limit = max_input_length(pipe.model, pipe.tokenizer)
    pairs = [(text, label) for text in texts for label in labels]
    encoding = pipe.tokenizer([f"{text} {before}{label}{after}" for text, label in pairs])
    sentences, cut = [], set()
    for n, ((text, label), row) in enumerate(zip(pairs, rows_of(pipe.model, encoding), strict=True)):
        offsets = encoding.offsets(n)
        while len(row["input_ids"]) > limit:
            cut.add(text)
            text = _shortened(pipe, text, len(row["input_ids"]) - limit)
            again = pipe.tokenizer([f"{text} {before}{label}{after}"])
            row, offsets = rows_of(pipe.model, again)[0], again.offsets(0)
        start = len(text) + 1 + len(before)
        sentences.append(_Sentence(row, _tokens_within(offsets, start, start + len(label))))
    if cut:
        log.warning("%s of %s texts were cut to the %s tokens that the model can read.", len(cut), len(texts), limit)
    return sentences


def _shortened(pipe: TextPipeline, text: str, tokens: int) -> str:
    """The text without so many tokens at its end."""
    ends = [end for _, end in pipe.tokenizer([text], add_special_tokens=False).offsets(0)]
    if len(ends) <= tokens:
        raise InputError("The template and the label alone are longer than what the model can read. Shorten them.")
    return text[: ends[-tokens - 1]]


def _tokens_within(offsets: list[tuple[int, int]], start: int, end: int) -> list[int]:
    """The numbers of the tokens that hold characters from start to end."""
    token_indices = [n for n, (first, last) in enumerate(offsets) if first < end and last > start and last > first]
    if not token_indices:
        raise TokenizerError("The tokenizer leaves nothing of a label. Choose labels that it knows.")
    return token_indices


def _continued(pipe: TextPipeline, texts: list[str], labels: list[str], template: str, batch_size: int) -> Tensor:
    sentences = _sentences(pipe, texts, labels, template)

    def mean_log_probs(batch: TextBatch) -> list[Tensor]:
        chosen = [sentences[number] for number in batch.numbers]
        logits = logits_at(pipe, batch.inputs, [[at - 1 for at in sentence.label] for sentence in chosen])
        tokens = [[sentence.row["input_ids"][at] for at in sentence.label] for sentence in chosen]
        return [_mean_log_prob(*both) for both in zip(logits, tokens, strict=True)]

    log_probs = run_batches(pipe, [sentence.row for sentence in sentences], mean_log_probs, batch_size)
    return torch.stack(log_probs).view(len(texts), -1)


def _unmasked(pipe: TextPipeline, texts: list[str], labels: list[str], template: str, batch_size: int) -> Tensor:
    mask = pipe.tokenizer.mask_token_id
    if mask is None:
        raise TokenizerError("The tokenizer has no mask token.")
    sentences = _sentences(pipe, texts, labels, template)
    rows, targets_at = [], []
    for sentence in sentences:
        for n in sentence.label:
            tokens = sentence.row["input_ids"]
            ids = [mask if m >= n and m in sentence.label else token for m, token in enumerate(tokens)]
            rows.append({**sentence.row, "input_ids": ids})
            targets_at.append((n, tokens[n]))

    def log_probs(batch: TextBatch) -> list[Tensor]:
        chosen = [targets_at[number] for number in batch.numbers]
        logits = logits_at(pipe, batch.inputs, [[at] for at, _ in chosen])
        return [_mean_log_prob(row, [token]) for row, (_, token) in zip(logits, chosen, strict=True)]

    scores = iter(run_batches(pipe, rows, log_probs, batch_size))
    means = [torch.stack([next(scores) for _ in sentence.label]).mean() for sentence in sentences]
    return torch.stack(means).view(len(texts), -1)


def _written(pipe: TextPipeline, texts: list[str], labels: list[str], template: str, batch_size: int) -> Tensor:
    model: Any = pipe.model
    before, _ = template.split("{}")
    encoding = pipe.tokenizer(text_target=[template.format(label) for label in labels])
    targets = encoding["input_ids"]
    places = [
        _tokens_within(encoding.offsets(n), len(before), len(before) + len(label)) for n, label in enumerate(labels)
    ]
    sources = encode_cut(pipe, texts)
    rows = [row for row in sources for _ in labels]

    def mean_log_probs(batch: TextBatch) -> list[Tensor]:
        chosen = [number % len(labels) for number in batch.numbers]
        longest = max(len(targets[label]) for label in chosen)
        ids = torch.tensor([targets[label] + [-100] * (longest - len(targets[label])) for label in chosen])
        inputs = batch.inputs | {"decoder_input_ids": model.shift_right(ids.to(model.device))}
        logits = logits_at(pipe, inputs, [places[label] for label in chosen])
        tokens = [[targets[label][at] for at in places[label]] for label in chosen]
        return [_mean_log_prob(*both) for both in zip(logits, tokens, strict=True)]

    return torch.stack(run_batches(pipe, rows, mean_log_probs, batch_size)).view(len(texts), -1)


def _mean_log_prob(logits: Tensor, tokens: list[int]) -> Tensor:
    """The mean over `tokens`, of each under its row of logits: (tokens, vocabulary)."""
    scores = logits.float().log_softmax(-1)
    return scores[range(len(tokens)), tokens].mean().cpu()

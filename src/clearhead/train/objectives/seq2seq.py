"""From one text to another: translation and summaries, by an encoder–decoder or by a decoder alone.

Label smoothing is the 2017 paper's (ε = 0.1) with torch's convention: the right word keeps 1 − ε, and ε is spread
over *all* words, the right one too. It acts in training only; what is measured is the loss of the real words.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import nn

from clearhead.errors import InputError, did_you_mean
from clearhead.generate.options import Options
from clearhead.models import Model
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.fields import text_of
from clearhead.train.objectives.padding import IGNORED, mask_of, padded
from clearhead.train.objectives.spans import read_and_write
from clearhead.train.objectives.text import TextObjective
from clearhead.train.objectives.vocabulary import grow_vocabulary

if TYPE_CHECKING:
    from clearhead.pipeline import TextPipeline

TooLong = Literal["drop", "cut"]


class TextToText(TextObjective):
    """
    label_smoothing   how much of the target is spread over the vocabulary
    too_long          what becomes of a pair with a side that is too long: "drop" it, or "cut" (a summary's source)
    num_beams         how many hypotheses are followed when the answers are written (`evaluate_test`)
    bleu              how sacrebleu cuts texts into words: "13a", for Chinese "zh"
    """

    columns = ("source", "target")
    special_tokens = {"eos_token": "</s>"}
    higher_is_better = frozenset({"bleu"})
    test_requires = ("sacrebleu",)

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        label_smoothing: float,
        too_long: TooLong = "drop",
        num_beams: int,
        bleu: str = "13a",
    ) -> None:
        super().__init__(tokenizer, length)
        if not 0 <= label_smoothing < 1:
            raise InputError(
                f"label_smoothing is {label_smoothing}; it is a share of the target, from 0 to less than 1."
            )
        if too_long not in ("drop", "cut"):
            raise InputError(f'too_long is {too_long!r}; a pair that is too long can be "drop" or "cut".')
        if bleu != "13a":
            _check_bleu(bleu)
        self.label_smoothing, self.too_long, self.num_beams, self.bleu = label_smoothing, too_long, num_beams, bleu
        self.answer_length = length  # the longest text that is written

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"too_long": self.too_long}

    def training_module(self, model: Model) -> nn.Module:
        if model.language_head is None:
            raise InputError(f"The model is made for {model.task}; writing needs a head over words (task={self.task}).")
        model.language_head.smoothing = self.label_smoothing
        return model

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The loss and perplexity of the real targets, without smoothing."""
        metrics = super().report(sums)
        return metrics | {"perplexity": math.exp(min(metrics["loss"], 700.0))}

    def prompt(self, source: str) -> str:
        """What the model is asked with."""
        return source

    @classmethod
    def check_test_options(cls, options: Mapping[str, Any], objective_options: Mapping[str, Any]) -> None:
        if "num_return_sequences" in options:
            raise InputError("The test is answered once: leave num_return_sequences out.")
        num_beams = objective_options.get("num_beams", inspect.signature(cls).parameters["num_beams"].default)
        languages = ("src_lang", "tgt_lang")  # are the tokenizer's business
        Options.from_keywords(
            _beam_search(num_beams, {name: v for name, v in options.items() if name not in languages})
        )

    def evaluate_test(self, pipe: TextPipeline, records: Iterable[Record], **options: Any) -> dict[str, float]:
        """BLEU (sacrebleu) of what the model writes for each source, by beam search."""
        try:
            import sacrebleu  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise InputError(
                "BLEU is computed by sacrebleu, which is not installed: pip install clearhead[train]"
            ) from None
        pairs = list(records)
        for record in pairs:
            check_columns(self.columns, record)
        if not pairs:
            raise InputError("There is nothing to translate: the test data has no records.")
        settings = _beam_search(self.num_beams, {"max_new_tokens": self.answer_length, **options})
        written = []
        order = sorted(range(len(pairs)), key=lambda n: len(pairs[n]["source"]))  # texts of a length share a batch
        for start in range(0, len(order), 32):
            self.watch(start, len(order))
            prompts = [self.prompt(text_of(pairs[n], "source")) for n in order[start : start + 32]]
            written += pipe.write(prompts, log_probs=False, **settings)
        hypotheses = [
            answer.new_text.strip() for _, answer in sorted(zip(order, written, strict=True), key=lambda x: x[0])
        ]
        references = [text_of(record, "target") for record in pairs]
        return {"bleu": float(sacrebleu.corpus_bleu(hypotheses, [references], tokenize=self.bleu).score)}


def _check_bleu(tokenization: str) -> None:
    """A name that sacrebleu does not know is told now, not when the training is over."""
    try:
        import sacrebleu  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return  # `evaluate_test` will say so
    known = sacrebleu.BLEU.TOKENIZERS
    if tokenization not in known:
        raise InputError(
            f"bleu is {tokenization!r}.{did_you_mean(tokenization, known)} sacrebleu cuts texts by: {', '.join(known)}."
        )


class Seq2Seq(TextToText):
    """Teacher forcing: the encoder reads the source, the decoder the target one step late, up to its END.

    The source is encoded as `TextPipeline.generate` will encode it; the target by the tokenizer's `target`. The model
    shifts the labels itself, from its start token on.

    source_tokenizer   for a source with a vocabulary of its own (in a recipe: where it is); by default what came with
                       the checkpoint
    target_length      the longest target; by default `length`, like the source
    """

    name = "seq2seq"
    task = "seq2seq-lm"
    special_tokens = {"pad_token": "<pad>", "eos_token": "</s>"}

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        source_tokenizer: Tokenizer | None = None,
        target_length: int | None = None,
        label_smoothing: float = 0.1,
        num_beams: int = 4,
        **text_options: Any,
    ) -> None:
        if source_tokenizer is not None:
            tokenizer = source_tokenizer.with_target(tokenizer.target)
        super().__init__(tokenizer, length, label_smoothing=label_smoothing, num_beams=num_beams, **text_options)
        self.target_length = self.answer_length = target_length or length
        self.target_tokenizer = tokenizer.target
        self.end = _end_of(tokenizer)
        for side_tokenizer in (tokenizer, tokenizer.target):
            if side_tokenizer.pad_token_id is None:
                raise InputError(
                    "An encoder–decoder needs a padding token of its own, and this tokenizer has none. "
                    'Add one: tok.add_special_tokens({"pad_token": "<pad>"}).'
                )

    def identity(self) -> dict[str, Any]:
        words = repr(sorted(self.tokenizer.get_vocab().items()))
        return super().identity() | {"target_length": self.target_length, "source": zlib.crc32(words.encode())}

    def encode(self, record: Record) -> Iterator[Example]:
        check_columns(self.columns, record)
        source = self.tokenizer.encode(text_of(record, "source"))
        target = self.target_tokenizer.encode(text_of(record, "target"))
        if self.end not in target[-2:]:  # mBART has the language behind its END
            target.append(self.end)
        if len(source) > self.length or len(target) > self.target_length:
            if self.too_long == "drop":
                return
            if len(source) > self.length:
                source = self.tokenizer.encode(record["source"], truncation=True, max_length=self.length)
            target = target[: self.target_length]  # a target that was cut has no END to learn
        yield {"input_ids": np.asarray(source, dtype=np.int32), "labels": np.asarray(target, dtype=np.int32)}

    def collate(self, examples: Sequence[Example]) -> Batch:
        pad = self.tokenizer.pad_token_id
        assert pad is not None
        return read_and_write(examples, pad)

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """The ids of the special tokens; the start token only where the configuration has none yet."""
        tokens = self.target_tokenizer
        ids = {"pad_token_id": tokens.pad_token_id, "eos_token_id": self.end}
        starts = (tokens.bos_token_id, tokens.cls_token_id, self.end)
        first = next(n for n in starts if n is not None)
        if config.get("decoder_start_token_id") is None:
            ids |= {"bos_token_id": first, "decoder_start_token_id": first}
        return {**config, **ids}


class PromptedLM(TextToText):
    """The same pairs for a decoder alone: source, separator, target, END in one text; only the target is learned.

    separator      between source and target; what the vocabulary lacks is added as one token, with a new row in the
                   embedding (`<summarize>`), unless `new_token` is false and it is ordinary text
    learn_source   the words of the source (and the separator) are learned too
    """

    name = "prompted-lm"
    task = "causal-lm"

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        separator: str = "<|answer|>",
        new_token: bool = True,
        learn_source: bool = False,
        label_smoothing: float = 0.0,
        num_beams: int = 1,
        **text_options: Any,
    ) -> None:
        super().__init__(tokenizer, length, label_smoothing=label_smoothing, num_beams=num_beams, **text_options)
        if not separator:
            raise InputError("separator is empty: the model could not see where the source ends.")
        self.separator, self.new_token, self.learn_source = separator, new_token, learn_source
        self.end = _end_of(tokenizer)
        if new_token and separator not in tokenizer.get_vocab():
            tokenizer.add_special_tokens({"extra_special_tokens": [separator]}, replace_extra_special_tokens=False)

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"separator": self.separator, "learn_source": self.learn_source}

    def prompt(self, source: str) -> str:
        return source + self.separator

    def encode(self, record: Record) -> Iterator[Example]:
        check_columns(self.columns, record)
        text = text_of(record, "source")
        source = self._prompt_ids(text)
        target = [*self.tokenizer.encode(text_of(record, "target"), add_special_tokens=False), self.end]
        excess = len(source) + len(target) - self.length
        if excess > 0:
            if self.too_long == "drop":
                return
            offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            end = offsets[max(len(offsets) - excess, 1) - 1][1]
            source = self._prompt_ids(text[:end])  # first the source gives way
            target = target[: max(self.length - len(source), 0)]
        ids = np.asarray([*source, *target][: self.length], dtype=np.int32)
        labels = ids.copy()
        if not self.learn_source:
            labels[: len(source)] = IGNORED
        if (labels[1:] != IGNORED).any():  # something of the target has room
            yield {"input_ids": ids, "labels": labels}

    def _prompt_ids(self, source: str) -> list[int]:
        """The prompt as a pipeline encodes it: open at its end, so that it can be continued."""
        ids = self.tokenizer.encode(self.prompt(source))
        closing = (self.tokenizer.eos_token_id, self.tokenizer.sep_token_id)
        return ids[:-1] if len(ids) > 1 and ids[-1] in closing else ids

    def collate(self, examples: Sequence[Example]) -> Batch:
        ids, labels = [e["input_ids"] for e in examples], [e["labels"] for e in examples]
        pad = self.tokenizer.pad_token_id
        inputs = {
            "input_ids": padded(ids, self.end if pad is None else pad),
            "attention_mask": mask_of(ids),
            "labels": padded(labels, IGNORED),
        }
        learned = int((inputs["labels"][:, 1:] != IGNORED).sum())  # nothing predicts the first token
        return Batch(inputs, {"loss": learned}, sum(map(len, ids)))

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """The model stops writing at its END."""
        return {**config, "eos_token_id": self.end}

    def training_module(self, model: Model) -> nn.Module:
        grow_vocabulary(model, self.tokenizer)
        return super().training_module(model)


def _beam_search(num_beams: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """How the test is answered: by beam search, unless the options say otherwise."""
    return {"num_beams": num_beams, "do_sample": False, **options}


def _end_of(tokenizer: Tokenizer) -> int:
    """The token that ends a text: the target language's own, or a tokenizer's separator where it has no other."""
    for end in (tokenizer.target.eos_token_id, tokenizer.target.sep_token_id):
        if end is not None:
            return end
    raise InputError(
        "The model learns where to stop from an end token, and this tokenizer has none. "
        'Add one: tok.add_special_tokens({"eos_token": "</s>"}).'
    )

"""The next word and the one before: a language model in each direction over whole sentences (ELMo)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.models.elmo import BidirectionalLanguageHead
from clearhead.pipeline import Pipeline
from clearhead.pipeline.words import WordPipeline
from clearhead.text.characters import CharacterCodec
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.base import Objective
from clearhead.train.objectives.fields import text_of
from clearhead.train.objectives.padding import IGNORED, padded

DIRECTIONS = ("forward", "backward")
LONGEST = 200  # bytes of a word that are kept on disk; how many of them are read is the model's matter


class BidirectionalLM(Objective):
    """Every sentence is read alone, from its beginning and from its end; a longer one than `length` is cut."""

    name = "bidirectional-lm"
    task = "bidirectional-lm"
    unit = "word"
    codec_kinds = ("words",)
    length_column = "words"

    codec: CharacterCodec

    def __init__(self, codec: CharacterCodec, length: int) -> None:
        if not isinstance(codec, CharacterCodec):
            raise InputError(f"This objective reads words by their characters: it needs a CharacterCodec, not a "
                             f"{type(codec).__name__}. In a recipe: tokenizer.kind=words.")  # fmt: skip
        if codec.vocabulary is None:
            raise InputError(
                "Published ELMo files come without the softmax and the words of their language model, so that cannot "
                "be trained on. Begin with random weights (model.family: elmo, tokenizer.kind: words)."
            )
        if length < 3:
            raise InputError(f"length is {length} words; a word between the marks of its sentence needs at least 3.")
        super().__init__(codec, length)

    # ---- the codec

    @classmethod
    def train_codec(
        cls, texts: Iterable[str], kind: str, vocab_size: int, *, lowercase: bool | None = None,
        special_tokens: Sequence[str] = (), min_count: int | None = None, show_progress: bool = True,
    ) -> CharacterCodec:  # fmt: skip
        if lowercase or special_tokens:
            raise InputError("Words are kept as they are written: leave tokenizer.lowercase and special_tokens out.")
        if min_count is not None:
            raise InputError("The words that can be guessed are the commonest, so many as tokenizer.vocab_size says: "
                             "leave tokenizer.min_count out.")  # fmt: skip
        return CharacterCodec.train(texts, vocab_size)

    @classmethod
    def load_codec(cls, folder: Path) -> CharacterCodec:
        return CharacterCodec.from_folder(folder)

    def identity(self) -> dict[str, Any]:
        words = hashlib.sha256("\n".join(self.codec.vocabulary or ()).encode()).hexdigest()
        return super().identity() | {"vocabulary": words}

    # ---- from records to batches

    def encode(self, record: Record) -> Iterator[Example]:
        check_columns(self.columns, record)
        if isinstance(record["text"], str) and not record["text"].strip():
            return  # files have empty lines
        for sentence in self.codec.sentences(text_of(record, "text")):
            for start in range(0, len(sentence), self.length - 2):
                yield self._example(sentence[start : start + self.length - 2])

    def _example(self, words: list[str]) -> Example:
        """words: their numbers, with the marks around; characters: their bytes, one word after another."""
        spelt = [word.encode("utf-8", "ignore")[:LONGEST] for word in words]
        return {
            "words": self.codec.word_ids(words),
            "characters": np.frombuffer(b"".join(spelt), np.uint8),
            "lengths": np.array([len(one) for one in spelt]),
        }

    def collate(self, examples: Sequence[Example]) -> Batch:
        characters, lengths = (
            np.concatenate([example[name] for example in examples]) for name in ("characters", "lengths")
        )
        ids = self.codec.rows_of(characters, lengths, [len(example["lengths"]) for example in examples])
        labels = padded([example["words"] for example in examples], IGNORED)
        guessed = sum(len(example["words"]) - 1 for example in examples)  # in each direction
        inputs = {"character_ids": torch.from_numpy(ids), "labels": labels}
        words = sum(len(example["words"]) for example in examples)
        return Batch(inputs, dict.fromkeys(DIRECTIONS, guessed), words)

    # ---- the model, and what is lost

    @property
    def loss_weights(self) -> dict[str, float]:
        return dict.fromkeys(DIRECTIONS, 0.5)

    def training_module(self, model: Model) -> nn.Module:
        if not isinstance(model.head, BidirectionalLanguageHead):
            raise InputError(f"{self.name} trains a model with a language head for each direction: model.family=elmo.")
        self.codec = CharacterCodec(model.config.max_characters, self.codec.vocabulary)
        return model

    def losses(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        out = model(**self.model_inputs(batch))
        return {"forward": out.forward_loss, "backward": out.backward_loss}

    def report(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The loss in nats per word, and how many words each direction hesitates between."""
        metrics = super().report(sums)
        for name in DIRECTIONS:
            metrics[f"{name}_perplexity"] = math.exp(min(metrics.pop(name), 700.0))
        return metrics | {"perplexity": math.exp(min(metrics["loss"], 700.0))}

    def pipeline(self, model: Model, name: str) -> Pipeline:
        return WordPipeline(model, self.codec, name)

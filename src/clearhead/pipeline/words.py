"""Words in, vectors in context out: what `ch.load` returns for ELMo."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead import hub
from clearhead.errors import InputError, TokenizerError
from clearhead.messages import say
from clearhead.models import Model
from clearhead.nn.scalar_mix import ScalarMix
from clearhead.pipeline.base import Pipeline, Reading
from clearhead.pipeline.batches import texts_of
from clearhead.pipeline.search import SearchHit, search
from clearhead.schema import Field
from clearhead.text import Tokenizer
from clearhead.text.characters import CharacterCodec, check_words

_BATCH_SIZE = Field(name="batch_size", type=int, default=32, least=1)


class WordPipeline(Pipeline):
    """`codec` turns words into characters; no word is unknown to it."""

    codec: CharacterCodec
    reads_text = True
    no_text = "generation.vectors_of_words"

    def __init__(self, model: Model, codec: CharacterCodec, name: str = "") -> None:
        super().__init__(model, codec, name)

    @classmethod
    def from_folder(cls, folder: os.PathLike[str], model: Model, name: str = "") -> WordPipeline:
        room = model.config.max_characters
        says_words = model.task != "features"
        codec = CharacterCodec.from_folder(Path(folder), room) if says_words else CharacterCodec(room)
        return cls(model, codec, name)

    @property
    def tokenizer(self) -> Tokenizer:
        raise TokenizerError(say("generation.no_tokens_but_words", title=self.title))

    def read(self, raw: Any, /, pair: Any = None, target: Any = None) -> Reading:
        """How the model reads a text, or a list of words."""
        if isinstance(raw, str) and not raw.strip():
            raise InputError(say("questions.no_text"))
        return super().read(raw, pair, target)

    # ---- vectors

    @torch.no_grad()
    def embed_words(self, sentences: Sequence[Sequence[str]], *, batch_size: int = 32) -> Tensor:
        """The vectors of all words of all layers: (sentences, layers, words, 2 · projection).

        Layer 0 is the word alone, twice; each other one [forward; backward]. Sentences are read one by one, whatever
        was read before; a shorter one is filled up with zeros.

        sentences   lists of words
        """
        rows = _sentences(sentences)
        layers = len(self.model.output_stack.layers) + 1
        out = torch.zeros(len(rows), layers, max(map(len, rows)), self.model.config.hidden_size, dtype=self.model.dtype)
        for numbers, vectors in self._batches(rows, batch_size):
            for n, row in zip(numbers, vectors, strict=True):
                out[n, :, : len(rows[n])] = row[:, 1 : len(rows[n]) + 1]
        return out

    def _batches(self, rows: list[list[str]], batch_size: int) -> Iterator[tuple[list[int], Tensor]]:
        """(which sentences, their vectors with those of the marks around them: (batch, layers, words + 2, width))."""
        batch_size = _BATCH_SIZE.check(batch_size)
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        training = self.model.training
        self.model.eval()
        try:
            for start in range(0, len(rows), batch_size):
                numbers = order[start : start + batch_size]
                ids = self.codec([rows[n] for n in numbers])["character_ids"].to(self.model.device)
                stack: Any = self.model.output_stack
                yield numbers, torch.stack(stack.all_layers(ids), 1).cpu()
        finally:
            self.model.train(training)

    @torch.no_grad()
    def embed(
        self,
        texts: str | list[str],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        mix: ScalarMix | None = None,
        batch_size: int = 32,
    ) -> Tensor:
        """One vector for each text, (texts, width), or (width,) for a single one: its words' vectors averaged.

        pooling     "mean" (the default) or "max" over the words
        normalize   to unit length
        mix         how the layers become one; by default their mean
        """
        if pooling not in (None, "mean", "max"):
            raise InputError(f"The vectors of words are pooled by mean or max, not {pooling!r}.")
        split = [[word for sentence in self.codec.sentences(text) for word in sentence] for text in texts_of(texts)]
        mix = ScalarMix(len(self.model.output_stack.layers) + 1) if mix is None else mix
        found: dict[int, Tensor] = {}
        for numbers, vectors in self._batches(split, batch_size):
            lengths = torch.tensor([[len(split[n])] for n in numbers])
            real = torch.arange(vectors.shape[2] - 2) < lengths
            mixed = mix(list(vectors[:, :, 1:-1].unbind(1)), real)
            for n, row in zip(numbers, mixed, strict=True):
                words = row[: len(split[n])]
                found[n] = words.amax(0) if pooling == "max" else words.mean(0)
        out = torch.stack([found[n] for n in range(len(split))])
        out = F.normalize(out, dim=-1) if normalize else out
        return out[0] if isinstance(texts, str) else out

    @overload
    def search(
        self, query: str, texts: Sequence[str], *, top_k: int = 10, vectors: Tensor | None = None, batch_size: int = 32
    ) -> list[SearchHit]: ...
    @overload
    def search(
        self, query: list[str], texts: Sequence[str], *, top_k: int = 10, vectors: Tensor | None = None,
        batch_size: int = 32,
    ) -> list[list[SearchHit]]: ...  # fmt: skip
    def search(
        self,
        query: str | list[str],
        texts: Sequence[str],
        *,
        top_k: int = 10,
        vectors: Tensor | None = None,
        batch_size: int = 32,
    ) -> list[SearchHit] | list[list[SearchHit]]:
        """The texts nearest in meaning, best first, each with its cosine."""
        return search(self, query, texts, top_k=top_k, vectors=vectors, batch_size=batch_size)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The vectors of texts."""
        return self.embed(*inputs, **options)

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False, format: str | None = None) -> None:
        """Write a folder that loads again, whole or not at all.

        format   "elmo": options.json and weights.hdf5, which the published readers open (needs h5py);
                 "clearhead": config.json, model.safetensors, and the vocabulary with the softmax where there is one.
                 By default the first for a model that gives vectors, and the second for one that says words
        """
        if format not in (None, "elmo", "clearhead"):
            raise InputError(f"ELMo is saved in the format elmo or clearhead, not {format!r}.")
        if (format or ("elmo" if self.model.task == "features" else "clearhead")) == "elmo":
            hub.save_elmo(self.model, folder, overwrite=overwrite)
        else:
            hub.save_model(self.model, folder, self.codec, overwrite=overwrite)


def _sentences(sentences: Any) -> list[list[str]]:
    if isinstance(sentences, str) or not isinstance(sentences, list | tuple):
        got = "a string" if isinstance(sentences, str) else type(sentences).__name__
        raise InputError(f"embed_words takes a list of sentences, each a list of words, not {got}: [text.split()].")
    if not sentences:
        raise InputError("The list of sentences is empty.")
    return [check_words(words, f"Sentence {n}") for n, words in enumerate(sentences, 1)]

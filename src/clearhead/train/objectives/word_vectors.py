"""Word vectors from plain text: a word is told from others by the words around it (word2vec: skip-gram and CBOW)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.models.word_vectors import WordVectorModel
from clearhead.pipeline import Pipeline
from clearhead.pipeline.word_vectors import WordVectors
from clearhead.schema import Field
from clearhead.text.word_vectors import CountedWords
from clearhead.train.data.table import Table
from clearhead.train.data.types import Batch, Example, Record, check_columns
from clearhead.train.objectives.base import Objective
from clearhead.train.objectives.fields import text_of
from clearhead.train.word_vectors import END_OF_SENTENCE, Learner, Word2VecSettings, WordSampling
from clearhead.train.word_vectors.learner import why_not

MIN_COUNT = 5
HELD_OUT = 0x48454C44  # the draws for held-out text are always these

Size = Annotated[int, Field(least=1, most=100_000)]
Few = Annotated[int, Field(least=1, most=1000)]


class TwoTables(nn.Module):
    """The model with the table that words are guessed by, which is not kept; and what moves both."""

    def __init__(
        self, model: WordVectorModel, settings: Word2VecSettings, sampling: WordSampling, threads: int
    ) -> None:
        super().__init__()
        self.model = model
        table = model.token_tables()[0].weight
        self.output = nn.Parameter(torch.zeros_like(table))  # (words, size)
        self.learner = Learner((table, self.output), settings, sampling, threads)


class WordVectorTraining(Objective):
    """Sentences as numbers of words; each stretch of text is learnt from word by word, without a gradient in between.

    architecture     "skip-gram": each word around guesses the one in the middle; "cbow": they guess it together
    vector_size      numbers of a vector
    window           words on either side, at most
    negative         others, drawn by chance, that a word is told from
    sample           subsampling: of words that make up more of the text than this share, some places are passed over;
                     0: none
    ns_exponent      the others are drawn by count ** ns_exponent
    cbow_mean        cbow: the mean of the words around, else their sum
    shrink_windows   the window is 1 to `window` words, drawn for each word; else always `window`
    threads          that learn at the same time, without locks; with 1 a run can be repeated to the bit. None: one for
                     each core
    """

    name = "word-vectors"
    task = "word-vectors"
    unit = "word"
    blocks = True
    keeps_last_block = True
    codec_kinds = ("words",)
    moves_weights: ClassVar[bool] = True
    not_saved = "a second table of vectors"

    codec: CountedWords

    def __init__(
        self,
        codec: CountedWords,
        length: int,
        *,
        architecture: Literal["skip-gram", "cbow"] = "skip-gram",
        vector_size: Size = 100,
        window: Few = 5,
        negative: Few = 5,
        sample: Annotated[float, Field(least=0, below=1)] = 1e-3,
        ns_exponent: Annotated[float, Field(least=-10, most=10)] = 0.75,
        cbow_mean: bool = True,
        shrink_windows: bool = True,
        threads: Annotated[int | None, Field(least=1, most=1024)] = None,
    ) -> None:
        if not isinstance(codec, CountedWords):
            raise InputError(f"Word vectors are learnt for the counted words of a text: this needs CountedWords, not a "
                             f"{type(codec).__name__}. In a recipe: tokenizer.kind=words.")  # fmt: skip
        super().__init__(codec, length)
        self.vector_size, self.sampling = vector_size, WordSampling.of(codec.counts, sample, ns_exponent)
        self.settings = Word2VecSettings(architecture == "cbow", window, negative, cbow_mean, shrink_windows)
        self.threads = threads or torch.get_num_threads()

    # ---- the vocabulary

    @classmethod
    def train_codec(
        cls, texts: Iterable[str], kind: str, vocab_size: int, *, lowercase: bool | None = None,
        special_tokens: Sequence[str] = (), min_count: int | None = None, show_progress: bool = True,
    ) -> CountedWords:  # fmt: skip
        if lowercase is False or special_tokens:
            raise InputError(
                "Word vectors are learnt for words in lower case, and no others: leave tokenizer.lowercase and "
                "tokenizer.special_tokens out."
            )
        return CountedWords.count(texts, min_count or MIN_COUNT, vocab_size)

    @classmethod
    def load_codec(cls, folder: Path) -> CountedWords:
        return CountedWords.load(folder)

    def identity(self) -> dict[str, Any]:
        """The length is that of blocks, which are cut from what is on disk."""
        return {"objective": self.name, "words": hashlib.sha256(self.codec.words.buffer).hexdigest()}

    # ---- from records to batches

    def encode(self, record: Record) -> Iterator[Example]:
        check_columns(self.columns, record)
        if isinstance(record["text"], str) and not record["text"].strip():
            return  # files have empty lines
        ids: list[int] = []
        for sentence in self.codec.encode(text_of(record, "text")):
            ids += [*sentence, END_OF_SENTENCE] if sentence else ()
        if record.get("unfinished"):  # a long text comes in pieces: the last sentence may go on
            ids = ids[:-1]
        if ids:
            yield {"input_ids": np.array(ids)}

    def data_notes(self, training: Table) -> list[str]:
        numbers = training.view("input_ids", 0, int(training.ends("input_ids")[-1]))
        is_word = numbers != END_OF_SENTENCE
        if not (is_word[1:] & is_word[:-1]).any():
            raise InputError(
                "No sentence of the text has two words of the vocabulary, so no word has any around it. Lower "
                "tokenizer.min_count, or give whole sentences."
            )
        notes = [f"{len(self.codec):,} words are learnt; they make up {int(is_word.sum()):,} words of text."]
        if reason := why_not():
            notes.append(f"Learning in NumPy, hundreds of times slower than in C: {reason}.")
        return notes

    def collate(self, examples: Sequence[Example]) -> Batch:
        texts = [example["input_ids"] for example in examples]
        ids, lengths = np.concatenate(texts).astype(np.int32), [len(text) for text in texts]
        words = int((ids != END_OF_SENTENCE).sum())
        inputs = {"input_ids": torch.from_numpy(ids), "lengths": torch.tensor(lengths)}
        return Batch(inputs, {"loss": words}, words)

    # ---- what is learnt

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        return config | {"vocab_size": len(self.codec), "hidden_size": self.vector_size}

    def training_module(self, model: Model) -> nn.Module:
        if not isinstance(model, WordVectorModel):
            raise InputError(f"{self.name} trains a table of vectors and nothing else: model.family=word-vectors.")
        return TwoTables(model, self.settings, self.sampling, self.threads)

    def learn(self, module: nn.Module, batch: Batch, lr: float, seed: int) -> float:
        guesses, loss = self._guess(module, batch, lr, seed)
        return loss / max(guesses, 1)

    def _guess(self, module: nn.Module, batch: Batch, lr: float, seed: int) -> tuple[int, float]:
        assert isinstance(module, TwoTables)
        ids, lengths = batch.inputs["input_ids"].numpy(), batch.inputs["lengths"].tolist()
        return module.learner.learn(np.split(ids, np.cumsum(lengths)[:-1]), lr, seed)

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, float]:
        guesses, loss = self._guess(model, batch, 0.0, HELD_OUT)
        return {"loss": loss, "loss.count": float(guesses)}

    def pipeline(self, model: Model, name: str) -> Pipeline:
        return WordVectors(model, self.codec.words, name)

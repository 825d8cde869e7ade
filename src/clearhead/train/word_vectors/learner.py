"""Two tables that learn from text, in several threads: by word2vec.c, or by reference.py where that cannot be had."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from clearhead import native
from clearhead.train.word_vectors.reference import Tables
from clearhead.train.word_vectors.reference import learn_text as learn_in_numpy
from clearhead.train.word_vectors.sampling import WordSampling
from clearhead.train.word_vectors.settings import Word2VecSettings

SOURCE = Path(__file__).with_name("word2vec.c")
_STRIDE = 0xD1B54A32D192ED03  # between the seeds of two texts of one step


class Task(ctypes.Structure):
    """The struct of that name in word2vec.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("words", "size", "window", "negative")),
        *((name, ctypes.c_int64) for name in ("cbow", "cbow_mean", "shrink_windows")),
        *((name, ctypes.c_void_p) for name in ("keep", "cut", "alias", "input", "output")),
    )


@cache
def _library() -> Any:
    """`learn_text` of word2vec.c; what is raised says why it cannot be had."""

    def wrap(library: ctypes.CDLL) -> Any:
        function = library.learn_text
        function.argtypes = [
            ctypes.POINTER(Task), ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_uint64,
            ctypes.POINTER(ctypes.c_double),
        ]  # fmt: skip
        function.restype = ctypes.c_int64
        return function

    try:
        return native.open_library(SOURCE, wrap, ("-fopenmp-simd", "-lm"), name="word2vec")
    except native.UnavailableError as error:
        return error


def why_not() -> str:
    """Why word2vec.c is not used; empty where it is."""
    library = _library()
    return str(library) if isinstance(library, native.UnavailableError) else ""


class Learner:
    """
    tables     both (words, size), float32, contiguous, on the CPU; they are changed in place
    threads    that work on the tables at the same time, without waiting for each other (Hogwild). With one, the same
               texts and seeds give the same bits
    """

    def __init__(
        self, tables: tuple[Tensor, Tensor], settings: Word2VecSettings, sampling: WordSampling, threads: int = 1
    ) -> None:
        self.tables = Tables(*(table.detach().numpy() for table in tables))
        self.settings, self.sampling = settings, sampling
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def learn(self, texts: Sequence[np.ndarray], lr: float, seed: int) -> tuple[int, float]:
        """How many words were guessed, and the sum of their losses.

        texts   each a stretch for itself: int32, sentences closed by END_OF_SENTENCE
        lr      with 0 nothing moves: the loss is measured
        """
        seeds = [(seed + n * _STRIDE) & (2**64 - 1) for n in range(len(texts))]
        each = self._pool.map if self._pool is not None else map
        done = list(each(self._learn_text, texts, [lr] * len(texts), seeds))
        return sum(guesses for guesses, _ in done), sum(loss for _, loss in done)

    def _learn_text(self, text: np.ndarray, lr: float, seed: int) -> tuple[int, float]:
        library = _library()
        if isinstance(library, native.UnavailableError):
            return learn_in_numpy(self.tables, self.settings, self.sampling, text, lr, seed)
        text, loss = np.ascontiguousarray(text, np.int32), ctypes.c_double()
        guesses = library(ctypes.byref(self._task()), text.ctypes.data, len(text), lr, seed, ctypes.byref(loss))
        if guesses < 0:
            raise MemoryError
        return guesses, loss.value

    def _task(self) -> Task:
        sampling, settings, (words, size) = self.sampling, self.settings, self.tables.input.shape
        keep = None if sampling.keep is None else sampling.keep.ctypes.data
        return Task(
            words, size, settings.window, settings.negative, settings.cbow, settings.cbow_mean,
            settings.shrink_windows, keep, sampling.cut.ctypes.data, sampling.alias.ctypes.data,
            self.tables.input.ctypes.data, self.tables.output.ctypes.data,
        )  # fmt: skip

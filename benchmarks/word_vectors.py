"""Training word vectors, beside gensim: words a second, and how good the vectors are.

    python benchmarks/word_vectors.py TEXT … [--words 3_000_000] [--epochs 2] [--threads 2] [--rounds 2] [--size 100]

Both learn from the same sentences (the first so many words of the texts, which may be packed by bzip2) with the same
settings, one after the other, round by round. A round's speed is the words of the text, all epochs together, by the
time that learning took, without reading the text and counting its words before it: by the clock, and by the processor's
time of all threads, which other programs on the machine disturb less. How good: gensim's own evaluation of both, on the
files that it ships: Spearman's correlation with people's judgements of two words (WordSim-353, SimLex-999), and
analogies (questions-words.txt), of those whose words are all known. Needs gensim.
"""

from __future__ import annotations

import argparse
import bz2
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gensim.models import KeyedVectors, Word2Vec
from gensim.test.utils import datapath

import clearhead as ch
from clearhead.text.word_vectors.counted import sentences
from clearhead.train import train
from clearhead.zoo.recipes import find_recipe

WINDOW, NEGATIVE, SAMPLE, MIN_COUNT, LR, MIN_LR = 5, 5, 1e-3, 5, 0.025, 1e-4
Scores = dict[str, float]


def lines(paths: list[Path], words: int) -> Iterator[list[str]]:
    """The first sentences of the texts, up to so many words."""
    for path in paths:
        with bz2.open(path, "rt", encoding="utf-8") if path.suffix == ".bz2" else path.open(encoding="utf-8") as file:
            for paragraph in file:
                for sentence in sentences(paragraph):
                    yield sentence
                    words -= len(sentence)
                    if words <= 0:
                        return


class Clock:
    """Seconds by the clock and of the processor, all threads together."""

    def begin(self) -> None:
        self.start = self.stop = (time.perf_counter(), time.process_time())

    def look(self) -> None:
        self.stop = (time.perf_counter(), time.process_time())

    @property
    def seconds(self) -> tuple[float, float]:
        return self.stop[0] - self.start[0], self.stop[1] - self.start[1]


def by_clearhead(text: Path, folder: Path, options: argparse.Namespace, seed: int) -> tuple[Clock, Path]:
    """The time of learning, and the vectors as a file. The text is one sentence a line, its words in lower case."""
    settings = [
        f"data.train={text}", "data.documents=lines", f"out={folder / 'run'}", f"seed={seed}",
        f"objective.architecture={options.architecture}", f"objective.vector_size={options.size}",
        f"objective.threads={options.threads}", f"epochs={options.epochs}",
    ]  # fmt: skip
    clock = Clock()

    def watch(event: dict[str, Any]) -> None:
        if event["event"] == "begin":
            clock.begin()
        elif event["event"] == "step":
            clock.look()

    train(find_recipe("word-vectors"), settings, [watch])
    path = folder / "vectors.bin"
    ch.load(folder / "run").save(path, overwrite=True)
    return clock, path


def by_gensim(text: Path, folder: Path, options: argparse.Namespace, seed: int) -> tuple[Clock, Path]:
    corpus = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    model = Word2Vec(
        vector_size=options.size, window=WINDOW, negative=NEGATIVE, sample=SAMPLE, min_count=MIN_COUNT, alpha=LR,
        min_alpha=MIN_LR, sg=options.architecture == "skip-gram", workers=options.threads, seed=seed,
    )  # fmt: skip
    model.build_vocab(corpus)
    clock = Clock()
    clock.begin()
    model.train(corpus, total_examples=len(corpus), epochs=options.epochs)
    clock.look()
    model.wv.save_word2vec_format(folder / "vectors.bin", binary=True)
    return clock, folder / "vectors.bin"


def scores(path: Path) -> tuple[Scores, int]:
    """Percent, by gensim's own measures; and how many words there are."""
    vectors = KeyedVectors.load_word2vec_format(path, binary=True)
    found = {}
    for name, file in {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}.items():
        _, spearman, missing = vectors.evaluate_word_pairs(datapath(file))
        found[f"{name} (Spearman, {100 - missing:.0f} % known)"] = 100 * spearman.statistic
    share, sections = vectors.evaluate_word_analogies(datapath("questions-words.txt"))
    asked = len(sections[-1]["correct"]) + len(sections[-1]["incorrect"])
    found[f"analogies (right of {asked:,})"] = 100 * share
    return found, len(vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--words", type=int, default=3_000_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--size", type=int, default=100)
    options = parser.parse_args()
    makers = {"clearhead": by_clearhead, "gensim": by_gensim}
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        text, count = folder / "text.txt", 0
        with text.open("w", encoding="utf-8") as file:
            for sentence in lines(options.texts, options.words):
                file.write(" ".join(sentence) + "\n")
                count += len(sentence)
        print(f"{count:,} words, {options.epochs} epochs, {options.threads} threads, {options.size} numbers a vector")
        for options.architecture in ("skip-gram", "cbow"):
            speed: dict[str, list[list[float]]] = {name: [] for name in makers}  # by the clock, by the processor
            quality: dict[str, list[Scores]] = {name: [] for name in makers}
            for seed in range(1, options.rounds + 1):
                for name, make in makers.items():
                    own = folder / f"{options.architecture}-{name}-{seed}"
                    own.mkdir()
                    clock, path = make(text, own, options, seed)
                    speed[name].append([count * options.epochs / seconds for seconds in clock.seconds])
                    found, words = scores(path)
                    quality[name].append(found)
                    by_clock, by_processor = speed[name][-1]
                    print(f"  {options.architecture} {name} {seed}: {words:,} words, {by_clock:,.0f} words/s",
                          f"{by_processor:,.0f} a processor second",
                          *(f"{key} {value:.1f}" for key, value in found.items()), sep=", ", flush=True)  # fmt: skip
            print(f"{options.architecture}:")
            for n, unit in enumerate(("words/s", "words a processor second")):
                ours, theirs = (statistics.median(round[n] for round in speed[name]) for name in makers)
                print(f"  {unit}: clearhead {ours:,.0f}, gensim {theirs:,.0f}, ratio {ours / theirs:.2f}")
            for key in quality["gensim"][0]:
                ours, theirs = (statistics.mean(found[key] for found in quality[name]) for name in makers)
                print(f"  {key}: clearhead {ours:.1f}, gensim {theirs:.1f}, difference {ours - theirs:+.1f}")


if __name__ == "__main__":
    main()

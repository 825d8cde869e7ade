"""The bottleneck made visible: BLEU by the length of the source, for several translators on one test.

    python benchmarks/bottleneck.py test.en.gz test.de.gz rnn-en-de rnn-attention-en-de translate-en-de [--joined]

Sentences are put into groups of about one number by how many words their source has; every model translates all of them
(five beams), and each group has a BLEU of its own (sacrebleu, 13a), the brevity penalty beside it. --joined: one more
group, of two sentences after one another as if they were one, which is longer than anything in training. Prints a table
in Markdown.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import sacrebleu  # type: ignore[import-untyped]

import clearhead as ch
from clearhead.pipeline import TextPipeline


def lines(path: Path) -> list[str]:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().splitlines()


def groups_of(sources: list[str], count: int) -> list[list[int]]:
    """The numbers of the sentences, shortest first, in groups of about one size; one length is never parted."""
    lengths = [len(source.split()) for source in sources]
    order = sorted(range(len(sources)), key=lengths.__getitem__)
    groups: list[list[int]] = [[]]
    for n in order:
        full = len(groups[-1]) >= len(order) / count and len(groups) < count
        if full and lengths[n] != lengths[groups[-1][-1]]:
            groups.append([])
        groups[-1].append(n)
    return groups


def translate(pipe: TextPipeline, sources: list[str], beams: int, batch: int = 32) -> list[str]:
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    written = [""] * len(sources)
    for begin in range(0, len(order), batch):
        part = order[begin : begin + batch]
        texts = pipe.generate([sources[n] for n in part], num_beams=beams, max_new_tokens=128)
        for n, text in zip(part, texts, strict=True):
            written[n] = text.strip()
    return written


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--joined", action="store_true")
    given = parser.parse_args()
    sources, targets = lines(given.source), lines(given.target)
    groups = groups_of(sources, given.groups)
    names = [f"{len(sources[g[0]].split())}–{len(sources[g[-1]].split())}" for g in groups]
    if given.joined:
        pairs = range(0, len(sources) - 1, 2)
        groups.append(list(range(len(sources), len(sources) + len(pairs))))
        names.append("two joined")
        for side in (sources, targets):
            side += [f"{side[n]} {side[n + 1]}" for n in pairs]
    print(f"| words of the source | {' | '.join(names)} | all |")
    print(f"| --- |{' ---: |' * (len(names) + 1)}")
    print(f"| sentences | {' | '.join(str(len(group)) for group in groups)} | {len(lines(given.source))} |")
    for name in given.models:
        written = translate(ch.load(name), sources, given.beams)
        cells = []
        for group in [*groups, list(range(len(lines(given.source))))]:
            found = sacrebleu.corpus_bleu([written[n] for n in group], [[targets[n] for n in group]])
            cells.append(f"{found.score:.1f} ({found.bp:.2f})")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

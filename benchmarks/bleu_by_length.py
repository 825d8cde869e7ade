"""BLEU by the length of the source, for translators side by side, kept beside the shipped ones.

    python benchmarks/bleu_by_length.py test.en test.de rnn-en-de rnn-attention-en-de translate-en-de --write

Every model translates the same sentences (.gz is fine); those of about one length are scored together, by sacrebleu.
`--joined`: also two sentences after one another as if they were one, longer than almost anything in training.
`--write` puts the numbers into measures.json in each shipped model's folder, where `clearhead explain length-curve` and
the studio find them.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import sacrebleu
import torch

import clearhead as ch
from clearhead import zoo
from clearhead.explain.length_curve import MEASURE
from clearhead.files import atomic_write

EDGES = [1, 8, 10, 12, 14, 17, 21]  # words: a bin begins at each; the last one has no end


def lines(path: Path) -> list[str]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [line.strip() for line in text.splitlines()]


def translated(name: str, sources: list[str], beams: int, batch: int) -> list[str]:
    pipe = ch.load(name)
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    written = {}
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        answers = pipe.write([sources[n] for n in rows], num_beams=beams, do_sample=False, log_probs=False)
        written |= {n: answer.new_text.strip() for n, answer in zip(rows, answers, strict=True)}
        print(f"\r{name}: {len(written)} of {len(order)}", end="", flush=True)
    return [written[n] for n in range(len(sources))]


def bins_of(sources: list[str]) -> list[list[int]]:
    words = [len(source.split()) for source in sources]
    groups = []
    for n, first in enumerate(EDGES):
        end = EDGES[n + 1] if n + 1 < len(EDGES) else 10**9
        groups.append([k for k, count in enumerate(words) if first <= count < end])
    return [group for group in groups if group]


def measured(name: str, sources: list[str], references: list[str], data: str, beams: int, batch: int) -> dict:
    began = time.perf_counter()
    answers = translated(name, sources, beams, batch)
    metric = sacrebleu.BLEU()
    rows = []
    for group in bins_of(sources):
        score = metric.corpus_score([answers[n] for n in group], [[references[n] for n in group]]).score
        words = [len(sources[n].split()) for n in group]
        rows.append({"first": min(words), "last": max(words), "sentences": len(group), "bleu": round(score, 2)})
    whole = metric.corpus_score(answers, [references]).score
    print(f"\r{name}: BLEU {whole:.2f}, {time.perf_counter() - began:.0f} s")
    for row in rows:
        print(f"  {row['first']:3} to {row['last']:3} words  {row['sentences']:5} sentences  {row['bleu']:6.2f}")
    return {"data": data, "decoding": f"beam search, {beams} beams", "metric": f"sacreBLEU {metric.get_signature()}",
            "bleu": round(whole, 2), "bins": rows}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", default="Multi30k, test 2016, English to German", help="what the sentences are")
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--limit", type=int, help="only so many sentences")
    parser.add_argument("--joined", action="store_true", help="also pairs of sentences, as one text each")
    parser.add_argument("--write", action="store_true", help="keep the numbers beside the shipped models")
    args = parser.parse_args()
    torch.manual_seed(0)
    sources, references = (lines(path)[: args.limit] for path in (args.source, args.target))
    if len(sources) != len(references):
        raise SystemExit(f"{len(sources)} sources, but {len(references)} references.")
    joined = [[f"{a} {b}" for a, b in zip(side[::2], side[1::2], strict=False)] for side in (sources, references)]
    for name in args.models:
        found = measured(name, sources, references, args.data, args.beams, args.batch)
        card = zoo.cards().get(name)
        if args.write and card is not None and card.folder is not None:
            kept = json.dumps(zoo.measures(name) | {MEASURE: found}, indent=2, ensure_ascii=False)
            atomic_write(card.folder / "measures.json", kept.encode() + b"\n", OSError)
        if args.joined:
            answers = translated(name, joined[0], args.beams, args.batch)
            score = sacrebleu.corpus_bleu(answers, [joined[1]])
            words = sum(len(text.split()) for text in joined[0]) / len(answers)
            print(
                f"\r  two as one: {words:.1f} words, {len(answers)} texts  {score.score:6.2f} (brevity {score.bp:.2f})"
            )


if __name__ == "__main__":
    main()

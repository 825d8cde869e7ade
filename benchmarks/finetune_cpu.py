"""Fine-tuning on the CPU beside the transformers Trainer, held against our bar: a 6-layer BERT on sentence pairs.

    python benchmarks/finetune_cpu.py [rounds] [threads] [width] [pairs] [fp32 or bf16; both if left out]

Every side trains the same model on the same pairs: one epoch, batches of 32, AdamW, dropout, the same precision, from
the first step to the last (tokenising, loading and saving are not counted). Each lives in a process of its own; they
take turns in random order, and medians are compared. Needs a quiet machine, and `accelerate` for the Trainer. Where
the machine is busy, the seconds that the processor worked are the steadier measure; they are compared beside.

The pairs are made of random words. Their lengths are those of natural language inference: a premise of about 20 tokens
with a long tail, a hypothesis of about 10.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BATCH, LONGEST, RATE = 32, 128, 5e-5
BAR = 1.3
OURS, THEIRS = "clearhead", "transformers Trainer"
SIDES = {  # name -> library, precision, order
    "clearhead fp32": (OURS, "fp32", "by length"),
    "clearhead fp32, random order": (OURS, "fp32", "random"),
    "Trainer fp32": (THEIRS, "fp32", "random"),
    "Trainer fp32, group_by_length": (THEIRS, "fp32", "by length"),
    "clearhead bf16": (OURS, "bf16", "by length"),
    "Trainer bf16": (THEIRS, "bf16", "random"),
    "Trainer bf16, group_by_length": (THEIRS, "bf16", "by length"),
}
PAIRS = [  # ours, theirs; the first is the bar's
    ("clearhead fp32", "Trainer fp32"),
    ("clearhead fp32", "Trainer fp32, group_by_length"),
    ("clearhead fp32, random order", "Trainer fp32"),
    ("clearhead bf16", "Trainer bf16"),
    ("clearhead bf16", "Trainer bf16, group_by_length"),
]


# ---- what is trained, and on what


def make_model(folder: Path, width: int) -> None:
    """A BERT of six layers with random weights, and a tokenizer that knows the words w0, w1, …"""
    import torch

    from clearhead import hub, models

    torch.manual_seed(0)
    family = models.family("bert")
    config = family.config(
        hidden_size=width, num_hidden_layers=6, num_attention_heads=width // 64 if width >= 128 else 2,
        intermediate_size=4 * width,
    )  # fmt: skip
    hub.save_model(family.make(config, "features"), folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{n}" for n in range(config.vocab_size - len(special))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}), encoding="utf-8")


def make_pairs(path: Path, count: int) -> None:
    chance = random.Random(1)

    def sentence(usual: float, spread: float) -> str:
        length = min(max(int(chance.lognormvariate(usual, spread)), 2), 100)
        return " ".join(f"w{chance.randrange(20_000)}" for _ in range(length))

    rows = [{"text": sentence(2.85, 0.6), "text_pair": sentence(2.25, 0.4), "label": n % 2} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


# ---- the sides: each returns the seconds of one epoch, on the clock and of the processor


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def between(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    return end[0] - start[0], end[1] - start[1]


def clearhead_side(room: Path, precision: str, order: str) -> Any:
    from clearhead.train import train

    def epoch() -> tuple[float, float]:
        times: dict[str, tuple[float, float]] = {}

        def watch(event: dict[str, Any]) -> None:
            times[event["event"]] = now()

        with tempfile.TemporaryDirectory(dir=room) as out:
            recipe = {
                "objective": "classification",
                "out": out,
                "data": {"train": str(room / "pairs.jsonl"), "cache": str(room / "tokens")},
                "model": {"start": str(room / "bert")},
                "batch": {"size": BATCH, "length": LONGEST, "bucket": order == "by length"},
                "optimizer": {"lr": RATE, "weight_decay": 0.0, "max_grad_norm": 1.0},
                "schedule": {"name": "linear"},
                "checkpoint": {"every": 10**9, "minutes": None},  # the Trainer writes none here either
                "precision": precision,
                "epochs": 1,
                "log_every": 10,
            }
            train(recipe, watchers=[watch])
        return between(times["begin"], times["step"])

    return epoch


def trainer_side(room: Path, precision: str, order: str) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(room / "bert")
    rows = [json.loads(line) for line in (room / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]
    data = [
        dict(tokenizer(row["text"], row["text_pair"], truncation=True, max_length=LONGEST)) | {"labels": row["label"]}
        for row in rows
    ]

    class Clock(transformers.TrainerCallback):
        began = ended = (0.0, 0.0)

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.began = now()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.ended = now()

    def epoch() -> tuple[float, float]:
        clock = Clock()
        arguments = transformers.TrainingArguments(
            output_dir=str(room / "trainer"), per_device_train_batch_size=BATCH, num_train_epochs=1,
            learning_rate=RATE, weight_decay=0.0, max_grad_norm=1.0, lr_scheduler_type="linear", use_cpu=True,
            bf16=precision == "bf16", save_strategy="no", report_to="none", logging_steps=10, disable_tqdm=True,
            train_sampling_strategy="group_by_length" if order == "by length" else "random",
        )  # fmt: skip
        model = transformers.AutoModelForSequenceClassification.from_pretrained(room / "bert")
        trainer = transformers.Trainer(
            model, arguments, train_dataset=data, callbacks=[clock],
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
        return between(clock.began, clock.ended)

    return epoch


def serve(pipe: Any, name: str, room: Path, threads: int) -> None:
    """A side in its own process: an epoch whenever it is asked for one."""
    import logging

    import torch

    torch.set_num_threads(threads)
    logging.disable(logging.WARNING)
    library, precision, order = SIDES[name]
    epoch = (clearhead_side if library == OURS else trainer_side)(room, precision, order)
    pipe.send(None)
    while pipe.recv():
        pipe.send(epoch())


# ---- in turns


def main(rounds: int, threads: int, width: int, examples: int, precision: str = "") -> None:
    names = [name for name in SIDES if precision in ("", SIDES[name][1])]
    if importlib.util.find_spec("accelerate") is None:
        print("The Trainer needs accelerate, which is not installed: only our side is measured.")
        names = [name for name in names if SIDES[name][0] == OURS]
    there = multiprocessing.get_context("spawn")
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="clearhead-bench-") as folder:
        room = Path(folder)
        make_model(room / "bert", width)
        make_pairs(room / "pairs.jsonl", examples)
        tokens = count_tokens(room)
        asked = {}
        for name in names:
            here, far = there.Pipe()
            process = there.Process(target=serve, args=(far, name, room, threads), daemon=True)
            process.start()
            here.recv()
            asked[name] = here
        for n in range(rounds + 1):  # the first one only warms up
            random.shuffle(names)
            for name in names:
                asked[name].send(True)
                spent = asked[name].recv()
                if n:
                    seconds[name].append(spent)
                print(
                    f"round {n}: {name:32} {spent[0]:6.1f} s, processor {spent[1]:6.1f} s", file=sys.stderr, flush=True
                )
        for pipe in asked.values():
            pipe.send(False)
    print(f"6 layers of {width}, {examples} pairs, {tokens:,} tokens, batches of {BATCH}, {threads} threads, "
          f"{rounds} rounds")  # fmt: skip
    middle = {name: [statistics.median(one) for one in zip(*found, strict=True)] for name, found in seconds.items()}
    for name in SIDES:
        if name in middle:
            clock, worked = middle[name]
            spread = f"{min(c for c, _ in seconds[name]):.1f} to {max(c for c, _ in seconds[name]):.1f}"
            speed = f"{examples / clock:7.1f} pairs/s {tokens / clock:8.0f} tokens/s"
            print(f"{name:32} {speed}   {clock:5.1f} s ({spread}), processor {worked:5.1f} s")
    for ours, theirs in PAIRS:
        if ours in middle and theirs in middle:
            ratio, work = (there / here for there, here in zip(middle[theirs], middle[ours], strict=True))
            verdict = f"   bar {BAR}  {'reached' if ratio >= BAR else 'MISSED'}" if (ours, theirs) == PAIRS[0] else ""
            print(f"{ours:32} {ratio:5.2f} × {theirs:32} (processor {work:5.2f} ×){verdict}")


def count_tokens(room: Path) -> int:
    """Words and special tokens, padding not counted."""
    rows = (json.loads(line) for line in (room / "pairs.jsonl").read_text(encoding="utf-8").splitlines())
    return sum(min(len(row["text"].split()) + len(row["text_pair"].split()) + 3, LONGEST) for row in rows)


if __name__ == "__main__":
    given = sys.argv[1:5] + ["3", "2", "384", "960"][len(sys.argv[1:5]) :]
    main(*map(int, given), *sys.argv[5:6])

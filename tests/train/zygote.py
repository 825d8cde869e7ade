"""A process that has everything imported and runs recipes in forks of itself, killed at a given tick of the work.

One line of JSON in: {"recipe": …, "kill_at": tick or null}. One out: {"status": …, "ticks": …}, ticks being how many
the run had.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # the optimisers would import it, in every fork

from clearhead import files, pipeline
from clearhead.text import train_tokenizer
from clearhead.train import train
from clearhead.train.data.table import TableWriter
from clearhead.train.engine import checkpoints
from clearhead.train.engine.flops import peak_flops_per_second
from clearhead.train.engine.log import Log
from clearhead.train.engine.loop import Loop
from clearhead.train.run import data, export, folder, tokenizer


class Clock:
    """Ticks at each piece of work; at one of them the process is killed, as by the power being cut."""

    def __init__(self, kill_at: int | None) -> None:
        self.ticks, self.kill_at = 0, kill_at

    def __call__(self) -> None:
        self.ticks += 1
        if self.ticks == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: object, name: str) -> None:
        """Tick before and after a function, and in the middle of what it writes."""
        real = getattr(owner, name)

        def ticking(*args, **options):
            self()
            found = real(*args, **options)
            self()
            return found

        setattr(owner, name, ticking)


def ticking_texts(clock: Clock):
    def instead(texts, *args, **options):
        def read():
            for n, text in enumerate(texts):
                if n % 40 == 0:
                    clock()
                yield text

        return train_tokenizer(read(), *args, **options)

    return instead


def half_written(clock: Clock):
    real = checkpoints.save_file

    def instead(tensors, path):
        Path(path).write_bytes(b"half of it")
        clock()
        real(tensors, path)
        clock()

    return instead


def child(said: dict, kill_at: int | None, answer: int) -> None:
    clock = Clock(kill_at)
    tokenizer.train_tokenizer = ticking_texts(clock)
    checkpoints.save_file = half_written(clock)
    for owner, name in (
        (TableWriter, "_finish"), (TableWriter, "_close_shard"), (Loop, "_step"), (Loop, "_evaluate"),
        (Log, "__call__"), (checkpoints.Checkpoints, "_delete_old"), (checkpoints.Checkpoints, "_delete_leftovers"),
        (files, "fsync"), (folder, "atomic_write"), (export, "atomic_write"),
        (pipeline.Pipeline, "save"), (Path, "rename"), (data, "prepare"),
    ):  # fmt: skip
        clock.around(owner, name)
    result = train(said)
    os.write(answer, json.dumps({"ticks": clock.ticks, "finished": result.finished}).encode())


def main() -> None:
    torch.set_num_threads(1)
    peak_flops_per_second(torch.device("cpu"), torch.float32)
    for line in sys.stdin:
        asked = json.loads(line)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(asked["recipe"], asked["kill_at"], writing)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as told:
            answer = told.read()
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status), **json.loads(answer or "{}")}), flush=True)


if __name__ == "__main__":
    main()

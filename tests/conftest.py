"""Every test starts from the same seed, on one thread, and without a network; the tests of a file go to one worker.

There are many thousand tests, and a millisecond around each is seconds of the whole: what is here costs little.
"""

import contextlib
import gc
import logging
import os
import re

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # in processes that tests start too, and for numpy and scikit-learn

import pytest
import torch

torch.set_num_threads(1)
os.fsync = lambda handle: None  # no test cuts the power
gc.disable()  # until everything is imported and collected, which is all kept anyway


def pytest_collection_finish(session):
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _seed():
    torch.default_generator.manual_seed(0)  # torch.manual_seed writes down the call stack for every kind of accelerator


class LogRecords(logging.Handler):
    """What was logged during a test."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    @property
    def text(self):
        return "\n".join(map(self.format, self.records))

    @contextlib.contextmanager
    def at_level(self, level, logger=None):
        changed = logging.getLogger(logger)
        before = changed.level
        changed.setLevel(level)
        try:
            yield
        finally:
            changed.setLevel(before)


@pytest.fixture
def caplog():
    """In place of pytest's own, which visits each of a thousand loggers six times a test (so it is off)."""
    records, ours = LogRecords(), logging.getLogger("clearhead")
    propagates, ours.propagate = ours.propagate, True  # a command line that ran in this process has switched it off
    logging.getLogger().addHandler(records)
    yield records
    logging.getLogger().removeHandler(records)
    ours.propagate = propagates


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """What the tests of a file share is made once then; of tests/parity/test_parity.py, what those of a case share."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            case = re.search(r"parity/test_parity\.py::.*?(\w+ \w+ \d+)\]$", nodeid)
            return case[1] if case else nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # as collected: the small pieces come last, and the workers end together
    return ByFile(config, log)

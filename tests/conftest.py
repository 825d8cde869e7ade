"""Every test starts from the same seed, on one thread, and without a network; the tests of a file go to one worker."""

import os
import re

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


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

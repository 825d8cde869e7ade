"""What leans on torch's private parts stands in one file, and answers as torch does."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import clearhead
from clearhead.nn import torch_internals

PRIVATE = re.compile(
    r"torch\._(C|dynamo|inductor|functorch)\b|torch\.utils\._|forward_ad\._|nn\.modules import module|ops\.mkldnn"
)


def test_private_parts_are_used_in_one_file():
    root = Path(clearhead.__file__).parent
    users = [path for path in root.rglob("*.py") if PRIVATE.search(path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(root)) for path in users] == ["nn/torch_internals.py"]


def test_whoever_records_or_transforms_is_noticed():
    assert not torch_internals.is_intercepted()
    with FlopCounterMode(display=False):
        assert torch_internals.is_intercepted()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch_internals.is_intercepted()
    with forward_ad.dual_level():
        assert torch_internals.is_intercepted()
    seen = []
    torch.func.vmap(lambda x: seen.append(torch_internals.is_intercepted()) or x)(torch.ones(2))
    assert seen == [True]
    assert not torch_internals.is_intercepted()


def test_hooks_of_all_modules_are_noticed():
    assert not torch_internals.has_global_forward_hooks()
    for register in (
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ):
        handle = register(lambda *_: None)
        assert torch_internals.has_global_forward_hooks()
        handle.remove()
    assert not torch_internals.has_global_forward_hooks()


def test_onednn_multiplies():
    linear = torch_internals.onednn_linear()
    if linear is None:
        pytest.skip("torch was built without oneDNN")
    x, weight, bias = torch.randn(5, 7), torch.randn(3, 7), torch.randn(3)
    torch.testing.assert_close(linear(x, weight, bias), nn.functional.linear(x, weight, bias))
    torch.testing.assert_close(linear(x, weight, None), nn.functional.linear(x, weight))


def test_the_limit_of_compilations_is_put_back():
    before = torch._dynamo.config.recompile_limit
    with torch_internals.recompile_limit(before + 5):
        assert torch._dynamo.config.recompile_limit == before + 5
    assert torch._dynamo.config.recompile_limit == before

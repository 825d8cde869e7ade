"""The native kernels against torch's own products: every kind of matrix, many shapes, what is left alone."""

import copy
import os
import pickle
import platform
import stat
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from clearhead.nn.fast import cpu_kernels
from clearhead.nn.fast.quantized import QuantizedMatrix
from clearhead.nn.linear import FEW, MANY, Linear
from tests.fork_server import run_python

SHAPES = [(768, 768), (1, 1), (31, 5), (32, 1), (33, 130), (40, 17), (100, 15), (64, 131), (1, 50), (257, 3)]
needs_kernels = pytest.mark.skipif(cpu_kernels.load() is None, reason=f"no native kernels: {cpu_kernels.why_not()}")

# the code for other processors, beside the one for this
LIBRARIES = {"this processor": (), "any processor": ("-DPLAIN",)}
if platform.machine() in ("x86_64", "AMD64"):
    LIBRARIES["AVX2 at most"] = ("-mno-avx512f",)


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request):
    return cpu_kernels.open_library(LIBRARIES[request.param])


def stored(weight: torch.Tensor, kind: int) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """(what the kernel reads, scales, the same matrix in float64)"""
    if kind == cpu_kernels.F32:
        return weight, None, weight.double()
    if kind == cpu_kernels.BF16:
        return weight.bfloat16(), None, weight.bfloat16().double()
    matrix = QuantizedMatrix(weight, "int8" if kind == cpu_kernels.I8 else "int4")
    return matrix.codes, matrix.scales, matrix.rows(slice(None)).double()


def address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@needs_kernels
@pytest.mark.parametrize("kind", [cpu_kernels.F32, cpu_kernels.BF16, cpu_kernels.I8, cpu_kernels.I4])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_kernel_is_the_product(library, kind, threads):
    for inputs, outputs in SHAPES:
        data, scales, matrix = stored(torch.randn(outputs, inputs), kind)
        for rows in (1, 2, 3, 4, 5, 7, 8, 9, 12, 33):
            for bias in (None, torch.randn(outputs)):
                x = torch.randn(rows, inputs)
                y = torch.full((rows + 1, outputs), 7.0)  # one row more: nothing may be written there
                library.linear(
                    kind, address(x), address(data), address(scales), address(bias), address(y), rows, inputs, outputs,
                    threads,
                )  # fmt: skip
                wanted = x.double() @ matrix.t() + (0 if bias is None else bias)
                allowed = 1e-5 * inputs**0.5 + 1e-5 * wanted.abs()
                if kind in (cpu_kernels.I8, cpu_kernels.I4) and rows > FEW:  # inputs as whole numbers of 16 bits
                    allowed += x.abs().amax(-1, keepdim=True) / 65534 * matrix.abs().sum(-1)
                assert bool(((y[:rows] - wanted).abs() <= allowed).all())
                assert bool((y[rows:] == 7).all())


@needs_kernels
def test_infinities_and_nan_go_through(library):
    x, w, y = torch.ones(1, 40), torch.ones(2, 40), torch.empty(1, 2)
    w[0, 3], w[1, 39] = float("inf"), float("nan")
    library.linear(cpu_kernels.F32, address(x), address(w), None, None, address(y), 1, 40, 2, 1)
    assert y[0, 0] == float("inf") and bool(y[0, 1].isnan())


@needs_kernels
@pytest.mark.parametrize("kind", [cpu_kernels.I8, cpu_kernels.I4])
def test_many_rows_are_right_group_by_group(library, kind):
    """One group of 32 inputs is a million times smaller than the other, and keeps its own precision."""
    data, scales, matrix = stored(torch.randn(40, 64), kind)
    x = torch.randn(20, 64)
    x[:, 32:] *= 1e-6
    x[3, :32] = 0
    y = torch.empty(20, 40)
    library.linear(kind, address(x), address(data), address(scales), None, address(y), 20, 64, 40, 1)
    wanted = x[3].double() @ matrix.t()
    torch.testing.assert_close(y[3].double(), wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
    x[5, 40], x[6, 2] = torch.nan, torch.inf
    library.linear(kind, address(x), address(data), address(scales), None, address(y), 20, 64, 40, 1)
    broken = ~y.isfinite().all(-1)
    assert broken.nonzero().flatten().tolist() == [5, 6]


@needs_kernels
@pytest.mark.parametrize("kind", [cpu_kernels.I8, cpu_kernels.I4])
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-36, 1e-34, 1e-20, 1e20, 1e30])
def test_many_rows_of_any_size(library, kind, size):
    """Inputs of the largest codes and alternating signs, next to an outlier: no sum of whole numbers runs over."""
    data, scales, matrix = stored(torch.randn(40, 64).sign(), kind)
    x = torch.randn(9, 64).sign() * size
    x[4] = matrix[7].sign() * size  # all products of one sign
    x[5, 3] *= 1000
    y = torch.empty(9, 40)
    library.linear(kind, address(x), address(data), address(scales), None, address(y), 9, 64, 40, 1)
    wanted = x.double() @ matrix.t()
    allowed = 1e-5 * wanted.abs() + x.abs().amax(-1, keepdim=True) / 60000 * matrix.abs().sum(-1)
    assert bool(((y - wanted).abs() <= allowed + 64e-34).all())


class Spy:
    """Counts the calls of the native product."""

    def __init__(self, real):
        self.real, self.calls, self.threaded = real, 0, real.threaded

    def linear(self, *arguments):
        self.calls += 1
        self.real.linear(*arguments)


@pytest.fixture
def spy(monkeypatch):
    spy = Spy(cpu_kernels.load())
    monkeypatch.setattr(cpu_kernels, "loaded", spy)
    return spy


def layer(inputs=48, outputs=70, bias=True, transposed=False, dtype=torch.float32) -> Linear:
    made = Linear(inputs, outputs, bias=bias, dtype=dtype).requires_grad_(False)
    if transposed:
        made.weight = nn.Parameter(torch.randn(inputs, outputs, dtype=dtype).t(), requires_grad=False)
    return made


@needs_kernels
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 4), (FEW,), (FEW + 1,), (MANY,), (3, 50), ()])
def test_linear_is_f_linear(spy, shape, bias, transposed):
    made = layer(bias=bias, transposed=transposed)
    x = torch.randn(*shape, 48)
    torch.testing.assert_close(made(x), F.linear(x, made.weight, made.bias))
    assert spy.calls == (x.numel() // 48 <= FEW and not transposed)


@needs_kernels
@pytest.mark.parametrize("bias", [False, True])
def test_bf16_is_summed_in_fp32_and_rounded_once(spy, bias):
    made = layer(bias=bias, dtype=torch.bfloat16)
    x = torch.randn(2, 48).bfloat16()
    wanted = F.linear(x.float(), made.weight.float(), None if made.bias is None else made.bias.float()).bfloat16()
    assert torch.equal(made(x), wanted) and spy.calls == 1


@needs_kernels
def test_input_that_is_not_in_order(spy):
    made = layer()
    for x in (torch.randn(48, 4).t(), torch.randn(4, 96)[:, ::2], torch.randn(1, 48).expand(3, 48)):
        torch.testing.assert_close(made(x), F.linear(x, made.weight, made.bias))
    assert spy.calls == 3


@needs_kernels
def test_nothing_in_nothing_out(spy):
    assert layer()(torch.empty(0, 48)).shape == (0, 70)
    assert layer()(torch.empty(2, 0, 48)).shape == (2, 0, 70)


@needs_kernels
def test_what_is_left_to_torch(spy):
    made, x = layer(), torch.randn(1, 48)
    plain = nn.Linear(48, 70)
    plain.load_state_dict(made.state_dict())

    learns = copy.deepcopy(made).requires_grad_()
    learns(x).sum().backward()
    assert learns.weight.grad is not None
    asks = x.clone().requires_grad_()
    made(asks).sum().backward()
    assert asks.grad is not None
    with torch.autocast("cpu", torch.bfloat16):
        assert made(x).dtype == torch.bfloat16
    assert made.double()(x.double()).dtype == torch.float64
    made.float()
    with FlopCounterMode(display=False) as flops:
        made(x)
    assert flops.get_total_flops() > 0
    traced = torch.jit.trace(made, x, check_trace=False)
    torch.testing.assert_close(traced(2 * x), plain(2 * x))
    torch.testing.assert_close(torch.func.vmap(made)(x[None])[0], plain(x))
    with torch.no_grad():
        _, tangent = torch.func.jvp(made, (x,), (x,))
    torch.testing.assert_close(tangent, F.linear(x, made.weight))
    strided = layer()
    strided.weight = nn.Parameter(torch.randn(70, 96)[:, ::2], requires_grad=False)
    torch.testing.assert_close(strided(x), F.linear(x, strided.weight, strided.bias))
    with pytest.raises(RuntimeError):
        made(torch.randn(1, 47))
    assert spy.calls == 0
    with torch.no_grad():
        learns(x)
    assert spy.calls == 1


@needs_kernels
def test_a_compiled_layer_is_torchs(spy):
    made, x = layer(), torch.randn(1, 48)
    torch.testing.assert_close(torch.compile(made, backend="eager")(x), F.linear(x, made.weight, made.bias))
    assert spy.calls == 0


def test_it_is_a_linear_to_all_tools():
    made = Linear(48, 70)
    assert isinstance(made, nn.Linear) and [*made.state_dict()] == ["weight", "bias"]
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(other.weight, made.weight)
    assert Linear(4, 5, device="meta")(torch.randn(1, 4, device="meta")).shape == (1, 5)
    made.weight = nn.Parameter(torch.ones(70, 48))  # a weight may be replaced, as a tied one is
    with torch.no_grad():
        torch.testing.assert_close(made(torch.ones(1, 48)), 48 + made.bias[None])
    nn.utils.parametrizations.weight_norm(made)
    made(torch.ones(1, 48))


@needs_kernels
def test_threads_may_call_at_once():
    made, x = layer(300, 300), torch.randn(4, 300)
    wanted, found = F.linear(x, made.weight, made.bias), []

    def work():
        for _ in range(50):
            found.append(torch.allclose(made(x), wanted, atol=1e-5))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 200 and all(found)


def run(code: str, **environment: str) -> str:
    done = run_python(["-c", code], {**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASK = "from clearhead.nn.fast import cpu_kernels; print(cpu_kernels.load() is not None, cpu_kernels.why_not())"


def test_it_can_be_switched_off():
    assert run(ASK, CLEARHEAD_NATIVE="0") == "False CLEARHEAD_NATIVE switches them off"


def test_without_a_compiler_it_says_so(tmp_path):
    said = run(ASK, CC="no-such-compiler", XDG_CACHE_HOME=str(tmp_path))
    assert said.startswith("False there is no C compiler")


def test_a_compiler_that_fails_is_quoted(tmp_path):
    compiler = tmp_path / "bad-cc"
    compiler.write_text("#!/bin/sh\necho 'cannot do that' >&2\nexit 1\n")
    compiler.chmod(0o755)
    said = run(ASK, CC=str(compiler), XDG_CACHE_HOME=str(tmp_path))
    assert said.startswith("False") and "cannot do that" in said
    assert not [*(tmp_path / "clearhead" / "native").iterdir()]  # no half-made file stays


def quick_compiler(folder) -> str:
    """For libraries that are compiled to be looked at: without optimising."""
    quick = folder / "quick-cc"
    quick.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    quick.chmod(0o755)
    return str(quick)


@needs_kernels
def test_it_is_compiled_once_for_the_user_alone(tmp_path):
    place = {"CC": quick_compiler(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    assert run(ASK, **place) == "True"
    folder = tmp_path / "clearhead" / "native"
    (made,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not made.stat().st_mode & 0o022
    before = made.stat().st_mtime_ns
    assert run(ASK, **place) == "True"
    assert made.stat().st_mtime_ns == before

    made.write_bytes(b"not a library")
    made.chmod(0o722)  # others could have written it: it is not loaded but made again
    assert run(ASK, **place) == "True"
    assert made.stat().st_size > 1000

    made.write_bytes(made.read_bytes()[:-1000])  # damaged, and ours: it is made again
    assert run(ASK, **place) == "True"
    assert [*folder.iterdir()] == [made] and made.stat().st_size > 1000

    folder.chmod(0o777)  # nor is a folder used in which others can write
    made.write_bytes(b"not a library")
    assert run(ASK, **place) == "True"
    assert made.read_bytes() == b"not a library"


def test_import_compiles_nothing(tmp_path):
    code = "import clearhead.pipeline; from clearhead.nn.fast import cpu_kernels as k; print(k.loaded, k._tried)"
    assert run(code, XDG_CACHE_HOME=str(tmp_path)) == "None False"
    assert not [*tmp_path.iterdir()]


@needs_kernels
def test_a_relative_cache_is_passed_over(tmp_path, monkeypatch):
    """It would be a folder inside whatever folder one works in, and a library there is somebody else's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    compiler = quick_compiler(tmp_path / "home")
    assert run(ASK, CC=compiler, XDG_CACHE_HOME="cache", HOME=str(tmp_path / "home")) == "True"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]

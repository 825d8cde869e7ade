"""The same numbers on an accelerator, for every family: fp32, half precision, padding, caches, traces, gradients.

Skipped without one. CLEARHEAD_TEST_DEVICE=cpu runs the same checks on the CPU, to test the tests.
"""

import copy
import dataclasses
import os
import signal

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import clearhead as ch
from clearhead.generate import cuda_graphs
from clearhead.models import FAMILIES, Model, family
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.heads import Summary
from clearhead.models.segment_recurrent import SegmentRecurrentModel
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, Stack, TokenEmbedder
from clearhead.nn.block_sparse import BlockSparseAttention
from clearhead.nn.fast import gpu_decode, gpu_gemv
from clearhead.nn.kv_cache import StaticKVCache
from clearhead.nn.linear import Linear

DEVICE = os.environ.get("CLEARHEAD_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "")
pytestmark = pytest.mark.skipif(not DEVICE, reason="no accelerator here")

BATCH, TIME, TARGET = 3, 40, 20
LENGTHS = (TIME, 30, 7)
SIZES = {
    "vocab_size": 200,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "intermediate_size": 96,
    "feedforward_size": 96,
    "max_position_embeddings": 80,
    "embedding_size": 64,
    "head_dim": 16,
    "rotary_dim": 8,
    "block_size": 4,  # texts of 40 are long enough for BigBird's sparse attention, for windows and for bands
    "num_random_blocks": 1,
    "window_size": 8,
    "band": 8,
    "cutoffs": [50, 120],
    "mem_len": 0,
    "same_length": False,
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
FIRST_WORD = 6  # below: special tokens
DISTANCES = {"relative_attention": True, "pos_att_type": "c2p|p2c"}
DECODER = {"is_decoder": True}
TOKEN_FAMILIES = [name for name in FAMILIES if family(name).modality == "text"]
CASES: dict[str, tuple[str, str | None, dict]] = {name: (name, None, {}) for name in TOKEN_FAMILIES} | {
    "bert with relative keys": ("bert", "masked-lm", {"position_embedding_type": "relative_key_query"}),
    "bert decoder": ("bert", "causal-lm", DECODER),
    "roberta decoder": ("roberta", "causal-lm", DECODER),
    "xlm-roberta decoder": ("xlm-roberta", "causal-lm", DECODER),
    "xlm-roberta-xl decoder": ("xlm-roberta-xl", "causal-lm", DECODER),
    "electra decoder": ("electra", "causal-lm", {**DECODER, "embedding_size": 32}),
    "big_bird decoder": ("big_bird", "causal-lm", {**DECODER, "attention_type": "original_full"}),
    "albert with groups": ("albert", "pretraining", {"num_hidden_groups": 2, "inner_group_num": 2}),
    "deberta with distances": ("deberta", "masked-lm", DISTANCES),
    "deberta-v2 with distances and a convolution": (
        "deberta-v2",
        "masked-lm",
        {**DISTANCES, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "conv_kernel_size": 3},
    ),
    "xlm with languages, causal": ("xlm", "masked-lm", {"n_langs": 2, "causal": True}),
    "bart's decoder alone": ("bart", "causal-lm", {}),
    "transformer pre-norm": ("transformer", "seq2seq-lm", {"norm_first": True, "final_norm": True}),
    "rnn of GRUs in both directions": ("rnn", "token-classification", {"cell": "gru", "bidirectional": True}),
    "rnn classifying": (
        "rnn",
        "sequence-classification",
        {"pooling": "concat", "num_hidden_layers": 3, "bidirectional": True},
    ),
    "rnn-seq2seq with dot products": ("rnn-seq2seq", "seq2seq-lm", {"attention": "dot", "encoder_layers": 2}),
    "rnn-seq2seq in a window, fed": (
        "rnn-seq2seq",
        "seq2seq-lm",
        {"attention": "concat", "attention_window": 5, "input_feeding": True, "cell": "gru"},
    ),
    "transfo-xl with a memory": ("transfo-xl", "causal-lm", {"mem_len": 16, "same_length": True, "div_val": 2}),
    "xlnet classifying": ("xlnet", "sequence-classification", {"mem_len": 16}),
}
COMPILED = ("gpt2", "bert", "transformer")  # each costs many seconds


def make(name: str) -> Model:
    family_name, task, options = CASES[name]
    chosen = family(family_name)
    known = {f.name: f.default for f in dataclasses.fields(chosen.config)}
    values = {k: v for k, v in SIZES.items() if k in known} | options
    for token, value in TOKENS.items():  # where the family has none, or the last of a large vocabulary
        if token in known and (known[token] is None or known[token] >= SIZES["vocab_size"]):
            values[token] = value
    torch.manual_seed(0)
    model = chosen.make(chosen.config(**values), task)
    with torch.no_grad():
        for parameter in model.parameters():  # wide enough for every tensor to matter
            parameter.add_(torch.randn_like(parameter) * 0.08)
    return model


@pytest.fixture(autouse=True)
def exact():
    """fp32 is fp32, in matrix products and in convolutions."""
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = False
    yield
    for backend, value in zip(backends, before, strict=True):
        backend.allow_tf32 = value


def both(name: str) -> tuple[Model, Model]:
    """The same model on the CPU and on the accelerator."""
    cpu = make(name)
    return cpu, copy.deepcopy(cpu).to(DEVICE)


@pytest.fixture(params=CASES)
def pair(request) -> tuple[Model, Model]:
    return both(request.param)


def inputs(model: Model, padded: bool = True) -> dict[str, Tensor]:
    """A batch with everything that the model can take."""
    ids, mask = torch.randint(FIRST_WORD, 200, (BATCH, TIME)), torch.ones(BATCH, TIME, dtype=torch.long)
    for row, length in enumerate(LENGTHS if padded else ()):
        mask[row, length:] = 0
    out = {"input_ids": ids.masked_fill(mask == 0, model.config.pad_token_id), "attention_mask": mask}
    if isinstance(model, EncoderDecoderModel):
        return out | {"decoder_input_ids": torch.randint(FIRST_WORD, 200, (BATCH, TARGET))}
    attention = getattr(model.stack.layers[0], "attention", None)
    if model.stack.embed.has_segments or getattr(attention, "segments", None) is not None:
        out["token_type_ids"] = torch.randint(0, min(2, getattr(model.config, "type_vocab_size", 2)), ids.shape)
    if model.stack.embed.languages is not None:
        out["langs"] = torch.randint(0, 2, ids.shape)
    return out


def there(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k: v.to(DEVICE) for k, v in batch.items()}


def real_of(answer: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """The answer, without what it says of padding."""
    return answer[batch["attention_mask"].bool()] if answer.shape[:2] == (BATCH, TIME) else answer


def reads_left_to_right(model: Model) -> bool:
    return isinstance(model, EncoderDecoderModel) or model.stack.causal


def writes(model: Model) -> bool:
    if isinstance(model, EncoderDecoderModel):
        return True
    return model.stack.causal and model.language_head is not None and model.language_head.shift


def close(got: Tensor, want: Tensor, tolerance: float = 1e-4) -> None:
    scale = max(1.0, want.abs().max().item())
    torch.testing.assert_close(got.cpu(), want.cpu(), rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("padded", [False, True])
def test_same_numbers(pair, padded):
    cpu, gpu = pair
    batch = inputs(cpu, padded)
    with torch.no_grad():
        want, got = cpu(**batch), gpu(**there(batch))
    assert got.keys() == want.keys()
    assert got.logits.device.type == torch.device(DEVICE).type
    assert got.logits.std() > 1e-2  # an answer that says something
    for key in {"logits", "seq_relationship_logits"} & set(want.keys()):
        close(real_of(got[key], batch), real_of(want[key], batch))
    for a, b in zip(got.mems or (), want.mems or (), strict=True):
        close(a, b)


def test_memories_and_targets():
    """What only Transformer-XL and XLNet take: a memory of the last call, an order to guess in, words to guess."""
    for name in ("transfo-xl with a memory", "xlnet"):
        cpu, gpu = both(name)
        cpu.stack.mem_len = gpu.stack.mem_len = 16
        first, second = inputs(cpu, padded=False), inputs(cpu)
        if name == "xlnet":
            places = torch.stack([torch.randperm(TIME)[:3] for _ in range(BATCH)])
            second["target_mapping"] = nn.functional.one_hot(places, TIME)
            second["perm_mask"] = torch.rand(BATCH, TIME, TIME).round()
        with torch.no_grad():
            want = cpu(**second, mems=cpu(**first).mems)
            got = gpu(**there(second), mems=gpu(**there(first)).mems)
        close(real_of(got.logits, second), real_of(want.logits, second))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(pair, dtype):
    cpu, gpu = pair
    batch = inputs(cpu)
    with torch.no_grad():
        want, got = cpu(**batch).logits, gpu.to(dtype)(**there(batch)).logits
    assert got.isfinite().all()
    got, want = real_of(got.float().cpu(), batch), real_of(want, batch)
    assert (got - want).norm() / want.norm() < (0.05 if dtype == torch.bfloat16 else 0.01)


def test_padded_batch_equals_one_by_one(pair):
    """A row alone: without its padding, where the length of a text does not change how it is read."""
    _, gpu = pair
    sparse = any(isinstance(module, BlockSparseAttention) for module in gpu.modules())  # short texts: full attention
    last = any(isinstance(module, Summary) and module.token == "final" for module in gpu.modules())
    batch = there(inputs(gpu))
    with torch.no_grad():
        together = gpu(**batch).logits
        for row, length in enumerate(LENGTHS):
            end = TIME if sparse or last else length
            alone = {k: v[row : row + 1] if "decoder" in k else v[row : row + 1, :end] for k, v in batch.items()}
            single = gpu(**alone).logits[0]
            per_word = together.shape[:2] == (BATCH, TIME)
            close(*((t[:length] if per_word else t) for t in (together[row], single)))


def test_loss_and_gradients(pair):
    cpu, gpu = pair
    batch = inputs(cpu)
    labels = {"labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}
    if isinstance(cpu, EncoderDecoderModel):
        labels = {"labels": batch["decoder_input_ids"]}
    elif cpu.task in ("replaced-token", "token-classification"):
        labels = {"labels": batch["input_ids"] % 2}
    elif cpu.task == "sequence-classification":
        labels = {"labels": torch.tensor([0, 1, 0])}
    elif cpu.task == "pretraining":
        labels["sentence_order_label"] = torch.tensor([0, 1, 0])
    want, got = cpu(**batch, **labels).loss, gpu(**there(batch), **there(labels)).loss
    close(got, want)
    want.backward()
    got.backward()
    for (name, a), b in zip(gpu.named_parameters(), cpu.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if b.grad is not None:
            close(a.grad, b.grad)


def test_explicit_path_and_trace(pair):
    cpu, gpu = pair
    batch = inputs(cpu)
    inside = "**.attention.weights" if any(n.endswith("attention.weights") for n in ch.tap_points(cpu)) else "**.hidden"
    with torch.no_grad():
        plain = gpu(**there(batch)).logits
        with ch.trace(gpu, inside, cpu=True) as seen:
            watched = gpu(**there(batch)).logits
        with ch.trace(cpu, inside) as wanted:
            cpu(**batch)
    close(real_of(watched, batch), real_of(plain, batch))
    assert set(seen) == set(wanted) != set()
    for name in wanted:
        assert seen[name].device.type == "cpu"
        close(*(real_of(t.transpose(1, 2), batch) for t in (seen[name], wanted[name])))


def test_cached_equals_uncached(pair):
    _, gpu = pair
    if not reads_left_to_right(gpu):
        pytest.skip("it reads in both directions")
    if isinstance(gpu, SegmentRecurrentModel) and gpu.stack.mem_len:
        pytest.skip("a short memory forgets what the whole text shows")
    batch = there(inputs(gpu, padded=False))
    coder = isinstance(gpu, EncoderDecoderModel)
    key = "decoder_input_ids" if coder else "input_ids"
    ids = batch.pop(key)
    given = batch if coder else {}
    by_token = {} if coder else {k: v for k, v in batch.items() if k != "attention_mask"}
    with torch.no_grad():
        whole = gpu(**{key: ids}, **given, **by_token).logits
        cache, at, pieces = gpu.start_state(ids.shape[1]), 0, []
        for size in (ids.shape[1] - 9, 1, 1, 7):
            piece = {k: v[:, at : at + size] for k, v in {key: ids, **by_token}.items()}
            pieces.append(gpu(**piece, **given, past_key_values=cache).logits)
            at += size
    close(torch.cat(pieces, 1), whole)


def test_generation_agrees(pair):
    cpu, gpu = pair
    if not writes(cpu):
        pytest.skip("it does not write")
    batch = {k: v for k, v in inputs(cpu).items() if k in ("input_ids", "attention_mask")}
    if isinstance(cpu, SegmentRecurrentModel):  # a memory cannot tell padding from text
        batch = {"input_ids": torch.randint(FIRST_WORD, 200, (BATCH, TIME))}
    for options in ({}, {"num_beams": 3}):
        want = cpu.generate(**batch, max_new_tokens=10, **options)
        got = gpu.generate(**there(batch), max_new_tokens=10, **options)
        assert torch.equal(got.cpu(), want)
    want = cpu.generate(**batch, max_new_tokens=10, top_k=20, seed=1)
    assert torch.equal(gpu.generate(**there(batch), max_new_tokens=10, top_k=20, seed=1).cpu(), want)


@pytest.mark.skipif(DEVICE == "cpu", reason="steps are recorded on a CUDA device")
@pytest.mark.parametrize("compiled", [False, True])
def test_recorded_steps(compiled):
    """Replayed steps write what plain ones do: padded, sampled, with rules, in copies; twice, and at another length."""
    _, gpu = both("gpt2")
    batch = {k: v for k, v in there(inputs(gpu)).items() if k in ("input_ids", "attention_mask")}
    sampled = {"top_k": 20, "seed": 1, "num_return_sequences": 2}
    for options in ({}, sampled, {"repetition_penalty": 1.3}, {"eos_token_id": list(range(20, 60))}):
        for new in (12, 30, 12):
            want = gpu.generate(**batch, max_new_tokens=new, cuda_graphs=False, **options)
            got = gpu.generate(**batch, max_new_tokens=new, cuda_graphs=True, compile=compiled, **options)
            assert torch.equal(got, want)


@pytest.mark.skipif(DEVICE == "cpu", reason="steps are recorded on a CUDA device")
def test_weights_that_were_replaced_are_recorded_anew():
    _, gpu = both("gpt2")
    ids = torch.randint(FIRST_WORD, 200, (1, 10), device=DEVICE)
    before = gpu.generate(ids, max_new_tokens=12, cuda_graphs=True)
    down = gpu.stack.layers[1].feedforward.down
    down.weight = nn.Parameter(torch.randn_like(down.weight))
    want = gpu.generate(ids, max_new_tokens=12, cuda_graphs=False)
    assert torch.equal(gpu.generate(ids, max_new_tokens=12, cuda_graphs=True), want)
    assert not torch.equal(want, before)


@pytest.mark.skipif(DEVICE == "cpu", reason="steps are recorded on a CUDA device")
def test_nothing_is_recorded_under_autocast():
    """Its copies of the weights are freed with it; a recording would read what lies there afterwards."""
    _, gpu = both("gpt2")
    ids = torch.randint(FIRST_WORD, 200, (1, 10), device=DEVICE)

    def written() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return gpu.generate(ids, max_new_tokens=12)

    before = written()
    torch.randn(2**24, device=DEVICE)  # something else lies in the freed memory now
    assert torch.equal(written(), before)
    with torch.autocast("cuda", torch.bfloat16):
        assert "autocast" in (cuda_graphs.why_not_recordable(gpu) or "")


def by_hand(width: int, heads: int, hidden: int, activation: str = "gelu_new", words: int = 203, **options) -> Stack:
    """A plain stack of three layers, wide enough weights for every part to matter."""
    bias = options.get("bias", True)
    blocks = [
        Block(
            Attention(width, heads, **options),
            FeedForward(width, hidden, activation, bias=bias),
            attention_norm=LayerNorm(width, bias=bias),
            feedforward_norm=LayerNorm(width, elementwise_affine=bias),
        )
        for _ in range(3)
    ]
    stack = Stack(TokenEmbedder(nn.Embedding(words, width)), blocks, LayerNorm(width), causal=True)
    for name, p in stack.named_parameters():
        nn.init.normal_(p, std=0.5 if "norm" in name or p.ndim == 1 else p.shape[-1] ** -0.5)
    return stack


PLAIN_STACKS = {
    "tiny": lambda: by_hand(64, 4, 96, fused=True),
    "GPT-2": lambda: by_hand(768, 12, 3072, fused=True),
    "GPT-2 XL": lambda: by_hand(1600, 25, 6400, fused=True),
    "apart, shared keys": lambda: by_hand(96, 6, 200, "gelu", kv_heads=2),
    "no bias": lambda: by_hand(128, 2, 9000, "relu", bias=False),
    "odd sizes": lambda: by_hand(40, 5, 37, "silu", words=31, scale=0.2),
}


@pytest.mark.skipif(DEVICE == "cpu", reason="Triton kernels")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PLAIN_STACKS)
@torch.no_grad()
def test_a_row_through_plain_layers(name, dtype):
    """As near to fp32 as the way through the modules is: at the first place, in the first keys, and beyond them."""
    torch.manual_seed(0)
    stack = PLAIN_STACKS[name]().to(DEVICE).eval()
    output = Linear(stack.embed.tokens.embedding_dim, stack.embed.tokens.num_embeddings, bias=False).to(DEVICE)
    narrow, narrow_output = copy.deepcopy(stack).to(dtype), copy.deepcopy(output).to(dtype)
    assert gpu_decode.is_supported(narrow, narrow_output)
    span = 640
    for prompt in (1, 16, 300, span - 2):
        ids = torch.randint(0, stack.embed.tokens.num_embeddings, (1, prompt), device=DEVICE)
        visible = torch.zeros(1, span, dtype=torch.bool, device=DEVICE)
        visible[0, prompt // 5 : prompt] = True  # padding on the left
        square = (torch.ones(prompt, prompt, dtype=torch.bool, device=DEVICE).tril() & visible[:, :prompt])[None, None]
        position = torch.tensor([prompt], device=DEVICE)
        caches = [StaticKVCache(3, span, position) for _ in range(3)]
        for part, cache in zip((stack, narrow, narrow), caches, strict=True):
            part(ids, attention_mask=square, cache=cache)
        scores = torch.full((1, output.out_features), torch.nan, device=DEVICE)
        for token in (3, 7):
            given, place = torch.tensor([[token]], device=DEVICE), position[None]
            visible.index_fill_(1, position, True)
            want, plain = (
                end(part(given, attention_mask=visible[:, None, None], position_ids=place, cache=cache))[:, 0].float()
                for part, end, cache in zip((stack, narrow), (output, narrow_output), caches, strict=False)
            )
            x = narrow.embed(given, place)
            gpu_decode.decode_step(narrow, narrow_output, x, caches[2], visible[0], position, scores)
            error, allowed = ((got - want).norm() / want.norm() for got in (scores, plain))
            assert error < 1.5 * allowed + 1e-3, (prompt, token)
            position += 1
        for a, b in zip(caches[1].layers, caches[2].layers, strict=True):
            close(b._keys.float(), a._keys.float(), 0.05)
            close(b._values.float(), a._values.float(), 0.05)


@pytest.mark.skipif(DEVICE == "cpu", reason="steps are recorded on a CUDA device")
@pytest.mark.parametrize("name", ["gpt2", "ctrl", "gptj", "openai-gpt"])
def test_one_text_in_half_precision(name):
    """Recorded, every token of one text is (nearly) the likeliest of the fp32 model; also when it is recorded twice."""
    cpu, gpu = both(name)
    gpu = gpu.bfloat16()
    ids = torch.randint(FIRST_WORD, 200, (1, 21), device=DEVICE)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    for options in ({}, {}, {"compile": True}, {"repetition_penalty": 1.0001}):
        got = gpu.generate(ids, attention_mask=mask, max_new_tokens=30, eos_token_id=[], cuda_graphs=True, **options)
        assert got.shape[1] == 51
        with torch.no_grad():
            scores = cpu(got[:, 4:].cpu()).logits[0, 16:-1]  # (30, words)
        chosen = scores.gather(1, got[0, 21:, None].cpu())[:, 0]
        assert (scores.amax(-1) - chosen).max() < 0.05 * scores.std()
    assert cuda_graphs.can_step_by_row(gpu) == (name in ("gpt2", "ctrl"))


@pytest.mark.skipif(DEVICE == "cpu", reason="a Triton kernel")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_row_times_a_matrix(dtype):
    for outs, ins in ((768, 768), (50257, 768), (1600, 6400), (37, 41), (1, 3)):
        layer = Linear(ins, outs, bias=outs % 2 == 0).to(DEVICE, dtype)
        row = torch.randn(1, 1, ins, device=DEVICE, dtype=dtype)
        with torch.no_grad():
            assert gpu_gemv.prepare() and gpu_gemv.usable(row, layer.weight)
            want = torch.nn.functional.linear(
                *(None if t is None else t.float() for t in (row, layer.weight, layer.bias))
            )
            close(layer(row).float(), want, 8e-3)
            rows = torch.randn(5, ins, device=DEVICE, dtype=dtype)
            close(layer(rows), torch.nn.functional.linear(rows, layer.weight, layer.bias), 8e-3)


@pytest.mark.skipif(DEVICE == "cpu", reason="compiled code is tested on an accelerator")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_whole(name):
    _, gpu = both(name)
    batch = there(inputs(gpu, padded=False))
    compiled = torch.compile(gpu, fullgraph=True)
    with torch.no_grad():
        close(compiled(**batch).logits, gpu(**batch).logits, 1e-3)


def test_loading_onto_the_device(pair, tmp_path):
    cpu, gpu = pair
    ch.hub.save_model(cpu, tmp_path / "m")
    loaded = ch.hub.load_model(tmp_path / "m", device=DEVICE, dtype="bfloat16")
    kind = torch.device(DEVICE).type
    assert {t.device.type for t in (*loaded.parameters(), *loaded.buffers())} == {kind}
    assert loaded.dtype == torch.bfloat16
    batch = there(inputs(gpu))
    with torch.no_grad():
        got, want = loaded(**batch).logits, gpu.bfloat16()(**batch).logits
    close(real_of(got, batch), real_of(want, batch), 1e-2)


@pytest.mark.parametrize(
    ("vocab", "bias", "smoothing"),
    [
        (50257, False, 0.0),
        (50257, True, 0.1),
        (16380, True, 0.1),
        (8192, False, 0.0),
        (1000, True, 0.0),
        (37, False, 0.1),
    ],
)
def test_cross_entropy_in_one_kernel(vocab, bias, smoothing):
    """The Triton kernel's loss and gradients are torch's own, in double precision."""
    from clearhead.nn.cross_entropy import linear_cross_entropy, prepare

    assert prepare("cuda")
    torch.manual_seed(vocab)
    given = [torch.randn(300, 64, device="cuda"), torch.randn(vocab, 64, device="cuda") * 0.3]
    given += [torch.randn(vocab, device="cuda")] if bias else []
    labels = torch.randint(0, vocab, (300,), device="cuda")
    labels[::7] = -100
    mine = [t.clone().requires_grad_() for t in given]
    theirs = [t.double().requires_grad_() for t in given]
    loss = linear_cross_entropy(*mine[:2], mine[2] if bias else None, labels, 128, smoothing)
    wanted = torch.nn.functional.cross_entropy(torch.nn.functional.linear(*theirs), labels, label_smoothing=smoothing)
    (2 * loss).backward()
    (2 * wanted).backward()
    assert abs(float(loss) - float(wanted)) < 1e-3
    for ours, reference in zip(mine, theirs, strict=True):
        assert (ours.grad - reference.grad).norm() / reference.grad.norm() < 2e-3  # products in tf32


SMALL = {"family": "gpt2", "config": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}}


@pytest.mark.parametrize("compile", [False, True])
def test_training_learns_and_goes_on(tmp_path, compile):
    """A short run in bf16, stopped and continued: the loss falls, and the same bits come out as without the stop."""
    from clearhead.train import train

    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(3000)))

    def recipe(out, **more):
        return {
            "objective": "causal-lm",
            "out": str(tmp_path / out),
            "data": {"train": str(text), "validation_fraction": 0.1},
            "tokenizer": {"kind": "bpe", "vocab_size": 300},
            "model": SMALL,
            "batch": {"size": 8, "length": 64},
            "optimizer": {"name": "muon", "lr": 3e-3},
            "steps": 60,
            "evaluation": {"every": 20},
            "deterministic": True,
            "compile": compile,
            **more,
        }

    losses = []
    whole = train(recipe("whole"), watchers=[lambda e: losses.append(e["loss"]) if e["event"] == "step" else None])
    assert losses[-1] < 0.7 * losses[0]

    def stop(event):
        if event["event"] == "evaluation" and event["step"] == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    assert not train(recipe("cut"), watchers=[stop]).finished
    cut = train(recipe("cut"))
    weights = [load_file(run.model / "model.safetensors") for run in (whole, cut)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("accumulate", [1, 3])
def test_compiled_and_recorded_steps_learn_the_same(tmp_path, accumulate):
    """Over three epochs, with a shorter batch at the end of each: the losses of steps that run kernel by kernel."""
    from clearhead.train import train

    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(600)))
    losses = {}
    for compile in (False, True):
        told = losses[compile] = []
        quiet = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), 0.0)
        train(
            {
                "objective": {"name": "causal-lm", "cross_documents": True},
                "out": str(tmp_path / str(compile)),
                "data": {"train": str(text)},
                "tokenizer": {"kind": "bpe", "vocab_size": 300},
                "model": {"family": "gpt2", "config": SMALL["config"] | quiet},
                "batch": {"size": 11, "length": 64, "gradient_accumulation_steps": accumulate},
                "optimizer": {"name": "adamw", "lr": 3e-3},
                "epochs": 3,
                "precision": "fp32",
                "compile": compile,
                "log_every": 1,
            },
            watchers=[lambda e, told=told: told.append(e["loss"]) if e["event"] == "step" else None],
        )
    plain, fast = (torch.tensor(losses[compile]) for compile in (False, True))
    assert len(plain) > 10 and plain[-1] < 0.8 * plain[0]
    assert (plain - fast).abs().max() < 2e-3


def test_elmo_reads_both_directions_side_by_side():
    """Vectors and gradients of the batched steps on the device, against the CPU's, one direction after the other."""
    elmo = family("elmo")
    config = elmo.config(
        lstm_size=48, projection_size=16, num_hidden_layers=2, cell_clip=0.3, proj_clip=0.2, use_skip_connections=True,
        filters=[[1, 8], [3, 24]], num_highways=1, vocab_size=50,
    )  # fmt: skip
    torch.manual_seed(0)
    model = elmo.make(config, "bidirectional-lm")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    ids = torch.randint(1, 262, (3, 9, 50))
    ids[1, 6:], ids[2, 2:] = 0, 0
    labels = torch.randint(0, 50, (3, 9)).masked_fill(~(ids != 0).any(-1), -100)
    moved = copy.deepcopy(model).to(DEVICE)
    here, there = model(ids, labels), moved(ids.to(DEVICE), labels.to(DEVICE))
    torch.testing.assert_close(there.backward_logits.cpu(), here.backward_logits, rtol=1e-4, atol=1e-4)
    here.loss.backward()
    there.loss.backward()
    for a, b in zip(model.parameters(), moved.parameters(), strict=True):
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-3, atol=1e-5)
    with torch.no_grad(), torch.autocast(torch.device(DEVICE).type, torch.bfloat16):
        narrow = moved(ids.to(DEVICE)).logits
    assert (narrow.float().cpu() - here.logits).abs().max() < 0.05 * here.logits.abs().max()

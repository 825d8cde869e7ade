"""BigBird's block-sparse attention against transformers: lengths, block sizes, padding, random blocks, gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from clearhead import hub
from clearhead.errors import ConfigError, InputError
from clearhead.models.big_bird import FAMILY, BigBirdConfig
from clearhead.nn import trace
from clearhead.nn.block_sparse import BlockSparseAttention, random_plan
from clearhead.nn.masks import BoundMask, from_attention_mask
from tests.tiny import shake

from .harness import close

TASKS = {
    "masked-lm": transformers.BigBirdForMaskedLM,
    "features": transformers.BigBirdModel,
    "question-answering": transformers.BigBirdForQuestionAnswering,
}


def pair(folder: Path, task: str = "masked-lm", **options):
    """The reference and the same checkpoint opened here. No dropout, so that training can be compared."""
    torch.manual_seed(0)
    small = {
        "vocab_size": 37,
        "hidden_size": 12,
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "intermediate_size": 20,
        "max_position_embeddings": 100,
        "block_size": 4,
        "num_random_blocks": 1,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "sep_token_id": 5,
    }
    theirs = shake(TASKS[task](transformers.BigBirdConfig(**{**small, **options})))
    theirs.save_pretrained(folder)
    return theirs, hub.load_model(folder)


def texts(batch: int, time: int, pad: str | None) -> dict[str, Tensor]:
    ids, mask = torch.randint(6, 37, (batch, time)), torch.ones(batch, time, dtype=torch.long)
    for row in range(1, batch):
        hidden = row * time // 4
        if pad == "right":
            mask[row, -hidden:] = 0
        elif pad == "left":
            mask[row, :hidden] = 0
        elif pad == "holes":
            mask[row, torch.rand(time) < 0.4] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.randint(0, 2, (batch, time))}


CASES = [  # length, options, padding
    (29, {}, None),  # one more than full attention takes: the last block is nearly empty
    (32, {}, "right"),
    (50, {}, "left"),
    (99, {}, "holes"),
    (61, {"block_size": 3, "num_random_blocks": 2}, "right"),
    (20, {"block_size": 1, "num_random_blocks": 3, "use_bias": False}, "left"),
    (97, {"block_size": 7, "num_random_blocks": 3, "rescale_embeddings": True, "num_hidden_layers": 1}, "right"),
    (45, {"num_attention_heads": 1, "hidden_act": "gelu"}, None),
    (95, {"block_size": 1, "num_random_blocks": 2, "num_hidden_layers": 1}, "right"),  # more rows than go at a time
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("time", "options", "pad"), CASES, ids=str)
def test_outputs_and_gradients(time, options, pad, training, tmp_path):
    """In training mode too: that is when random blocks are drawn."""
    theirs, ours = pair(tmp_path, **options)
    theirs.train(training)
    ours.train(training)
    given = texts(3, time, pad)
    real = given["attention_mask"].bool()
    wanted = given["input_ids"].masked_fill(~real, -100)
    a, b = theirs(**given, labels=wanted), ours(**given, labels=wanted)
    assert theirs.bert.attention_type == "block_sparse"
    close(b.logits, a.logits, real)
    close(b.loss, a.loss)
    a.loss.backward()
    b.loss.backward()
    grads = {name: p.grad for name, p in theirs.named_parameters()}
    map_ = ours.family.checkpoint_map(ours.config, "masked-lm")
    compared = 0
    for entry in map_.entries:
        name = map_.published_name(entry.theirs[0], entry, with_prefix=True)
        if grads.get(name) is not None:
            close(ours.get_parameter(entry.ours[0]).grad, grads[name], tolerance=2e-5)
            compared += 1
    assert compared >= 30 / 2 * ours.config.num_hidden_layers


@pytest.mark.parametrize(("time", "size", "longest"), [(1024, 64, 1024), (1000, 32, 4096), (3072, 128, 4000)])
def test_lengths_of_the_paper(time, size, longest, tmp_path):
    """1024, 3072 and 4096 (after filling up to whole blocks) have a plan of their own."""
    theirs, ours = pair(tmp_path, block_size=size, num_random_blocks=3, max_position_embeddings=longest)
    given = texts(2, time, "right")
    real = given["attention_mask"].bool()
    for training in (True, False):
        with torch.no_grad():
            close(ours.train(training)(**given).logits, theirs.train(training)(**given).logits, real)


@pytest.mark.parametrize(
    ("blocks", "size", "count", "longest"),
    [(16, 64, 3, 4096), (64, 64, 3, 4096), (48, 64, 2, 3100), (12, 64, 3, 4096), (20, 4, 5, 99), (64, 16, 8, 1024)],
)
@pytest.mark.parametrize("seed", [0, 11])
def test_random_blocks_are_those_of_the_reference(blocks, size, count, longest, seed):
    config = transformers.BigBirdConfig(
        hidden_size=12, num_attention_heads=3, block_size=size, num_random_blocks=count, max_position_embeddings=longest
    )
    theirs = BigBirdBlockSparseAttention(config, seed=seed).train()
    np.random.seed(seed)
    if blocks * size in (1024, 3072, 4096):
        want = [
            theirs._bigbird_block_rand_mask(longest, longest, size, size, count, last_idx=1024)[: blocks - 2]
            for _ in range(3)
        ]
    else:
        lengths, counts = theirs._get_rand_attn_plan(blocks * size, size, count)
        want = theirs._bigbird_block_rand_mask_with_head(blocks * size, blocks * size, size, size, 3, lengths, counts)
    before = np.random.get_state()[1].tolist()
    assert random_plan(blocks, size, count, 3, seed, longest).tolist() == np.stack(want).tolist()
    assert np.random.get_state()[1].tolist() == before  # the world's generator is left alone


def test_too_few_blocks_to_draw_from_is_said():
    with pytest.raises(ConfigError, match="block_size"):
        random_plan(12, 256, 3, 1, 0, 4096)
    with pytest.raises(InputError, match="longer than the model's 1000 positions"):
        random_plan(16, 64, 3, 1, 0, 1000)


@pytest.mark.parametrize("training", [False, True])
def test_weights_are_those_of_the_blocks(training, tmp_path):
    """As whole squares; the reference shows one of the shares of a block that is seen twice, here they are summed."""
    theirs, ours = pair(tmp_path)
    given = texts(3, 50, "right")
    real = given["attention_mask"].bool()
    theirs.train(training)
    ours.train(training)
    with torch.no_grad():
        want = theirs(**given, output_attentions=True).attentions
        plain = ours(**given)
        with trace(ours, "layers.*.attention.*") as seen:
            watched = ours(**given)
    close(watched.logits, plain.logits, real)
    for n, shares in enumerate(want):
        weights = seen[f"layers.{n}.attention.weights"]
        rows, shares = weights.transpose(1, 2)[real], shares[:, :, :50, :50].transpose(1, 2)[real]
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]))
        assert ((rows > 0) == (shares > 0)).all()
        ratio = rows[shares > 1e-6] / shares[shares > 1e-6]
        assert (ratio - ratio.round()).abs().max() < 1e-3  # 1, or how often the block is seen
        assert set(ratio.round().int().tolist()) == ({1} if training else {1, 2})
        mixed = weights @ seen[f"layers.{n}.attention.value"]
        torch.testing.assert_close(mixed, seen[f"layers.{n}.attention.heads"])
        assert (weights.transpose(1, 2)[~real] == 0).all()
        scores = seen[f"layers.{n}.attention.query"] @ seen[f"layers.{n}.attention.key"].transpose(-1, -2) / 2
        torch.testing.assert_close(seen[f"layers.{n}.attention.scores"], scores)


def test_each_text_chooses_for_itself(tmp_path):
    """A short text gets full attention, and the next long one block-sparse attention again."""
    theirs, ours = pair(tmp_path)
    short, long = texts(2, 28, None), texts(2, 60, None)
    with torch.no_grad():
        want_long = theirs(**long).logits
        want_short = theirs(**short).logits  # the reference changes to full attention here, for good
        for _ in range(2):
            close(ours(**short).logits, want_short)
            close(ours(**long).logits, want_long)
    dense = FAMILY.make(BigBirdConfig(**{**vars(ours.config), "attention_type": "original_full"}))
    dense.load_state_dict(ours.state_dict())
    with torch.no_grad():
        close(dense(**short).logits, want_short)
        assert (dense(**long).logits - want_long).abs().max() > 0.01


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("time", [20, 40])
def test_answers_do_not_lie_in_the_question(time, segments, tmp_path):
    theirs, ours = pair(tmp_path, "question-answering")
    given = texts(3, time, "right")
    given["input_ids"][0, 7] = given["input_ids"][1, 3] = given["input_ids"][1, 9] = 5  # the third has no separator
    if not segments:
        del given["token_type_ids"]
    where = {"start_positions": torch.tensor([9, 2, 99]), "end_positions": torch.tensor([12, 4, 3])}
    with torch.no_grad():
        for extra in ({}, {"question_lengths": torch.tensor([[4], [6], [2]])}):
            a, b = theirs(**given, **where, **extra), ours(**given, **where, **extra)
            asked = b.start_logits < -1e5
            lengths = extra["question_lengths"].flatten().tolist() if extra else [8, 4, 1]
            assert asked.sum(1).tolist() == [n - 1 for n in lengths]  # [CLS] stays: it means "no answer"
            open_ = ~asked & given["attention_mask"].bool()
            close(b.start_logits, a.start_logits, open_)
            close(b.end_logits, a.end_logits, open_)
            assert ((a.start_logits < -1e5) == asked).all()
            close(b.loss, a.loss)


def test_vectors_for_a_question_need_its_length_to_hide_it(tmp_path):
    theirs, ours = pair(tmp_path, "question-answering")
    vectors = torch.randn(2, 40, 12)
    with torch.no_grad():
        close(ours(inputs_embeds=vectors).start_logits, theirs(inputs_embeds=vectors).start_logits)
        lengths = torch.tensor([[3], [6]])
        a = theirs(inputs_embeds=vectors, question_lengths=lengths)
        b = ours(inputs_embeds=vectors, question_lengths=lengths)
    close(b.end_logits[:, 6:], a.end_logits[:, 6:])


def test_what_blocks_cannot_do_is_refused():
    small = {
        "vocab_size": 37,
        "hidden_size": 12,
        "num_attention_heads": 3,
        "num_hidden_layers": 1,
        "max_position_embeddings": 64,
        "block_size": 4,
        "num_random_blocks": 1,
    }
    ids = torch.randint(0, 37, (2, 40))
    with pytest.raises(InputError, match="original_full"):
        FAMILY.make(BigBirdConfig(**small, is_decoder=True), "causal-lm")(ids)
    model = FAMILY.make(BigBirdConfig(**small))
    for mask in (torch.ones(2, 40, 40).tril(), torch.zeros(2, 1, 40, 40), torch.ones(2, 3, 1, 40).bool().tril()):
        with pytest.raises(InputError, match="original_full"):
            model(ids, attention_mask=mask)
    with pytest.raises(ConfigError, match="add_cross_attention"):
        BigBirdConfig(**small, is_decoder=True, add_cross_attention=True)
    with pytest.raises(ConfigError, match="position_embedding_type"):
        BigBirdConfig(**small, position_embedding_type="relative_key")
    with pytest.raises(ConfigError, match="block_size"):
        BigBirdConfig(**{**small, "block_size": 0})


@pytest.mark.parametrize("grads", [False, True])
def test_memory_grows_with_the_length(grads):
    """No tensor of the computation, nor of its gradient, is as large as a (query, key) square of the text."""
    layer = BlockSparseAttention(8, 2, block_size=4, random_blocks=1, seed=0, max_positions=4096)
    layer.train(grads)
    largest: dict[int, int] = {}
    for time in (512, 1024, 2048):
        x = torch.randn(1, time, 8, requires_grad=grads)
        with _Largest() as seen, torch.set_grad_enabled(grads):
            out = layer(x, BoundMask())
            if grads:
                out.sum().backward()
        largest[time] = seen.size
        assert seen.size < time * time / 4
    assert largest[2048] <= 2.1 * largest[1024] <= 4.5 * largest[512]


class _Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """The most elements that any tensor has which an operation makes."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def test_hidden_texts_have_finite_gradients():
    """Also a query that sees hidden keys only, and a text that is hidden altogether."""
    layer = BlockSparseAttention(8, 2, block_size=2, random_blocks=1, seed=0, max_positions=64).train()
    mask = torch.zeros(2, 40)
    mask[0, 18:22] = 1  # neither the first nor the last block
    x = torch.randn(2, 40, 8, requires_grad=True)
    bound = from_attention_mask(mask, 2, 40, 40).bind(40, 40)
    with trace(layer, "weights") as seen:
        watched = layer(x, bound)
    plain = layer(x, bound)
    torch.testing.assert_close(plain, watched)
    assert (seen["weights"][1] == 0).all() and (plain[1] == layer.output.bias).all()
    for out in (plain, watched):
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert grad.isfinite().all() and (grad[1] == 0).all() and grad[0].any()


def test_gradients_are_those_of_differences():
    """In double precision, through the recomputed blocks."""
    layer = BlockSparseAttention(4, 2, block_size=2, random_blocks=1, seed=0, max_positions=64).double().train()
    x = torch.randn(1, 17, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x, BoundMask()), (x,))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("time", "bias", "pad"), [(29, True, None), (50, False, "right"), (97, True, "left")])
def test_long_documents_of_bigbird_pegasus(time, bias, pad, training, tmp_path):
    """Its encoder alone is sparse; it fills up after the embedding, so that the last positions can be used."""
    torch.manual_seed(0)
    config = transformers.BigBirdPegasusConfig(
        vocab_size=37,
        d_model=12,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=2,
        encoder_ffn_dim=20,
        decoder_ffn_dim=16,
        max_position_embeddings=97,
        block_size=4,
        num_random_blocks=1,
        use_bias=bias,
        dropout=0.0,
        attn_implementation="eager",
    )
    theirs = shake(transformers.BigBirdPegasusForConditionalGeneration(config))
    theirs.save_pretrained(tmp_path)
    ours = hub.load_model(tmp_path).train(training)
    theirs.train(training)
    given = texts(3, time, pad)
    del given["token_type_ids"]
    given["labels"] = torch.randint(3, 37, (3, 8))
    a, b = theirs(**given), ours(**given)
    assert theirs.model.encoder.attention_type == "block_sparse"
    close(b.encoder_last_hidden_state, a.encoder_last_hidden_state, given["attention_mask"].bool())
    close(b.logits, a.logits)
    a.loss.backward()
    b.loss.backward()
    map_ = ours.family.checkpoint_map(ours.config, "seq2seq-lm")
    compared = 0
    for entry in map_.entries:
        grad = ours.get_parameter(entry.ours[0]).grad
        name = map_.published_name(entry.theirs[0], entry, with_prefix=True)
        if name.startswith("model.encoder"):
            close(grad, theirs.get_parameter(name).grad, tolerance=2e-5)
            compared += 1
    assert compared == 1 + 2 + 2 * (16 if bias else 12)

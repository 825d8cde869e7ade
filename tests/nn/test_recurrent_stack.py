"""A stack of recurrent layers: torch.nn's numbers, padding on either side, carried states, one call or several."""

import pytest
import torch
from torch import nn as torch_nn

import clearhead as ch
from clearhead.errors import InputError
from clearhead.nn import GRU, LSTM, RNN, TokenEmbedder
from clearhead.nn.fused_recurrence import weights_of
from clearhead.nn.recurrent_stack import RecurrentLayer, RecurrentStack
from clearhead.nn.state import TensorState

KINDS = {"RNN": RNN, "LSTM": LSTM, "GRU": GRU}
IDS = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 1, 8, 0], [6, 0, 0, 0, 0]])
RIGHT = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 0, 0, 0, 0]])
BETWEEN = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [0, 0, 1, 0, 0]])


def stack_of(kind="LSTM", widths=(4, 4), *, both=False, dropout=0.0):
    torch.manual_seed(1)
    layers, reads = [], 6
    for width in widths:
        layers.append(RecurrentLayer(KINDS[kind](reads, width, batch_first=True, bidirectional=both), dropout))
        reads = layers[-1].width
    return RecurrentStack(TokenEmbedder(torch_nn.Embedding(9, 6)), layers, causal=not both).eval()


def torchs(stack, kind):
    """The same layers as one module of torch.nn."""
    first = stack.layers[0].rnn
    module = getattr(torch_nn, kind)(6, 4, len(stack.layers), batch_first=True, bidirectional=first.bidirectional)
    weights = [weight for layer in stack.layers for weight in weights_of(layer.rnn)]
    module.load_state_dict(dict(zip(module._flat_weights_names, weights, strict=True)))
    return module.eval()


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_torchs_numbers_in_one_call_and_layer_by_layer(kind, both):
    stack = stack_of(kind, both=both)
    want, _ = torchs(stack, kind)(stack.embed.tokens(IDS))
    torch.testing.assert_close(stack(IDS), want)
    with ch.trace(stack, "layers.*.output") as seen:
        torch.testing.assert_close(stack(IDS), want)
    torch.testing.assert_close(seen["layers.1.output"], want)
    with ch.trace(stack, "layers.0.hidden") as seen:
        torch.testing.assert_close(stack(IDS), want)
    assert seen["layers.0.hidden"].shape == (3, 5, 4)


@pytest.mark.parametrize("watched", ["", "layers.1.input", "**.hidden"])
@pytest.mark.parametrize("side", ["right", "left", "between"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_never_changes_a_state(kind, side, watched):
    """A padded text gives what it gives alone, at its own places; the rest is zero, and the last state its own."""
    stack, both = stack_of(kind), stack_of(kind, both=True)
    mask = {
        "right": RIGHT,
        "left": RIGHT.flip(1),
        "between": torch.tensor([[1] * 5, [1, 0, 1, 1, 1], [0, 0, 1, 0, 0]]),
    }[side]
    state = TensorState()
    for one in (stack, both):
        given = {} if one is both else {"state": state}
        if watched:
            with ch.trace(one, watched) as seen:
                out = one(IDS, attention_mask=mask, **given)
        else:
            out = one(IDS, attention_mask=mask, **given)
        for row, real in enumerate(mask.bool()):
            alone = TensorState()
            want = one(IDS[row, real][None], **({} if one is both else {"state": alone}))[0]
            torch.testing.assert_close(out[row, real], want)
            assert not out[row, ~real].any()
            if one is stack:
                for ours, its in zip(state.tensors, alone.tensors, strict=True):
                    torch.testing.assert_close(ours[:, row], its[:, 0])
    if watched.endswith("hidden"):
        torch.testing.assert_close(seen["layers.1.hidden"], out[..., :4])
        torch.testing.assert_close(seen["layers.1.reverse.hidden"], out[..., 4:])


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_read_in_parts(kind):
    stack, state = stack_of(kind, (4, 5, 4)), TensorState()
    whole = stack(IDS)
    parts = [stack(IDS[:, :2], state=state), stack(IDS[:, 2:3], state=state), stack(IDS[:, 3:], state=state)]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert state.length == 5 and state.tensors[-1].shape == (1, 3, 4)
    state.reorder(torch.tensor([2, 2]))
    again = stack(IDS[2:, :1].repeat(2, 1), state=state)
    torch.testing.assert_close(again[0], again[1])


def test_a_part_without_a_text_in_a_row_leaves_its_state():
    stack, state = stack_of(), TensorState()
    stack(IDS, state=state)
    before = [t.clone() for t in state.tensors]
    stack(IDS[:, :2], attention_mask=torch.tensor([[1, 1], [0, 0], [1, 0]]), state=state)
    for old, new in zip(before, state.tensors, strict=True):
        assert torch.equal(old[:, 1], new[:, 1]) and not torch.equal(old[:, 0], new[:, 0])


def test_gradients_are_those_of_torch_with_padding_and_with_checkpointing():
    want = None
    for checkpointing in (False, True):
        stack = stack_of().train()
        stack.gradient_checkpointing = checkpointing
        (stack(IDS, attention_mask=RIGHT.flip(1)) ** 2).sum().backward()
        grads = [p.grad for p in stack.parameters()]
        want = want or grads
        for ours, theirs in zip(grads, want, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_dropout_can_be_repeated():
    stack = stack_of(dropout=0.5).train()
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(stack(IDS))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_and_autocast(kind):
    stack, mask = stack_of(kind), RIGHT.flip(1)
    want = stack(IDS, attention_mask=mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = stack(IDS, attention_mask=mask)
    half = stack.bfloat16()(IDS, attention_mask=mask)
    assert narrow.dtype == half.dtype == torch.bfloat16
    for out in (narrow, half):
        torch.testing.assert_close(out.float(), want, atol=2e-2, rtol=2e-2)


def test_what_is_refused():
    both, stack = stack_of(both=True), stack_of()
    state = TensorState()
    both(IDS, state=state)  # its last states are told
    with pytest.raises(InputError, match="both directions"):
        both(IDS, state=state)
    with pytest.raises(InputError, match=r"must be \(batch, time\)"):
        stack(IDS, attention_mask=RIGHT[:, None, None])
    with pytest.raises(InputError, match="must have the shape"):
        stack(IDS, attention_mask=RIGHT[:, :3])
    state = TensorState()
    stack(IDS, state=state)
    with pytest.raises(InputError, match="2 layers"):
        stack_of(widths=(4, 4, 4))(IDS, state=state)

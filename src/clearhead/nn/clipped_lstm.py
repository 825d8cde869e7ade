"""An LSTM with a projected state whose cell and state are clipped (Sak et al. 2014), as ELMo has it.

cell = clip(forget_gate · cell + input_gate · candidate);  hidden = clip(W (output_gate · tanh(cell)))

torch's fused kernels cannot clip, and a clip at one step changes all that follow. So the steps are taken one by one,
with as few kernels as will do: the part of the input in all gates beforehand, in one product; directions side by side
in one batched product; and a backward pass of our own, where the gradient of a weight is one product over all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.recurrent import LSTM, LayerTaps, StepTaps
from clearhead.nn.tracing import is_watched


class ClippedLSTM(nn.Module):
    """One layer in one direction; gates in torch's order: input, forget, candidate, output.

    projection   the width of the hidden state; None: as wide as the cell, without a matrix
    cell_clip    the largest number in a cell; None: any
    proj_clip    the largest number in a projected state; None: any
    """

    tap_names = {"steps": ""}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        projection: int | None = None,
        cell_clip: float | None = None,
        proj_clip: float | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.width = input_size, hidden_size, projection or hidden_size
        self.weight = nn.Parameter(torch.empty(4 * hidden_size, input_size + self.width))  # of the input and the state
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))
        self.projection = None if projection is None else nn.Parameter(torch.empty(projection, hidden_size))
        self.cell_clip = cell_clip
        self.proj_clip = None if projection is None else proj_clip
        self.steps = LayerTaps(LSTM.taps_of_a_layer)

    def is_seen(self) -> bool:
        """Whether a trace asks for a gate or a state."""
        return is_watched(self.steps, *self.steps.taps)

    def announced(self, x: Tensor, real: Tensor | None, backwards: bool = False) -> Tensor:
        """Step by step, announcing everything: (batch, time, width) of the hidden states.

        real        (batch, time): where a text is, at the beginning of its row; None: everywhere
        backwards   from the last word to the first
        """
        time = x.shape[1]
        from_input, from_state = self.weight.split([self.input_size, self.width], 1)
        projected = F.linear(x, from_input, self.bias)
        hidden, cell = x.new_zeros(len(x), self.width), x.new_zeros(len(x), self.hidden_size)
        taps = StepTaps(self.steps, time)
        for t in reversed(range(time)) if backwards else range(time):
            now = None if real is None else real[:, t, None]
            taps.at(t, now)
            of_state = taps("from_state", F.linear(hidden, from_state))
            i, f, g, o = (taps("from_input", projected[:, t]) + of_state).chunk(4, -1)
            input_gate, forget_gate = taps("input_gate", i.sigmoid()), taps("forget_gate", f.sigmoid())
            candidate, output_gate = taps("candidate", g.tanh()), taps("output_gate", o.sigmoid())
            new_cell = taps("cell", _clipped(forget_gate * cell + input_gate * candidate, self.cell_clip))
            new = output_gate * new_cell.tanh()
            if self.projection is not None:
                new = _clipped(F.linear(new, self.projection), self.proj_clip)
            new = taps("hidden", new)
            if now is not None:  # a text that has not begun keeps its zeros
                new, new_cell = torch.where(now, new, hidden), torch.where(now, new_cell, cell)
            hidden, cell = new, new_cell
        taps.announce()
        return taps.whole["hidden"]


def run_clipped(layers: Sequence[ClippedLSTM], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The hidden states of several layers of one shape, each over an input of its own: (batch, time, width) each.

    They are read from the first position on, from zero states; what stands after a text's end changes nothing in it.
    """
    if inputs[0].is_cuda and len(layers) > 1:  # a step of many small kernels waits for them, not for the arithmetic
        return list(_run(layers, torch.stack(list(inputs))))
    return [_run([layer], x[None])[0] for layer, x in zip(layers, inputs, strict=True)]


def _run(layers: Sequence[ClippedLSTM], x: Tensor) -> Tensor:
    """(directions, batch, time, width) -> the same of the hidden states."""
    first, dtype = layers[0], x.dtype
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
    weight, bias = (_stacked([getattr(layer, name) for layer in layers]).to(dtype) for name in ("weight", "bias"))
    from_input, from_state = weight.split([first.input_size, first.width], 2)
    projection = None
    if first.projection is not None:
        projection = _stacked([layer.projection for layer in layers]).to(dtype)  # type: ignore[misc]
    steps = x.to(dtype).transpose(1, 2)  # (directions, time, batch, width)
    gates = torch.baddbmm(bias[:, None], steps.flatten(1, 2), from_input.mT).unflatten(1, steps.shape[1:3])
    # read at every step: in one piece, or a product would copy it each time
    hidden: Tensor = _Steps.apply(gates, from_state.contiguous(), projection, first.cell_clip, first.proj_clip)
    return hidden.transpose(1, 2)


def _stacked(tensors: list[Tensor]) -> Tensor:
    return tensors[0][None] if len(tensors) == 1 else torch.stack(tensors)


def _at_least_fp32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _clipped(x: Tensor, most: float | None) -> Tensor:
    return x if most is None else x.clamp(-most, most)


class _Steps(torch.autograd.Function):
    """All steps of one layer, and the way back. D directions, T steps, B rows, H the cell's width, P the state's.

    Cells are fp32 even where the rest is narrower: they are sums over many steps.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,  # (D, T, B, 4H): the input's part
        from_state: Tensor,  # (D, 4H, P)
        projection: Tensor | None,  # (D, P, H)
        cell_clip: float | None,
        proj_clip: float | None,
    ) -> Tensor:
        directions, time, rows, wide = gates.shape
        size, width = wide // 4, from_state.shape[-1]
        keep = any(ctx.needs_input_grad)
        hidden = gates.new_empty(directions, time, rows, width)
        active = torch.empty_like(gates) if keep else gates.new_empty(directions, 1, rows, wide)
        cell = torch.zeros(directions, rows, size, dtype=_at_least_fp32(gates.dtype), device=gates.device)
        cells = cell.new_empty(directions, time if keep else 0, rows, size)
        before: Tensor | None = None
        for t in range(time):
            now = active[:, t if keep else 0]
            now.copy_(gates[:, t] if before is None else torch.baddbmm(gates[:, t], before, from_state.mT))
            now[..., : 2 * size].sigmoid_()
            now[..., 2 * size : 3 * size].tanh_()
            now[..., 3 * size :].sigmoid_()
            i, f, g, o = now.split(size, -1)
            cell = torch.addcmul(f * cell, i, g)
            if cell_clip is not None:
                cell.clamp_(-cell_clip, cell_clip)
            if keep:
                cells[:, t] = cell
            new = (o * cell.tanh()).to(gates.dtype)
            if projection is not None:
                new = new @ projection.mT
                if proj_clip is not None:
                    new.clamp_(-proj_clip, proj_clip)
            hidden[:, t] = new
            before = new
        if keep:
            ctx.save_for_backward(active, cells, hidden, from_state, projection)
        ctx.clips = cell_clip, proj_clip
        return hidden

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        active, cells, hidden, from_state, projection = ctx.saved_tensors
        cell_clip, proj_clip = ctx.clips
        size, dtype = cells.shape[-1], active.dtype
        d_gates = torch.empty_like(active)
        d_hidden = grads[0].to(dtype).clone()  # of each step's state, from the steps after it too
        if projection is None:
            proj_clip = None
        d_cell: Tensor | None = None
        for t in reversed(range(active.shape[1])):
            i, f, g, o = active[:, t].split(size, -1)
            d_state = d_hidden[:, t]
            if proj_clip is not None:
                d_state.mul_(hidden[:, t].abs() < proj_clip)
            d_out = (d_state if projection is None else d_state @ projection).to(cells.dtype)
            squashed = cells[:, t].tanh()
            d_now = d_out * o * (1 - squashed * squashed)
            d_now = d_now if d_cell is None else d_now + d_cell
            if cell_clip is not None:
                d_now.mul_(cells[:, t].abs() < cell_clip)
            last = cells[:, t - 1] if t else None
            into = d_gates[:, t]
            into[..., :size] = d_now * g * (i * (1 - i))
            into[..., size : 2 * size] = 0 if last is None else d_now * last * (f * (1 - f))
            into[..., 2 * size : 3 * size] = d_now * i * (1 - g * g)
            into[..., 3 * size :] = d_out * squashed * (o * (1 - o))
            d_cell = d_now * f
            if t:
                d_hidden[:, t - 1] += into @ from_state
        d_from_state = (
            d_gates[:, 1:].flatten(1, 2).mT @ hidden[:, :-1].flatten(1, 2) if ctx.needs_input_grad[1] else None
        )
        d_projection = None
        if projection is not None and ctx.needs_input_grad[2]:
            unprojected = (active[..., 3 * size :] * cells.tanh()).to(dtype)
            d_projection = d_hidden.flatten(1, 2).mT @ unprojected.flatten(1, 2)
        return d_gates, d_from_state, d_projection, None, None

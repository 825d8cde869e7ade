"""Which optimiser moves which parameter, at which rate and with how much decay; and its state by name.

Weight decay pulls matrices and the token table towards zero, as in GPT-2 and nanoGPT. It leaves alone:
  biases and norms        vectors: they set a level, and pulled to zero they would only set a wrong one
  tables of positions,    every row counts as soon as it is read, and rows for far positions are read so seldom
  segments, distances     that decay would wear them down between two gradients
Muon moves the matrices inside the layers (see muon.py); AdamW moves the rest beside it, or everything. Plain SGD moves
by the gradient itself, and NT-ASGD is SGD whose weights are averaged from some point on (see ema.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError, InputError, did_you_mean
from clearhead.nn.embedding import TokenEmbedder
from clearhead.train.engine.muon import Muon, hidden_matrices, sharded_like

OPTIMIZERS = ("adamw", "muon", "sgd", "nt-asgd")
WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module")  # what torch puts into names to compile or to recompute
FUSED = ("cpu", "cuda", "xpu", "mps")
# the tensors of each parameter's state
STATE_TENSORS: dict[str, tuple[str, ...]] = {"adamw": ("exp_avg", "exp_avg_sq"), "muon": ("momentum",), "sgd": ()}


def optimizer(
    model: nn.Module,
    name: str = "adamw",
    *,
    lr: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    momentum: float = 0.95,
    matrix_lr: float | None = None,
    lr_factors: Mapping[str, float] | None = None,
) -> Optimizer:
    """For every parameter that learns now.

    momentum    Muon's
    matrix_lr   Muon's rate, where it is not `lr`, which then holds for embeddings, output matrix, norms and biases
    lr_factors  parameter name -> what multiplies its rate (train/engine/freezing.py: discriminative rates)
    """
    if name not in OPTIMIZERS:
        raise InputError(
            f"There is no optimiser {name!r}.{did_you_mean(name, OPTIMIZERS)} There are: {', '.join(OPTIMIZERS)}."
        )
    for option, value in (("lr", lr), ("weight_decay", weight_decay), ("eps", eps), ("matrix_lr", matrix_lr)):
        if value is not None and not 0 <= value < float("inf"):
            raise InputError(f"{option} must be zero or more, not {value}.")
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise InputError(f"betas are two shares from 0 up to 1, such as (0.9, 0.999), not {betas}.")
    names = parameter_names(model)
    if not names:
        raise InputError("Nothing is left to learn: all parameters are frozen.")
    decaying = decayed(model)
    matrix_parts = hidden_matrices(model) if name == "muon" else {}

    # (which optimiser, the rate, whether it decays) -> parameters
    groups: dict[tuple[str, float, bool], list[nn.Parameter]] = {}
    for parameter_name, p in names.items():
        kind = "muon" if p in matrix_parts else "sgd" if name in ("sgd", "nt-asgd") else "adamw"
        base_lr = matrix_lr if kind == "muon" and matrix_lr is not None else lr
        group_lr = base_lr * (1.0 if lr_factors is None else lr_factors[parameter_name])
        groups.setdefault((kind, group_lr, p in decaying), []).append(p)

    def of(kind: str) -> list[dict[str, Any]]:
        return [
            {"params": parameters, "lr": group_lr, "base_lr": group_lr, "weight_decay": weight_decay if decays else 0.0}
            for (group_kind, group_lr, decays), parameters in groups.items()
            if group_kind == kind
        ]

    optimizers: dict[str, torch.optim.Optimizer] = {}
    if of("muon"):
        optimizers["muon"] = Muon(of("muon"), matrix_parts, lr=lr, momentum=momentum)
    elif name == "muon":
        raise InputError(
            "Muon moves the matrices of attention and feed-forward, and none of them learns here "
            "(frozen, or LoRA alone): use adamw."
        )
    if of("sgd"):
        optimizers["sgd"] = torch.optim.SGD(of("sgd"), lr=lr)
    if of("adamw"):
        fused = all(p.device.type in FUSED and p.is_floating_point() for p in names.values())
        optimizers["adamw"] = torch.optim.AdamW(of("adamw"), lr=lr, betas=betas, eps=eps, fused=fused)
    return Optimizer(optimizers, names)


class Optimizer:
    """One optimiser, or Muon and AdamW side by side, as if they were one.

    parts   torch's own optimisers, by name
    names   the parameters that they move, by name
    """

    def __init__(self, parts: Mapping[str, torch.optim.Optimizer], names: Mapping[str, nn.Parameter]) -> None:
        self.parts, self.names = dict(parts), dict(names)
        # The fused kernels read gradients in the order in which the weights lie; only transposed weights can differ.
        self._non_contiguous = [p for p in names.values() if not p.is_contiguous()]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """torch's own groups, each with its `lr` now and its `base_lr`, the highest."""
        return [group for part in self.parts.values() for group in part.param_groups]

    def scale_lr(self, factor: float) -> None:
        """What the schedule says: multiplies the highest rate of every group."""
        for group in self.groups:
            group["lr"] = group["base_lr"] * factor

    def step(self) -> None:
        for p in self._non_contiguous:
            if p.grad is not None and p.grad.stride() != p.stride():
                p.grad = torch.empty_like(p).copy_(p.grad)
        for part in self.parts.values():
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts.values():
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As torch has it, by number; for checkpoints, `state_tensors` goes by name."""
        return {kind: part.state_dict() for kind, part in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_names("The stored state", state, self.parts)
        for kind, part in self.parts.items():
            part.load_state_dict(state[kind])

    def state_tensors(self) -> dict[str, Tensor]:
        """ "<parameter>.<key>" -> tensor (under FSDP a DTensor). Parameters that have not learnt yet have none."""
        tensors: dict[str, Tensor] = {}
        for name, (kind, state) in self._states().items():
            tensors |= {f"{name}.{key}": state[key] for key in STATE_TENSORS[kind]}
        return tensors

    def state_numbers(self) -> dict[str, Any]:
        """Which optimiser moves each parameter, and how many updates those that have learnt have had."""
        groups = [(kind, group) for kind, part in self.parts.items() for group in part.param_groups]
        kind_of = {id(p): kind for kind, group in groups for p in group["params"]}
        return {
            "parameters": {name: kind_of[id(p)] for name, p in self.names.items()},
            "updates": {name: int(state["step"]) for name, (_, state) in self._states().items()},
        }

    def _states(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Parameter name -> (which optimiser, its state), for those that have one."""
        return {
            name: (kind, part.state[p])
            for name, p in self.names.items()
            for kind, part in self.parts.items()
            if part.state.get(p)
        }

    @torch.no_grad()
    def load_state(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """To the bit what `state_tensors` and `state_numbers` gave; refuses another model's or optimiser's."""
        kinds, updates = numbers.get("parameters", {}), numbers.get("updates", {})
        kinds_here = self.state_numbers()["parameters"]
        check_names("The optimiser's stored state", kinds, kinds_here)
        for name, kind in kinds_here.items():
            if kinds[name] != kind:
                raise CheckpointError(
                    f"The checkpoint moved {name} by {kinds[name]}, this run by {kind}. "
                    "Go on with the optimiser that the run began with, or start a new run."
                )
        expected = {f"{name}.{key}": self.names[name] for name in updates for key in STATE_TENSORS[kinds_here[name]]}
        check_names("The optimiser's stored state", tensors, expected)
        for tensor_name, p in expected.items():
            if tensors[tensor_name].shape != p.shape:
                raise CheckpointError(
                    f"{tensor_name} is {tuple(tensors[tensor_name].shape)} in the checkpoint, its weight here "
                    f"{tuple(p.shape)}. They belong to different models."
                )
        for kind, part in self.parts.items():
            part.state.clear()
            for name in (name for name in updates if kinds_here[name] == kind):
                p = self.names[name]
                state: dict[str, Any] = {"step": updates[name]}
                if kind == "adamw":  # counts in a tensor, which the fused kernels read on the weight's own device
                    device = p.device if part.defaults["fused"] else "cpu"
                    state["step"] = torch.tensor(float(updates[name]), dtype=torch.float32, device=device)
                for key in STATE_TENSORS[kind]:
                    stored = tensors[f"{name}.{key}"].to(p.device)
                    state[key] = torch.zeros_like(p).copy_(sharded_like(stored, p))
                part.state[p] = state


def parameter_names(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter that learns, once, under its first name; whether the model is compiled makes no difference."""
    return {
        ".".join(part for part in name.split(".") if part not in WRAPPERS): p
        for name, p in model.named_parameters()
        if p.requires_grad
    }


def decayed(model: nn.Module) -> set[nn.Parameter]:
    """The parameters that weight decay pulls on (see the top of this file)."""
    embeds = [module for module in model.modules() if isinstance(module, TokenEmbedder)]
    words = {table for embed in embeds for table in embed.tokens.modules() if isinstance(table, nn.Embedding)}
    parameters = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module not in words:
            continue
        for name, p in module.named_parameters(recurse=False):
            is_matrix = name.startswith(("weight", "lora_")) or isinstance(module, nn.ParameterList)
            if p.ndim >= 2 and is_matrix:
                parameters.add(p)
    return parameters


def check_names(subject: str, names: Iterable[str], expected: Iterable[str]) -> None:
    """The names are the same; otherwise an error that says which are not."""
    missing, extra = sorted(set(expected) - set(names)), sorted(set(names) - set(expected))
    if missing or extra:
        lacks = f" It lacks {', '.join(missing[:3])}{' …' * (len(missing) > 3)}." if missing else ""
        holds = f" It holds {', '.join(extra[:3])}{' …' * (len(extra) > 3)}, unknown here." if extra else ""
        raise CheckpointError(
            f"{subject} belongs to another model or optimiser.{lacks}{holds} "
            "Was the recipe changed since the run began? Start a new run, or undo the change."
        )

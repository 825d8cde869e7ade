"""The parts of a run put together: module, optimiser, schedule, loader, evaluation and checkpoints around one loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead import hub
from clearhead.errors import ConfigError, did_you_mean
from clearhead.models import Model
from clearhead.pipeline import Pipeline
from clearhead.train.data import Loader, Order
from clearhead.train.engine import lora
from clearhead.train.engine.checkpoints import Checkpoints
from clearhead.train.engine.direct_loop import DirectLoop
from clearhead.train.engine.ema import EMA, TriggeredAverage
from clearhead.train.engine.evaluation import Evaluation
from clearhead.train.engine.flops import peak_flops_per_second, training_flops
from clearhead.train.engine.freezing import Unfreezing, discriminative, freeze
from clearhead.train.engine.loop import Loop, LoopOptions
from clearhead.train.engine.memory_saving import save_memory
from clearhead.train.engine.optim import Optimizer, optimizer
from clearhead.train.engine.schedules import schedule
from clearhead.train.engine.world import World
from clearhead.train.objectives import Objective
from clearhead.train.recipe import LoraRecipe, OptimizerRecipe, Recipe
from clearhead.train.run.data import RunData


@dataclass
class RunParts:
    """Everything that one run consists of.

    model    what is saved in the end; the loop trains the objective's module around it
    steps    in all
    """

    recipe: Recipe
    folder: Path
    world: World
    objective: Objective
    data: RunData
    model: Model
    steps: int
    loader: Loader
    evaluation: Evaluation
    loop: Loop

    def pipeline(self, model: Model) -> Pipeline:
        """The model as a user will have it."""
        return self.objective.pipeline(model, str(self.folder / "model"))

    def check_evaluation(self) -> None:
        """What is asked of it exists: found out on one batch now, rather than after an hour."""
        metric, sample = self.recipe.evaluation.metric, self.recipe.evaluation.sample
        if "valid" in self.data.examples:
            self.evaluation.module.eval()
            known = self.evaluation.metrics("valid", 1)
            if metric is not None and metric not in known:
                raise ConfigError(
                    f"evaluation.metric is {metric!r}, which {self.objective.name} does not measure."
                    f"{did_you_mean(metric, known)} It measures: {', '.join(known)}."
                )
        if sample is not None:
            self.objective.check_sample(self.pipeline(self.model), sample)

    def sample(self) -> str | None:
        """What the model makes of the recipe's prompt, in the main process."""
        model, prompt = self.world.gather(self.model), self.recipe.evaluation.sample
        if not self.world.is_main or prompt is None:
            return None
        with self.evaluation.eager():
            return self.objective.sample(self.pipeline(model), prompt, self.recipe.seed)

    def facts(self) -> dict[str, Any]:
        """What the log begins with."""
        return {
            "steps": self.steps,
            "out": str(self.folder),
            "objective": self.objective.name,
            "unit": self.objective.unit,
            "family": self.model.family.title,
            "parameters": self.model.num_parameters(),
            "examples": len(self.data.examples["train"]),
            "steps_per_epoch": self.data.orders["train"].steps_per_epoch(),
            "device": str(self.world.device),
            "devices": self.world.size,
            "precision": "bf16" if self.loop.options.dtype is not None else "fp32",
        }


def assemble(recipe: Recipe, folder: Path, world: World, objective: Objective, data: RunData, model: Model) -> RunParts:
    module = objective.training_module(model)
    objective.training_data = data.tables["train"]
    if recipe.lora is not None:
        _add_lora(model, recipe.lora)
    if recipe.optimizer.freeze is not None:
        freeze(model, recipe.optimizer.freeze)
    save_memory(model, world.device, recipe.loss_chunk_size, recipe.gradient_checkpointing)
    # before the optimiser: it may put other tensors in place
    micro_steps = recipe.batch.gradient_accumulation_steps
    wrapped = world.wrap(module, recipe.compile, objective.static_shapes, single_call=micro_steps == 1)
    opt = _optimizer(module, recipe.optimizer)
    ema = _average(module, recipe)
    order = data.orders["train"]
    steps = recipe.steps or order.steps_in(recipe.epochs or 1.0)
    loader = Loader(
        data.examples["train"], objective, order, seed=recipe.seed, rank=world.rank, world_size=world.size,
        gradient_accumulation_steps=micro_steps, device=world.device, workers=recipe.data.workers,
    )  # fmt: skip
    options = _loop_options(recipe, world, model, steps, order.steps_per_epoch())
    if objective.moves_weights or not objective.counts_flops:
        options.peak_flops = 0.0  # its arithmetic is no product of matrices, or goes by more than one length
    evaluation = Evaluation(
        module, objective, data.examples, data.orders, world, seed=recipe.seed, dtype=options.dtype,
        is_compiled=recipe.compile,
    )  # fmt: skip
    loop_class = DirectLoop if objective.moves_weights else Loop
    loop = loop_class(
        wrapped, objective, loader, opt, options,
        _checkpoints(recipe, folder, world, objective, model), world,
        _before_step(recipe, module, opt, steps, order, model.config.hidden_size),
        evaluate=(lambda: evaluation.metrics("valid", recipe.evaluation.batches)) if "valid" in data.tables else None,
        ema=ema,
    )  # fmt: skip
    parts = RunParts(recipe, folder, world, objective, data, model, steps, loader, evaluation, loop)
    if recipe.evaluation.sample is not None:
        loop.sample = parts.sample
    return parts


def _checkpoints(recipe: Recipe, folder: Path, world: World, objective: Objective, model: Model) -> Checkpoints:
    """Each of them can be used as a model."""

    def describe(into: Path) -> None:
        hub.write_description(into, model, objective.codec)

    return Checkpoints(folder / "checkpoints", recipe.checkpoint.keep, world, describe)


def _add_lora(model: Model, recipe: LoraRecipe) -> None:
    new_head = model.language_head is None and model.task != "features"
    targets, modules_to_save = recipe.targets or lora.QUERY_VALUE, ("head",) if new_head else ()
    lora.add_lora(model, recipe.rank, recipe.alpha, recipe.dropout, targets, modules_to_save=modules_to_save)


def _average(module: nn.Module, recipe: Recipe) -> EMA | None:
    """What is evaluated and saved in place of the weights."""
    if recipe.optimizer.name == "nt-asgd":
        return TriggeredAverage(module, recipe.optimizer.non_monotone)
    return None if recipe.ema is None else EMA(module, recipe.ema)


def _optimizer(module: nn.Module, recipe: OptimizerRecipe) -> Optimizer:
    return optimizer(
        module, recipe.name, lr=recipe.lr, weight_decay=recipe.weight_decay, betas=(recipe.betas[0], recipe.betas[1]),
        eps=recipe.eps, momentum=recipe.momentum, matrix_lr=recipe.matrix_lr,
        lr_factors=discriminative(module, recipe.layer_decay) if recipe.layer_decay != 1 else None,
    )  # fmt: skip


def _before_step(
    recipe: Recipe, module: nn.Module, opt: Optimizer, steps: int, order: Order, width: int
) -> Callable[[int], float]:
    """Sets the learning rates of a step and which layers learn in it; gives the rate."""
    every, epochs = recipe.optimizer.unfreeze_every, recipe.optimizer.unfreeze_epochs
    if epochs is not None:
        every = max(round(epochs * order.steps_per_epoch()), 1)
    unfreezing = Unfreezing(module, every) if every else None
    options = dict(recipe.schedule.options)
    if recipe.schedule.name == "noam":
        options.setdefault("width", width)
    lr_factor = schedule(recipe.schedule.name, steps, recipe.schedule.warmup, recipe.final_lr, **options)

    def before(step: int) -> float:
        if unfreezing is not None:
            unfreezing.apply(step)
        factor = lr_factor(step) * order.rate(step)
        opt.scale_lr(factor)
        return recipe.optimizer.lr * factor

    return before


def _loop_options(recipe: Recipe, world: World, model: Model, steps: int, steps_per_epoch: int) -> LoopOptions:
    precision = recipe.precision or ("bf16" if world.device.type == "cuda" else "fp32")
    dtype = torch.bfloat16 if precision == "bf16" else None
    return LoopOptions(
        steps=steps, seed=recipe.seed, max_grad_norm=recipe.optimizer.max_grad_norm, dtype=dtype,
        evaluate_every=recipe.evaluation.every or max(min(steps_per_epoch, steps // 10), 1),
        metric=recipe.evaluation.metric, patience=recipe.evaluation.patience,
        checkpoint_every=recipe.checkpoint.every, checkpoint_minutes=recipe.checkpoint.minutes,
        log_every=recipe.log_every, flops_per_unit=training_flops(model, recipe.batch.length),
        peak_flops=world.size * peak_flops_per_second(world.device, dtype or torch.float32),
    )  # fmt: skip

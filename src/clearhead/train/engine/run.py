"""From a recipe to a trained model: the parts are made in order, the loop runs, and the best weights are saved.

out/recipe.yaml    what was asked
out/tokenizer/     trained for it, where it was
out/data/          the text as numbers (train/data)
out/checkpoints/   to go on from (train/engine/state.py)
out/log.jsonl      what happened (train/engine/log.py)
out/model/         the model, as every other checkpoint: ch.load("out/model")
out/result.json    the measures at the end
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead import hub, pipeline
from clearhead.errors import CheckpointError, ClearheadError, ConfigError, InputError, did_you_mean
from clearhead.files import atomic_folder, atomic_write, remove_parts
from clearhead.generate.session import check_can_generate
from clearhead.models import Model
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.nn.fast import cpu_kernels
from clearhead.text import Tokenizer, has_tokenizer, load_tokenizer, train_tokenizer
from clearhead.train.data import Blocks, Loader, Order, Source, Table, evaluation_batches, open_source, prepare
from clearhead.train.engine import lora
from clearhead.train.engine.check import check_run, new_config, shared_files
from clearhead.train.engine.ema import EMA
from clearhead.train.engine.log import Event, Log, Watcher, tensorboard
from clearhead.train.engine.loop import Loop, Plan, TrainingStopped, enough_memory
from clearhead.train.engine.memory import spare_memory
from clearhead.train.engine.optim import optimizer
from clearhead.train.engine.peak import machine_peak, training_flops
from clearhead.train.engine.schedules import schedule
from clearhead.train.engine.state import Checkpoints, Progress
from clearhead.train.engine.unfreezing import Unfreezing, discriminative, freeze
from clearhead.train.engine.world import World, join
from clearhead.train.objectives import Objective, Record, objective, objective_class, typed_options
from clearhead.train.objectives.distillation import student_of
from clearhead.train.recipe import Recipe, read_recipe, write_recipe

SAMPLED = 60  # tokens of a sample
WRITTEN = "# All settings of the run in this folder, as they were used.\n"  # what recipe.yaml of a run begins with
BROUGHT = {  # special tokens that a tokenizer of each kind has anyway
    "bpe": ("bos_token", "eos_token", "unk_token"),
    "wordpiece": ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
    "unigram": ("pad_token", "eos_token", "unk_token"),
}


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    folder: Path
    finished: bool  # False: somebody asked it to stop, and the same command goes on
    step: int
    metrics: dict[str, float]  # of held-out data, at the best step
    test: dict[str, float]  # of the test data, where there is any

    @property
    def model(self) -> Path:
        return self.folder / "model"


def train(
    recipe: Recipe | str | os.PathLike[str] | Mapping[str, Any],
    overrides: Iterable[str] = (),
    watchers: Iterable[Watcher] = (),
) -> Result:
    """Train as a recipe says. A run that was stopped goes on where it was.

    watchers   hear every event of the run (train/engine/log.py)
    """
    said = asdict(recipe) if isinstance(recipe, Recipe) else recipe
    recipe = read_recipe(said if isinstance(said, Mapping) else Path(said), overrides)
    folder = hub.user_path(recipe.out)
    with join(recipe) as world:
        run = _Run(recipe, folder, world, list(watchers))  # what is wrong with the recipe is found here
        _differences(recipe, folder, run.kind)  # before anything is written, a lock included
        with _alone(folder, world), enough_memory():
            _remember(recipe, folder, run.kind, world)
            run.prepare()
            return run.go()


class _Run:
    """The parts of one run, made in order. Nothing is written before `prepare`."""

    def __init__(self, recipe: Recipe, folder: Path, world: World, watchers: list[Watcher]) -> None:
        name, options = recipe.objective["name"], {k: v for k, v in recipe.objective.items() if k != "name"}
        recipe = replace(recipe, objective={"name": name} | typed_options(objective_class(name), options))
        self.recipe, self.folder, self.world = recipe, folder, world
        self.watchers = watchers if world.leads else []
        self.sources = _sources(recipe)
        origin = recipe.model.start or recipe.model.student_of
        origin = recipe.objective["teacher"] if origin == "teacher" and recipe.model.student_of else origin
        self.start = hub.transformer_folder(pipeline.folder_of(origin)) if origin else None
        taken = recipe.tokenizer.start or origin
        known = _tokenizer_at(taken) if taken and not recipe.tokenizer.kind else None
        named = recipe.objective.get("source_tokenizer")
        self.source_tokenizer = _tokenizer_at(named) if named is not None else None
        self.kind = check_run(recipe, self.sources, self.start, known, self.source_tokenizer)
        self._known_tokenizer = known
        # options that cannot be are found now; a tokenizer that is still to be trained is stood in for
        self.objective = self._objective(known or self._trained_tokenizer(iter(["a"]), show=False))

    def prepare(self) -> None:
        """Tokenizer, data and model."""
        recipe = self.recipe
        if recipe.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        if self.world.device.type == "cpu":
            cpu_kernels.load()  # now, and not when a sample is written: frozen layers round otherwise after it
        if self._known_tokenizer is not None:
            self.tokenizer = self._known_tokenizer
        else:
            self.tokenizer = self._new_tokenizer()
            self.objective = self._objective(self.tokenizer)
        if type(self.objective).learn_labels is not Objective.learn_labels:
            self.objective.learn_labels(self.sources["train"].records())
        if recipe.batch.size is not None:
            self.objective.check_rows(recipe.batch.size // (recipe.batch.accumulate * self.world.size))
        self.tables = {part: self._table(source) for part, source in self.sources.items()}
        self.data = {part: self._examples(part, table) for part, table in self.tables.items()}
        self.orders = {part: self._order(part, shuffle=part == "train") for part in self.data}
        self.order = self.orders["train"]
        self.steps = recipe.steps or self.order.steps_in(recipe.epochs or 1.0)
        torch.manual_seed(recipe.seed)
        self.model = self._model()

    # ---- the parts

    def _trained_tokenizer(self, texts: Iterator[str], show: bool = True) -> Tokenizer:
        asked, kind = self.recipe.tokenizer, self.kind
        assert asked.kind is not None
        own = [token for name, token in kind.named.items() if name not in BROUGHT[asked.kind]]
        special = [*asked.special_tokens, *kind.extra_tokens(), *own]
        made = train_tokenizer(
            texts, asked.kind, asked.vocab_size, lowercase=asked.lowercase, special_tokens=special, show_progress=show
        )
        kind.complete(made)
        return made

    def _new_tokenizer(self) -> Tokenizer:
        folder, origin = self.folder / "tokenizer", self.folder / "tokenizer" / "trained_on.json"
        data = json.dumps({"fingerprint": self.sources["train"].fingerprint()})
        if self.world.leads and origin.is_file() and origin.read_text() != data and not self._began():
            shutil.rmtree(folder)  # the text was another one when the run could not begin
        if not folder.is_dir() and self.world.leads:
            columns = self.kind.columns
            made = self._trained_tokenizer(
                text for record in self.sources["train"].records() for text in _texts(record, columns)
            )
            remove_parts(folder)
            with atomic_folder(folder) as work:
                made.save(work)
                (work / origin.name).write_text(data)
        self.world.wait()
        return load_tokenizer(folder)

    def _began(self) -> bool:
        return any((self.folder / name).exists() for name in ("checkpoints", "model"))

    def _objective(self, tokenizer: Tokenizer) -> Objective:
        options = {key: value for key, value in self.recipe.objective.items() if key != "name"}
        if self.source_tokenizer is not None:
            options["source_tokenizer"] = self.source_tokenizer
        return objective(self.kind.name, tokenizer, self.recipe.batch.length, **options)

    def _table(self, source: Source) -> Table:
        cache = hub.user_path(self.recipe.data.cache) if self.recipe.data.cache else self.folder / "data"
        if self.world.leads:
            prepare(source, self.objective, cache, workers=self._workers(source))
        self.world.wait()
        return prepare(source, self.objective, cache, workers=self._workers(source))

    def _workers(self, source: Source) -> int:
        return self.recipe.data.workers if source.size is None or source.size > 10e6 else 0

    def _examples(self, part: str, table: Table) -> Table | Blocks:
        if not self.objective.blocks:
            return table
        tokens, length = int(table.lengths("input_ids").sum()), self.objective.block_length
        if tokens < (length if part == "train" else 1):
            raise InputError(
                f"The {part} data has {tokens:,} tokens, which do not fill one block of {length}. Give more text, or "
                "lower batch.length."
            )
        return Blocks(table, length, keep_last=part != "train")

    def _order(self, part: str, shuffle: bool) -> Order:
        batch, data = self.recipe.batch, self.data[part]
        lengths = data.longest() if isinstance(data, Table) else len(data)
        size = batch.size if part == "train" else self.recipe.evaluation.batch_size or batch.size
        tokens = batch.tokens
        if isinstance(data, Blocks) and tokens is not None:
            size, tokens = size or max(tokens // batch.length, 1), None
        bucket = batch.bucket and isinstance(data, Table)
        return Order(
            lengths, batch_size=size, batch_tokens=tokens, seed=self.recipe.seed, shuffle=shuffle, bucket=bucket
        )

    def _model(self) -> Model:
        asked = self.recipe.model
        task = asked.task or self.objective.task
        if self.start is not None:

            def configure(raw: dict[str, Any]) -> dict[str, Any]:
                return self.objective.configure(raw | asked.config)

            model = hub.load_model(
                self.start, task, "float32", self.world.cradle, asked.ignore_options, configure=configure
            )
            if asked.student_of:
                model = student_of(model, asked.layers)
        else:
            target = self.tokenizer.target
            family, config = new_config(asked, len(target), _special_ids(target), self.objective.configure)
            model = family.make(config, task).to(self.world.cradle)
        for p in model.parameters():
            # In memory of its own (a file may be mapped), in one layout: products are the same after a stop.
            p.data = p.data.clone(memory_format=torch.contiguous_format)
        return model

    # ---- the run

    def go(self) -> Result:
        recipe, world = self.recipe, self.world
        module = self.objective.trained(self.model)
        self.objective.pool = self.tables["train"]
        if recipe.lora is not None:
            asked = recipe.lora
            new_head = self.model.language_head is None and self.model.task != "features"
            lora.add_lora(self.model, asked.rank, asked.alpha, asked.dropout, asked.targets or lora.QUERY_VALUE,
                          also=("head",) if new_head else ())  # fmt: skip
        if recipe.optimizer.freeze is not None:
            freeze(self.model, recipe.optimizer.freeze)
        spare_memory(self.model, world.device, recipe.chunk, recipe.checkpoint_activations)
        # before the optimiser: it may put other tensors in place
        wrapped = world.wrap(module, recipe.compile, self.objective.even, once=recipe.batch.accumulate == 1)
        made = optimizer(
            module, recipe.optimizer.name, lr=recipe.optimizer.lr, weight_decay=recipe.optimizer.weight_decay,
            betas=(recipe.optimizer.betas[0], recipe.optimizer.betas[1]), eps=recipe.optimizer.eps,
            momentum=recipe.optimizer.momentum, matrix_lr=recipe.optimizer.matrix_lr,
            rates=discriminative(module, recipe.optimizer.layer_decay) if recipe.optimizer.layer_decay != 1 else None,
        )  # fmt: skip
        ema = EMA(module, recipe.ema) if recipe.ema is not None else None
        unfreezing = Unfreezing(module, recipe.optimizer.unfreeze_every) if recipe.optimizer.unfreeze_every else None
        options = dict(recipe.schedule.options)
        if recipe.schedule.name == "noam":
            options.setdefault("width", self.model.config.hidden_size)
        factor = schedule(recipe.schedule.name, self.steps, recipe.schedule.warmup, recipe.schedule.final, **options)

        def before(step: int) -> float:
            if unfreezing is not None:
                unfreezing.apply(step)
            made.set_rate(factor(step))
            return recipe.optimizer.lr * factor(step)

        dtype = self._dtype()
        loader = Loader(
            self.data["train"], self.objective, self.order, seed=recipe.seed, rank=world.rank, world=world.size,
            accumulate=recipe.batch.accumulate, device=world.device, workers=recipe.data.workers,
        )  # fmt: skip
        every = recipe.evaluation.every or max(min(self.order.steps_per_epoch(), self.steps // 10), 1)
        plan = Plan(
            steps=self.steps, seed=recipe.seed, clip=recipe.optimizer.clip, dtype=dtype, evaluate_every=every,
            metric=recipe.evaluation.metric, patience=recipe.evaluation.patience,
            checkpoint_every=recipe.checkpoint.every, checkpoint_minutes=recipe.checkpoint.minutes,
            log_every=recipe.log_every, flops_per_token=training_flops(self.model, recipe.batch.length),
            peak_flops=world.size * machine_peak(world.device, dtype or torch.float32),
        )  # fmt: skip
        loop = Loop(
            wrapped, self.objective, loader, made, plan,
            Checkpoints(self.folder / "checkpoints", recipe.checkpoint.keep, world), world, before,
            evaluate=self._evaluation(module) if "valid" in self.data else None,
            sample=self._sample if recipe.evaluation.sample is not None else None, ema=ema,
        )  # fmt: skip
        return self._carry_out(loop, loader, module)

    def _carry_out(self, loop: Loop, loader: Loader, module: nn.Module) -> Result:
        notes = shared_files(self.sources)
        warmup = self.recipe.schedule.warmup or 0
        if warmup >= self.steps > 1:
            notes.append(f"The rate rises to the end: schedule.warmup is {warmup:g}, the run {self.steps} steps long.")
        if self.recipe.lora is not None and (matrix := lora.nameless(self.model)) is not None:
            notes.append(f"There will be a whole model and no adapter/: PEFT's format has no name for {matrix}.")
        loop.progress.data = " ".join(
            self.tables[part].fingerprint for part in ("train", "valid") if part in self.tables
        )
        found = loop.checkpoints.newest()
        if found is not None:
            progress, tensors, wrong = found
            if progress.data != loop.progress.data:
                raise CheckpointError(
                    f"The data has changed since the run in {self.folder} began. Begin anew with another out=."
                )
            loop.restore(progress, tensors)
            notes += wrong
        self._check_evaluation(module)
        with ExitStack() as stack:
            if self.world.leads:
                log = Log(self.folder / "log.jsonl", loop.progress.log_bytes)
                stack.callback(log.close)
                board = tensorboard(self.folder / "tensorboard", loop.progress.step)
                self.watchers += [log] + ([board] if board is not None else [])
                loop.log_bytes = lambda: log.bytes
            loop.watchers = self.watchers
            self._say(self._beginning(loop.progress))
            for note in notes:
                self._say({"event": "note", "step": loop.progress.step, "text": note})
            try:
                with loader:
                    finished = loop.run()
            except TrainingStopped as error:
                self._say({"event": "end", "step": loop.progress.step, "finished": False, "text": str(error)})
                raise
            step = loop.progress.step
            if finished and step < self.steps:
                said = f"evaluation.patience={self.recipe.evaluation.patience}"
                text = f"Stopped early: no evaluation was better than that of step {loop.progress.best_step} ({said})."
                self._say({"event": "note", "step": step, "text": text})
            metrics, test = self._finish(loop, module) if finished else ({}, {})
            self._say({"event": "end", "step": step, "finished": finished, "metrics": metrics, "test": test})
        return Result(self.folder, finished, step, metrics, test)

    def _check_evaluation(self, module: nn.Module) -> None:
        """What is asked of it exists: found out on one batch now, rather than after an hour."""
        metric = self.recipe.evaluation.metric
        if "valid" in self.data:
            known = self._measured(module.eval(), "valid", 1)
            if metric is not None and metric not in known:
                raise ConfigError(
                    f"evaluation.metric is {metric!r}, which {self.objective.name} does not measure."
                    f"{did_you_mean(metric, known)} It measures: {', '.join(known)}."
                )
        if self.recipe.evaluation.sample is not None and self._room_to_write() < 1:
            raise ConfigError("evaluation.sample is as long as the model can read: nothing can be written after it.")

    def _room_to_write(self) -> int:
        """How many tokens of a sample there is room for."""
        check_can_generate(self.model)
        model, room = self.model, self.model.max_length
        asked = self.recipe.evaluation.sample
        read = 1 if isinstance(model, EncoderDecoderModel) else self._pipeline(model).encode_prompts(asked)[1].shape[1]
        return SAMPLED if room is None else min(SAMPLED, room - read)

    def _beginning(self, progress: Progress) -> Event:
        return {
            "event": "begin",
            "step": progress.step,
            "steps": self.steps,
            "out": str(self.folder),
            "objective": self.objective.name,
            "family": self.model.family.title,
            "parameters": self.model.num_parameters(),
            "examples": len(self.data["train"]),
            "steps_per_epoch": self.order.steps_per_epoch(),
            "device": str(self.world.device),
            "devices": self.world.size,
            "precision": "bf16" if self._dtype() is not None else "fp32",
        }

    def _finish(self, loop: Loop, module: nn.Module) -> tuple[dict[str, float], dict[str, float]]:
        """The best weights, examined and saved."""
        done = loop.progress
        loop.take_best()
        module.eval()
        with self._precision():
            metrics = loop.evaluate() if loop.evaluate is not None else {}
        test = self._measured(module, "test", None) if "test" in self.data else {}
        model = self.world.whole(self.model)
        if self.world.leads:
            if self.recipe.lora is not None:
                if lora.nameless(model) is None:
                    lora.save_adapter(model, self.folder / "adapter", self.recipe.model.start)
                lora.merge(model)
            head = model.language_head
            if head is not None:
                head.chunk, head.smoothing = 0, 0.0
            pipe = self._pipeline(model)
            remove_parts(self.folder / "model")
            pipe.save(self.folder / "model", overwrite=(self.folder / "model").is_dir())
            if "test" in self.sources:
                records, options = self.sources["test"].records(), self.recipe.evaluation.options
                with self._eager():
                    test |= self.objective.examine(pipe, records, **options)
            facts = {"step": done.step, "best_step": done.best_step, "metrics": metrics, "test": test,
                     "tokens": done.tokens, "seconds": done.seconds}  # fmt: skip
            atomic_write(self.folder / "result.json", (json.dumps(facts, indent=2) + "\n").encode(), CheckpointError)
        self.world.wait()
        return metrics, test

    def _evaluation(self, module: nn.Module) -> Callable[[], dict[str, float]]:
        return lambda: self._measured(module, "valid", self.recipe.evaluation.batches)

    def _measured(self, module: nn.Module, part: str, limit: int | None) -> dict[str, float]:
        sums: dict[str, float] = {}
        for batch in evaluation_batches(
            self.data[part], self.objective, self.orders[part], seed=self.recipe.seed,
            rank=self.world.rank, world=self.world.size, device=self.world.device, limit=limit, equal=True,
        ):  # fmt: skip
            with self._precision(), self._eager():
                for name, value in self.objective.measure(module, batch).items():
                    sums[name] = sums.get(name, 0.0) + (float(value) if batch.tokens else 0.0)
        return self.objective.report(self.world.sum(sums))

    def _sample(self) -> str | None:
        """What the model writes now, to be read by a person."""
        model = self.world.whole(self.model)
        if not self.world.leads:
            return None
        asked, room = self.recipe.evaluation.sample, self._room_to_write()
        with self._eager():
            text: str = self._pipeline(model).generate(
                asked, max_new_tokens=room, do_sample=True, top_k=40, seed=self.recipe.seed
            )
        return text

    def _pipeline(self, model: Model) -> pipeline.TextPipeline:
        """The model as a user will have it."""
        name, sentence = str(self.folder / "model"), self.objective.sentence()
        return pipeline.TextPipeline(model, self.objective.tokenizer, name=name, sentence=sentence)

    # ---- precision

    def _dtype(self) -> torch.dtype | None:
        asked = self.recipe.precision or ("bf16" if self.world.device.type == "cuda" else "fp32")
        return torch.bfloat16 if asked == "bf16" else None

    def _precision(self) -> torch.autocast:
        dtype = self._dtype()
        return torch.autocast(self.world.device.type, dtype or torch.bfloat16, enabled=dtype is not None)

    def _eager(self) -> AbstractContextManager[Any]:
        """Around what is read in many shapes, once each: compiled code would be made anew for every one of them."""
        return torch.compiler.set_stance("force_eager") if self.recipe.compile else nullcontext()

    def _say(self, event: Event) -> None:
        for watch in self.watchers:
            watch(event)


# ---- the folder of a run


@contextmanager
def _alone(folder: Path, world: World) -> Iterator[None]:
    """Two runs must not write to one folder."""
    if not world.leads:
        yield
        return
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("w")
    except OSError as error:
        raise CheckpointError(f"Cannot write to {folder}: {error.strerror or error}. Choose another out=.") from None
    with handle:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has no such locks
            pass
        except OSError:
            raise CheckpointError(f"Another process is training into {folder}. Wait for it, or set out=.") from None
        try:
            yield
        except ClearheadError:
            _take_back(new)
            raise


def _take_back(new: list[Path]) -> None:
    """Nothing is left of a run that could not begin, unless there is work in it: data that is prepared, or a log.

    new   the folders that it made, the run's own first
    """
    if not new or any((new[0] / "data").glob("*/manifest.json")) or (new[0] / "log.jsonl").exists():
        return
    shutil.rmtree(new[0], ignore_errors=True)
    with suppress(OSError):  # somebody else has put something there
        for parent in new[1:]:
            parent.rmdir()


OURS = ("checkpoints", "model", "tokenizer", "adapter", "data", "tensorboard", "log.jsonl", "result.json")


def _differences(recipe: Recipe, folder: Path, kind: type[Objective]) -> list[str]:
    """In what the recipe differs from that of a run that did not come as far as training; any other is an error."""
    path = folder / "recipe.yaml"
    there = [name for name in ("checkpoints", "model") if (folder / name).exists()]
    if path.exists() and not there and not path.read_text(encoding="utf-8", errors="replace").startswith(WRITTEN):
        raise CheckpointError(
            f"A run into {folder} would write over {path}, which is no run's. Set out= to a new folder."
        )
    changed = recipe.differences(read_recipe(path), kind.compares) if path.exists() else []
    if there and changed:
        raise CheckpointError(
            f"{folder} holds a run of another recipe ({'; '.join(changed[:5])}). "
            "Set out= to a new folder, or delete this one to begin anew."
        )
    foreign = [name for name in OURS if (folder / name).exists()] if not path.exists() else []
    if foreign:
        raise CheckpointError(
            f"{folder} holds {' and '.join(foreign)}, but no recipe.yaml: no run to go on with. Set out= to a new one."
        )
    return changed


def _remember(recipe: Recipe, folder: Path, kind: type[Objective], world: World) -> None:
    """The recipe stands in the folder; one that would train differently is not mixed with what is there."""
    path = folder / "recipe.yaml"
    changed = _differences(recipe, folder, kind)
    world.wait()
    if world.leads and (changed or not path.exists()):
        shutil.rmtree(folder / "tokenizer", ignore_errors=True)  # of a recipe that did not come as far as training
        atomic_write(path, (WRITTEN + write_recipe(recipe)).encode(), CheckpointError)
    world.wait()


# ---- data


def _sources(recipe: Recipe) -> dict[str, Source]:
    asked = recipe.data
    common: dict[str, Any] = {"format": asked.format, "documents": asked.documents, "columns": asked.columns or None}
    if asked.valid is None and asked.held_out:
        held: dict[str, Any] = {"held_out": asked.held_out}
        found = {
            "train": open_source(asked.train, limit=asked.limit, part="train", **held, **common),
            "valid": open_source(asked.train, part="valid", **held, **common),
        }
    else:
        found = {"train": open_source(asked.train, limit=asked.limit, **common)}
        if asked.valid is not None:
            found["valid"] = open_source(asked.valid, **common)
    if asked.test is not None:
        found["test"] = open_source(asked.test, **common)
    return found


def _tokenizer_at(where: str) -> Tokenizer:
    """A model's tokenizer, or one that is alone in its folder."""
    given = hub.user_path(where)
    folder = given if has_tokenizer(given) else hub.transformer_folder(pipeline.folder_of(where))
    return load_tokenizer(folder)


def _texts(record: Record, columns: Iterable[str]) -> Iterator[str]:
    """What a tokenizer can learn from: the strings in the columns, and in lists of them."""
    for column in columns:
        value = record.get(column) if column not in ("label", "tags") else None
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, str))


def _special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    names = ("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id")
    return {name: getattr(tokenizer, name) for name in names if getattr(tokenizer, name) is not None}

"""The end of a run: the best weights, evaluated on held-out and test data, and exported as a model to be used."""

from __future__ import annotations

import json
from collections.abc import Mapping

from clearhead import hub
from clearhead.errors import CheckpointError
from clearhead.files import atomic_write, remove_parts
from clearhead.hub.adapter import save_adapter, unnamed_matrix
from clearhead.models import Model
from clearhead.models.heads import language_heads
from clearhead.nn.lora import merge
from clearhead.pipeline import Pipeline
from clearhead.train.data import Source
from clearhead.train.run.assembly import RunParts
from clearhead.train.run.kept_sources import GoneSource

Metrics = dict[str, float]


def finish(parts: RunParts, sources: Mapping[str, Source]) -> tuple[Metrics, Metrics]:
    """The metrics of held-out and of test data, with the best weights."""
    loop, world, evaluation = parts.loop, parts.world, parts.evaluation
    loop.load_best()
    evaluation.module.eval()
    with world.autocast(loop.options.dtype):
        metrics = loop.evaluate() if loop.evaluate is not None else {}
    test = evaluation.metrics("test") if "test" in parts.data.examples else {}
    model = world.gather(parts.model)
    if world.is_main:
        pipe = _export(parts, model)
        if "test" in sources and not isinstance(sources["test"], GoneSource):
            records, options = sources["test"].records(), parts.recipe.evaluation.test_options
            with evaluation.eager():
                test |= parts.objective.evaluate_test(pipe, records, **options)
        progress = loop.progress
        result = {"step": progress.step, "best_step": progress.best_step, "metrics": metrics, "test": test,
                  "units": progress.units, "seconds": progress.seconds}  # fmt: skip
        atomic_write(parts.folder / "result.json", (json.dumps(result, indent=2) + "\n").encode(), CheckpointError)
    world.barrier()
    return metrics, test


def _base(start: str | None) -> str | None:
    """What the adapter is for: a folder by its whole path, so that it is found from anywhere."""
    path = hub.user_path(start) if start else None
    return str(path.resolve()) if path is not None and path.is_dir() else start


def _export(parts: RunParts, model: Model) -> Pipeline:
    """The adapter, where there is one, and the plain model."""
    folder = parts.folder
    if parts.recipe.lora is not None:
        if unnamed_matrix(model) is None:
            save_adapter(model, folder / "adapter", _base(parts.recipe.model.start))
        merge(model)
    for head in language_heads(model):
        head.chunk, head.smoothing = 0, 0.0
    pipe = parts.pipeline(model)
    remove_parts(folder / "model")
    pipe.save(folder / "model", overwrite=(folder / "model").is_dir())
    return pipe

"""The data of a run: examples on disk, blocks of them where the objective wants blocks, and the order of the steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clearhead import hub
from clearhead.train.data import Blocks, Order, Source, StreamOrder, Streams, Table, prepare, rows_for
from clearhead.train.engine.world import World
from clearhead.train.objectives import Objective
from clearhead.train.recipe import Recipe

SMALL = 10e6  # bytes; less than this is tokenised sooner than other processes start


@dataclass
class RunData:
    """Each of them by part: "train", "valid", "test"."""

    tables: dict[str, Table]
    examples: dict[str, Table | Blocks | Streams]
    orders: dict[str, Order]

    def fingerprint(self) -> str:
        """Of the examples learnt from and held out."""
        return " ".join(self.tables[part].fingerprint for part in ("train", "valid") if part in self.tables)


def prepare_data(
    recipe: Recipe, sources: dict[str, Source], objective: Objective, folder: Path, world: World
) -> RunData:
    cache = hub.user_path(recipe.data.cache) if recipe.data.cache else folder / "data"
    tables = {part: _table(source, objective, cache, recipe.data.workers, world) for part, source in sources.items()}
    examples = {part: _examples(recipe, part, table, objective) for part, table in tables.items()}
    return RunData(tables, examples, {part: _order(recipe, part, examples[part], objective) for part in examples})


def _table(source: Source, objective: Objective, cache: Path, workers: int, world: World) -> Table:
    """Made by the main process, and found by the others."""
    workers = workers_for(source, workers)
    if world.is_main:
        prepare(source, objective, cache, workers=workers)
    world.barrier()
    return prepare(source, objective, cache, workers=workers)


def workers_for(source: Source, workers: int) -> int:
    return workers if source.size is None or source.size > SMALL else 0


def _examples(recipe: Recipe, part: str, table: Table, objective: Objective) -> Table | Blocks | Streams:
    name = f"The {part} data"
    if objective.streams:
        rows, length = _rows(recipe, part), recipe.batch.length
        rows = rows or max((recipe.batch.tokens or 1) // length, 1)
        if part != "train":
            return Streams(table, rows_for(table, rows, length), length, name=name)
        return Streams(table, rows, length, seed=recipe.seed, jitter=objective.jitter, name=name)
    if not objective.blocks:
        return table
    return Blocks(table, objective.block_length, keep_last=part != "train" or objective.keeps_last_block, name=name)


def _rows(recipe: Recipe, part: str) -> int | None:
    return recipe.batch.size if part == "train" else recipe.evaluation.batch_size or recipe.batch.size


def _order(recipe: Recipe, part: str, examples: Table | Blocks | Streams, objective: Objective) -> Order:
    if isinstance(examples, Streams):
        return StreamOrder(examples)
    batch, is_table = recipe.batch, isinstance(examples, Table)
    size, tokens = _rows(recipe, part), batch.tokens
    if not is_table and tokens is not None:
        size, tokens = size or max(tokens // batch.length, 1), None
    lengths = examples.longest(objective.length_column) if isinstance(examples, Table) else len(examples)
    return Order(
        lengths, batch_size=size, batch_tokens=tokens, seed=recipe.seed, shuffle=part == "train",
        bucket=batch.bucket and is_table,
    )  # fmt: skip

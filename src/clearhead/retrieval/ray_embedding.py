"""Embedding on Ray Data: groups of documents go out to workers, their rows come back; one process commits them.

Workers find the encoder by its name, so a folder must be on a disk that all machines see.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from clearhead.errors import StoreError
from clearhead.messages import say
from clearhead.retrieval.documents import Document
from clearhead.retrieval.rows import RowMaker
from clearhead.retrieval.settings import StoreSettings, open_encoder, open_tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

    from clearhead.retrieval.building import RayOptions

WINDOW = 64  # groups for each worker that are handed out at once; then the workers start anew
LOCAL = "local"


class RowWorker:
    """What each worker holds: the store's own encoder, loaded once."""

    def __init__(self, settings: StoreSettings, encoder: str, tokenizer: str, device: str) -> None:
        opened = open_encoder(settings, "", encoder, device)
        self.maker = RowMaker(settings, opened, open_tokenizer(settings, opened, "", tokenizer))

    def __call__(self, group: pa.Table) -> pa.Table:
        """A table of documents -> a table of rows, whole documents both."""
        return self.maker.rows([Document(**document) for document in group.to_pylist()])


def rows_by_ray(groups: Iterator[list[Document]], maker: RowMaker, options: RayOptions) -> Iterator[pa.Table]:
    """The rows of each group, in whatever order they are done."""
    import pyarrow as pa

    ray = _connect(options.address)
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        ray.data.DataContext.get_current().target_max_block_size = None  # a block is a group, however large
        device = maker.encoder.model.device.type
        arguments = (maker.settings, maker.encoder.name, maker.settings.tokenizer, device)
        while window := list(islice(groups, WINDOW * options.workers)):
            blocks = [pa.Table.from_pylist([_plain(document) for document in group]) for group in window]
            rows = ray.data.from_arrow(blocks).map_batches(
                RowWorker, fn_constructor_args=arguments, batch_size=None, batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=options.workers), num_gpus=int(device == "cuda"),
            )  # fmt: skip
            yield from rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    finally:
        ray.shutdown()


def _connect(address: str) -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise StoreError(say("retrieval.ray_not_installed")) from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise StoreError(say("retrieval.ray_not_reached", address=address, reason=reason)) from None
    return ray


def _plain(document: Document) -> dict[str, str]:
    return {"name": document.name, "text": document.text, "source": document.source}

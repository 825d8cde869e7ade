"""The data room of training: from files to records, to examples on disk, to the batches of a step."""

from clearhead.train.data.blocks import Blocks
from clearhead.train.data.loader import Loader, evaluation_batches
from clearhead.train.data.order import Order, micro_batches, rank_shard
from clearhead.train.data.prepare import prepare
from clearhead.train.data.sources import FileSource, RecordSource, Source, open_source
from clearhead.train.data.streams import StreamOrder, Streams, rows_for
from clearhead.train.data.table import Table, TableWriter

__all__ = [
    "Blocks", "FileSource", "Loader", "Order", "RecordSource", "Source", "StreamOrder", "Streams", "Table",
    "TableWriter", "evaluation_batches", "micro_batches", "open_source", "prepare", "rank_shard", "rows_for",
]  # fmt: skip

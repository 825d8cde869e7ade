"""Blocks hold every token once, in order, and know where documents begin."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.train.data import Blocks, Table, TableWriter


def table_of(folder, documents, shard):
    with TableWriter(folder, shard=shard) as writer:
        for document in documents:
            writer.add({"input_ids": np.array(document, dtype=int)})
    return Table(folder)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=15), st.integers(1, 12), st.integers(1, 15), st.booleans())
def test_blocks(tmp_path_factory, sizes, length, shard, keep_last):
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    documents = np.split(np.arange(total), ends[:-1])
    table = table_of(tmp_path_factory.mktemp("blocks") / "t", documents, shard)
    count = -(-total // length) if keep_last else total // length
    if not count:
        with pytest.raises(InputError, match=f"{total} tokens"):
            Blocks(table, length, keep_last=keep_last)
        return
    blocks = Blocks(table, length, keep_last=keep_last)
    assert len(blocks) == count
    assert blocks.tokens == total
    begins = {int(document[0]) for document in documents if len(document)}
    for n, block in enumerate(blocks):
        wanted = list(range(n * length, min((n + 1) * length, total)))
        assert block["input_ids"].tolist() == wanted
        assert block["input_ids"].dtype == np.int64
        assert block["starts"].tolist() == [i for i, token in enumerate(wanted) if token in begins and i > 0]
    assert blocks[-1]["input_ids"].tolist() == blocks[count - 1]["input_ids"].tolist()
    with pytest.raises(IndexError):
        blocks[count]

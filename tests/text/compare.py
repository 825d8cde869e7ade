"""Opens the same folder here and with `transformers`."""

from pathlib import Path
from typing import Any

import transformers

from clearhead.text import Tokenizer, load_tokenizer

transformers.logging.set_verbosity_error()


def both(folder: Path, cls: Any = transformers.AutoTokenizer) -> tuple[Tokenizer, Any]:
    ours, theirs = load_tokenizer(folder), cls.from_pretrained(folder)
    if ours.pad_token is None and ours.eos_token is not None:
        ours.pad_token = ours.eos_token
        theirs.pad_token = theirs.eos_token
    return ours, theirs


def same_encoding(ours: Tokenizer, theirs: Any, *texts: Any, **options: Any) -> None:
    mine, other = ours(*texts, **options), theirs(*texts, verbose=False, **options)
    assert dict(mine) == dict(other), f"{texts!a} {options}"


def same_everything(ours: Tokenizer, theirs: Any, texts: list[str]) -> None:
    """Ids, types, masks, offsets, and the text they decode to."""
    for text in texts:
        same_encoding(ours, theirs, text, return_offsets_mapping=True, return_special_tokens_mask=True)
        ids = ours(text)["input_ids"]
        for skip in (False, True):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip), ascii(
                text
            )

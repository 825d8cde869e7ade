"""Files that were damaged, or made to do harm: a ClearheadError, and nothing else, says what is wrong."""

import json
import random
import shutil
from typing import Any

import pytest

from clearhead.errors import ClearheadError
from clearhead.text import load_tokenizer
from tests.text.test_sentencepiece import train

VALUES: list[Any] = [
    None, True, 0, -1, 2**31, 2**64, 10**30, float("nan"), "", "x", "\0", "\ud800", "[UNK]", [], {}, [None],
    ["<a>", ""], {"content": None}, {"content": "[CLS]", "special": "yes"}, {"type": "New"}, {"1": {"content": "a"}},
]  # fmt: skip
KEYS = (
    "pad_token unk_token mask_token added_tokens_decoder extra_special_tokens tokenizer_class model_max_length padding "
    "truncation model vocab merges normalizer decoder extra_ids offset src_lang padding_side model_input_names "
    "do_lower_case keep_accents add_prefix_space add_bos_token pad_token_type_id split_special_tokens 99999999999 -3"
).split()
KINDS = ("wordpiece", "bpe", "unigram")
WHOLE = [b"", b"\0" * 9, b"null", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"1" * 5000, b"NaN"]


def damaged(data: bytes, rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.2:
        return rng.choice(WHOLE)
    if kind < 0.5:
        return data[: rng.randrange(len(data))]
    broken = bytearray(data)
    for _ in range(rng.choice([1, 3, 20])):
        broken[rng.randrange(len(broken))] = rng.randrange(256)
    return bytes(broken)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The same JSON with a value of the wrong kind, or a key too many or too few, somewhere in it."""
    whole = json.loads(data)
    place, key = whole, None
    while isinstance(place, dict | list) and place and (key is None or rng.random() < 0.6):
        parent, key = place, rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        place = parent[key]
    kind, value = rng.random(), rng.choice(VALUES)
    if key is None or (kind < 0.4 and isinstance(whole, dict)):
        whole[rng.choice(KEYS)] = value
    elif kind < 0.6:
        del parent[key]
    else:
        parent[key] = value
    return json.dumps(whole).encode("utf-8")


@pytest.fixture(scope="module")
def folders(trained, lines, tmp_path_factory):
    """One of each format, and of each way that files around a vocabulary are read."""
    made = {}

    def make(name: str, model_type: str, files: dict[str, bytes], **config: Any) -> None:
        made[name] = tmp_path_factory.mktemp("made")
        (made[name] / "config.json").write_text(json.dumps({"model_type": model_type}))
        (made[name] / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 99} | config))
        for file, data in files.items():
            (made[name] / file).write_bytes(data)

    wordpiece, bpe, unigram = (
        (trained[kind] / "tokenizer.json").read_bytes() for kind in ("wordpiece", "bpe", "unigram")
    )
    extra = {"special_tokens_map.json": b'{"additional_special_tokens": ["<a>"]}', "added_tokens.json": b'{"<a>": 500}'}
    pieces = train(lines, model_type="unigram", vocab_size=300, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    ids = {"</s>": 0, "<unk>": 1, "▁the": 2, "▁man": 3, "<pad>": 4}
    make("wordpiece json", "bert", {"tokenizer.json": wordpiece})
    make("byte-level json", "gpt2", {"tokenizer.json": bpe})
    make("unigram json", "albert", {"tokenizer.json": unigram}, do_lower_case=True)
    make("vocab.txt", "bert", {"vocab.txt": (trained["wordpiece"] / "vocab.txt").read_bytes(), **extra})
    older = {name: (trained["bpe"] / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    make("merges", "gpt2", older, add_bos_token=True)
    make("t5", "t5", {"spiece.model": pieces}, extra_ids=5)
    make("pegasus", "pegasus", {"spiece.model": pieces}, offset=9)
    make("marian", "marian", {"source.spm": pieces, "target.spm": pieces, "vocab.json": json.dumps(ids).encode()})
    return made


@pytest.mark.parametrize("seed", range(4))
def test_only_clearhead_errors_escape(folders, tmp_path, seed):
    rng, refused, cases = random.Random(seed), 0, 0
    for name, source in folders.items():
        load_tokenizer(source)("the man")
        for _ in range(10):
            folder = tmp_path / f"{name} {cases}"
            shutil.copytree(source, folder)
            path = rng.choice(sorted(folder.iterdir()))
            change = mutated if path.suffix == ".json" and rng.random() < 0.75 else damaged
            path.write_bytes(change(path.read_bytes(), rng))
            cases += 1
            try:
                tokenizer = load_tokenizer(folder)
                ids = tokenizer("the ☃ man <a>", return_offsets_mapping=True)["input_ids"]
                tokenizer.decode(ids)
                tokenizer.save(folder / "saved")
                load_tokenizer(folder / "saved")
            except ClearheadError:
                refused += 1
    assert 0.2 * cases < refused < 0.9 * cases  # neither all nor nothing is refused


@pytest.mark.parametrize(("name", "option"), [("t5", "extra_ids"), ("pegasus", "offset")])
def test_no_number_of_tokens_fills_the_memory(folders, tmp_path, name, option):
    shutil.copytree(folders[name], tmp_path / "copy")
    (tmp_path / "copy" / "tokenizer_config.json").write_text(json.dumps({option: 2**40}))
    with pytest.raises(ClearheadError, match=option):
        load_tokenizer(tmp_path / "copy")

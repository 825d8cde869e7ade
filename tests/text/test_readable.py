"""Tokens as a person reads them."""

from clearhead.text import train_tokenizer


def test_bytes_in_disguise_are_undone():
    tokenizer = train_tokenizer(["the robot the robot"] * 9, kind="bpe", vocab_size=270, show_progress=False)
    ids = tokenizer.encode("the robot 中\n")
    assert "".join(tokenizer.readable(ids)[:2]) == "the robot"[: len("".join(tokenizer.readable(ids)[:2]))]
    assert "Ġ" not in "".join(tokenizer.readable(ids))
    assert "\\xe4" in "".join(tokenizer.readable(ids))
    assert tokenizer.readable(ids)[-1] == "\n"
    assert tokenizer.readable([tokenizer.eos_token_id]) == ["<|endoftext|>"]


def test_other_tokens_stay_as_they_are():
    tokenizer = train_tokenizer(["the robots"] * 9, kind="wordpiece", vocab_size=40, show_progress=False)
    ids = tokenizer.encode("the robots")
    assert tokenizer.readable(ids) == tokenizer.convert_ids_to_tokens(ids)

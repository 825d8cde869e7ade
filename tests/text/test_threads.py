"""Many threads share one tokenizer and never see each other's settings."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

from clearhead.text import load_tokenizer
from clearhead.text.backend import MAX_COPIES
from tests.text.samples import awkward_texts


def test_threads_with_different_settings_do_not_disturb_each_other(folder):
    tok = load_tokenizer(folder)
    if tok.pad_token is None:
        tok.pad_token = tok.eos_token
    texts = awkward_texts(60, seed=61)
    rng = random.Random(0)
    jobs = [
        (
            [rng.choice(texts) for _ in range(3)],
            {
                "padding": rng.choice([False, True, "max_length"]),
                "truncation": rng.choice([True, False]),
                "max_length": rng.choice([6, 9, 14, 20]),
                "padding_side": rng.choice(["left", "right"]),
                "add_special_tokens": rng.random() < 0.5,
            },
        )
        for _ in range(400)
    ]
    alone = load_tokenizer(folder)
    alone.pad_token = tok.pad_token
    wanted = [dict(alone(batch, **options)) for batch, options in jobs]
    start = threading.Barrier(8)

    def work(number: int) -> list[tuple[int, dict]]:
        start.wait()
        order = list(range(len(jobs)))
        random.Random(number).shuffle(order)
        return [(n, dict(tok(jobs[n][0], **jobs[n][1]))) for n in order]

    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(work, range(8)):
            for n, found in results:
                assert found == wanted[n]


def test_tokens_can_be_added_while_others_encode(trained):
    tok = load_tokenizer(trained["wordpiece"])
    text = "the man said so over there"
    wanted = tok(text, truncation=True, max_length=5)
    start, wrong = threading.Barrier(5), []

    def encode() -> None:
        start.wait()
        for _ in range(300):
            if tok(text, truncation=True, max_length=5) != wanted or tok.decode(wanted["input_ids"]) == "":
                wrong.append(1)

    def add() -> None:
        start.wait()
        for number in range(60):
            tok.add_tokens([f"newtoken{number}"])

    threads = [threading.Thread(target=encode) for _ in range(4)] + [threading.Thread(target=add)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(tok) == 560
    assert tok.convert_tokens_to_ids("newtoken59") == 559
    assert tok.tokenize("the newtoken7") == ["the", "newtoken7"]


def test_adding_replaces_the_backend_and_never_changes_one_in_use(trained):
    tok = load_tokenizer(trained["wordpiece"])
    in_use = tok.backend
    tok.add_tokens(["newtoken"])
    assert in_use.token_to_id("newtoken") is None
    assert tok.backend.token_to_id("newtoken") == 500


def test_additions_from_many_threads_are_all_kept(trained):
    tok = load_tokenizer(trained["bpe"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: tok.add_tokens([f"<t{n}>"]), range(100)))
    assert len(tok) == 800
    assert all(f"<t{n}>" in tok.get_vocab() for n in range(100))


def test_a_call_leaves_nothing_behind(folder):
    tok = load_tokenizer(folder)
    before = tok.backend.to_str()
    tok("one two three four", truncation=True, max_length=4)
    assert tok.backend.to_str() == before
    assert tok.backend.truncation is None
    assert tok.backend.padding is None


def test_few_copies_are_kept(trained):
    tok = load_tokenizer(trained["bpe"])
    text = "word " * 100
    ids = tok(text)["input_ids"]
    for length in range(1, 4 * MAX_COPIES):
        assert tok(text, truncation=True, max_length=length)["input_ids"] == ids[:length]
    assert len(tok._backend._copies) == MAX_COPIES

"""Beams against transformers' and against a search over plain lists; groups, forced words, draws."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate import generate
from clearhead.generate.constrained_beam_search import PhraseConstraints
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.stack_model import TokenModel
from tests.generate.models import VOCAB, afresh, ids, model, padded, pair, until_end
from tests.parity.families import FAMILIES

ALL = [(name, task) for name, reference in FAMILIES.items() for task in reference.generates]
SEARCHES = [
    {"num_beams": 3, "num_return_sequences": 3, "eos_token_id": [2, 5, 9]},
    {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 2.0, "early_stopping": True,
     "eos_token_id": [5, 9, 11, 14]},
    {"num_beams": 2, "length_penalty": -1.0, "early_stopping": "never", "min_new_tokens": 3},
    {"num_beams": 3, "bad_words_ids": [[7], [4, 8]], "forced_eos_token_id": 2, "suppress_tokens": [6]},
    {"num_beams": 3, "bad_words_ids": [[7], [4, 8]], "suppress_tokens": [*range(10, 25)], "renormalize_logits": True},
    {"num_beams": 3, "early_stopping": "never", "length_penalty": 1.5, "forced_bos_token_id": 6,
     "repetition_penalty": 1.2},
]  # fmt: skip


@pytest.mark.parametrize(("name", "task"), ALL)
@pytest.mark.parametrize("which", range(len(SEARCHES)))
def test_beams_are_those_of_transformers(name, task, which):
    seed = 20 + which
    theirs, ours = pair(name, task, seed)
    encodes = isinstance(ours, EncoderDecoderModel)
    size = min(t.num_embeddings for t in ours.token_tables())
    time = 1 if "forced_bos_token_id" in SEARCHES[which] and not encodes else 6
    lengths = (time,) * 3 if time == 1 or "repetition_penalty" in SEARCHES[which] else (time, time - 2, time - 1)
    rows = [ids(1, length, seed + length, size)[0].tolist() for length in lengths]
    given, mask = padded(rows, "right" if encodes else "left", ours.config.pad_token_id)
    more = {}
    if isinstance(ours, TokenModel) and (first := ours.stack.embed.first_position):
        more["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0) + first  # see test_parity
    options = {"max_new_tokens": 9, "return_dict_in_generate": True, **SEARCHES[which]}
    want = theirs.generate(given, attention_mask=mask, do_sample=False, output_scores=True, **more, **options)
    got = generate(ours, given, mask, **options)
    ends = options.get("eos_token_id", ours.config.eos_token_id)
    ends = [ends] if isinstance(ends, int) else ends
    torch.testing.assert_close(got.sequences_scores, want.sequences_scores, rtol=1e-4, atol=1e-4)
    for n, (a, b) in enumerate(zip(got.sequences.tolist(), want.sequences.tolist(), strict=True)):
        length = got.prompt_length + int(got.lengths[n])
        assert a[:length] == b[:length]
        assert length == len(b) or b[length - 1] in ends
        assert set(a[length:]) <= {ours.config.pad_token_id}
    check_consistent(got, options)


def check_consistent(got, options) -> None:
    """A hypothesis' score is the sum of its tokens' log-probabilities, by its length."""
    total = got.log_probs.double().sum(-1) / got.lengths.double() ** options.get("length_penalty", 1.0)
    torch.testing.assert_close(total.float(), got.sequences_scores, rtol=1e-4, atol=1e-4)
    for row, length in zip(got.log_probs, got.lengths.tolist(), strict=True):
        assert row[length:].abs().sum() == 0


# ---- against plain lists


def scorer(ours, source: list[int], charge: bool = False) -> tuple[list[int], Callable[[tuple[int, ...]], list[float]]]:
    """What the search begins with, and log-probabilities of what follows a text, read afresh each time."""
    encodes = isinstance(ours, EncoderDecoderModel)
    start = [getattr(ours.config, "decoder_start_token_id", None)] if encodes else source
    start = [ours.config.bos_token_id] if start == [None] else start

    @functools.lru_cache(None)
    def score(text: tuple[int, ...]) -> list[float]:
        return afresh(ours, [*start, *text], source, len(start)).log_softmax(-1).tolist()

    return start, score


def plain_search(score, size, groups, charge, power, early, new, ends) -> list[tuple[float, list[int]]]:
    """Beams in groups, one text, lists only: the best first."""
    running: list[list] = [[(0.0, ())] for _ in range(groups)]
    done: list[list] = [[] for _ in range(groups)]
    is_open = [True] * groups
    for written in range(1, new + 1):
        counts: Counter[int] = Counter()
        for g in range(groups):
            if not is_open[g]:
                continue
            found = []
            for total, text in running[g]:
                for token, value in enumerate(score(text)):
                    found.append((total + value - charge * counts[token], (*text, token)))
            found.sort(key=lambda pair: -pair[0])
            found = found[: size * max(2, 1 + len(ends))]
            ended = [text[-1] in ends for _, text in found]
            last = written == new
            fresh = [(t / written**power, x) for (t, x), e in zip(found[:size], ended, strict=False) if e or last]
            done[g] = sorted(done[g] + fresh, key=lambda pair: -pair[0])[:size]
            running[g] = [pair for pair, e in zip(found, ended, strict=True) if not e][:size]
            counts.update(text[-1] for _, text in running[g])
            if last or not running[g]:
                is_open[g] = False
            elif len(done[g]) == size:
                length = new if early == "never" and power > 0 else written
                if early is True or running[g][0][0] / length**power <= done[g][-1][0]:
                    is_open[g] = False
    return sorted(itertools.chain(*done), key=lambda pair: -pair[0])


GROUPED = [
    (1, 3, 0.0, 1.0, False),
    (2, 2, 0.7, 1.0, False),
    (3, 1, 2.0, 0.5, False),
    (2, 3, 5.0, 1.0, True),
    (2, 2, 0.3, 2.0, "never"),
    (4, 1, 0.0, 1.0, False),
]


@pytest.mark.parametrize("name", ["gpt2", "gpt_neo", "bart", "t5", "transformer", "transfo-xl"])
@pytest.mark.parametrize(("groups", "size", "charge", "power", "early"), GROUPED)
def test_groups(name, groups, size, charge, power, early):
    """A batch of padded texts, each against a search of its own: neither the others nor padding count."""
    ours = model(name, 1)
    lengths = (5, 5, 5) if name == "transfo-xl" else (5, 3, 6)
    rows = [ids(1, n, n + k)[0].tolist() for k, n in enumerate(lengths)]
    given, mask = padded(rows, "right")
    # ends that come up in the middle: the tokens that greedy texts have second and fourth
    free = ours.generate(given, attention_mask=mask, max_new_tokens=6, eos_token_id=[])[:, -6:].tolist()
    ends = sorted({free[0][1], free[1][3], 2})
    options = {
        "num_beams": groups * size, "num_beam_groups": groups, "diversity_penalty": charge, "length_penalty": power,
        "early_stopping": early, "num_return_sequences": groups * size, "max_new_tokens": 6, "eos_token_id": ends,
        "return_dict_in_generate": True,
    }  # fmt: skip
    got = generate(ours, given, mask, **{k: v for k, v in options.items() if groups > 1 or k != "num_beam_groups"})
    check_consistent(got, options)
    for n, row in enumerate(rows):
        _, score = scorer(ours, row)
        want = plain_search(score, size, groups, charge, power, early, 6, ends)
        part = slice(n * groups * size, (n + 1) * groups * size)
        assert got.sequences_scores[part].tolist() == pytest.approx([total for total, _ in want], abs=2e-4)
        texts = [
            tuple(text[:length])
            for text, length in zip(got.new_tokens[part].tolist(), got.lengths[part].tolist(), strict=True)
        ]
        close = [abs(a[0] - b[0]) < 5e-4 for a, b in itertools.pairwise(want)]  # rounding may turn these round
        assert texts == [text for _, text in want] or (any(close) and set(texts) == {text for _, text in want})


def test_groups_differ_as_far_as_they_are_charged():
    ours, given = model("gpt2", 1), ids(1, 5, 3)
    options = {"max_new_tokens": 1, "num_beams": 3, "num_beam_groups": 3, "num_return_sequences": 3, "eos_token_id": []}
    best = afresh(ours, given[0].tolist()).topk(3).indices.tolist()
    assert ours.generate(given, **options, diversity_penalty=100.0)[:, -1].tolist() == best
    assert ours.generate(given, **options)[:, -1].tolist() == best[:1] * 3


# ---- words that must be written


def holds(text: list[int], word) -> bool:
    runs = [word] if isinstance(word[0], int) else word
    return any(text[n : n + len(run)] == list(run) for run in runs for n in range(len(text)))


TINY = {"vocab_size": 6, "eos_token_id": 2}
WORDS = [[[3]], [[4, 5]], [[3], [4]], [[5, 5]], [[3, 4], [4, 5]], [[[3, 5], [4]]], [[3, 4, 3]],
         [[3, 4], [4, 5], [5, 3]], [[3, 4, 5], [4], [5, 5]], [[[3, 4], [5]], [4, 4, 3]]]  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", "bart"])
@pytest.mark.parametrize("words", WORDS, ids=str)
@pytest.mark.parametrize("power", [1.0, 0.0])
def test_forced_words_as_by_trying_everything(name, words, power):
    ours, source, new = model(name, 2, **TINY), [3, 4, 5], 4
    _, score = scorer(ours, source)
    whole = []
    for length in range(1, new + 1):
        for text in itertools.product(range(6), repeat=length):
            if 2 in text[:-1] or (length < new and text[-1] != 2) or not all(holds(list(text), w) for w in words):
                continue
            total = sum(score(text[:k])[token] for k, token in enumerate(text))
            whole.append((total / length**power, text))
    best = max(whole)
    got = generate(
        ours, torch.tensor([source]), force_words_ids=words, num_beams=150, max_new_tokens=new, length_penalty=power,
        early_stopping="never", return_dict_in_generate=True,
    )  # fmt: skip
    text = got.new_tokens[0, : int(got.lengths[0])].tolist()
    assert float(got.sequences_scores[0]) == pytest.approx(best[0], abs=1e-4)
    assert tuple(text) == best[1]
    check_consistent(got, {"length_penalty": power})


@pytest.mark.parametrize("beams", [2, 5])
@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("seed", range(4))
def test_forced_words_are_always_there(name, beams, seed):
    ours = model(name, 2)
    words = [ids(1, 1, seed)[0].tolist(), ids(1, 3, seed + 9)[0].tolist(), [ids(1, 2, 5)[0].tolist(), [30]]]
    given, mask = padded([ids(1, n, n)[0].tolist() for n in (4, 6)], "right")
    for new in (7, 14):  # the first has room for little else
        got = generate(
            ours, given, mask, force_words_ids=words, num_beams=beams, max_new_tokens=new, return_dict_in_generate=True
        )
        for row, length in zip(got.new_tokens.tolist(), got.lengths.tolist(), strict=True):
            assert all(holds(row[:length], word) for word in words)


def test_forced_words_that_do_not_fit():
    with pytest.raises(InputError, match="take 4 tokens, and there is room for 3"):
        model("gpt2").generate(ids(1, 3), force_words_ids=[[5, 6], [7, 8]], num_beams=2, max_new_tokens=3)
    with pytest.raises(InputError, match="lists of token ids"):
        model("gpt2").generate(ids(1, 3), force_words_ids=[["a"]], num_beams=2)


@pytest.mark.parametrize("beams", [2, 4])
def test_forced_words_that_share_tokens(beams):
    words = [[5, 6], [6, 7], [7, 8, 5]]
    for new in (5, 6, 8):
        got = model("gpt2").generate(ids(1, 3), force_words_ids=words, num_beams=beams, max_new_tokens=new)
        assert all(holds(got[0, 3:].tolist(), word) for word in words)
    with pytest.raises(InputError, match="take 5 tokens, and there is room for 4"):
        model("gpt2").generate(ids(1, 3), force_words_ids=words, num_beams=beams, max_new_tokens=4)


def test_progress():
    constraints = PhraseConstraints([[3, 4, 5], [[7, 8], [9]]], [2], 0, 10, 40)
    assert constraints.progress([]) == (0, {3, 7, 9})
    assert constraints.progress([3]) == (1, {3, 4, 7, 9})
    assert constraints.progress([3, 4]) == (2, {3, 5, 7, 9})
    assert constraints.progress([3, 4, 6]) == (0, {3, 7, 9})  # begun and left
    assert constraints.progress([3, 4, 5])[0] == 3
    assert constraints.progress([3, 4, 5, 9]) == (4, set())
    assert constraints.progress([3, 3]) == (1, {3, 4, 7, 9})


# ---- draws


@pytest.mark.parametrize("name", ["gpt2", "t5", "transfo-xl"])
def test_drawn_beams_reproduce_and_belong_to_texts(name):
    ours, given = model(name), ids(3, 5, 4)
    options = {"num_beams": 3, "temperature": 1.5, "top_k": 12, "max_new_tokens": 7, "eos_token_id": []}
    first = ours.generate(given, seed=5, **options)
    assert torch.equal(first, ours.generate(given, seed=5, **options))
    assert not torch.equal(first, ours.generate(given, seed=50, **options))
    assert torch.equal(first[[1, 2, 0]], ours.generate(given[[1, 2, 0]], seed=[6, 7, 5], **options))
    for n in range(3):
        assert torch.equal(first[n], ours.generate(given[n : n + 1], seed=[5 + n], **options)[0])


def test_drawn_beams_have_their_chances():
    """One step, two beams: the better of two tokens drawn without putting back, both with their chances."""
    ours, given = model("gpt2"), ids(1, 5, 2)
    p = afresh(ours, given[0].tolist()).softmax(-1).double()
    p = torch.where(p >= p.topk(4).values[-1], p, 0.0)
    p = p / p.sum()
    best: Counter[int] = Counter()
    draws = 700
    for seed in range(draws):
        out = ours.generate(given, num_beams=2, top_k=4, max_new_tokens=1, seed=seed, eos_token_id=[])
        best[int(out[0, -1])] += 1
    kept = p.nonzero()[:, 0].tolist()
    for token in kept:  # two of the four drawn tokens are in the running: token wins if it is the likelier of both
        chance = sum(
            float(p[token] * p[other] / (1 - p[token]) + p[other] * p[token] / (1 - p[other]))
            for other in kept
            if other != token and p[other] < p[token]
        )
        assert best[token] / draws == pytest.approx(chance, abs=4.5 * (0.25 / draws) ** 0.5)


# ---- what beams share


@pytest.mark.parametrize("name", ["bart", "t5", "transformer"])
def test_beams_share_what_the_encoder_gave_them(name):
    ours, source = model(name), ids(2, 7, 3)
    seen: list[tuple[int, int]] = []
    computed = 0
    hooks = []
    for layer in ours.decoder.blocks:
        attention = layer.cross_attention

        def count(*_: object) -> None:
            nonlocal computed
            computed += 1

        def look(module, args: tuple, kwargs: dict, out: Tensor) -> None:
            memory = kwargs["cache"].memory
            seen.append((len(args[0]), len(memory[0])))

        hooks.append(attention.key.register_forward_hook(count))
        hooks.append(attention.register_forward_hook(look, with_kwargs=True))
    try:
        ours.generate(source, num_beams=4, max_new_tokens=5, eos_token_id=[])
    finally:
        for hook in hooks:
            hook.remove()
    layers = len(ours.decoder.layers)
    assert computed == layers  # once per layer, for all steps
    assert seen == [(2, 2)] * layers + [(8, 2)] * (4 * layers)  # eight beams look at the keys of two texts


def test_as_many_texts_as_encoded_ones_or_copies():
    bart = model("bart")
    states = bart.encode(ids(2, 4), None, None)
    with pytest.raises(InputError, match="3 texts cannot look at 2 encoded texts"):
        bart(encoder_outputs=states, decoder_input_ids=ids(3, 2))


def test_no_scores_of_every_step():
    with pytest.raises(InputError, match="keeps no scores"):
        model("gpt2").generate(ids(1, 3), num_beams=2, output_scores=True)


# ---- ends and strings


class Alphabet:
    """Token 3 is a, 4 is b, …; the others are no text."""

    def decode(self, ids, *, skip_special_tokens=False):
        return "".join(chr(94 + token) for token in ids if token >= 3)


def test_a_row_that_is_finished_may_have_nothing_left():
    """One text ends at once, the other goes on where the first could not."""
    rows, mask = padded([[5, 6, 7], [8, 9]])
    rules = {"num_beams": 2, "do_sample": True, "seed": [3, 4], "max_new_tokens": 8, "no_repeat_ngram_size": 1}
    ends = list(range(2, 30))
    got = generate(model("gpt2"), rows, mask, eos_token_id=ends, **rules)
    for row, text, seed in zip(got[:, 3:].tolist(), ([5, 6, 7], [8, 9]), rules["seed"], strict=True):
        alone = generate(model("gpt2"), torch.tensor([text]), None, eos_token_id=ends, **rules | {"seed": [seed]})
        assert until_end(row, ends) == until_end(alone[0, len(text) :].tolist(), ends)


def test_every_token_ends():
    ours = model("gpt2")
    got = generate(ours, ids(2, 4), num_beams=3, eos_token_id=list(range(VOCAB)), max_new_tokens=3)
    assert got.tolist() == generate(ours, ids(2, 4), max_new_tokens=1).tolist()


@pytest.mark.parametrize("penalty", [-10.0, -4.0, 10.0])
def test_a_length_penalty_at_its_bounds_still_finds(penalty):
    got = generate(model("gpt2"), ids(2, 4), num_beams=3, num_return_sequences=3, length_penalty=penalty)
    assert got.shape[1] > 4


@pytest.mark.parametrize("seed", range(6))
def test_a_stop_string_does_not_cut_forced_words_off(seed):
    words = [[30], [31, 32]]
    got = generate(
        model("gpt2", seed), ids(2, 4, seed), tokenizer=Alphabet(), stop_strings=["d", "k", "q", "t"], num_beams=4,
        num_return_sequences=2, max_new_tokens=12, force_words_ids=words, return_dict_in_generate=True,
    )  # fmt: skip
    for row, length in zip(got.new_tokens.tolist(), got.lengths.tolist(), strict=True):
        text = Alphabet().decode(row[:length])
        assert all(Alphabet().decode(word) in text for word in words)


def test_a_beam_that_stops_with_its_last_token_says_so():
    given, ours = ids(1, 4), model("gpt2")
    plain = generate(ours, given, num_beams=2, max_new_tokens=3, eos_token_id=[])[0, 4:].tolist()
    text = Alphabet().decode(plain)
    got = generate(
        ours, given, tokenizer=Alphabet(), stop_strings=text, num_beams=2, max_new_tokens=3, eos_token_id=[],
        return_dict_in_generate=True,
    )  # fmt: skip
    assert got.new_tokens[0].tolist() == plain
    assert got.finish_reason == ["stop"]

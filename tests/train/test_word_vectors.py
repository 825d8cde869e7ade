"""Word vectors are learnt as the papers have it: each update against autograd and gensim, whole runs to the bit."""

import os
import random
import signal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import clearhead as ch
from clearhead.errors import ClearheadError, ConfigError, InputError
from clearhead.native import UnavailableError
from clearhead.text.word_vectors.counted import CountedWords, sentences
from clearhead.train import evaluate, train
from clearhead.train.word_vectors import END_OF_SENTENCE, Learner, Word2VecSettings, WordSampling, learner
from clearhead.train.word_vectors.reference import Draws, Tables, guess, learn_text
from clearhead.train.word_vectors.sampling import alias_table, kept_share
from clearhead.zoo.recipes import find_recipe
from tests.train.runs import check_command, left_by

PETS, FRUIT = "cat dog bird mouse horse".split(), "apple pear plum cherry melon".split()


def random_tables(rng, words, size, scale=0.5):
    return [torch.from_numpy(rng.normal(0, scale, (words, size)).astype(np.float32)) for _ in range(2)]


def random_text(rng, words, count):
    text = rng.integers(0, words, count).astype(np.int32)
    text[rng.random(count) < 0.1] = END_OF_SENTENCE
    return text


# ---- one update


@pytest.mark.parametrize("seed", range(8))
def test_one_update_is_a_step_down_the_gradient(seed):
    """Of the loss as the paper writes it, in float64, by autograd."""
    rng = np.random.default_rng(seed)
    size, words, count = int(rng.integers(1, 40)), int(rng.integers(8, 30)), int(rng.integers(1, 7))
    word, *others = rng.choice(words, count + 1, replace=False).tolist()
    lr, vector = float(rng.uniform(0.001, 0.5)), rng.normal(0, 1, size).astype(np.float32)
    output = rng.normal(0, 1, (words, size)).astype(np.float32)
    v = torch.from_numpy(vector.astype(np.float64)).requires_grad_()
    u = torch.from_numpy(output.astype(np.float64)).requires_grad_()
    wanted = -F.logsigmoid(u[word] @ v) - F.logsigmoid(-(u[others] @ v)).sum()
    wanted.backward()
    error, loss = guess(output, vector, word, [*others, word], lr)  # the word itself is no other
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    np.testing.assert_allclose(error, -lr * v.grad.numpy(), atol=1e-6)
    np.testing.assert_allclose(output, (u - lr * u.grad).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_c_and_numpy_learn_the_same(seed):
    """Whole texts of sentences, with every option, by the same draws."""
    assert not learner.why_not(), "these tests need a compiler"
    rng = np.random.default_rng(seed)
    words, size = int(rng.integers(5, 60)), int(rng.integers(1, 70))
    settings = Word2VecSettings(
        bool(seed % 2), int(rng.integers(1, 6)), int(rng.integers(1, 8)), bool(seed & 2), bool(rng.integers(2))
    )
    sampling = WordSampling.of(rng.integers(1, 500, words), float(rng.choice([0, 0.02])), float(rng.uniform(-0.5, 1)))
    pair, text = random_tables(rng, words, size), random_text(rng, words, 150)
    plain = Tables(*(table.numpy().copy() for table in pair))
    guesses, loss = Learner(tuple(pair), settings, sampling).learn([text], 0.05, seed)
    wanted_guesses, wanted_loss = learn_text(plain, settings, sampling, text, 0.05, seed)
    assert guesses == wanted_guesses and loss == pytest.approx(wanted_loss, rel=1e-5)
    for ours, wanted in zip(pair, plain, strict=True):
        np.testing.assert_allclose(ours.numpy(), wanted, atol=2e-5)


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("cbow", [False, True])
def test_gensim_moves_the_same_vectors_as_far(cbow, mean):
    """A sentence of several words, all others drawn as one word. gensim looks its sigmoid up in a table of 1,000 steps
    (and looks a little too low): a few percent."""
    word2vec = pytest.importorskip("gensim.models.word2vec")
    rng = np.random.default_rng(cbow + 2 * mean)
    for _ in range(5):
        words, size, window, lr = 12, int(rng.integers(4, 60)), int(rng.integers(1, 5)), 0.05
        names = [f"w{n}" for n in range(words)]
        theirs = word2vec.Word2Vec(vector_size=size, window=window, min_count=1, negative=3, sample=0, sg=not cbow,
                                   cbow_mean=int(mean), shrink_windows=False, workers=1)  # fmt: skip
        theirs.build_vocab([[name] * (50 - n) for n, name in enumerate(names)])
        assert theirs.wv.index_to_key == names
        drawn = int(rng.integers(words))
        theirs.cum_table = np.where(np.arange(words) < drawn, 0, 2**31 - 1).astype(np.uint32)
        begin = random_tables(rng, words, size, 0.4)
        theirs.wv.vectors[:], theirs.syn1neg[:] = begin[0].numpy(), begin[1].numpy()
        text = rng.permutation(words)[:7].astype(np.int32)
        work, neu1 = np.zeros(size, np.float32), np.zeros(size, np.float32)
        sentence = [[names[n] for n in text]]
        if cbow:
            word2vec.train_batch_cbow(theirs, sentence, lr, work, neu1, False)
        else:
            word2vec.train_batch_sg(theirs, sentence, lr, work, False)
        always = WordSampling(None, np.zeros(words, np.uint32), np.full(words, drawn, np.int32))
        settings = Word2VecSettings(cbow, window, 3, mean, shrink_windows=False)
        ours = [table.clone() for table in begin]
        Learner(tuple(ours), settings, always).learn([text], lr, 1)
        for mine, other, first in zip(ours, (theirs.wv.vectors, theirs.syn1neg), begin, strict=True):
            moved = np.abs(other - first.numpy()).max()
            assert moved > 0.02
            np.testing.assert_allclose(mine.numpy(), other, atol=0.05 * moved)


# ---- what is drawn


def test_words_are_drawn_by_their_counts():
    counts = np.array([1000, 300, 50, 7, 1])
    sampling = WordSampling.of(counts, ns_exponent=0.75)
    draws, found = Draws(3), np.zeros(5)
    for _ in range(20_000):
        found[draws.word(sampling)] += 1
    wanted = counts**0.75 / (counts**0.75).sum()
    np.testing.assert_allclose(found / found.sum(), wanted, atol=4 * np.sqrt(0.25 / 20_000))
    cut, alias = alias_table(np.array([0.25, 0.25, 0.5]))
    exact = cut / 2**32 / 3 + np.bincount(alias, weights=(1 - cut / 2**32) / 3, minlength=3)
    np.testing.assert_allclose(exact, [0.25, 0.25, 0.5], atol=1e-8)


def test_frequent_words_are_passed_over_as_gensim_does():
    word2vec = pytest.importorskip("gensim.models.word2vec")
    counts = np.array([9000, 800, 150, 45, 5])
    theirs = word2vec.Word2Vec(min_count=1, sample=0.01)
    theirs.build_vocab_from_freq({f"w{n}": int(count) for n, count in enumerate(counts)})
    wanted = [theirs.wv.get_vecattr(f"w{n}", "sample_int") / (2**32 - 1) for n in range(5)]
    np.testing.assert_allclose(kept_share(counts, 0.01), wanted, rtol=1e-6)


def test_a_rate_of_zero_moves_nothing():
    rng = np.random.default_rng(0)
    pair = random_tables(rng, 9, 5)
    before = [table.clone() for table in pair]
    learns = Learner(tuple(pair), Word2VecSettings(), WordSampling.of(np.full(9, 10)))
    first = learns.learn([random_text(rng, 9, 80)], 0.0, 1)
    assert first[0] > 0 and all(map(torch.equal, pair, before))


# ---- words


def test_words_and_sentences():
    text = 'Dr. Who said, "Don’t!" He _really_ did it: 3.14 times.\n\nA HEADING\n\nnext'
    assert list(sentences(text)) == [
        "dr who said don't".split(), "he really did it 3.14 times".split(), ["a", "heading"], ["next"],
    ]  # fmt: skip
    counted = CountedWords.count(["b a b", "c a. b"], 2, 10)
    assert list(counted.words) == ["b", "a"] and counted.counts.tolist() == [3, 2]
    assert list(counted.encode("A b. C b")) == [[1, 0], [0]]


# ---- runs


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Two worlds of words that never stand in one sentence."""
    draw = random.Random(0)
    lines = [f"The {' '.join(draw.choices(draw.choice([PETS, FRUIT]), k=6))}." for _ in range(600)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(lines))
    return path


def settings(text, out, *more):
    small = ["objective.vector_size=12", "objective.sample=0", "batch.length=100", "epochs=10", "log_every=1"]
    return [f"data.train={text}", f"out={out}", *small, "optimizer.lr=0.1", *more]


RECIPE = find_recipe("word-vectors")


@pytest.mark.parametrize("more", [["objective.threads=2"], ["objective.architecture=cbow", "objective.threads=1"]])
def test_a_run_learns_which_words_go_together(text, tmp_path, more):
    events = []
    result = train(RECIPE, settings(text, tmp_path / "run", *more), [events.append])
    assert result.finished
    vectors = ch.load(tmp_path / "run")
    assert sorted(vectors) == sorted([*PETS, *FRUIT, "the"]) and vectors.width == 12
    for group in (PETS, FRUIT):
        for word in group:
            near = [other for other, _ in vectors.nearest(word, k=5) if other != "the"]
            assert set(near[:4]) <= set(group), (word, near)
    steps = [event for event in events if event["event"] == "step"]
    assert steps[-1]["loss"] < steps[0]["loss"] and "grad_norm" not in steps[0] and steps[0]["units_per_second"] > 0
    rates = [event["lr"] for event in steps]
    assert rates[0] == pytest.approx(0.1) and rates == sorted(rates, reverse=True) and rates[-1] < 0.01
    check_command(_recipe(text, tmp_path), result.model)


def _recipe(text, folder):
    from clearhead.train import read_recipe

    return read_recipe(RECIPE, settings(text, folder / "run"))


@pytest.mark.parametrize("architecture", ["skip-gram", "cbow"])
def test_a_stopped_run_ends_with_the_same_bits(text, tmp_path, architecture):
    own = ["objective.threads=1", f"objective.architecture={architecture}", "objective.sample=0.05"]
    assert train(RECIPE, settings(text, tmp_path / "whole", *own)).finished
    stops = [4, 9]

    def interrupt(event):
        if event["event"] == "step" and stops and event["step"] == stops[0]:
            stops.pop(0)
            os.kill(os.getpid(), signal.SIGTERM)

    stopped = [train(RECIPE, settings(text, tmp_path / "cut", *own), [interrupt]) for _ in range(3)]
    assert [result.finished for result in stopped] == [False, False, True] and stopped[0].step == 4
    assert left_by(tmp_path / "cut") == left_by(tmp_path / "whole")


def test_a_checkpoint_is_a_model_too(text, tmp_path):
    def interrupt(event):
        if event["event"] == "step" and event["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    assert not train(RECIPE, settings(text, tmp_path / "run"), [interrupt]).finished
    assert "cat" in ch.load(tmp_path / "run")


def test_without_a_compiler_numpy_learns_the_same(text, tmp_path, monkeypatch):
    own = ["objective.threads=1", "epochs=1", "objective.sample=0.05"]
    train(RECIPE, settings(text, tmp_path / "c", *own))
    monkeypatch.setattr(learner, "_library", lambda: UnavailableError("there is no C compiler"))
    notes = []
    train(RECIPE, settings(text, tmp_path / "numpy", *own), [lambda e: notes.append(e.get("text", ""))])
    assert any("there is no C compiler" in note for note in notes)
    ours, plain = (load_file(tmp_path / name / "model/model.safetensors")["vectors"] for name in ("c", "numpy"))
    torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-4)


def test_held_out_text_is_measured(text, tmp_path):
    result = train(RECIPE, settings(text, tmp_path / "run", f"data.valid={text}", f"data.test={text}"))
    assert 0 < result.metrics["loss"] < 3 and result.test["loss"] == pytest.approx(result.metrics["loss"])
    with pytest.raises(InputError, match="a second table of vectors"):
        evaluate(tmp_path / "run", str(text))


def test_lines_can_be_sentences(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a b\nc d\n" * 30)
    with_lines = settings(path, tmp_path / "run", "data.documents=lines", "objective.window=2", "epochs=1")
    train(RECIPE, with_lines)
    units = [line for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines() if '"step"' in line]
    assert units  # it ran; that sentences do not meet is test_c_and_numpy_learn_the_same's matter
    assert list(ch.load(tmp_path / "run")) == ["a", "b", "c", "d"]


# ---- what cannot be


@pytest.mark.parametrize(
    "written, more, words",
    [
        ("", [], "nothing to read"),
        ("... !!! --", [], "no word in the text"),
        ("word " * 50, [], "one word, 'word', 50 times"),
        ("the cat saw the dog . " * 2, [], "tokenizer.min_count=2 leaves 4 of the 4 words"),
        ("the the the cat cat dog", ["tokenizer.min_count=3"], "only 'the' comes so often.*min_count=1 leaves 3"),
        ("a. b. c. " * 9, [], "No sentence of the text has two words"),
        (b"caf\xe9 au lait " * 9, [], "not utf-8"),
        ("a b c " * 9, ["objective.vector_size=0"], "vector_size"),
        ("a b c " * 9, ["objective.window=0"], "window"),
        ("a b c " * 9, ["objective.negative=0"], "negative"),
        ("a b c " * 9, ["objective.sample=1.5"], "sample"),
        ("a b c " * 9, ["objective.architecture=glove"], "architecture"),
        ("a b c " * 9, ["objective.vectorsize=5"], "vector_size"),
        ("a b c " * 9, ["tokenizer.vocab_size=1"], "vocab_size"),
        ("a b c " * 9, ["tokenizer.kind=bpe"], "It reads words"),
        ("a b c " * 9, ["optimizer.name=adamw"], "optimizer.name=sgd"),
        ("a b c " * 9, ["optimizer.max_grad_norm=1"], "optimizer.max_grad_norm=null"),
        ("a b c " * 9, ["device=cuda"], "device=cpu"),
        ("a b c " * 9, ["ema=0.9"], "ema=null"),
        ("a b c " * 9, ["lora.rank=4"], "lora=null"),
        ("a b c " * 9, ["model.config.hidden_size=5"], "objective.vector_size"),
        ("a b c " * 9, ["model.embeddings=glove"], "random vectors"),
        ("a b c " * 9, ["model.start=glove", "model.family=null", "tokenizer.kind=null", "tokenizer.min_count=null",
                        "tokenizer.vocab_size=8192"], "counts.txt|random vectors"),
        ("a b c " * 9, ["schedule.min_lr=1"], "cannot be above optimizer.lr"),
        ("a b c " * 9, ["schedule.final=0.1"], "either schedule.min_lr"),
        ("a b c " * 9, ["deterministic=true"], "objective.threads=1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_and_leaves_nothing(tmp_path, written, more, words):
    path = tmp_path / "text.txt"
    path.write_bytes(written if isinstance(written, bytes) else written.encode())
    with pytest.raises(ClearheadError, match=words):
        train(RECIPE, [f"data.train={path}", f"out={tmp_path / 'runs' / 'mine'}", *more])
    left = [p for p in tmp_path.rglob("*") if p.name == "model" or p.name == "checkpoints"]
    assert not left
    if "No sentence" not in words:  # there the text was prepared already, which is kept
        assert not (tmp_path / "runs").exists()


def test_min_count_is_for_kinds_that_count(tmp_path):
    from clearhead.train.objectives.causal import CausalLM

    texts = ["a b c d"] * 3 + ["e f"]
    often = CausalLM.train_codec(iter(texts), "words", 100, min_count=3, show_progress=False)
    seldom = CausalLM.train_codec(iter(texts), "words", 100, min_count=1, show_progress=False)
    assert "a" in often.get_vocab() and "e" not in often.get_vocab() and "e" in seldom.get_vocab()
    with pytest.raises(InputError, match=r"leave tokenizer\.min_count"):
        CausalLM.train_codec(iter(texts), "unigram", 100, min_count=2)


def test_a_vocabulary_needs_its_counts(tmp_path):
    CountedWords.count(["a b a b"], 1, 10).save(tmp_path)
    assert CountedWords.load(tmp_path).counts.tolist() == [2, 2]
    (tmp_path / "counts.txt").write_text("2\n")
    with pytest.raises(ClearheadError, match="each of the 2 words"):
        CountedWords.load(tmp_path)
    (tmp_path / "counts.txt").unlink()
    with pytest.raises(ClearheadError, match="how often its words come"):
        CountedWords.load(tmp_path)


def test_torchrun_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="leave torchrun out"):
        train(RECIPE, settings(text, tmp_path / "run"))

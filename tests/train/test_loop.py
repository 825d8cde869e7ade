"""The arithmetic of the loop, on a model that can be computed by hand; and how it stops when something is wrong."""

import math

import pytest
import torch
from torch import nn

from clearhead.errors import CheckpointError, TrainingStopped
from clearhead.train import train
from clearhead.train.data.types import Batch
from clearhead.train.engine.checkpoints import Checkpoints, Progress
from clearhead.train.engine.divergence import EXPLODED_STEPS
from clearhead.train.engine.ema import EMA
from clearhead.train.engine.evaluation import Evaluation
from clearhead.train.engine.loop import Loop, LoopOptions, seed_of
from clearhead.train.engine.memory_saving import explain_out_of_memory
from clearhead.train.engine.optim import optimizer
from clearhead.train.engine.schedules import schedule
from clearhead.train.engine.world import World
from clearhead.train.objectives import OBJECTIVES, objective_class
from clearhead.train.objectives.base import Objective
from clearhead.train.objectives.causal import CausalLM
from tests.train.runs import recipe, weights


class Line(Objective):
    """A straight line through points, and another term that pulls the weights to zero."""

    name = "line"
    task = "none"
    loss_weights = {"fit": 1.0, "size": 0.5}

    def __init__(self) -> None:
        pass

    def losses(self, model, batch):
        x, y = batch.inputs["x"], batch.inputs["y"]
        return {"fit": ((model(x)[:, 0] - y) ** 2).mean(), "size": (model.weight**2).sum()}


def points(rows: int, seed: int) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=draw)
    return Batch({"x": x, "y": x.sum(1)}, {"fit": rows, "size": rows}, rows)


class Points:
    """Step n has the batch n, in parts."""

    def __init__(self, parts: tuple[int, ...] = (6,)) -> None:
        self.parts = parts

    def at(self, step: int) -> list[Batch]:
        whole = points(sum(self.parts), step)
        pieces = [{name: t.split(self.parts)[n] for name, t in whole.inputs.items()} for n in range(len(self.parts))]
        return [Batch(piece, dict.fromkeys(("fit", "size"), len(piece["x"])), len(piece["x"])) for piece in pieces]


class Descent:
    """Plain steps along the gradient, which it remembers."""

    def __init__(self, module: nn.Module, rate: float = 0.1) -> None:
        self.module, self.rate, self.gradients = module, rate, []

    def step(self):
        self.gradients.append([p.grad.clone() for p in self.module.parameters()])
        with torch.no_grad():
            for p in self.module.parameters():
                p -= self.rate * p.grad

    def zero_grad(self):
        self.module.zero_grad()

    def state_tensors(self):
        return {}

    def state_numbers(self):
        return {}

    def load_state(self, tensors, numbers):
        pass


def line(folder, steps=5, batches=None, **more) -> Loop:
    torch.manual_seed(0)
    module = nn.Linear(3, 1)
    options = LoopOptions(steps, **{"max_grad_norm": None, "log_every": 3} | more.pop("options", {}))
    parts = {"prepare": lambda step: 0.1, "objective": Line(), "optimizer": Descent(module)} | more
    return Loop(
        module=module,
        batches=batches or Points(),
        options=options,
        checkpoints=Checkpoints(folder, 2),
        world=World(torch.device("cpu")),
        **parts,
    )


def test_parts_of_a_batch_are_the_batch(tmp_path):
    """However unequal the parts are: each mean counts by what it is over."""
    whole, cut = line(tmp_path / "a"), line(tmp_path / "b", batches=Points((1, 3, 2)))
    whole.run()
    cut.run()
    for one, other in zip(whole.optimizer.gradients, cut.optimizer.gradients, strict=True):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert whole.progress.units == cut.progress.units == 30


def test_terms_are_added_by_their_weights(tmp_path):
    loop = line(tmp_path, steps=1)
    w = loop.module.weight.detach().clone().requires_grad_()
    b = loop.module.bias.detach().clone().requires_grad_()
    x, y = points(6, 0).inputs.values()
    loss = (((x @ w.T + b)[:, 0] - y) ** 2).mean() + 0.5 * (w**2).sum()
    loss.backward()
    seen = []
    loop.watchers = [seen.append]
    loop.run()
    torch.testing.assert_close(loop.optimizer.gradients[0], [w.grad, b.grad])
    assert seen[0]["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert seen[0]["terms"]["size"] == pytest.approx(float((w**2).sum()), rel=1e-6)
    assert seen[0]["grad_norm"] == pytest.approx(math.sqrt(float((w.grad**2).sum() + (b.grad**2).sum())), rel=1e-5)


@pytest.mark.parametrize("longest", [0.1, 100.0])
def test_clipping(tmp_path, longest):
    seen = []
    loop = line(tmp_path, options={"max_grad_norm": longest, "log_every": 1}, watchers=[seen.append])
    loop.run()
    lengths = [math.sqrt(sum(float((g**2).sum()) for g in gradients)) for gradients in loop.optimizer.gradients]
    for length, event in zip(lengths, seen, strict=True):
        assert length == pytest.approx(min(event["grad_norm"], longest), rel=1e-4)  # what is told is the length before


def test_a_part_without_labels_does_no_harm(tmp_path):
    """A mean over nothing is not a number; it counts for nothing too."""

    class Some(Line):
        loss_weights = {"words": 1.0}

        def losses(self, model, batch):
            scores = model(batch.inputs["x"]).expand(-1, 2)
            return {"words": torch.nn.functional.cross_entropy(scores, batch.inputs["labels"])}

    class Parts(Points):
        def at(self, step):
            x = points(4, step).inputs["x"]
            labels = torch.tensor([0, 1, -100, -100])
            return [
                Batch({"x": x[n : n + 2], "labels": labels[n : n + 2]}, {"words": count}, 2)
                for n, count in ((0, 2), (2, 0))
            ]

    seen = []
    loop = line(tmp_path, objective=Some(), batches=Parts(), watchers=[seen.append])
    assert loop.run()
    assert all(math.isfinite(event["loss"]) for event in seen)
    assert all(torch.isfinite(g).all() for gradients in loop.optimizer.gradients for g in gradients)


def test_rates_are_those_of_the_step(tmp_path):
    """The first update has factor(0); a run that goes on has the factor of its own step."""
    factor = schedule("linear", 6, warmup=2)

    def go(loop: Loop, stop: int | None = None) -> list[tuple[int, float]]:
        seen = []

        def watch(event):
            seen.append((event["step"], event["lr"]))
            loop._asked_to_stop = event["step"] == stop

        loop.watchers = [watch]
        loop.run()
        return seen

    def made() -> Loop:
        loop = line(tmp_path, steps=6, options={"log_every": 1})
        moving = optimizer(loop.module, "adamw", lr=0.5)
        loop.optimizer = moving

        def prepare(step: int) -> float:
            moving.scale_lr(factor(step))
            return moving.groups[0]["lr"]

        loop.prepare = prepare
        return loop

    first = go(made(), stop=3)
    loop = made()
    progress, tensors, _ = loop.checkpoints.newest()
    loop.restore(progress, tensors)
    told = first + go(loop)
    assert told == [(n + 1, pytest.approx(0.5 * factor(n))) for n in range(6)]
    assert told[0][1] == 0.25 and told[1][1] == 0.5


def test_evaluation_sees_the_average_and_gives_the_weights_back(tmp_path):
    loop = line(tmp_path, options={"evaluate_every": 1})
    loop.ema = EMA(loop.module, 0.5, warmup=False)
    average = [p.detach().clone() for p in loop.module.parameters()]
    seen = []

    def evaluate():
        assert not loop.module.training and not torch.is_grad_enabled()
        seen.append([p.detach().clone() for p in loop.module.parameters()])
        return {"loss": 1.0}

    loop.evaluate = evaluate
    plain = line(tmp_path / "plain")
    for n in range(5):
        loop.options.steps = plain.options.steps = n + 1
        loop.run()
        plain.run()
        own = [p.detach() for p in plain.module.parameters()]
        average = [0.5 * a + 0.5 * p for a, p in zip(average, own, strict=True)]
        torch.testing.assert_close(seen[-1], average)
        torch.testing.assert_close(list(loop.module.parameters()), list(plain.module.parameters()), rtol=0, atol=0)


def test_evaluation_changes_no_weight(tmp_path):
    more = {"model__config": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24, "resid_pdrop": 0.3}}
    train(recipe(tmp_path, **more, data__validation_fraction=0.1, evaluation={"every": 1, "sample": "the"}))
    train(recipe(tmp_path, **more, out=str(tmp_path / "rarely"), evaluation__every=6))
    one, other = weights(tmp_path / "run", 6), weights(tmp_path / "rarely", 6)
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("metric, values, best", [("loss", [3, 1, 2], 4), ("accuracy", [0.2, 0.9, 0.1], 4),
                                                  ("loss", [math.nan, 2, 3], 4), ("loss", [1, 1, 1], 2)])  # fmt: skip
def test_the_best_weights_are_exported(tmp_path, monkeypatch, metric, values, best):
    told = iter([values[0], *values])  # one to look which measures there are
    monkeypatch.setattr(Evaluation, "metrics", lambda *_: {metric: next(told, 0.5), "other": 0.0})
    monkeypatch.setattr(CausalLM, "higher_is_better", frozenset({"accuracy"}))
    keep = {"every": 2, "keep": 3}
    result = train(recipe(tmp_path, evaluation={"every": 2, "metric": metric}, checkpoint=keep))
    assert result.step == 6
    exported, kept = weights(tmp_path / "run"), weights(tmp_path / "run", best)
    assert (exported["transformer.wte.weight"] == kept["head.output.weight"]).all()
    last = weights(tmp_path / "run", 6)
    assert (last["head.output.weight"] != kept["head.output.weight"]).any()


def test_the_average_is_exported(tmp_path):
    train(recipe(tmp_path, ema=0.5))
    averages = weights(tmp_path / "run", 6), weights(tmp_path / "run")
    from safetensors.torch import load_file

    ema = load_file(tmp_path / "run/checkpoints/step-000000006/ema.safetensors")
    assert (ema["head.output.weight"] == averages[1]["transformer.wte.weight"]).all()
    assert (averages[0]["head.output.weight"] != averages[1]["transformer.wte.weight"]).any()


SCORES = {
    "masked-lm distillation": {"masked_accuracy"},
    "translation-lm": {"masked_accuracy"},
    "bert-pretraining": {"masked_accuracy", "next_sentence_accuracy"},
    "sentence-order": {"masked_accuracy", "sentence_order_accuracy"},
    "replaced-token": {"masked_accuracy", "recall", "precision"},
    "permutation-lm": {"target_accuracy"},
    "causal-lm recurrent-lm retrieval-lm bidirectional-lm span-corruption denoising word-vectors": set(),
    "seq2seq prompted-lm": {"bleu"},
    "classification classification-distillation": {"accuracy", "macro_f1", "pearson"},
    "gpt-classification gpt-entailment gpt-similarity": {"accuracy", "macro_f1", "pearson"},
    "tagging": {"f1", "precision", "recall", "accuracy"},
    "question-answering": {"exact_positions", "exact_match", "f1"},
    "multiple-choice gpt-multiple-choice": {"accuracy"},
    "sentence-softmax sentence-similarity": {"accuracy", "macro_f1", "pearson"},
    "sentence-contrastive sentence-triplet": {"accuracy", "macro_f1", "pearson"},
    "image-text-contrastive": {"text_to_image", "image_to_text"},
}


def test_objectives_say_which_of_their_metrics_should_rise():
    """Of a loss, a perplexity and bits per byte less is better."""
    expected = {name: scores for names, scores in SCORES.items() for name in names.split()}
    assert {name: set(objective_class(name).higher_is_better) for name in OBJECTIVES} == expected


def test_a_measure_that_disappears(tmp_path):
    loop = line(tmp_path, options={"evaluate_every": 1, "metric": "f1"}, evaluate=lambda: {"loss": 1.0})
    with pytest.raises(TrainingStopped, match="no measure 'f1'"):
        loop.run()


# ---- when something is wrong


def spoilt(monkeypatch, at: int, how):
    """The loss of one step, and of those after it, becomes something else."""
    real = CausalLM.losses
    calls = []

    def losses(self, model, batch):
        if model.training:
            calls.append(1)
        found = real(self, model, batch)
        return how(found) if model.training and len(calls) >= at else found

    monkeypatch.setattr(CausalLM, "losses", losses)


def finite_everywhere(folder) -> bool:
    steps = Checkpoints(folder, 9).steps()
    return all(
        torch.isfinite(t).all() for step in steps for t in Checkpoints(folder, 9).load(step)[1]["weights"].values()
    )


@pytest.mark.parametrize("log_every", [1, 4, 50])
def test_not_a_number(tmp_path, monkeypatch, log_every):
    """It stops, says the step, keeps the last good checkpoint; and again in the same way."""
    said = recipe(tmp_path, steps=20, checkpoint__every=3, evaluation__every=10, log_every=log_every)
    messages = []
    for _ in range(2):
        with monkeypatch.context() as patch:
            done = Checkpoints(tmp_path / "run/checkpoints", 2).steps()
            spoilt(patch, 8 - (done[-1] if done else 0), lambda found: {"loss": found["loss"] * math.nan})
            with pytest.raises(TrainingStopped) as caught:
                train(said)
        messages.append(str(caught.value))
        assert Checkpoints(tmp_path / "run/checkpoints", 2).steps()[-1] == 6
        assert finite_everywhere(tmp_path / "run/checkpoints")
    assert messages[0] == messages[1]
    for words in (
        "step 8 ",
        "not a number",
        "step 6 is kept",
        "optimizer.lr",
        "schedule.warmup",
        "optimizer.max_grad_norm",
    ):
        assert words in messages[0]


def test_an_exploding_loss(tmp_path):
    class Growing(Line):
        loss_weights = {"fit": 1.0}
        calls = 0

        def losses(self, model, batch):
            Growing.calls += 1
            return {"fit": super().losses(model, batch)["fit"] * 0 + (1.0 if Growing.calls < 4 else 100.0)}

    for log_every in (1, 7):
        Growing.calls = 0
        loop = line(tmp_path / str(log_every), 50, objective=Growing(), options={"log_every": log_every})
        with pytest.raises(
            TrainingStopped, match=rf"step {3 + EXPLODED_STEPS} .*exploded.*was 1 at first.*optimizer.lr"
        ):
            loop.run()


def test_one_odd_batch_is_no_explosion(tmp_path):
    class Odd(Line):
        loss_weights = {"fit": 1.0}
        calls = 0

        def losses(self, model, batch):
            Odd.calls += 1
            odd = Odd.calls % 6 in (1, 2, 3) and Odd.calls > 5
            return {"fit": super().losses(model, batch)["fit"] * 0 + (1000.0 if odd else 1.0)}

    assert line(tmp_path, 40, objective=Odd()).run()


def test_a_last_update_that_spoils_the_weights(tmp_path):
    """The loss was a number, the weights after it are none: nothing is written."""
    loop = line(tmp_path, steps=3, options={"checkpoint_every": 1})
    loop.optimizer.rate = 0.01

    def prepare(step: int) -> float:
        loop.optimizer.rate = math.inf if step == 2 else 0.01
        return 0.0

    loop.prepare = prepare
    with pytest.raises(TrainingStopped, match=r"step 3 the weights are not numbers.*step 2 is kept"):
        loop.run()
    assert loop.checkpoints.steps() == [1, 2]


@pytest.mark.parametrize(
    "options, writing, since, due",
    [
        ({}, 0.1, 59, False), ({}, 0.1, 61, True),  # no sooner than after a minute
        ({}, 2.0, 99, False), ({}, 2.0, 101, True),  # a fiftieth of the time
        ({}, 60.0, 599, False), ({}, 60.0, 601, True),  # after ten minutes at the latest
        ({"checkpoint_minutes": 2.0}, 60.0, 119, False), ({"checkpoint_minutes": 2.0}, 60.0, 121, True),
        ({"checkpoint_every": 3}, 0.1, 9999, False),
    ],
)  # fmt: skip
def test_when_a_checkpoint_is_due(tmp_path, monkeypatch, options, writing, since, due):
    loop = line(tmp_path, options=options)
    loop.progress.step, loop._save_seconds, loop._saved_at = 4, writing, 1000.0
    monkeypatch.setattr("clearhead.train.engine.loop.time.perf_counter", lambda: 1000.0 + since)
    assert loop._checkpoint_is_due() is due
    loop.progress.exploded_steps = 1
    assert not loop._checkpoint_is_due()


def test_a_short_run_writes_one_checkpoint(tmp_path):
    train(recipe(tmp_path, evaluation__every=1, checkpoint__keep=9))
    assert Checkpoints(tmp_path / "run/checkpoints", 9).steps() == [6]


SHORT = (
    "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), MemoryError(), RuntimeError(SHORT)],
)
def test_not_enough_memory(tmp_path, monkeypatch, error):
    def losses(*_):
        raise error

    said = recipe(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(CausalLM, "losses", losses)
        with pytest.raises(TrainingStopped) as caught:
            train(said)
    for words in ("not enough memory", "batch.gradient_accumulation_steps", "batch.size", "batch.length",
                  "loss_chunk_size", "gradient_checkpointing", "lora"):  # fmt: skip
        assert words in str(caught.value)
    assert train(said, ["batch.gradient_accumulation_steps=2"]).finished  # as it was told to


def test_other_errors_stay_what_they_are():
    for error in (RuntimeError("shapes do not fit"), CheckpointError("no room"), TrainingStopped("out of memory")):
        with pytest.raises(type(error)) as caught, explain_out_of_memory():
            raise error
        assert caught.value is error


def test_draws_of_a_step_are_its_own():
    seeds = {seed_of(a, b, c) for a in range(3) for b in range(50) for c in range(3)}
    assert len(seeds) == 450 and all(0 <= seed < 2**63 for seed in seeds)
    assert Progress().exploded_steps == 0

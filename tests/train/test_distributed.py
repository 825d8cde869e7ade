"""Two processes train as one does, step by step; they stop, go on and fail together.

All runs of two processes are made once, by one pair of processes (`program`), forks that have everything
imported; the tests look at what came of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from clearhead.errors import ClearheadError, ConfigError
from clearhead.train import read_recipe, train
from clearhead.train.engine.log import read_log
from clearhead.train.engine.loop import Loop
from tests.fork_server import run_python

STEPS = 6
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 48}
TOWER = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
WORDS = "the a cat dog bird tree house river small large red green sees finds likes and or then slowly today".split()


# ---- what is trained


def write_data(folder: Path) -> None:
    draw = random.Random(1)

    def sentence() -> str:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 12)))

    (folder / "text.txt").write_text("\n".join(sentence() for _ in range(150)))
    pairs = [{"source": (text := sentence()), "target": text.upper()} for _ in range(60)]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    rows = [{"text": (text := sentence()), "label": "odd" if len(text) % 2 else "even"} for _ in range(40)]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "pictures").mkdir()
    for n in range(18):
        Image.new("RGB", (8, 8), tuple(draw.randrange(256) for _ in range(3))).save(folder / "pictures" / f"{n}.png")
        (folder / "pictures" / f"{n}.txt").write_text(" ".join(draw.choices(WORDS, k=4)))


def recipe(kind: str, folder: Path, out: str, **more: object) -> dict[str, object]:
    """Seven examples cannot be shared by two, nor by two parts of a batch, without a rest."""
    text = {
        "train": str(folder / "text.txt"),
        "documents": "lines",
        "validation_fraction": 0.2,
        "test": str(folder / "text.txt"),
    }
    pairs, labels = (
        {"train": str(folder / f"{name}.jsonl"), "validation_fraction": 0.2} for name in ("pairs", "labels")
    )
    adamw = {"lr": 5e-3, "eps": 1e-5}  # below it, rounding would decide where weights without a gradient go
    calm = no("hidden_dropout_prob", "attention_probs_dropout_prob")
    bert = {"family": "bert", "config": SMALL | {"intermediate_size": 32} | calm}
    bart = SMALL | {"encoder_ffn_dim": 32, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 32}
    bart |= no("dropout")
    awd = no("output_p", "hidden_p", "input_p", "embed_p", "weight_p")
    single = {"every": 3, "batch_size": 1, "batches": 5}  # of which the second process gets nothing
    kinds = {
        "causal": {
            "objective": "causal-lm",
            "data": text,
            "tokenizer": {"kind": "bpe", "vocab_size": 270},
            "model": {"family": "gpt2", "config": SMALL | no("resid_pdrop", "embd_pdrop", "attn_pdrop")},
            "batch": {"size": 7, "length": 24, "gradient_accumulation_steps": 2},
            "optimizer": {"name": "muon", "lr": 5e-3},
            "ema": 0.8,
        },
        "masked": {
            "objective": "masked-lm",
            "data": text,
            "tokenizer": {"kind": "wordpiece", "vocab_size": 120},
            "model": bert,
            "batch": {"size": 7, "length": 24},
            "optimizer": adamw,
        },
        "replaced": {
            "evaluation": single,
            "objective": {"name": "replaced-token", "generator_size": 0.5},
            "data": text,
            "tokenizer": {"kind": "wordpiece", "vocab_size": 120},
            "model": {"family": "electra", "config": bert["config"] | {"embedding_size": 8}},
            "batch": {"size": 7, "length": 24},
            "optimizer": adamw,
        },
        "seq2seq": {
            "objective": "seq2seq",
            "data": pairs,
            "tokenizer": {"kind": "bpe", "vocab_size": 280},
            "model": {"family": "bart", "config": bart},
            "batch": {"tokens": 200, "length": 40, "gradient_accumulation_steps": 2},
            "optimizer": adamw,
        },
        "unfreezing": {
            "evaluation": single,
            "objective": "classification",
            "data": labels,
            "tokenizer": {"kind": "wordpiece", "vocab_size": 120},
            "model": bert,
            "batch": {"size": 6, "length": 24},
            "optimizer": adamw | {"unfreeze_every": 2, "layer_decay": 0.5},
        },
        "recurrent": {
            "objective": "recurrent-lm",
            "data": text,
            "tokenizer": {"kind": "words", "vocab_size": 40},
            "model": {"family": "awd-lstm", "config": {"emb_sz": 8, "n_hid": 12, "n_layers": 2} | awd},
            "batch": {"size": 7, "length": 9, "gradient_accumulation_steps": 2},
            "optimizer": adamw,
        },
        "pictures": {
            "objective": {"name": "image-text-contrastive", "image_size": 8},
            "data": {"train": str(folder / "pictures"), "format": "pictures"},
            "evaluation": {},
            "tokenizer": {"kind": "bpe", "vocab_size": 530},
            "model": {"family": "clip", "config": {"text_config": TOWER, "vision_config": TOWER | {"patch_size": 4}}},
            "batch": {"size": 7, "length": 12, "gradient_accumulation_steps": 2},
            "optimizer": adamw,
        },
        "lora": {
            "objective": "causal-lm",
            "data": text,
            "model": {"start": str(folder / "causal" / "model")},
            "batch": {"size": 7, "length": 24},
            "optimizer": adamw,
            "lora": {"rank": 2},
        },
    }  # fmt: skip
    common = {"steps": STEPS, "log_every": 1, "evaluation": {"every": 3}, "device": "cpu", "out": str(folder / out)}
    return common | kinds[kind] | more


def no(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 0.0)


# ---- who trains it


def alone(asked: dict[str, object], stopped_at: int | None = None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        trouble(patch, {"stopped": [0, stopped_at]})
        assert train(asked).finished is (stopped_at is None)


def trouble(patch: pytest.MonkeyPatch, job: dict[str, object]) -> None:
    """At a step, one process gets a signal or fails. (How fast the machine is, nobody asks here.)"""
    patch.setattr("clearhead.train.run.assembly.peak_flops_per_second", lambda *_: 0.0)
    plain = Loop._step

    def step(self: Loop, number: int) -> None:
        if [self.world.rank, number] == job.get("stopped"):
            os.kill(os.getpid(), signal.SIGTERM)
        if [self.world.rank, number] == job.get("fails"):
            raise RuntimeError("a fault of the test's")
        plain(self, number)

    patch.setattr(Loop, "_step", step)


def program(path: str) -> None:
    """Two processes, one a fork of the other: everything is imported once."""
    import torch._dynamo
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor

    from clearhead.train.engine import distributed

    torch.set_num_threads(1)
    distributed.CONTROL_TIMEOUT = distributed.COMPUTE_TIMEOUT = timedelta(seconds=20)
    second = os.fork()
    rank = "1" if second == 0 else "0"
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    try:
        work(Path(path), Path(f"{path}.{rank}"))
    finally:
        if second == 0:
            sys.stderr.flush()
            os._exit(0)
        os.waitpid(second, 0)


def work(path: Path, answers: Path) -> None:
    """What each of the two does: the jobs of a file, one after the other, and a line about each."""
    for job in json.loads(path.read_text()):
        os.environ["MASTER_PORT"] = str(job["port"])
        if "copy" in job and os.environ["RANK"] == "0":
            shutil.copytree(*job["copy"])
        with pytest.MonkeyPatch.context() as patch:
            trouble(patch, job)
            try:
                result = train(job["recipe"])
                said = {"finished": result.finished, "step": result.step}
            except (ClearheadError, RuntimeError) as error:
                said = {"error": type(error).__name__, "message": str(error)}
        with answers.open("a") as file:
            file.write(json.dumps(said) + "\n")


def together(jobs: dict[str, dict[str, object]], folder: Path) -> dict[str, list[dict[str, object]]]:
    """Job -> what each of two processes said of it."""
    path = folder / "jobs.json"
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in jobs]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    path.write_text(json.dumps([job | {"port": port} for job, port in zip(jobs.values(), ports, strict=True)]))
    root = str(Path(__file__).parents[2])
    call = f"sys.path.insert(0, {root!r}); from tests.train.test_distributed import program; program({str(path)!r})"
    done = run_python(["-c", f"import sys; {call}"], os.environ | {"OMP_NUM_THREADS": "1"})
    said = [[json.loads(line) for line in Path(f"{path}.{n}").read_text().splitlines()] for n in range(2)]
    assert all(len(of_one) == len(jobs) for of_one in said), done.stderr[-3000:]
    return dict(zip(jobs, map(list, zip(*said, strict=True)), strict=True))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[dict[str, object]]]]:
    folder = tmp_path_factory.mktemp("runs")
    write_data(folder)
    for kind in ("causal", "masked", "seq2seq", "replaced", "unfreezing", "lora", "recurrent", "pictures"):
        alone(recipe(kind, folder, kind))
    alone(recipe("causal", folder, "one-to-fsdp"), stopped_at=2)

    def job(kind: str, out: str, model: object = None, **more: object) -> dict[str, object]:
        asked = recipe(kind, folder, out, distribute=out.rpartition("-")[2])
        return {"recipe": asked if model is None else asked | {"model": model}, **more}

    def copy(source: str, target: str) -> list[str]:
        return [str(folder / source), str(folder / target)]

    bart = recipe("seq2seq", folder, "")["model"]["config"] | {"encoder_layerdrop": 0.5}  # type: ignore[index, operator]
    dropping = {"family": "bart", "config": bart}
    pairs = [(kind, how) for kind in ("causal", "masked", "seq2seq") for how in ("ddp", "fsdp")]
    jobs = {f"{kind}-{how}": job(kind, f"{kind}-{how}") for kind, how in pairs}
    jobs |= {
        "replaced-fsdp": job("replaced", "replaced-fsdp"),
        "lora-fsdp": job("lora", "lora-fsdp"),
        "pictures-ddp": job("pictures", "pictures-ddp"),
        "pictures-fsdp": job("pictures", "pictures-fsdp"),
        "recurrent-fsdp": job("recurrent", "recurrent-fsdp"),
        "recurrent stopped": job("recurrent", "recurrent-ddp", stopped=[1, 3]),  # every row has a state by then
        "recurrent-ddp": job("recurrent", "recurrent-ddp"),
        "unfreezing-ddp": job("unfreezing", "unfreezing-ddp"),
        "stopped-ddp": job("causal", "stopped-ddp", stopped=[1, 3]),
        "stopped-fsdp": job("causal", "stopped-fsdp", stopped=[0, 3]),
        "ddp-to-fsdp": job("causal", "ddp-to-fsdp", copy=copy("stopped-ddp", "ddp-to-fsdp")),
        "fsdp-to-ddp": job("causal", "fsdp-to-ddp", copy=copy("stopped-fsdp", "fsdp-to-ddp")),
        "one-to-fsdp": job("causal", "one-to-fsdp"),
        "resumed-ddp": job("causal", "stopped-ddp"),
        "resumed-fsdp": job("causal", "stopped-fsdp", copy=copy("stopped-fsdp", "fsdp-to-one")),
        "dropping-ddp": job("seq2seq", "dropping-ddp", model=dropping),
        "dropping-fsdp": job("seq2seq", "dropping-fsdp", model=dropping),
        "fails": job("causal", "fails-ddp", fails=[1, 2]),
    }
    said = together(jobs, folder)
    alone(recipe("causal", folder, "fsdp-to-one"))
    return folder, said


def losses(folder: Path) -> list[float]:
    return [event["loss"] for event in read_log(folder / "log.jsonl") if event["event"] == "step"]


def gradients(folder: Path) -> list[float]:
    return [event["grad_norm"] for event in read_log(folder / "log.jsonl") if event["event"] == "step"]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


# ---- what came of it


@pytest.mark.parametrize(
    "run",
    ["causal-ddp", "causal-fsdp", "masked-ddp", "masked-fsdp", "seq2seq-ddp", "seq2seq-fsdp",
     "replaced-fsdp", "lora-fsdp", "unfreezing-ddp", "recurrent-ddp", "recurrent-fsdp",
     "pictures-ddp", "pictures-fsdp"],
)  # fmt: skip
def test_two_processes_train_as_one(runs, run):
    folder, said = runs
    assert said[run] == [{"finished": True, "step": STEPS}] * 2
    one, two = folder / run.partition("-")[0], folder / run
    assert len(losses(one)) == STEPS
    assert losses(two) == pytest.approx(losses(one), rel=2e-5)
    assert gradients(two) == pytest.approx(gradients(one), rel=1e-3)
    results = [json.loads((path / "result.json").read_text()) for path in (one, two)]
    assert results[1]["metrics"] == pytest.approx(results[0]["metrics"], rel=2e-5)
    assert results[1]["test"] == pytest.approx(results[0]["test"], rel=2e-5)
    assert results[1]["units"] == results[0]["units"]
    torch.testing.assert_close(weights(two), weights(one), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_a_signal_to_one_stops_both_and_going_on_is_exact(runs, how):
    folder, said = runs
    assert said[f"stopped-{how}"] == [{"finished": False, "step": 4}] * 2
    assert said[f"resumed-{how}"] == [{"finished": True, "step": STEPS}] * 2
    stopped, whole = folder / f"stopped-{how}", folder / f"causal-{how}"
    assert losses(stopped) == losses(whole)
    assert weights(stopped).keys() == weights(whole).keys()
    assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(stopped).items())


@pytest.mark.parametrize("path", ["ddp-to-fsdp", "fsdp-to-ddp", "one-to-fsdp", "fsdp-to-one"])
def test_a_run_goes_on_in_another_world(runs, path):
    folder, _ = runs
    assert losses(folder / path) == pytest.approx(losses(folder / "causal"), rel=2e-5)
    torch.testing.assert_close(weights(folder / path), weights(folder / "causal"), rtol=1e-4, atol=2e-5)


def test_a_spread_checkpoint_has_a_part_of_each_process(runs):
    folder, _ = runs
    newest = max((folder / "causal-fsdp" / "checkpoints").glob("step-*"))
    assert {"__0_0.distcp", "__1_0.distcp", ".metadata", "state.json"} <= {path.name for path in newest.iterdir()}
    newest = max((folder / "causal-ddp" / "checkpoints").glob("step-*"))
    tables = {f"{name}.safetensors" for name in ("weights", "optimizer", "ema", "best")}
    assert {path.name for path in newest.iterdir() if path.suffix == ".safetensors"} == tables


def test_layers_left_out_at_random(runs):
    """Every process leaves out others: DDP adds up what there is, FSDP cannot."""
    _, said = runs
    assert said["dropping-ddp"] == [{"finished": True, "step": STEPS}] * 2
    assert all(one["error"] == "ConfigError" and "layerdrop" in one["message"] for one in said["dropping-fsdp"])


def test_when_one_fails_the_other_hears_of_it(runs):
    _, said = runs
    first, second = said["fails"]
    assert second["error"] == "RuntimeError"
    assert first["error"] == "PeerLost"
    assert "its own message" in first["message"]


def test_layers_that_share_weights_are_not_gathered_apart():
    from clearhead.models import family
    from clearhead.train.engine.distributed import _layers

    few = {"vocab_size": 50} | SMALL
    gpt2, albert = (family(name).make(family(name).config(**few)) for name in ("gpt2", "albert"))
    assert all(a is b for a, b in zip(_layers(gpt2), gpt2.stack.layers, strict=True))
    assert list(_layers(albert)) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["distribute=fsdp", "optimizer.unfreeze_every=2"], "distribute: ddp"),
        (["device=cuda:1"], "set device: cuda"),
        (["device=cuda"], "nproc-per-node"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_done(tmp_path, monkeypatch, settings, message):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "99"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        train(read_recipe(recipe("causal", tmp_path, "out"), settings))

"""clearhead bench decode: sides that run, medians in turns, and an interrupt that keeps what there is."""

import json
import re

import pytest
from typer.testing import CliRunner

from clearhead.cli import app, bench
from clearhead.errors import InputError

SIZES = {
    "vocab_size": 90, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 200, "bos_token_id": 89, "eos_token_id": 89,
}  # fmt: skip


@pytest.fixture
def folder():
    with bench.random_gpt2(**SIZES) as made:
        yield made


def run(*arguments: str):
    return CliRunner().invoke(app, ["bench", "decode", *arguments])


def test_json_of_our_own_sides(folder):
    done = run("--model", str(folder), "--threads", "1", "--rounds", "1", "--no-peers", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["threads"] == 1 and data["bandwidth_gigabytes_per_second"] > 0
    found = {(r["precision"], r["job"]) for r in data["results"]}
    assert found == {(p, j) for p in ("float32", "bfloat16", "int8", "int4") for j in ("write", "beam", "prefill")}
    assert all(r["tokens_per_second"] > 0 and r["rounds"] == 1 for r in data["results"])


def test_the_table_names_every_side(folder):
    done = run("--model", str(folder), "--threads", "1", "--rounds", "1", "--no-peers")
    assert done.exit_code == 0, done.output
    assert all(re.search(rf"clearhead {p}\s+\d", done.stdout) for p in ("float32", "bfloat16", "int8", "int4"))


@pytest.mark.parametrize("peer", ["transformers", "ctranslate2"])
def test_peers_write_as_much_as_we_do(folder, peer):
    pytest.importorskip(peer)
    sides = bench.transformers_sides(folder, 199) if peer == "transformers" else bench.ctranslate2_sides(folder, 199, 1)
    assert len(sides) == 2
    for side in sides:
        assert set(side.jobs) == set(bench.JOBS) and side.weight_bytes > 10_000
        for job in side.jobs.values():
            job()


def test_a_peer_lives_in_its_own_process(folder):
    pytest.importorskip("ctranslate2")
    (first, second) = bench.peer_sides("ctranslate2", folder, 199, 1)
    assert {first.precision, second.precision} == {"float32", "int8"} and set(first.jobs) == set(bench.JOBS)
    first.jobs["write"]()
    second.jobs["prefill"]()


def test_a_peer_in_trouble_is_left_out(folder, monkeypatch, capsys):
    def broken(*_):
        raise InputError("no such thing")

    monkeypatch.setattr(bench, "peer_sides", broken)
    assert {side.library for side in bench.all_sides(folder, 1)} == {"clearhead"}
    assert "no such thing" in capsys.readouterr().err


def test_trouble_in_the_other_process_is_told(folder):
    (folder / "config.json").write_text('{"model_type": "nothing known"}')
    with pytest.raises(InputError, match="nothing known"):
        bench.peer_sides("transformers", folder, 199, 1)


def test_medians_and_interrupts(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    calls = []

    def work():
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt

    side = bench.BenchmarkSide("clearhead", "float32", 10**9, 100, {"write": work})
    (result,) = bench.in_turns([side], 9, ("write",), lambda said: None)
    assert result.rounds == 2  # the first call warms up, the fourth is cut short
    assert result.tokens_per_second == 64.0 and result.gigabytes_per_second == 64.0


def test_models_that_do_not_fit_are_refused(tmp_path):
    with bench.random_gpt2(**{**SIZES, "max_position_embeddings": 100}) as short:
        assert run("--model", str(short), "--no-peers").exit_code != 0

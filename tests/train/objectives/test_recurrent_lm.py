"""The next word in streams: states are carried, gradients are not; penalties; exact resume; NT-ASGD; growing words."""

import json

import pytest
import torch

import clearhead as ch
from clearhead.errors import ConfigError, InputError
from clearhead.models import family
from clearhead.models.vocabulary import grow_vocabulary
from clearhead.nn.state import TensorState
from clearhead.text import train_tokenizer
from clearhead.train import evaluate, fit, read_recipe, train
from clearhead.train.objectives.recurrent_lm import RecurrentLM
from tests.tiny import tiny
from tests.train.runs import WORDS, left_by, recipe, write_text

CONFIG = {"emb_sz": 8, "n_hid": 12, "n_layers": 2}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([" ".join(WORDS)] * 3, kind="words", vocab_size=60, show_progress=False)


def awd(tokenizer, **more):
    fam = family("awd-lstm")
    torch.manual_seed(0)
    return fam.make(fam.config.from_dict({"vocab_sz": len(tokenizer), **CONFIG, **more}))


CALM = dict.fromkeys(("output_p", "hidden_p", "input_p", "embed_p", "weight_p"), 0.0)


def examples(objective, count, length=6, rows=2):
    ids = torch.randint(9, 20, (rows, count * length + 1), generator=torch.Generator().manual_seed(1))
    for n in range(count):
        here = ids[:, n * length : (n + 1) * length + 1].numpy()
        yield objective.collate(
            [
                {"input_ids": row[:-1], "next_ids": row[1:], "stream": r, "streams": rows, "begins": n == 0}
                for r, row in enumerate(here)
            ]
        )


def test_windows_are_read_as_one_text(tokenizer):
    model, objective = awd(tokenizer, **CALM), RecurrentLM(tokenizer, 6)
    module = objective.training_module(model).train()
    batches = list(examples(objective, 4))
    with torch.no_grad():
        losses = [objective.losses(module, batch)["loss"] for batch in batches]
        whole, follow = (torch.cat([b.inputs[name] for b in batches], 1) for name in ("input_ids", "next_ids"))
        torch.testing.assert_close(torch.stack(losses).mean(), model(whole, next_ids=follow).loss)
    again = [objective.losses(module, batch)["loss"] for batch in batches]  # the first one begins anew
    torch.testing.assert_close(again, losses)
    alone = model(batches[1].inputs["input_ids"], next_ids=batches[1].inputs["next_ids"]).loss
    assert not torch.isclose(alone, losses[1])
    again[1].backward()  # nothing of the window before is asked for
    halves = [objective.collate([e]) for e in rows_of(batches[1])]
    objective.losses(module, batches[0])
    split = [objective.losses(module, half)["loss"] for half in halves]  # parts of a batch find their own states
    torch.testing.assert_close(torch.stack(split).mean(), losses[1])


def rows_of(batch):
    for r in range(2):
        row = {name: batch.inputs[name][r].numpy() for name in ("input_ids", "next_ids")}
        yield row | {"stream": r, "streams": 2, "begins": False}


def test_penalties_are_terms_of_their_own(tokenizer):
    model, objective = awd(tokenizer), RecurrentLM(tokenizer, 6, ar=3.0, tar=0.0)
    module = objective.training_module(model).train()
    batch = next(examples(objective, 1))
    assert objective.loss_weights == {"loss": 1.0, "ar": 3.0}
    assert objective.losses(module, batch).keys() == {"loss", "ar"}
    assert objective.losses(module.eval(), batch).keys() == {"loss"}
    plain = RecurrentLM(tokenizer, 6)
    rnn = tiny("rnn", "causal-lm", vocab_size=60, shaken=False)
    assert plain.losses(plain.training_module(rnn).train(), batch).keys() == {"loss"} == plain.loss_weights.keys()


def test_only_models_with_a_state(tokenizer):
    with pytest.raises(InputError, match="carries no state"):
        RecurrentLM(tokenizer, 6).training_module(tiny("gpt2"))


def test_it_learns(tokenizer):
    records = [{"text": " ".join(WORDS)}] * 60
    result = fit(awd(tokenizer, **CALM), RecurrentLM(tokenizer, 12), records, valid=records[:8], steps=80, lr=5e-2)
    assert result.losses[-1] < 2 < result.losses[0] and result.metrics["perplexity"] < 6


# ---- runs


def asked(folder, **changes):
    said = {
        "objective": "recurrent-lm", "tokenizer": {"kind": "words", "vocab_size": 60},
        "model": {"family": "awd-lstm", "config": CONFIG}, "batch": {"size": 4, "length": 9},
        "evaluation": {"every": 3, "sample": "the cat"}, "steps": 14, "device": "cpu",
    }  # fmt: skip
    return recipe(folder, **said | changes)


SGD = {"name": "nt-asgd", "lr": 3.0, "weight_decay": 1e-6, "non_monotone": 1}


@pytest.mark.parametrize("optimizer", [{"lr": 0.01}, SGD], ids=["adamw", "nt-asgd"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(optimizer, tmp_path, monkeypatch):
    """Also in the middle of an epoch, where every row has a state: dropout, windows and averages included."""
    from clearhead.train.engine.loop import Loop

    said = asked(tmp_path, optimizer=optimizer, batch={"size": 4, "length": 9, "gradient_accumulation_steps": 2})
    assert train(said | {"out": str(tmp_path / "whole")}).finished
    plain = Loop._step

    def stop_at(step):
        def stopping(self, number):
            self._stop.requested = number == step
            plain(self, number)

        monkeypatch.setattr(Loop, "_step", stopping)

    for step in (4, 10):
        stop_at(step)
        assert not train(said).finished
    stop_at(99)
    assert train(said).finished
    assert left_by(tmp_path / "run") == left_by(tmp_path / "whole")


def test_averaging_begins_when_nothing_gets_better(tmp_path):
    train(asked(tmp_path, optimizer=SGD | {"lr": 20.0}, evaluation={"every": 1}, steps=24))
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    state = json.loads((newest / "state.json").read_text())["progress"]["optimizer"]["ema"]
    assert state["began"] and 0 < state["updates"] < 24 and len(state["history"]) == 24
    for change, message in (
        ({"ema": 0.9}, "averages the weights itself"),
        ({"optimizer": {"lr": 1.0, "non_monotone": 3}}, "is NT-ASGD's"),
        ({"optimizer": SGD, "data": {"train": "x"}}, "held-out data says so"),
        ({"optimizer": {"lr": 1.0, "unfreeze_every": 3, "unfreeze_epochs": 1}}, r"either optimizer\.unfreeze_every"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_recipe(asked(tmp_path, **{"optimizer": SGD} | change))


def test_frequent_words_of_the_text_get_a_place(tmp_path):
    train(asked(tmp_path, steps=2))
    other = write_text(tmp_path / "other.txt", 20, seed=3)
    other.write_text(other.read_text().replace("cat", "zebra").replace("dog", "wombat"))
    more = {"data": {"train": str(other), "documents": "lines"}, "model": {"start": str(tmp_path / "run" / "model")}}
    said = asked(tmp_path, **more, tokenizer={"add_words": 1}, out=str(tmp_path / "more"), steps=2, evaluation={})
    train(said)
    before, after = ch.load(tmp_path / "run"), ch.load(tmp_path / "more")
    old, new = (list(pipe.tokenizer.source_files.words) for pipe in (before, after))
    assert new == [*old, "zebra"] or new == [*old, "wombat"]
    assert after.model.config.vocab_size >= len(new)
    assert after.generate("the", max_new_tokens=3)
    ch.load("random-gpt2").save(tmp_path / "gpt2")
    start = {"start": str(tmp_path / "gpt2")}
    with pytest.raises(ConfigError, match="whole words"):
        train(recipe(tmp_path, out=str(tmp_path / "x"), model=start, tokenizer={"add_words": 3}))


def test_a_vocabulary_grows_by_means(tokenizer):
    model = awd(tokenizer)
    old, bias, ids = model.stack.embed.tokens.weight.clone(), model.head.output.bias.clone(), torch.tensor([[2, 9, 10]])
    want = model(ids).logits
    grow_vocabulary(model, len(tokenizer) + 5)
    table = model.stack.embed.tokens.weight
    assert table is model.head.output.weight and len(table) == model.config.vocab_size == len(old) + 5
    torch.testing.assert_close(table[len(old) :], old.mean(0).expand(5, -1))
    torch.testing.assert_close(model.head.output.bias[len(bias) :], bias.mean().expand(5))
    torch.testing.assert_close(model(ids, past_key_values=TensorState()).logits[..., : len(old)], want)
    model(torch.tensor([[len(old) + 4]]))
    with pytest.raises(InputError, match="more than one table"):
        grow_vocabulary(tiny("t5"), 99)


def test_a_saved_model_is_measured_as_it_was_trained(tmp_path):
    said = asked(tmp_path, steps=3, data__test=str(tmp_path / "text.txt"))
    result = train(said)
    again = evaluate(tmp_path / "run", str(tmp_path / "text.txt"))
    assert again.metrics == pytest.approx(result.test)
    by_head = evaluate(tmp_path / "run" / "model", str(tmp_path / "text.txt"), overrides=["data.documents=lines"])
    assert by_head.metrics["perplexity"] > 1
    ch.load(tmp_path / "run").save(tmp_path / "elsewhere")
    alone = evaluate(tmp_path / "elsewhere", str(tmp_path / "text.txt"), overrides=["data.documents=lines"])
    assert alone.metrics["perplexity"] == pytest.approx(again.metrics["perplexity"], rel=0.05)

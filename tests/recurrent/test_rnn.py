"""The family rnn beside a plain module of torch.nn that opens the same file: every cell, width, task and summary."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import clearhead as ch
from clearhead import hub
from clearhead.errors import ConfigError, InputError
from clearhead.models import family
from clearhead.nn.fast.quantized import QuantizedMatrix
from tests.tiny import shake, tiny_pipeline

BOTH = {"bidirectional": True}
CONFIGS = [
    {"cell": "lstm", "num_hidden_layers": 2, "hidden_size": 7, "embedding_size": 5},
    {"cell": "gru", "num_hidden_layers": 1, "hidden_size": 6, "embedding_size": 6, "tie_word_embeddings": True},
    {"cell": "rnn", "num_hidden_layers": 3, "hidden_size": 4, "embedding_size": 9, "pooling": "mean"},
    {"cell": "gru", "num_hidden_layers": 2, "hidden_size": 5, "embedding_size": 3, "pooling": "max"} | BOTH,
    {"cell": "lstm", "num_hidden_layers": 1, "hidden_size": 3, "embedding_size": 4} | BOTH,
    {"cell": "lstm", "num_hidden_layers": 2, "hidden_size": 4, "embedding_size": 4, "pooling": "concat"} | BOTH,
]  # fmt: skip
TASKS = ["causal-lm", "sequence-classification", "token-classification", "features"]
CASES = [(n, task) for n in range(len(CONFIGS)) for task in TASKS if task != "causal-lm" or n < 3]
IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 0, 0], [6, 0, 0, 0, 0, 0]])
MASK = (IDS != 0).long()


class Plain(nn.Module):
    """As anybody would write it with torch.nn; texts one at a time, so that padding cannot matter."""

    def __init__(self, config, outputs):
        super().__init__()
        kind = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[config["cell"]]
        both, self.pooling = config.get("bidirectional", False), config.get("pooling", "last")
        width = config["hidden_size"] * (1 + both)
        self.embedding = nn.Embedding(11, config["embedding_size"])
        self.rnn = kind(
            config["embedding_size"], config["hidden_size"], config["num_hidden_layers"], bidirectional=both,
            batch_first=True,
        )  # fmt: skip
        if outputs:
            self.output = nn.Linear(width * outputs[0], outputs[1])
        self.both = both

    def pooled(self, states, last):
        last = last[0] if isinstance(last, tuple) else last
        end = torch.cat([last[-2], last[-1]], -1)[0] if self.both else last[-1][0]
        parts = {"last": end, "mean": states[0].mean(0), "max": states[0].max(0).values}
        wanted = ["last", "max", "mean"] if self.pooling == "concat" else [self.pooling]
        return torch.cat([parts[name] for name in wanted])

    def forward(self, ids, task):
        states, last = self.rnn(self.embedding(ids)[None])
        if task == "features":
            return states[0]
        return self.output(self.pooled(states, last) if task == "sequence-classification" else states[0])


def make(n, task, **more):
    torch.manual_seed(n)
    fam = family("rnn")
    labels = {0: "a", 1: "b", 2: "c"}
    config = fam.config(vocab_size=11, pad_token_id=0, eos_token_id=2, id2label=labels, **CONFIGS[n] | more)
    return shake(fam.make(config, task))


@pytest.mark.parametrize(("n", "task"), CASES)
def test_the_file_is_a_plain_modules(n, task, tmp_path):
    """What is saved here opens in torch.nn and says the same; it loads here, and learns alike."""
    model = make(n, task)
    hub.save_model(model, tmp_path / "model")
    pools = 3 if CONFIGS[n].get("pooling") == "concat" and task == "sequence-classification" else 1
    plain = Plain(CONFIGS[n], None if task == "features" else (pools, 11 if task == "causal-lm" else 3))
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    if task == "causal-lm" and CONFIGS[n].get("tie_word_embeddings"):
        tensors["output.weight"] = tensors["embedding.weight"]
    plain.load_state_dict(tensors)
    again = ch.load(tmp_path / "model").model
    assert again.task == task and again.config == model.config
    side = model.double()
    plain.double()
    for ids, mask in ((IDS, MASK), (IDS.flip(1), MASK.flip(1))):
        out = side(input_ids=ids, attention_mask=mask)
        found = out.last_hidden_state if task == "features" else out.logits
        for row, real in enumerate(mask.bool()):
            want = plain(ids[row, real], task)
            torch.testing.assert_close(found[row] if task == "sequence-classification" else found[row, real], want)
    torch.testing.assert_close(again(input_ids=IDS, attention_mask=MASK)[0], model.float()(IDS, MASK)[0])


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "concat"])
def test_a_row_of_padding_has_finite_scores(pooling):
    model = make(0, "sequence-classification", pooling=pooling)
    mask = MASK.clone()
    mask[1] = 0
    logits = model(IDS, mask).logits
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[0], model(IDS, MASK).logits[0])


@pytest.mark.parametrize("n", [0, 1, 2])
def test_loss_and_gradients(n, tmp_path):
    model = make(n, "causal-lm")
    labels = IDS.masked_fill(MASK == 0, -100)
    out = model(IDS, MASK, labels=labels)
    terms = []
    for row, real in enumerate(MASK.bool()):
        scores = model(IDS[row, real][None]).logits[0].log_softmax(-1)
        terms += [-scores[t, token] for t, token in enumerate(IDS[row, real][1:])]
    torch.testing.assert_close(out.loss, torch.stack(terms).mean())
    wanted = torch.autograd.grad(torch.stack(terms).mean(), list(model.parameters()))
    for ours, theirs in zip(torch.autograd.grad(out.loss, list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_it_writes_with_every_option(cell):
    pipe = tiny_pipeline("rnn", "causal-lm", cell=cell)
    ids = pipe.tokenizer("the cat", return_tensors="pt")["input_ids"]
    by_hand = ids
    for _ in range(6):
        by_hand = torch.cat([by_hand, pipe.model(by_hand).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(pipe.model.generate(ids, max_new_tokens=6, eos_token_id=[]), by_hand)
    texts = ["the cat sat on", "a dog"]
    for options in (
        {},
        {"num_beams": 3},
        {"do_sample": True, "seed": 4, "top_k": 5},
        {"penalty_alpha": 0.6, "top_k": 3},
    ):
        together = pipe.generate(texts, max_new_tokens=5, **options)
        seeds = [{"seed": options["seed"] + n} if "seed" in options else {} for n in range(2)]
        alone = [pipe.generate(t, max_new_tokens=5, **options | s) for t, s in zip(texts, seeds, strict=True)]
        assert together == alone, options
    assert "".join(pipe.stream("the cat", max_new_tokens=5)) == pipe.generate("the cat", max_new_tokens=5)[7:]


def test_beams_score_what_the_text_scores():
    pipe = tiny_pipeline("rnn", "causal-lm")
    prompt = pipe.tokenizer("the cat", return_tensors="pt")["input_ids"]
    found = pipe.model.generate(
        prompt, max_new_tokens=5, num_beams=4, num_return_sequences=4, eos_token_id=[], length_penalty=0.0,
        return_dict_in_generate=True,
    )  # fmt: skip
    log_probs = pipe.model(found.sequences).logits.log_softmax(-1)[:, :-1]
    chosen = log_probs.gather(-1, found.sequences[:, 1:, None])[..., 0][:, prompt.shape[1] - 1 :]
    torch.testing.assert_close(found.sequences_scores, chosen.sum(-1), rtol=1e-4, atol=1e-4)


def test_hidden_states_are_the_layers_outputs():
    model = make(0, "causal-lm")
    out = model(IDS, MASK, output_hidden_states=True, use_cache=True)
    assert [tuple(h.shape) for h in out.hidden_states] == [(3, 6, 5), (3, 6, 7), (3, 6, 7)]
    torch.testing.assert_close(model.head.output(out.hidden_states[-1]), out.logits)
    assert out.past_key_values.length == 6


def test_half_precision():
    model = make(0, "causal-lm")
    want = model(IDS, MASK).logits
    torch.testing.assert_close(model.bfloat16()(IDS, MASK).logits.float(), want, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_weights_of_few_bits(cell, kind, tmp_path):
    """Every matrix is rounded, the recurrent ones too; fused, traced and a step at a time give the same."""
    model = make(0, "causal-lm", cell=cell, hidden_size=40, embedding_size=33)
    hub.save_model(model, tmp_path / "m")
    rounded = ch.load(tmp_path / "m", quantize=kind).model
    assert rounded.num_parameters() == model.num_parameters()
    with torch.no_grad():  # the same rounding, written out
        for rnn in (layer.rnn for layer in model.stack.layers):
            for name, weight in rnn.named_parameters():
                if name.startswith("weight"):
                    weight.copy_(QuantizedMatrix(weight, kind).rows(slice(None)))
        want = model(IDS, MASK).logits
        torch.testing.assert_close(rounded(IDS, MASK).logits, want, atol=1e-4, rtol=1e-3)
        with ch.trace(rounded, "layers.*.hidden") as seen:
            torch.testing.assert_close(rounded(IDS, MASK).logits, want, atol=1e-4, rtol=1e-3)
        assert seen["layers.1.hidden"].shape == (3, 6, 40)
        state = rounded.start_state(9)
        steps = [rounded(word[:, None], past_key_values=state).logits for word in IDS[:1].unbind(1)]
        torch.testing.assert_close(torch.cat(steps, 1), want[:1], atol=1e-4, rtol=1e-3)


def test_the_best_precision_is_measured(tmp_path, capfd):
    hub.save_model(make(0, "causal-lm", hidden_size=40), tmp_path / "m")
    ch.load(tmp_path / "m", quantize="auto")
    assert "chosen" in capfd.readouterr().err


def test_what_is_refused(tmp_path):
    fam = family("rnn")
    with pytest.raises(ConfigError, match="cannot read what is to come"):
        fam.make(fam.config(bidirectional=True), "causal-lm")
    with pytest.raises(ConfigError, match="one matrix cannot be both"):
        fam.make(fam.config(tie_word_embeddings=True), "causal-lm")
    with pytest.raises(ConfigError, match="cell"):
        fam.config(cell="lstmm")
    with pytest.raises(ConfigError, match="no model has so many"):
        fam.config(num_hidden_layers=10**9)
    with pytest.raises(ConfigError, match="pad_token_id"):
        fam.config(vocab_size=10, pad_token_id=10)
    model = make(0, "causal-lm")
    model(IDS, token_type_ids=torch.zeros_like(IDS))
    with pytest.raises(InputError, match="segment"):
        model(IDS, token_type_ids=torch.ones_like(IDS))
    with pytest.raises(InputError, match="TensorState"):
        model(IDS, past_key_values=object())

"""ELMo against plain loops over the published files, for several random configurations, and back to such files."""

import json

import h5py
import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.errors import CheckpointError, ConfigError, InputError
from clearhead.hub.describe import describe
from clearhead.models import family
from clearhead.nn.bidirectional_stack import BidirectionalLayer
from clearhead.nn.clipped_lstm import ClippedLSTM, _run, run_clipped
from clearhead.nn.scalar_mix import ScalarMix
from tests.parity import elmo_reference

SENTENCES = [
    ["The", "stick", "broke", "."],
    ["Stick", "to", "naïve", "ideas", ",", "don't", "you", "?"],
    ["x" * 70],
    ["光", "of", "day"],
]


def options(**more) -> dict:
    cnn = {"activation": "relu", "embedding": {"dim": 3}, "filters": [[1, 4], [3, 5]], "n_highway": 1,
           "n_characters": 262, "max_characters_per_token": 50}  # fmt: skip
    lstm = {"dim": 10, "projection_dim": 6, "n_layers": 2, "cell_clip": 3, "proj_clip": 3, "use_skip_connections": True}
    for key, value in more.items():
        (cnn if key in {*cnn, "embedding"} else lstm)[key] = value
    return {"lstm": lstm, "char_cnn": cnn}


CASES = {
    "as published, small": (options(), 0.4),
    "clips bite": (options(cell_clip=0.4, proj_clip=0.3), 1.0),
    "only cells are clipped": (options(cell_clip=0.5, proj_clip=None), 0.8),
    "without clips, three layers": (options(n_layers=3, cell_clip=None, proj_clip=None), 0.4),
    "no skip connections, two highways": (options(use_skip_connections=False, n_highway=2, activation="tanh"), 0.4),
    "one layer, no highway": (options(n_layers=1, n_highway=0), 0.4),
    "wide filters, short words": (options(filters=[[2, 3], [5, 4], [7, 6]], max_characters_per_token=12), 0.4),
    "a state as wide as the cell": (options(dim=6), 0.4),
    "a projection that widens": (options(dim=5), 0.4),
    "words as wide as the filters": (options(filters=[[1, 2], [2, 4]], use_skip_connections=False), 0.4),
    "a projection of equal width": (options(dim=6) | {"always_projects": True}, 0.6),
}  # fmt: skip


@pytest.fixture(params=CASES)
def folder(request, tmp_path):
    case, scale = CASES[request.param]
    elmo_reference.write_files(tmp_path / "elmo", case, seed=len(request.param), scale=scale)
    return tmp_path / "elmo"


def close(got, want):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_elmo_agrees_with_plain_loops(folder):
    elmo = ch.load(folder)
    lstm = json.loads((folder / "options.json").read_text())["lstm"]
    vectors = elmo.embed_words(SENTENCES)
    assert vectors.shape == (4, lstm["n_layers"] + 1, 8, 2 * lstm["projection_dim"])
    for words, got in zip(SENTENCES, vectors, strict=True):
        close(got[:, : len(words)], elmo_reference.embed(folder, words))
        assert not got[:, len(words) :].any()


def test_elmo_clips_in_the_cases_that_say_so(tmp_path):
    for name in ("clips bite", "only cells are clipped"):
        elmo_reference.write_files(tmp_path / name, *CASES[name][:1], seed=len(name), scale=CASES[name][1])
        elmo_reference.embed(tmp_path / name, SENTENCES[1])
        assert elmo_reference.CLIPS["cell"] > 20
    assert elmo_reference.CLIPS["state"] == 0


def test_elmo_gives_the_same_alone_together_and_again(folder):
    elmo = ch.load(folder)
    together = elmo.embed_words(SENTENCES, batch_size=3)
    for words, got in zip(SENTENCES, together, strict=True):
        alone = elmo.embed_words([words])[0]
        close(got[:, : len(words)], alone.numpy())
    assert torch.equal(elmo.embed_words(SENTENCES, batch_size=3), together)


def test_elmo_saved_has_the_published_layout_and_loads_again(folder, tmp_path):
    elmo = ch.load(folder)
    elmo.save(tmp_path / "again")
    assert sorted(p.name for p in (tmp_path / "again").iterdir()) == ["options.json", "weights.hdf5"]
    assert torch.equal(ch.load(tmp_path / "again").embed_words(SENTENCES), elmo.embed_words(SENTENCES))
    with h5py.File(folder / "weights.hdf5") as before, h5py.File(tmp_path / "again" / "weights.hdf5") as after:
        names = []
        before.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        found = []
        after.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
        assert names == found
        for name in names:
            assert after[name].dtype == np.float32
            np.testing.assert_allclose(after[name][...], before[name][...], atol=3e-7)
    written = json.loads((tmp_path / "again" / "options.json").read_text())
    read = json.loads((folder / "options.json").read_text())
    assert {key: written["lstm"][key] for key in read["lstm"]} == read["lstm"]
    assert {key: written["char_cnn"][key] for key in read["char_cnn"]} == read["char_cnn"]


def test_elmo_in_the_houses_own_format(tmp_path):
    elmo_reference.write_files(tmp_path / "elmo", options(), seed=1)
    elmo = ch.load(tmp_path / "elmo")
    elmo.save(tmp_path / "own", format="clearhead")
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    assert config["model_type"] == "elmo" and config["lstm"]["dim"] == 10
    assert torch.equal(ch.load(tmp_path / "own").embed_words(SENTENCES), elmo.embed_words(SENTENCES))
    with pytest.raises(InputError, match="elmo or clearhead"):
        elmo.save(tmp_path / "other", format="transformers")


def test_elmo_in_half_precision(tmp_path):
    elmo_reference.write_files(tmp_path / "elmo", options(), seed=1)
    whole, half = (ch.load(tmp_path / "elmo", dtype=dtype).embed_words(SENTENCES) for dtype in ("float32", "bfloat16"))
    assert half.dtype == torch.bfloat16
    assert (half.float() - whole).abs().max() < 0.02 * whole.abs().max()


@torch.no_grad()
def test_elmo_announces_gates_and_states_by_direction(tmp_path):
    elmo_reference.write_files(tmp_path / "elmo", options(cell_clip=0.4, proj_clip=0.3), seed=2, scale=1.0)
    elmo = ch.load(tmp_path / "elmo")
    ids = elmo.codec(SENTENCES)["character_ids"]
    plain = elmo.model(character_ids=ids, output_hidden_states=True)
    with ch.trace(elmo.model, "layers.*.forward|backward.*", "layers.*.output", "embed.*") as seen:
        watched = elmo.model(character_ids=ids, output_hidden_states=True)
    torch.testing.assert_close(watched.last_hidden_state, plain.last_hidden_state)
    real = (ids != 0).any(-1)
    for side in ("forward", "backward"):
        cell, gate = seen[f"layers.0.{side}.cell"], seen[f"layers.1.{side}.forget_gate"]
        assert cell.shape == (4, 10, 10) and float(cell.abs().max()) == pytest.approx(0.4)
        assert not cell[~real].any() and float(gate[real].min()) > 0
    first = torch.cat([seen["layers.0.forward.hidden"], seen["layers.0.backward.hidden"]], -1)
    torch.testing.assert_close(first, seen["layers.0.output"])
    torch.testing.assert_close(plain.hidden_states[1], seen["layers.0.output"])
    assert seen["embed.characters"].shape == (4, 10, 50, 3) and seen["embed.filters"].shape == (4, 10, 9)
    doubled = torch.cat([seen["embed.output"]] * 2, -1) * real[..., None]
    torch.testing.assert_close(doubled, plain.hidden_states[0])


@torch.no_grad()
def test_elmo_replaced_states_act(tmp_path):
    elmo_reference.write_files(tmp_path / "elmo", options(), seed=2)
    elmo = ch.load(tmp_path / "elmo")
    ids = elmo.codec([SENTENCES[0]])["character_ids"]
    plain = elmo.model(character_ids=ids, output_hidden_states=True).hidden_states[1]

    def without_third(cell):
        cell = cell.clone()
        cell[:, 3] = 0
        return cell

    with ch.trace(elmo.model, replace={"layers.0.forward.cell": without_third}):
        changed = elmo.model(character_ids=ids, output_hidden_states=True).hidden_states[1]
    different = (changed - plain).abs().amax(-1)[0] > 1e-6
    assert different.tolist() == [False] * 3 + [True] * 3
    torch.testing.assert_close(changed[..., 6:], plain[..., 6:])  # what is read backwards does not know


@pytest.mark.parametrize("clips", [(None, None), (0.5, 0.3), (0.5, None)])
@pytest.mark.parametrize("projection", [3, None, 7])
def test_elmos_steps_have_the_gradients_of_plain_ones(projection, clips):
    torch.manual_seed(0)
    layers = [ClippedLSTM(4, 5, projection, *clips).double() for _ in range(2)]
    for p in (p for layer in layers for p in layer.parameters()):
        torch.nn.init.normal_(p, std=0.7)
    inputs = [torch.randn(3, 6, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    want = [layer.announced(x, None) for layer, x in zip(layers, inputs, strict=True)]
    learned = [p for layer in layers for p in layer.parameters()] + inputs
    factors = [torch.randn_like(y) for y in want]

    def gradients(outputs):
        total = sum((y * factor).sum() for y, factor in zip(outputs, factors, strict=True))
        return torch.autograd.grad(total, learned)

    expected = gradients(want)
    for got in (run_clipped(layers, inputs), list(_run(layers, torch.stack(inputs)))):  # apart, and side by side
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
        for a, b in zip(gradients(got), expected, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_elmo_without_clips_is_torchs_lstm():
    torch.manual_seed(0)
    layer, reference = ClippedLSTM(4, 5, 3), torch.nn.LSTM(4, 5, proj_size=3, batch_first=True)
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    weights = {"weight_ih": layer.weight[:, :4], "weight_hh": layer.weight[:, 4:], "bias_ih": layer.bias,
               "bias_hh": torch.zeros(20), "weight_hr": layer.projection}  # fmt: skip
    reference.load_state_dict({f"{name}_l0": w.detach() for name, w in weights.items()})
    x = torch.randn(2, 7, 4)
    torch.testing.assert_close(run_clipped([layer], [x])[0], reference(x)[0])


def test_elmo_sizes_are_the_published_ones():
    elmo = family("elmo")
    totals = {name: describe(name, elmo, elmo.preset(name)).parameters / 1e6 for name in elmo.presets}
    assert totals == {
        "elmo-original": pytest.approx(93.6, abs=0.05), "elmo-2x2048-256": pytest.approx(28.0, abs=0.05),
        "elmo-2x1024-128": pytest.approx(13.6, abs=0.05),
    }  # fmt: skip


def test_elmo_drops_out_what_layers_read():
    elmo = family("elmo")
    model = elmo.make(elmo.config(lstm_size=8, projection_size=4, filters=[[1, 4]], dropout=0.5, num_hidden_layers=2))
    assert [layer.dropout for layer in model.stack.layers if isinstance(layer, BidirectionalLayer)] == [0.5, 0.5]
    ids = torch.randint(1, 262, (1, 5, 50))
    assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
    assert not torch.equal(model.train()(ids).last_hidden_state, model(ids).last_hidden_state)


# ---- the mix of layers


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_scalar_mix_by_hand(layer_norm):
    torch.manual_seed(0)
    layers, real = (
        [torch.randn(2, 3, 4, dtype=torch.float64) + n for n in range(3)],
        torch.tensor([[1, 1, 1], [1, 0, 0]]),
    )
    mix = ScalarMix(3, layer_norm).double()
    torch.nn.init.normal_(mix.weights)
    mix.gamma.data.fill_(1.7)
    share = np.exp(mix.weights.detach().numpy()) / np.exp(mix.weights.detach().numpy()).sum()
    want = 0
    for n, layer in enumerate(layers):
        x = layer.numpy()
        if layer_norm:
            counted = x[real.numpy() == 1]
            x = (x - counted.mean()) / np.sqrt(counted.var() + 1e-12)
        want = want + share[n] * x
    close(mix(layers, real).detach(), 1.7 * want)
    mix(layers, real).sum().backward()
    assert mix.weights.grad is not None and mix.gamma.grad is not None
    with pytest.raises(InputError, match="each of 3 layers, and got 2"):
        mix(layers[:2])


def test_elmo_embeds_texts_by_the_mean_of_its_mixed_words(tmp_path):
    elmo_reference.write_files(tmp_path / "elmo", options(), seed=3)
    elmo = ch.load(tmp_path / "elmo")
    vectors = elmo.embed(["The stick broke.", "A day of light"])
    close(vectors[0], elmo.embed_words([["The", "stick", "broke", "."]])[0].numpy().mean((0, 1)))
    assert elmo.embed("The stick broke.").shape == (12,)
    torch.testing.assert_close(elmo.embed(["One", "Two words"], normalize=True).norm(dim=-1), torch.ones(2))
    assert elmo.search("The stick broke.", ["A day of light", "The stick broke."])[0].index == 1
    layer = ScalarMix(3)
    layer.weights.data[:] = torch.tensor([-1e4, 1e4, -1e4])
    close(elmo.embed("A day", mix=layer), elmo.embed_words([["A", "day"]])[0, 1].numpy().mean(0))


# ---- files that are none


@pytest.fixture
def broken(tmp_path):
    elmo_reference.write_files(tmp_path / "elmo", options(), seed=0)
    return tmp_path / "elmo"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is no HDF5", "not a whole HDF5 file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (b"", "not a whole HDF5 file"),
    ],
)
def test_elmo_refuses_what_is_no_hdf5(broken, content, message):
    (broken / "weights.hdf5").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        ch.load(broken)


def test_elmo_refuses_half_a_file(broken):
    whole = (broken / "weights.hdf5").read_bytes()
    (broken / "weights.hdf5").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"not a whole HDF5|damaged"):
        ch.load(broken)


def test_elmo_names_what_is_missing_or_misshapen(broken):
    with h5py.File(broken / "weights.hdf5", "a") as file:
        del file["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B"]
        del file["CNN/b_cnn_0"]
        file.create_dataset("CNN/b_cnn_0", data=np.zeros(7, "float32"))
    with pytest.raises(CheckpointError, match=r"missing: RNN_1/.*Cell1/LSTMCell/B.*b_cnn_0: the file has 7"):
        ch.load(broken)


def test_elmo_reads_nothing_from_another_file(broken, tmp_path):
    with h5py.File(tmp_path / "other.hdf5", "w") as other:
        other.create_dataset("char_embed", data=np.zeros((261, 3), "float32"))
    with h5py.File(broken / "weights.hdf5", "a") as file:
        del file["char_embed"]
        file["char_embed"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "char_embed")
    with pytest.raises(CheckpointError, match="missing: char_embed"):
        ch.load(broken)
    with h5py.File(broken / "weights.hdf5", "a") as file:
        del file["char_embed"]
        (tmp_path / "raw.bin").write_bytes(bytes(261 * 3 * 4))
        file.create_dataset("char_embed", (261, 3), "float32", external=[(str(tmp_path / "raw.bin"), 0, 261 * 3 * 4)])
    with pytest.raises(CheckpointError, match="keeps char_embed in another file"):
        ch.load(broken)


def test_elmo_refuses_a_place_without_numbers(broken):
    with h5py.File(broken / "weights.hdf5", "a") as file:
        del file["char_embed"]
        file.create_dataset("char_embed", (261, 3), "float32", chunks=(261, 3))
    with pytest.raises(CheckpointError, match="no numbers in it"):
        ch.load(broken)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "gelu"}, "activation"),
        ({"n_characters": 60}, "n_characters"),
        ({"filters": [[1, 4], [3]]}, "pairs"),
        ({"filters": [[60, 4]]}, "60 characters wide"),
        ({"projection_dim": 0}, "projection_dim"),
        ({"dim": "large"}, "lstm.dim"),
    ],
)
def test_elmo_refuses_options_that_cannot_be(broken, change, message):
    (broken / "options.json").write_text(json.dumps(options(**change)))
    with pytest.raises(ConfigError, match=message):
        ch.load(broken)


def test_elmo_needs_both_files_and_both_tables(broken):
    (broken / "options.json").write_text(json.dumps({"lstm": options()["lstm"]}))
    with pytest.raises(ConfigError, match="reads whole words"):
        ch.load(broken)
    (broken / "options.json").unlink()
    with pytest.raises(CheckpointError, match=r"one options\.json, and .* has none"):
        ch.load(broken)
    (broken / "options.json").write_text(json.dumps(options()))
    (broken / "weights.hdf5").unlink()
    with pytest.raises(CheckpointError, match=r"one weights\.hdf5, and .* has none"):
        ch.load(broken)


@pytest.mark.parametrize(
    ("table", "change", "left"),
    [
        ("lstm", {"n_layers": 1}, "Cell1/LSTMCell"),
        ("char_cnn", {"n_highway": 0}, "CNN_high_0"),
        ("char_cnn", {"n_highway": 1}, "CNN_high_1"),
    ],
)
def test_elmo_with_a_layer_too_many_is_another_model(tmp_path, table, change, left):
    """Options that leave one out would give other numbers, in silence."""
    said = options(n_highway=2)
    elmo_reference.write_files(tmp_path / "elmo", said, seed=0)
    ch.load(tmp_path / "elmo")
    for without in (said[table] | change, {key: value for key, value in said[table].items() if key not in change}):
        if table == "char_cnn" and without.get("n_highway") is None:
            left = "CNN_high_0"
        (tmp_path / "elmo" / "options.json").write_text(json.dumps(said | {table: without}))
        with pytest.raises(CheckpointError, match=rf"do not belong to this model: .*{left}"):
            ch.load(tmp_path / "elmo")


def test_elmo_names_options_that_it_does_not_know(broken, caplog):
    (broken / "options.json").write_text(json.dumps(options() | {"n_epochs": 10, "peephole": True}))
    with pytest.raises(ConfigError, match="peephole"):
        ch.load(broken, strict=True)
    with caplog.at_level("WARNING", logger="clearhead"):
        ch.load(broken)
    assert "peephole = True" in caplog.text and "n_epochs" not in caplog.text


def test_elmo_opens_files_by_their_longer_names(broken):
    vectors = ch.load(broken).embed_words(SENTENCES)
    for name in ("options.json", "weights.hdf5"):
        (broken / name).rename(broken / f"elmo_2x10_6_{name}")
    assert torch.equal(ch.load(broken).embed_words(SENTENCES), vectors)


def test_elmo_says_how_to_get_h5py(broken, tmp_path, monkeypatch):
    elmo = ch.load(broken)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(InputError, match=r"pip install 'clearhead\[elmo\]'"):
        ch.load(broken)
    with pytest.raises(InputError, match=r"pip install 'clearhead\[elmo\]'"):
        elmo.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


# ---- what is no sentence


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("The stick", "list of sentences"),
        (["The stick"], "must be a list of words"),
        ([["The", 3]], "word 2 must be a string"),
        ([["The", ""]], "word 2 is empty"),
        ([], "empty"),
    ],
)
def test_elmo_says_what_words_are(broken, sentences, message):
    with pytest.raises(InputError, match=message):
        ch.load(broken).embed_words(sentences)


def test_elmo_takes_a_sentence_without_words(broken):
    elmo = ch.load(broken)
    vectors = elmo.embed_words([[], ["A"]])
    assert vectors.shape == (2, 3, 1, 12) and not vectors[0].any()
    assert elmo.embed_words([[]]).shape == (1, 3, 0, 12)

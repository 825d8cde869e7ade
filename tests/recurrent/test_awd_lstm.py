"""AWD-LSTM beside fastai's own: scores, losses, gradients, regularisation, dropout; writing, tracing, explanations."""

import json

import pytest
import torch
from torch import nn

import clearhead as ch
from clearhead.errors import InputError
from clearhead.models import family
from clearhead.nn.recurrent_dropout import DropConnectLSTM, DroppedWordEmbedder, locked_dropout
from tests.recurrent.fastai_models import draw_classifier, draw_language_model, logits

SEEDS = range(6)


def loaded(model, words, folder, **options):
    torch.save(model.state_dict(), folder / "model.pth")
    (folder / "vocab.json").write_text(json.dumps(words))
    return ch.load(folder / "model.pth", vocab=folder / "vocab.json", **options)


def without_dropout(pipe):
    """The same model in training mode, with nothing left out."""
    for module in pipe.model.modules():
        for name in ("dropout", "weight_dropout", "word_dropout", "input_dropout"):
            if hasattr(module, name):
                setattr(module, name, 0.0)
    return pipe.model.train()


# ---- the language model


@pytest.mark.parametrize("seed", SEEDS)
def test_a_language_model_has_fastais_scores(seed, tmp_path):
    theirs, words = draw_language_model(seed)
    lm = loaded(theirs, words, tmp_path)
    ids = torch.randint(0, len(words), (3, 11))
    want = logits(theirs, ids)
    torch.testing.assert_close(lm.model(input_ids=ids).logits, want, rtol=1e-5, atol=1e-5)
    half = loaded(theirs, words, tmp_path, dtype="bfloat16").model(input_ids=ids).logits
    torch.testing.assert_close(half.float(), want, rtol=0.1, atol=0.1)


def test_states_are_carried_from_call_to_call(tmp_path):
    theirs, words = draw_language_model(1)
    lm = loaded(theirs, words, tmp_path)
    ids = torch.randint(0, len(words), (2, 12))
    want, state = logits(theirs, ids), lm.model.start_state(12)
    parts = [lm.model(input_ids=ids[:, n : n + 5], past_key_values=state).logits for n in (0, 5, 10)]
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=1e-5, atol=1e-5)
    assert state.length == 12


@pytest.mark.parametrize("seed", [0, 2])
def test_losses_gradients_and_penalties_are_fastais(seed, tmp_path):
    theirs, words = draw_language_model(seed, dropout=0.0)
    ours = without_dropout(loaded(theirs, words, tmp_path))
    text = torch.randint(0, len(words), (3, 10))
    ids, follow = text[:, :-1], text[:, 1:]
    theirs.train().reset()
    scores, raw, dropped = theirs(ids)
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), follow.flatten())
    activation, temporal = dropped.pow(2).mean(), (raw[:, 1:] - raw[:, :-1]).pow(2).mean()
    out = ours(input_ids=ids, next_ids=follow)
    for got, want in ((out.loss, loss), (out.activation_penalty, activation), (out.temporal_penalty, temporal)):
        torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours(input_ids=text, labels=text).loss, loss)  # labels are shifted, next_ids are not
    (loss + 2 * activation + temporal).backward()
    (out.loss + 2 * out.activation_penalty + out.temporal_penalty).backward()
    got = ours.get_parameter("stack.layers.0.rnn.weight_hh_l0").grad
    torch.testing.assert_close(got, theirs[0].rnns[0].weight_hh_l0_raw.grad, rtol=1e-4, atol=1e-6)
    words_grad = theirs[0].encoder.weight.grad
    torch.testing.assert_close(ours.stack.embed.tokens.weight.grad, words_grad, rtol=1e-4, atol=1e-6)


def test_a_loss_in_stretches_is_the_same(tmp_path):
    theirs, words = draw_language_model(3, dropout=0.0)
    model = without_dropout(loaded(theirs, words, tmp_path))
    ids = torch.randint(0, len(words), (2, 8))
    want = model(input_ids=ids[:, :-1], next_ids=ids[:, 1:])
    model.head.chunk = 3
    got = model(input_ids=ids[:, :-1], next_ids=ids[:, 1:])
    assert got.logits is None
    torch.testing.assert_close(got.loss, want.loss)
    torch.testing.assert_close(got.temporal_penalty, want.temporal_penalty)


# ---- the classifier


@pytest.mark.parametrize("seed", SEEDS)
def test_a_classifier_has_fastais_scores(seed, tmp_path):
    theirs, words = draw_classifier(
        seed, dropout=0.1 * (seed % 2)
    )  # without dropout, fastai counts its layers otherwise
    clf = loaded(theirs, words, tmp_path)
    assert clf.model.task == "sequence-classification"
    ids = torch.randint(2, len(words), (4, 40))
    for row, length in enumerate((40, 33, 21, 7)):  # the longest first, as fastai wants them
        ids[row, length:] = 1
    want = logits(theirs, ids)
    torch.testing.assert_close(clf.model(input_ids=ids).logits, want, rtol=1e-5, atol=1e-5)
    masked = clf.model(input_ids=ids.masked_fill(ids == 1, 5), attention_mask=ids != 1).logits
    torch.testing.assert_close(masked, want, rtol=1e-5, atol=1e-5)
    left = torch.stack([torch.cat([row[row == 1], row[row != 1]]) for row in ids])
    torch.testing.assert_close(clf.model(input_ids=left).logits, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [72, 73, 1440, 1441, 1512, 1600])
def test_of_long_texts_the_last_windows_speak(length, tmp_path):
    theirs, words = draw_classifier(1)
    clf = loaded(theirs, words, tmp_path)
    ids = torch.randint(2, len(words), (2, length))
    want = logits(theirs, ids)
    torch.testing.assert_close(clf.model(input_ids=ids).logits, want, rtol=1e-5, atol=1e-5)
    padded = torch.cat([ids, torch.ones(2, 50, dtype=torch.long)], 1)
    torch.testing.assert_close(clf.model(input_ids=padded).logits, want, rtol=1e-5, atol=1e-5)


def test_a_classifier_learns_as_fastais(tmp_path):
    """Gradients end at a window's beginning; what the norms remember moves alike."""
    theirs, words = draw_classifier(4, dropout=0.0, seq_len=5)
    pipe = loaded(theirs, words, tmp_path)
    pipe.model.config.seq_len = 5
    ours = without_dropout(pipe)
    ids, labels = torch.randint(2, len(words), (4, 13)), torch.tensor([0, 1, 1, 0])
    loss = nn.functional.cross_entropy(logits(theirs.train(), ids), labels)
    loss.backward()
    out = ours(input_ids=ids, labels=labels)
    out.loss.backward()
    torch.testing.assert_close(out.loss, loss, rtol=1e-5, atol=1e-5)
    for n, layer in enumerate(ours.stack.layers):
        want = theirs[0].module.rnns[n].weight_hh_l0_raw.grad
        torch.testing.assert_close(layer.rnn.weight_hh_l0.grad, want, rtol=1e-3, atol=1e-6)
    norm = theirs[1].layers[0][0]
    torch.testing.assert_close(ours.head.layers[0].norm.running_mean.data, norm.running_mean)
    torch.testing.assert_close(ours.head.layers[0].norm.running_var.data, norm.running_var)
    assert not ours.head.layers[0].norm.running_mean.requires_grad
    assert ours(input_ids=ids[:1], labels=labels[:1]).loss.isfinite()  # a last batch may have a single row


def test_a_row_of_padding_is_refused(tmp_path):
    clf = loaded(*draw_classifier(0), tmp_path)
    with pytest.raises(InputError, match="padding only"):
        clf.model(input_ids=torch.tensor([[4, 5], [1, 1]]))


# ---- dropout


def test_one_mask_for_all_steps():
    torch.manual_seed(0)
    x = torch.ones(200, 6, 50)
    dropped = locked_dropout(x, 0.3, True)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert abs(float((dropped == 0).float().mean()) - 0.3) < 0.02
    assert not torch.equal(dropped[0], dropped[1]) and locked_dropout(x, 0.3, False) is x


def test_words_vanish_wherever_they_stand():
    torch.manual_seed(0)
    embed = DroppedWordEmbedder(nn.Embedding(2000, 3), word_dropout=0.2)
    ids = torch.randint(0, 2000, (50, 40))
    full, x = embed.tokens(ids), embed.train()(ids, torch.zeros(1, 1, dtype=torch.long))
    gone = (x == 0).all(-1)
    assert not set(ids[gone].tolist()) & set(ids[~gone].tolist())
    assert abs(len(ids[gone].unique()) / len(ids.unique()) - 0.2) < 0.03
    torch.testing.assert_close(x[~gone], full[~gone] / 0.8)


def test_connections_vanish_in_the_fused_kernel_and_step_by_step_alike():
    torch.manual_seed(0)
    rnn = DropConnectLSTM(4, 40, batch_first=True, weight_dropout=0.5).train()
    x = torch.randn(2, 5, 4)
    results = []
    for watched in ((), ("layers.0.hidden",)):
        torch.manual_seed(1)
        with ch.trace(rnn, *watched):
            results.append(rnn.read(x)[0])
    torch.testing.assert_close(*results)
    plain = nn.LSTM(4, 40, batch_first=True)
    plain.load_state_dict(rnn.state_dict())
    torch.manual_seed(1)
    plain.weight_hh_l0.data = nn.functional.dropout(rnn.weight_hh_l0.data, 0.5)
    torch.testing.assert_close(results[0], plain(x)[0])
    results[0].sum().backward()
    assert abs(float((rnn.weight_hh_l0.grad == 0).float().mean()) - 0.5) < 0.05
    assert isinstance(rnn.weight_hh_l0, nn.Parameter)
    torch.testing.assert_close(rnn.eval().read(x)[0], rnn(x)[0])


def test_what_is_left_out_is_as_much_as_fastai_leaves_out(tmp_path):
    """The spread of the scores under dropout, over many draws, is the same."""
    theirs, words = draw_language_model(5, dropout=0.3)
    pipe = loaded(theirs, words, tmp_path)
    ours = pipe.model.train()
    for module in ours.modules():
        for name in ("weight_dropout", "word_dropout", "input_dropout"):
            if hasattr(module, name):
                setattr(module, name, 0.3)
    for layer in ours.stack.layers[:-1]:
        layer.dropout = 0.3
    ours.head.dropout = 0.3
    ids = torch.randint(2, len(words), (1, 6)).expand(8, 6)

    def spread(run):
        torch.manual_seed(0)
        with torch.no_grad():
            scores = torch.stack([run() for _ in range(300)])
        return scores.mean((0, 1)), scores.std((0, 1))

    theirs.train()
    for got, want in zip(spread(lambda: ours(input_ids=ids).logits), spread(lambda: logits(theirs, ids)), strict=True):
        torch.testing.assert_close(got, want, rtol=0.1, atol=0.05)


# ---- writing, tracing, questions


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return loaded(*draw_language_model(3), tmp_path_factory.mktemp("lm"))


def test_states_and_cells_have_names(lm):
    ids = torch.randint(2, lm.model.config.vocab_size, (2, 7))
    with ch.trace(lm.model, "layers.*.hidden|cell") as seen:
        scores = lm.model(input_ids=ids).logits
    last = len(lm.model.stack.layers) - 1
    widths = lm.model.config.widths()[1:]
    for n, width in enumerate(widths):
        assert seen[f"layers.{n}.hidden"].shape == seen[f"layers.{n}.cell"].shape == (2, 7, width)
    torch.testing.assert_close(lm.model.head.output(seen[f"layers.{last}.hidden"]), scores)
    torch.testing.assert_close(lm.model(input_ids=ids).logits, scores)


def test_it_writes_through_the_one_loop(lm):
    prompt = torch.tensor([[2, 9, 10]])
    ids = prompt
    for _ in range(6):
        ids = torch.cat([ids, lm.model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
    assert lm.model.generate(prompt, max_new_tokens=6, eos_token_id=[]).tolist() == ids.tolist()
    texts = ["w1 w2 w3 w0", "w4"]
    together = lm.generate(texts, max_new_tokens=5, eos_token_id=[])
    assert together == [lm.generate(text, max_new_tokens=5, eos_token_id=[]) for text in texts]
    beams = lm.write("w1 w2", max_new_tokens=4, num_beams=3, eos_token_id=[])
    assert len(beams[0].token_ids) == 4


@pytest.mark.parametrize("question", ["saliency", "next_token"])
def test_questions_are_answered(lm, question):
    assert getattr(ch.explain, question)(lm, "w1 w2 w3")


def test_sizes_of_the_published_model():
    fam = family("awd-lstm")
    model = fam.make(fam.preset("awd-lstm-wt103"), device="meta")
    assert [layer.rnn.hidden_size for layer in model.stack.layers] == [1152, 1152, 400]
    assert model.num_parameters() == 60_000 * 401 + sum(
        4 * width * (reads + width + 2) for reads, width in ((400, 1152), (1152, 1152), (1152, 400))
    )

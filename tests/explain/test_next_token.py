"""What may come next: the chances are the model's own, whatever its shape, and token by token as at once."""

import csv
import io
import json
import math

import pytest
import torch

import clearhead as ch
from clearhead.cli.next_token import TextInProgress
from clearhead.errors import InputError
from clearhead.explain import NextTokens, next_token
from clearhead.explain.next_token import likeliest
from clearhead.models.bert import FAMILY as BERT
from clearhead.models.bert import BertConfig
from clearhead.models.transfo_xl import FAMILY as TRANSFO_XL
from clearhead.pipeline import TextPipeline
from clearhead.text import train_tokenizer
from tests.tiny import shake, tiny_translator

TEXT = "The robot said that"


@pytest.fixture(scope="module")
def gpt():
    return ch.load("random-gpt2")


@pytest.fixture(scope="module")
def translator():
    return tiny_translator()


def chances_of(logits):
    """Softmax and entropy, by the book."""
    chances = logits.double().exp() / logits.double().exp().sum()
    return chances, -sum(p * math.log2(p) for p in chances.tolist() if p)


def test_the_chances_are_the_models_own(gpt):
    found = next_token(gpt, TEXT, top_k=7)
    with torch.no_grad():
        logits = gpt.model(torch.tensor([gpt.tokenizer.encode(TEXT)])).logits[0, -1]
    chances, entropy = chances_of(logits)
    assert [c.token_id for c in found.candidates] == logits.topk(7).indices.tolist()
    for candidate in found.candidates:
        assert candidate.probability == pytest.approx(chances[candidate.token_id].item(), rel=1e-4)
        assert candidate.logit == pytest.approx(logits[candidate.token_id].item(), rel=1e-4)
        assert candidate.token == gpt.tokenizer.readable([candidate.token_id])[0]
    assert found.entropy == pytest.approx(entropy, rel=1e-4)
    assert found.as_many == pytest.approx(2**entropy, rel=1e-3)
    assert found.shown == pytest.approx(chances.topk(7).values.sum().item(), rel=1e-4)
    assert (found.text, found.model, found.source, found.vocabulary) == (TEXT, "random-gpt2", None, len(logits))
    assert found.candidates[0].token_id == int(gpt.model.generate(torch.tensor([gpt.tokenizer.encode(TEXT)]))[0, 4])


def test_scores_of_no_token(gpt):
    """T5 has more scores than words: its tables are rounded up."""
    wide = torch.zeros(410)
    wide[405], wide[7] = 3.0, 2.0
    found = likeliest(gpt, wide, "", 2).candidates
    assert [c.token for c in found] == ["<no token 405>", gpt.tokenizer.readable([7])[0]]


def test_certain_and_clueless(gpt):
    sure = torch.full((400,), -math.inf)
    sure[3] = 5.0
    assert likeliest(gpt, sure, "", 2).entropy == 0.0
    assert likeliest(gpt, torch.zeros(400), "", 2).entropy == pytest.approx(math.log2(400), rel=1e-5)


def test_an_encoder_decoder_has_read_and_has_written(translator):
    found = next_token(translator, "the cat sat", top_k=5, target="un chat")
    target = translator.tokenizer.target
    written = [translator.model.config.decoder_start_token_id, *target.encode("un chat")]
    if written[-1] == target.eos_token_id:
        written.pop()
    with torch.no_grad():
        source = torch.tensor([translator.tokenizer.encode("the cat sat")])
        logits = translator.model(input_ids=source, decoder_input_ids=torch.tensor([written])).logits[0, -1]
    assert [c.token_id for c in found.candidates] == logits.topk(5).indices.tolist()
    assert found.candidates[0].token == target.readable([found.candidates[0].token_id])[0]
    assert (found.source, found.text) == ("the cat sat", "un chat")


def test_the_language_to_write_stands_first(tmp_path):
    from clearhead.models import family
    from clearhead.text import load_tokenizer
    from tests.text.samples import corpus
    from tests.text.test_sentencepiece import train

    (tmp_path / "sentencepiece.bpe.model").write_bytes(train(corpus(300), model_type="unigram", vocab_size=200))
    for kind, start in (("MBartTokenizer", None), ("MBart50Tokenizer", 2)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
        tok = load_tokenizer(tmp_path)
        config = family("mbart").config(
            vocab_size=len(tok), hidden_size=8, num_hidden_layers=1, decoder_layers=1, num_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=32,
            decoder_start_token_id=start,
        )  # fmt: skip
        pipe = TextPipeline(family("mbart").make(config), tok)
        shake(pipe.model)
        way = TextInProgress(pipe, "the man", src_lang="fi_FI", tgt_lang="ro_RO")
        code = tok.lang_code_to_id["ro_RO"]
        option = {"decoder_start_token_id": code} if start is None else {"forced_bos_token_id": code}
        ids = tok.with_src_lang("fi_FI").encode("the man")
        out = pipe.model.generate(torch.tensor([ids]), max_new_tokens=4, **option)
        first = int(out[0, 1 if start is None else 2])
        assert way.look(1).candidates[0].token_id == first
        assert next_token(pipe, "the man", src_lang="fi_FI", tgt_lang="ro_RO").candidates[0].token_id == first


def test_the_walk_goes_on_as_if_read_at_once(gpt, translator):
    for pipe, text, target in ((gpt, TEXT, ""), (translator, "the cat sat", "un")):
        way = TextInProgress(pipe, text, target)
        taken = []
        for _ in range(4):
            best = way.look(3).candidates[0].token_id
            way.take([best])
            taken.append(way.look(5))
        way.undo()
        assert way.look(5) == taken[-2]
        way.undo()
        assert way.look(5) == taken[-3]
        whole = TextInProgress(pipe, text, target)
        whole.take(way.chosen)
        near(whole.look(5), way.look(5))
        whole.undo()
        near(whole.look(5), next_token(pipe, text, 5, target=target))


def near(one: NextTokens, other: NextTokens):
    assert [c.token_id for c in one.candidates] == [c.token_id for c in other.candidates]
    torch.testing.assert_close(*(torch.tensor([c.logit for c in f.candidates]) for f in (one, other)))
    assert one.text == other.text


def test_a_memory_that_cannot_go_back_is_read_again():
    """Transformer-XL remembers states it cannot forget one by one."""
    torch.manual_seed(1)
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, kind="bpe", vocab_size=280, show_progress=False)
    config = TRANSFO_XL.config(
        vocab_size=len(tokenizer), hidden_size=16, embedding_size=16, num_attention_heads=2, head_dim=8,
        intermediate_size=16, num_hidden_layers=2, cutoffs=[200], mem_len=3, clamp_len=10, div_val=1,
    )  # fmt: skip
    pipe = TextPipeline(TRANSFO_XL.make(config), tokenizer)
    shake(pipe.model)
    way = TextInProgress(pipe, "the cat sat on the")
    looks = [way.look(4)]
    for _ in range(3):
        way.take([looks[-1].candidates[0].token_id])
        looks.append(way.look(4))
    way.undo()
    near(way.look(4), looks[-2])
    way.take([looks[-2].candidates[0].token_id])
    near(way.look(4), looks[-1])


def test_only_new_tokens_are_read(gpt, monkeypatch):
    way = TextInProgress(gpt, TEXT)
    lengths = []
    forward = type(gpt.model).forward
    monkeypatch.setattr(
        type(gpt.model), "forward", lambda self, ids, **rest: lengths.append(ids.shape[1]) or forward(self, ids, **rest)
    )
    way.take([5])
    way.take([6, 7])
    way.undo()
    way.look(10)
    assert lengths == [1, 2]


def test_from_nothing(gpt):
    found = next_token(gpt)
    with torch.no_grad():
        logits = gpt.model(torch.tensor([[gpt.model.config.bos_token_id]])).logits[0, -1]
    assert found.candidates[0].token_id == int(logits.argmax())
    assert found.text == ""


def test_as_plain_data(gpt):
    found = next_token(gpt, TEXT, top_k=3)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["candidates"][0]["probability"] == found.candidates[0].probability
    rows = list(csv.reader(io.StringIO(found.to_csv())))
    assert rows[0] == ["rank", "token", "token_id", "probability", "logit"]
    assert [row[0] for row in rows[1:]] == ["1", "2", "3"]
    assert float(rows[2][3]) == found.candidates[1].probability
    assert rows[1][1] == found.candidates[0].token


def test_more_asked_for_than_there_are(gpt):
    found = next_token(gpt, TEXT, top_k=9999)
    assert len(found.candidates) == found.vocabulary
    assert found.shown == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("top_k", [0, -1, 2.5, True])
def test_top_k(gpt, top_k):
    with pytest.raises(InputError, match="top_k"):
        next_token(gpt, TEXT, top_k=top_k)


def test_what_has_no_next_token(gpt, translator):
    tokenizer = train_tokenizer(["the cat"] * 9, kind="wordpiece", vocab_size=50, show_progress=False)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    with pytest.raises(InputError, match="use fill"):
        next_token(TextPipeline(BERT.make(config), tokenizer), "the cat")
    with pytest.raises(InputError, match="empty"):
        next_token(gpt, " ")
    with pytest.raises(InputError, match="target"):
        next_token(gpt, TEXT, target="un")
    with pytest.raises(InputError, match="no languages"):
        next_token(translator, "the", tgt_lang="de")
    with pytest.raises(InputError, match="no text"):
        next_token(translator)
    with pytest.raises(InputError, match="256 positions"):
        TextInProgress(gpt, "cat " * 400)

"""Pairs of texts: what encoder and decoder read, what is learned, label smoothing, and BLEU at the end."""

import copy
import math
import sys
import types

import pytest
import torch

from clearhead.errors import InputError
from clearhead.pipeline import TextPipeline
from clearhead.train.objectives.padding import IGNORED
from clearhead.train.objectives.seq2seq import PromptedLM, Seq2Seq
from tests.train.objectives.small import bpe, encoded, learns, small, wordpiece

RECORDS = [
    {"source": "the cat sat", "target": "a dog ran away", "where": "a.tsv:1"},
    {"source": "the red house is old", "target": "the sea", "where": "a.tsv:2"},
]


def translator():
    """GPT-2's kind of tokenizer with the three tokens of a translator."""
    tok = bpe()
    tok.add_special_tokens({"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"})
    return tok


def test_exact_ids_and_labels():
    tok = translator()
    objective = Seq2Seq(tok, 40)
    examples = encoded(objective, RECORDS)
    assert examples[0]["input_ids"].tolist() == tok.encode("the cat sat")  # as a pipeline will encode it
    assert examples[0]["labels"].tolist() == [*tok.encode("a dog ran away"), tok.eos_token_id]
    batch = objective.collate(examples)
    sources, targets = ([len(e[name]) for e in examples] for name in ("input_ids", "labels"))
    assert batch.inputs["attention_mask"].sum(1).tolist() == sources
    assert batch.inputs["input_ids"][batch.inputs["attention_mask"] == 0].eq(tok.pad_token_id).all()
    assert (batch.inputs["labels"] != IGNORED).sum(1).tolist() == targets
    assert batch.counts == {"loss": sum(targets)} and batch.units == sum(sources) + sum(targets)


def test_an_end_that_is_there_is_not_repeated():
    tok = wordpiece()  # [SEP] ends a text
    (example,) = Seq2Seq(tok, 40).encode(RECORDS[1])
    assert example["labels"].tolist() == tok.encode("the sea")
    assert example["labels"][-1] == tok.sep_token_id


def test_the_decoder_reads_the_target_one_step_late():
    tok = translator()
    objective = Seq2Seq(tok, 40)
    config = objective.configure({})
    assert config == {
        "pad_token_id": tok.pad_token_id,
        "eos_token_id": tok.eos_token_id,
        "bos_token_id": tok.bos_token_id,
        "decoder_start_token_id": tok.bos_token_id,
    }
    model = small("transformer", objective.task, tok, **config)
    labels = objective.collate(encoded(objective, RECORDS)).inputs["labels"]
    shifted = model.shift_right(labels)
    assert shifted[0].tolist() == [tok.bos_token_id, *labels[0, :-1].tolist()]
    kept = objective.configure({"decoder_start_token_id": 7, "bos_token_id": 5})
    assert (kept["decoder_start_token_id"], kept["bos_token_id"]) == (7, 5)  # a checkpoint knows its own


def test_smoothing_is_the_formula_and_stays_out_of_evaluation():
    """ε spread over the whole vocabulary: (1 − ε) · −log p(word) + ε · mean over all words of −log p."""
    tok = translator()
    objective = Seq2Seq(tok, 40)
    model = small("transformer", objective.task, tok, **objective.configure({}))
    module = objective.training_module(model)
    batch = objective.collate(encoded(objective, RECORDS))
    logits = model.eval()(**batch.inputs).logits.detach()
    labels = batch.inputs["labels"]
    surprise = -logits.log_softmax(-1)
    real = labels != IGNORED
    right = surprise.gather(-1, labels.clamp(min=0)[..., None])[..., 0][real]
    smoothed = (0.9 * right + 0.1 * surprise.mean(-1)[real]).mean()
    assert float(objective.losses(module.train(), batch)["loss"].detach()) == pytest.approx(float(smoothed), rel=1e-5)
    told = objective.report(objective.measure(module.eval(), batch))
    assert told["loss"] == pytest.approx(float(right.mean()), rel=1e-5)
    assert told["perplexity"] == pytest.approx(math.exp(float(right.mean())), rel=1e-4)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_smoothing_must_be_a_share(smoothing):
    with pytest.raises(InputError, match="smoothing"):
        Seq2Seq(translator(), 40, label_smoothing=smoothing)


def test_long_pairs_are_dropped_or_cut():
    tok = translator()
    record = RECORDS[0]
    longest = len(tok.encode(record["target"])) + 1
    assert len(encoded(Seq2Seq(tok, longest), [record])) == 1
    assert encoded(Seq2Seq(tok, 40, target_length=longest - 1), [record]) == []
    assert encoded(Seq2Seq(tok, 2), [record]) == []
    (cut,) = encoded(Seq2Seq(tok, 2, too_long="cut"), [record])
    assert cut["input_ids"].tolist() == tok.encode(record["source"])[:2]
    assert cut["labels"].tolist() == tok.encode(record["target"])[:2]  # no END where it does not end
    with pytest.raises(InputError, match="too_long"):
        Seq2Seq(tok, 2, too_long="keep")


def test_a_source_with_its_own_vocabulary():
    tok, other = translator(), wordpiece()
    objective = Seq2Seq(tok, 40, source_tokenizer=other)
    (example,) = objective.encode(RECORDS[0])
    assert example["input_ids"].tolist() == other.encode("the cat sat")
    assert objective.identity() != Seq2Seq(tok, 40).identity()
    batch = objective.collate(encoded(objective, RECORDS))
    assert batch.inputs["input_ids"][batch.inputs["attention_mask"] == 0].eq(other.pad_token_id).all()


@pytest.mark.parametrize("name", ["transformer", "t5"])
def test_it_is_learned(name):
    tok = translator()
    objective = Seq2Seq(tok, 40)
    t5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    model = small(name, objective.task, tok, **objective.configure({} if name == "transformer" else t5))
    before, after = learns(objective, model, encoded(objective, RECORDS))
    assert after < before
    with pytest.raises(InputError, match="head over words"):
        objective.training_module(small("bert", "sequence-classification", tok))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"source": "the cat", "target": ""}, "b.tsv:9: target is empty"),
        ({"source": "the cat"}, "b.tsv:9 has no column 'target'"),
        ({"source": 3, "target": "x"}, "b.tsv:9: source must be a text"),
    ],
)
@pytest.mark.parametrize("kind", [Seq2Seq, PromptedLM])
def test_bad_records_say_where(kind, record, message):
    with pytest.raises(InputError, match=message):
        list(kind(translator(), 40).encode({**record, "where": "b.tsv:9"}))


def test_tokens_that_are_missing():
    with pytest.raises(InputError, match="padding token"):
        Seq2Seq(bpe(), 40)
    bare = translator()
    bare.eos_token = None
    with pytest.raises(InputError, match="end token"):
        Seq2Seq(bare, 40)


# ---- a decoder alone


def test_prompted_ids_and_labels():
    tok = bpe()
    words = len(tok)
    objective = PromptedLM(tok, 40, separator="<summarize>")
    mark = tok.convert_tokens_to_ids("<summarize>")
    assert mark == words and len(tok) == words + 1
    source, target = tok.encode("the cat sat"), tok.encode("a dog ran away")
    (example,) = objective.encode(RECORDS[0])
    assert example["input_ids"].tolist() == [*source, mark, *target, tok.eos_token_id]
    assert example["labels"].tolist() == [IGNORED] * (len(source) + 1) + [*target, tok.eos_token_id]
    batch = objective.collate(encoded(objective, RECORDS))
    learned = sum(len(tok.encode(record["target"])) + 1 for record in RECORDS)
    assert batch.counts == {"loss": learned}

    both = PromptedLM(tok, 40, separator="<summarize>", learn_source=True)
    (example,) = both.encode(RECORDS[0])
    assert example["labels"].tolist() == example["input_ids"].tolist()
    assert both.collate([example]).counts == {"loss": len(example["input_ids"]) - 1}


def test_a_separator_of_ordinary_text():
    tok = bpe()
    words = len(tok)
    (example,) = PromptedLM(tok, 40, separator=" . ", new_token=False).encode(RECORDS[0])
    assert len(tok) == words
    prompt = tok.encode("the cat sat . ")
    assert example["input_ids"][: len(prompt)].tolist() == prompt
    assert (example["labels"] == IGNORED).sum() == len(prompt)
    with pytest.raises(InputError, match="separator"):
        PromptedLM(tok, 40, separator="")


def test_a_long_prompt_gives_way_before_the_target():
    tok = bpe()
    objective = PromptedLM(tok, 12, separator="<to>", too_long="cut")
    long = {"source": "the red house is old and the green one is new .", "target": "the sea"}
    (example,) = objective.encode(long)
    target = [*tok.encode("the sea"), tok.eos_token_id]
    assert len(example["input_ids"]) == 12
    assert example["input_ids"].tolist()[-len(target) :] == target
    assert example["input_ids"][-len(target) - 1] == tok.convert_tokens_to_ids("<to>")
    assert encoded(PromptedLM(tok, 12, separator="<to>"), [long]) == []


def test_new_tokens_get_rows_and_the_old_ones_stay():
    tok = bpe()
    model = small("gpt2", "causal-lm", tok)
    old = model.stack.embed.tokens.weight.detach().clone()
    objective = PromptedLM(tok, 40)
    objective.training_module(model)
    table = model.stack.embed.tokens.weight
    assert len(table) == len(old) + 1 == model.config.vocab_size
    assert torch.equal(table[: len(old)], old)
    assert model.head.output.weight is table
    before, after = learns(objective, model, encoded(objective, RECORDS))
    assert after < before


def test_an_untied_output_grows_too():
    tok = wordpiece()
    tok = copy.deepcopy(tok)
    model = small("bert", "causal-lm", tok, is_decoder=True, tie_word_embeddings=False)
    weight, bias = model.head.output.weight.detach().clone(), model.head.output.bias.detach().clone() + 1
    model.head.output.bias.data += 1
    PromptedLM(tok, 40).training_module(model)
    assert model.head.output.weight.shape[0] == len(tok) == len(weight) + 1
    assert torch.equal(model.head.output.weight[:-1], weight)
    assert model.head.output.bias.tolist() == [*bias.tolist(), 0.0]


# ---- evaluation on test data


def fake_sacrebleu(monkeypatch, seen):
    def corpus_bleu(answers, references, tokenize):
        seen["answers"], seen["references"], seen["tokenize"] = answers, references, tokenize
        return types.SimpleNamespace(score=12.5)

    known = types.SimpleNamespace(TOKENIZERS=("13a", "zh"))
    monkeypatch.setitem(sys.modules, "sacrebleu", types.SimpleNamespace(corpus_bleu=corpus_bleu, BLEU=known))


def test_bleu_of_what_is_written(monkeypatch):
    seen = {}
    fake_sacrebleu(monkeypatch, seen)
    tok = translator()
    with pytest.raises(InputError, match=r"bleu is 'zhh'\. Did you mean zh\?"):
        Seq2Seq(tok, 30, bleu="zhh")
    objective = Seq2Seq(tok, 30, target_length=6, num_beams=2, bleu="zh")
    model = small("transformer", objective.task, tok, **objective.configure({}))
    pipe = TextPipeline(model, tok)
    long_first = [RECORDS[1], RECORDS[0]]
    assert objective.evaluate_test(pipe, long_first) == {"bleu": 12.5}
    assert seen["references"] == [["the sea", "a dog ran away"]] and seen["tokenize"] == "zh"
    expected = [pipe.generate(r["source"], num_beams=2, max_new_tokens=6).strip() for r in long_first]
    assert seen["answers"] == expected  # in the order of the records
    with pytest.raises(InputError, match="no records"):
        objective.evaluate_test(pipe, [])


def test_a_decoder_is_judged_by_its_answer_alone(monkeypatch):
    seen = {}
    fake_sacrebleu(monkeypatch, seen)
    tok = bpe()
    objective = PromptedLM(tok, 5)
    model = small("gpt2", objective.task, bpe(), **objective.configure({}))
    objective.training_module(model)
    objective.evaluate_test(TextPipeline(model, tok), RECORDS)
    assert not any("cat" in answer or "<|answer|>" in answer for answer in seen["answers"])


def test_without_sacrebleu_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(InputError, match=r"pip install clearhead\[train\]"):
        Seq2Seq(translator(), 6).evaluate_test(None, RECORDS)

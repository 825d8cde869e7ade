"""The line to try a trained model with: one for every objective, and each of them runs."""

import shlex
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from clearhead.cli import app
from clearhead.cli.next_command import next_command
from clearhead.pipeline.vector_files import pipeline_of
from clearhead.pipeline.words import WordPipeline
from clearhead.text import train_tokenizer
from clearhead.text.characters import CharacterCodec
from clearhead.text.word_vectors import Words
from clearhead.train.objectives import OBJECTIVES
from clearhead.train.objectives.gpt_tasks import GPTInputs
from tests.tiny import CORPUS, tiny, tiny_pipeline

# objective -> the family, the task, and the verb
MODELS = {
    "causal-lm": ("gpt2", "causal-lm", "generate"),
    "recurrent-lm": ("rnn", "causal-lm", "generate"),
    "retrieval-lm": ("retro", "causal-lm", "generate"),
    "prompted-lm": ("gpt2", "causal-lm", "generate"),
    "masked-lm": ("bert", "masked-lm", "fill"),
    "bidirectional-lm": ("elmo", "bidirectional-lm", "embed"),
    "bert-pretraining": ("bert", "pretraining", "fill"),
    "sentence-order": ("albert", "masked-lm", "fill"),
    "translation-lm": ("xlm", "masked-lm", "fill"),
    "distillation": ("distilbert", "masked-lm", "fill"),
    "replaced-token": ("electra", "replaced-token", "explain prediction"),
    "permutation-lm": ("xlnet", "permutation-lm", "explain attention"),
    "span-corruption": ("t5", "seq2seq-lm", "generate"),
    "denoising": ("bart", "seq2seq-lm", "generate"),
    "seq2seq": ("marian", "seq2seq-lm", "translate"),
    "classification": ("bert", "sequence-classification", "classify"),
    "classification-distillation": ("bert", "sequence-classification", "classify"),
    "tagging": ("bert", "token-classification", "tag"),
    "question-answering": ("bert", "question-answering", "answer"),
    "multiple-choice": ("bert", "multiple-choice", "explain prediction"),
    "gpt-classification": ("gpt2", "sequence-classification", "classify"),
    "gpt-entailment": ("gpt2", "sequence-classification", "classify"),
    "gpt-similarity": ("gpt2", "sequence-classification", "explain attention"),
    "gpt-multiple-choice": ("gpt2", "multiple-choice", "explain prediction"),
} | {f"sentence-{kind}": ("bert", "features", "embed") for kind in ("softmax", "similarity", "contrastive", "triplet")}


def asked(name, **data):
    data = {"train": None, "columns": {}, "format": None} | data
    return SimpleNamespace(
        objective={"name": name}, evaluation=SimpleNamespace(sample=None), data=SimpleNamespace(**data)
    )


def test_every_objective_has_one():
    assert {*MODELS, "word-vectors", "image-text-contrastive"} == set(OBJECTIVES)


@pytest.mark.parametrize(
    "words, line", [("the man king woman", "king - man + woman"), ("the a great house", "great"), ("a b", "a")]
)
def test_word_vectors_are_asked_about_words_they_know(words, line, tmp_path):
    pipeline_of(Words.of(words.split()), torch.randn(len(words.split()), 4)).save(tmp_path / "model")
    said = next_command(asked("word-vectors"), tmp_path / "model")
    assert said.startswith(f'clearhead vectors "{line}" -m ')
    assert CliRunner().invoke(app, shlex.split(said)[1:]).exit_code == 0


def test_a_clip_is_shown_a_picture_it_has_seen(tmp_path):
    """That it runs is tried with the recipe."""
    (tmp_path / "a.png").touch()
    (tmp_path / "a.txt").write_text("a thing")
    line = next_command(asked("image-text-contrastive", train=str(tmp_path), format="pictures"), tmp_path / "model")
    assert line.startswith(f"clearhead classify {tmp_path / 'a.png'} --labels ")
    assert "photo.jpg" in next_command(asked("image-text-contrastive", train="gone", format="pictures"), tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_verb_of_the_job_and_runs(name, tmp_path):
    family, task, verb = MODELS[name]
    tok = None
    if name.startswith("gpt-"):
        tok = train_tokenizer(CORPUS, kind="bpe", vocab_size=330, show_progress=False)
        GPTInputs(tok, 32)  # adds its tokens
    made = WordPipeline(tiny(family, task), CharacterCodec()) if family == "elmo" else None
    (made or tiny_pipeline(family, task, tok=tok)).save(tmp_path / "model")
    line = next_command(asked(name), tmp_path / "model")
    assert line.startswith(f"clearhead {verb} ") and "\n" not in line
    words = shlex.split(line)[1:]
    result = CliRunner().invoke(app, [*words, "-n", "2"] if verb in ("generate", "translate") else words)
    assert result.exit_code == 0, result.exception
    assert result.stdout


def test_pairs_and_folders_with_spaces(tmp_path):
    (tmp_path / "pairs.csv").write_text("text,text_pair,label\na,b,x\n")
    line = next_command(asked("classification", train=str(tmp_path / "pairs.csv")), tmp_path / "my model")
    assert "--pair" in line and shlex.split(line)[-1] == str(tmp_path / "my model")
    (tmp_path / "texts.csv").write_text("text,label\na,x\n")
    assert "--pair" not in next_command(asked("classification", train=str(tmp_path / "texts.csv")), tmp_path)
    assert "--pair" not in next_command(asked("classification", train=str(tmp_path / "gone.csv")), tmp_path)

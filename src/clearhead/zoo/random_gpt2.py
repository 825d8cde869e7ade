"""A small GPT-2 with random weights, the same ones every time, and a tokenizer trained on a few sentences."""

import torch

from clearhead.models import Model
from clearhead.models.gpt2 import FAMILY, GPT2Config
from clearhead.text import Tokenizer, train_tokenizer

SEED = 2017

# Enough for common words to become tokens of their own; anything else falls into bytes.
SENTENCES = """
The robot said that it will obey the orders given it by human beings. A robot must obey the orders given it.
Once upon a time there was a little girl who lived in a house near the wood with her mother and father.
The cat sat on the mat because it was tired. The animal did not cross the street because it was too tired.
Attention lets every output look directly at every input. I will read the book and you will write the letter.
"""


def make(task: str | None = None) -> tuple[Model, Tokenizer]:
    tokenizer = train_tokenizer(
        SENTENCES.split("\n") * 2, kind="bpe", vocab_size=400, show_progress=False, model_max_length=256
    )
    end = tokenizer.eos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=256,
        bos_token_id=end,
        eos_token_id=end,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return FAMILY.make(config, task), tokenizer

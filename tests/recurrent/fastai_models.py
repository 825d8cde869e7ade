"""fastai's AWD-LSTM in small random sizes: what is loaded, saved and computed here is compared with it."""

import random

import torch
from fastai.text.models.awdlstm import AWD_LSTM
from fastai.text.models.core import get_language_model, get_text_classifier

from clearhead.text.word_rules import SPECIAL

DROPOUTS = ("output_p", "hidden_p", "input_p", "embed_p", "weight_p")


def draw_sizes(seed: int) -> dict:
    """What both need to make one, without its dropouts."""
    rng = random.Random(seed)
    return {
        "emb_sz": rng.randint(3, 9), "n_hid": rng.randint(3, 12), "n_layers": rng.randint(1, 4), "pad_token": 1,
        "bidir": False,
    }  # fmt: skip


def draw_language_model(seed: int, dropout: float = 0.1):
    """(fastai's model, its words)"""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    words = [*SPECIAL, *(f"w{n}" for n in range(rng.randint(5, 30)))]
    heads = {"tie_weights": rng.random() < 0.6, "out_bias": rng.random() < 0.6}
    config = draw_sizes(seed) | heads | dict.fromkeys(DROPOUTS, dropout)
    return shaken(get_language_model(AWD_LSTM, len(words), config)), words


def draw_classifier(seed: int, dropout: float = 0.1, **options):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    words = [*SPECIAL, *(f"w{n}" for n in range(rng.randint(5, 30)))]
    hidden = rng.choice([None, [6], [7, 5]])
    options = {"lin_ftrs": hidden, "ps": [dropout] * len(hidden or [50])} | options
    config = draw_sizes(seed) | dict.fromkeys(DROPOUTS, dropout)
    return shaken(get_text_classifier(AWD_LSTM, len(words), rng.randint(2, 5), config=config, **options)), words


def shaken(model):
    """With weights, and remembered means, that tell every tensor from every other."""
    for p in model.parameters():
        p.data.normal_(0, 0.3)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    return model.eval()


def logits(model, ids: torch.Tensor) -> torch.Tensor:
    """From nothing: fastai's models carry their states from call to call."""
    model.reset()
    return model(ids)[0]

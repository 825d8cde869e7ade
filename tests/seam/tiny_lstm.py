"""A tiny LSTM language model, assembled as a new family would be: recurrent layers in place of attention."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from clearhead.models.checkpoint import own_names
from clearhead.models.family import Family
from clearhead.models.heads import HeadInputs, LanguageHead
from clearhead.models.stack_model import StackModel
from clearhead.models.token_config import VocabularyConfig
from clearhead.nn.embedding import TokenEmbedder
from clearhead.nn.init import init_normal
from clearhead.nn.stack import Stack
from clearhead.nn.state import TensorState
from clearhead.nn.tracing import tap


@dataclass(kw_only=True)
class TinyLSTMConfig(VocabularyConfig):
    family: ClassVar[str] = "tiny-lstm"
    hidden_size: int = 16
    num_hidden_layers: int = 2


class LSTMLayer(nn.Module):
    taps = ("input", "hidden", "cell", "output")

    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x, h, c, real=None):  # (batch, time, width), (batch, width) twice, (batch, time)
        x, states = tap(self, "input", x), []
        for n, now in enumerate(x.unbind(1)):
            new = self.cell(now, (h, c))
            if real is not None:  # padding leaves the state as it was
                new = tuple(torch.where(real[:, n, None], a, b) for a, b in zip(new, (h, c), strict=True))
            h, c = new
            states.append((h, c))
        hidden, cell = (torch.stack(part, 1) for part in zip(*states, strict=True))
        hidden, _ = tap(self, "hidden", hidden), tap(self, "cell", cell)
        return tap(self, "output", hidden), h, c


class LSTMStack(Stack):
    def forward(self, input_ids=None, *, attention_mask=None, state=None, inputs_embeds=None):
        places = torch.arange(1)[None]  # recurrent layers count for themselves
        x = self.embed(input_ids, places, None, inputs_embeds)
        zeros = x.new_zeros(len(self.layers), len(x), x.shape[-1])
        h, c = (zeros, zeros) if state is None or state.tensors is None else state.tensors
        real = None if attention_mask is None else attention_mask[:, -x.shape[1] :] != 0
        new_h, new_c = [], []
        for n, layer in enumerate(self.layers):
            x, last_h, last_c = layer(x, h[n], c[n], real)
            new_h.append(last_h)
            new_c.append(last_c)
        if state is not None:
            state.replace((torch.stack(new_h), torch.stack(new_c)), x.shape[1])
        return x


class TinyLSTM(StackModel):
    first_position = None  # it takes no position_ids

    def start_state(self, capacity):
        return TensorState()

    def forward(self, input_ids=None, attention_mask=None, labels=None, past_key_values=None, logits_to_keep=0,
                inputs_embeds=None):  # fmt: skip
        hidden = self.stack(
            input_ids, attention_mask=attention_mask, state=past_key_values, inputs_embeds=inputs_embeds
        )
        return self.head(hidden, HeadInputs(input_ids, labels, logits_to_keep=logits_to_keep))


def build(config, task):
    embed = TokenEmbedder(nn.Embedding(config.vocab_size, config.hidden_size))
    stack = LSTMStack(embed, [LSTMLayer(config.hidden_size) for _ in range(config.num_hidden_layers)], causal=True)
    return TinyLSTM(config, stack, LanguageHead(config.hidden_size, config.vocab_size, bias=False, shift=True))


def init(config, module):
    init_normal(module, 0.3)
    for cell in (m for m in module.modules() if isinstance(m, nn.LSTMCell)):
        for weight in cell.parameters():
            nn.init.normal_(weight, std=0.3)


FAMILY = Family(
    name="tiny-lstm", title="Tiny LSTM", config=TinyLSTMConfig, build=build, init=init, checkpoint_map=own_names(build),
    architectures={"causal-lm": "TinyLSTMForCausalLM"}, default_task="causal-lm",
)  # fmt: skip

"""Recurrent encoder–decoders as the papers write them, a word and a state at a time, from the tensors of a saved file.

Sutskever et al. 2014, Cho et al. 2014 (one vector), Bahdanau et al. 2014 (additive), Luong et al. 2015 (dot, general,
concat, local-p, input feeding). Nothing of clearhead is used.
"""

import json

import torch
from safetensors.torch import load_file


class Paper:
    def __init__(self, folder):
        self.c = json.loads((folder / "config.json").read_text())
        self.t = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
        for name, same in (("encoder.embedding", "tie_source_embeddings"), ("output", "tie_word_embeddings")):
            if self.c[same]:
                self.t[f"{name}.weight"] = self.t["decoder.embedding.weight"]

    def step(self, side, layer, x, state):
        """One step of one layer; the state is [h] or [h, c]."""
        wi, wh, bi, bh = (self.t[f"{side}.rnn.{n}"] for n in (f"weight_ih_{layer}", f"weight_hh_{layer}",
                                                              f"bias_ih_{layer}", f"bias_hh_{layer}"))  # fmt: skip
        a, b = wi @ x + bi, wh @ state[0] + bh
        if self.c["cell"] == "rnn":
            return [torch.tanh(a + b)]
        if self.c["cell"] == "lstm":
            i, f, g, o = (a + b).chunk(4)
            c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
            return [torch.sigmoid(o) * torch.tanh(c), c]
        (ar, az, an), (br, bz, bn) = a.chunk(3), b.chunk(3)
        r, z = torch.sigmoid(ar + br), torch.sigmoid(az + bz)
        return [(1 - z) * torch.tanh(an + r * bn) + z * state[0]]

    def zeros(self, side, layer):
        width = self.t[f"{side}.rnn.weight_hh_{layer}"].shape[1]
        return [torch.zeros(width, dtype=torch.float64) for _ in range(2 if self.c["cell"] == "lstm" else 1)]

    def encode(self, ids):
        """The last layer's state at every word, and for each layer what is left at the end of each direction."""
        xs = [self.t["encoder.embedding.weight"][n] for n in ids]
        ends = []
        for layer in range(self.c["encoder_layers"]):
            sides = []
            for suffix in ("", "_reverse") if self.c["bidirectional"] else ("",):
                name, state, states = f"l{layer}{suffix}", self.zeros("encoder", f"l{layer}{suffix}"), []
                for x in reversed(xs) if suffix else xs:
                    state = self.step("encoder", name, x, state)
                    states.append(state[0])
                sides.append((list(reversed(states)) if suffix else states, state))
            xs = [torch.cat(parts) for parts in zip(*(states for states, _ in sides), strict=True)]
            ends.append([torch.cat(parts) for parts in zip(*(state for _, state in sides), strict=True)])
        return xs, ends

    def first_states(self, ends):
        layers = range(self.c["num_hidden_layers"])
        ends = [ends[min(n, len(ends) - 1)] for n in layers]
        if self.c["bridge"] == "copy":
            return ends
        made = []
        for n, parts in enumerate(ends):
            hidden = torch.tanh(self.t[f"bridge.hidden_l{n}.weight"] @ parts[0] + self.t[f"bridge.hidden_l{n}.bias"])
            made.append([hidden])
            if len(parts) == 2:
                made[n].append(self.t[f"bridge.cell_l{n}.weight"] @ parts[1] + self.t[f"bridge.cell_l{n}.bias"])
        return made

    def attend(self, s, memory):
        """The weights, and the context."""
        kind, scores = self.c["attention"], []
        for h in memory:
            if kind == "dot":
                scores.append(s @ h)
            elif kind == "general":
                scores.append(s @ (self.t["attention.key.weight"] @ h))
            else:
                inner = self.t["attention.query.weight"] @ s + self.t["attention.key.weight"] @ h
                scores.append(self.t["attention.vector.weight"][0] @ torch.tanh(inner + self.t["attention.key.bias"]))
        scores, window = torch.stack(scores), self.c["attention_window"]
        if window is None:
            weights = torch.softmax(scores, 0)
        else:
            inner = torch.tanh(self.t["attention.place.weight"] @ s)
            p = len(memory) * torch.sigmoid(self.t["attention.place_vector.weight"][0] @ inner)
            near = [j for j in range(len(memory)) if abs(j - p) <= window]
            exps = {j: torch.exp(scores[j]) for j in near}
            total, sigma = sum(exps.values()), window / 2
            weights = torch.zeros(len(memory), dtype=torch.float64)
            for j in near:
                weights[j] = exps[j] / total * torch.exp(-((j - p) ** 2) / (2 * sigma**2))
        return weights, sum(w * h for w, h in zip(weights, memory, strict=True))

    def decode(self, source, target):
        """Scores of every word of the vocabulary after each word of the target, (target, words), and the weights."""
        memory, ends = self.encode(source)
        states = self.first_states(ends)
        attention, fed = self.c["attention"], None
        if self.c["input_feeding"]:
            fed = torch.zeros(self.t["readout.weight"].shape[0], dtype=torch.float64)
        context = ends[-1][0] if self.c["feed_context"] else None
        scores, alignment = [], []
        for n in target:
            parts = [self.t["decoder.embedding.weight"][n]]
            if attention == "additive":
                weights, context = self.attend(states[-1][0], memory)
            if attention == "additive" or self.c["feed_context"]:
                parts.append(context)
            if fed is not None:
                parts.append(fed)
            x = torch.cat(parts)
            for layer in range(len(states)):
                states[layer] = self.step("decoder", f"l{layer}", x, states[layer])
                x = states[layer][0]
            if attention in ("dot", "general", "concat"):
                weights, context = self.attend(x, memory)
            if "readout.weight" in self.t:
                both = x if context is None else torch.cat([context, x])
                x = torch.tanh(self.t["readout.weight"] @ both)
                fed = x if fed is not None else None
            scores.append(self.t["output.weight"] @ x + self.t["output.bias"])
            alignment.append(weights if attention else None)
        return torch.stack(scores), torch.stack(alignment) if attention else None

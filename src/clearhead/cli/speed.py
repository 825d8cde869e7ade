"""What a call of generate says of itself when it is over: how fast it was, what ran, and what was asked for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.pipeline.writing import Writing


def seconds(writing: Writing) -> float:
    """From the beginning to the last token."""
    return writing.times[-1] if writing.times else 0.0


def tokens_per_second(writing: Writing) -> float:
    return writing.new_tokens / max(seconds(writing), 1e-9)


def speed(writing: Writing) -> str:
    """How fast it was, and what ran."""
    import torch

    from clearhead.generate.graphs import why_not
    from clearhead.nn.fast import cpu_kernels

    model, run, asked, times = writing.model, writing.run, writing.asked, writing.times
    read = run.session.prompt if run.session.source is None else run.session.source.shape[1]
    said = f"{writing.new_tokens} tokens in {seconds(writing):.2f} s: {tokens_per_second(writing):,.0f} tokens/s"
    if len(times) > 1:
        rate = (writing.new_tokens - writing.new_tokens / len(times)) / (times[-1] - times[0])
        said += f" ({read} read and the first written in {times[0] * 1000:,.0f} ms, then {rate:,.0f} tokens/s)"
    if run.ahead is not None:
        steps = run.ahead.steps + 1
        said += f"; looking ahead, the model was asked {steps} times, {writing.new_tokens / steps:.1f} tokens each"
    kind = model.quantized or str(model.dtype).removeprefix("torch.")
    if model.device.type == "cpu":
        threads = torch.get_num_threads()
        where = f"CPU, {threads} thread{'s' if threads > 1 else ''}, "
        where += "native kernels" if cpu_kernels.loaded is not None else "torch's own kernels"
    else:
        plain = asked.num_beams == 1 and run.ahead is None and asked.penalty_alpha is None
        graphs = plain and asked.cuda_graphs is not False and why_not(model) is None
        where = f"{model.device}" + (", CUDA graphs" if graphs else "")
    return f"{said}.\n{model.family.title}, {model.num_parameters():,} parameters, {kind}, {where}; {_way(writing)}."


def _way(writing: Writing) -> str:
    asked = writing.asked
    if asked.penalty_alpha is not None:
        return "contrastive search"
    if asked.num_beams > 1:
        return f"a search with {asked.num_beams} beams" + (", drawn at random" if asked.samples else "")
    return "drawn at random" if asked.samples else "the likeliest token each time (greedy)"


def options_of(writing: Writing) -> dict[str, Any]:
    """What was asked for and differs from the defaults, as plain data."""
    from clearhead.generate import Options

    plain = Options()
    hidden = {"return_dict_in_generate", "grammar", "assistant_model"}
    fields = [f.name for f in dataclasses.fields(Options) if f.name not in hidden]
    values = {n: getattr(writing.asked, n) for n in fields if getattr(writing.asked, n) != getattr(plain, n)}
    return values | {"max_new_tokens": writing.run.new_tokens}

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

    from clearhead.generate.cuda_graphs import why_not_recordable
    from clearhead.nn.fast import cpu_kernels

    model, run, options, times = writing.model, writing.run, writing.options, writing.times
    session = run.session
    read = session.prompt_length if session.encoder_ids is None else session.encoder_ids.shape[1]
    line = f"{writing.new_tokens} tokens in {seconds(writing):.2f} s: {tokens_per_second(writing):,.0f} tokens/s"
    if len(times) > 1:
        rate = (writing.new_tokens - writing.new_tokens / len(times)) / (times[-1] - times[0])
        line += f" ({read} read and the first written in {times[0] * 1000:,.0f} ms, then {rate:,.0f} tokens/s)"
    if run.speculative is not None:
        calls = run.speculative.model_calls
        line += f"; speculative decoding: the model ran {calls} times, {writing.new_tokens / calls:.1f} tokens each"
    kind = model.quantized or str(model.dtype).removeprefix("torch.")
    if model.device.type == "cpu":
        threads = torch.get_num_threads()
        where = f"CPU, {threads} thread{'s' if threads > 1 else ''}, "
        where += "native kernels" if cpu_kernels.loaded is not None else "torch's own kernels"
    else:
        plain = options.num_beams == 1 and run.speculative is None and options.penalty_alpha is None
        graphs = plain and options.cuda_graphs is not False and why_not_recordable(model) is None
        where = f"{model.device}" + (", CUDA graphs" if graphs else "")
    return f"{line}.\n{model.family.title}, {model.num_parameters():,} parameters, {kind}, {where}; {_way(writing)}."


def _way(writing: Writing) -> str:
    options = writing.options
    if options.penalty_alpha is not None:
        return "contrastive search"
    if options.num_beams > 1:
        return f"a search with {options.num_beams} beams" + (", drawn at random" if options.samples else "")
    return "drawn at random" if options.samples else "the likeliest token each time (greedy)"


def options_of(writing: Writing) -> dict[str, Any]:
    """What was asked for and differs from the defaults, as plain data."""
    from clearhead.generate import Options

    plain = Options()
    hidden = {"return_dict_in_generate", "grammar", "assistant_model"}
    fields = [f.name for f in dataclasses.fields(Options) if f.name not in hidden]
    values = {n: getattr(writing.options, n) for n in fields if getattr(writing.options, n) != getattr(plain, n)}
    return values | {"max_new_tokens": writing.run.new_tokens}

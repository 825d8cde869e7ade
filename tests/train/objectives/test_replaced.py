"""Replaced-token detection: masks, what is drawn, what counts as replaced, shared embeddings, and both losses."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clearhead.errors import InputError
from clearhead.train.objectives.replaced import ReplacedTokens, drawn, generator_config
from tests.train.objectives.pretraining import batch_of, blocks, model_of, rng, same, steps_lower_the_loss, wordpiece

TOK = wordpiece()


def made(**options):
    objective = ReplacedTokens(TOK, 32, **options)
    model = model_of("electra", TOK, "replaced-token")
    return objective, model, objective.training_module(model), batch_of(objective, blocks(objective))


def test_all_chosen_are_masked():
    objective = ReplacedTokens(TOK, 102)
    block = {"input_ids": np.full(100, TOK.encode("a", add_special_tokens=False)[0])}
    for seed in range(20):
        noisy = objective.noise(block, rng(seed))
        assert (noisy["labels"] >= 0).sum() == round(0.15 * 102)
        assert (noisy["input_ids"][noisy["labels"] >= 0] == TOK.mask_token_id).all()
        assert (noisy["input_ids"] == TOK.mask_token_id).sum() == round(0.15 * 102)
    assert same(noisy, objective.noise(block, rng(19)))
    code = ReplacedTokens(TOK, 102, mask_replace_prob=0.85)  # the published code's
    noisy = [code.noise(block, rng(seed)) for seed in range(200)]
    masked = sum((one["input_ids"] == TOK.mask_token_id).sum() for one in noisy)
    assert masked / (200 * round(0.15 * 102)) == pytest.approx(0.85, abs=0.02)


def test_draws_follow_the_distribution():
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 2.0]]).expand(20_000, -1)
    tokens = drawn(logits, torch.rand(20_000, generator=torch.Generator().manual_seed(0)))
    share = torch.bincount(tokens, minlength=4) / 20_000
    assert torch.allclose(share, logits[0].softmax(-1), atol=0.01) and share[2] == 0
    edges = drawn(logits[:2], torch.tensor([0.0, 1.0 - 1e-9]))
    assert edges.tolist() == [0, 3]


def test_the_generator_is_smaller_and_shares_the_embeddings():
    _, model, both, _ = made(generator_size=0.5)
    generator = both.generator
    assert both.discriminator is model and generator.task == "masked-lm"
    assert generator.config.hidden_size == 8 and generator.config.intermediate_size == 32
    for part in ("tokens", "positions", "segments"):
        assert getattr(generator.stack.embed, part).weight is getattr(model.stack.embed, part).weight
    assert generator.head.output.weight is model.stack.embed.tokens.weight
    assert generator.stack.embed.project is not model.stack.embed.project
    names = [name for name, _ in both.named_parameters()]
    assert len(names) == len({id(p) for p in both.parameters()})


def test_sizes_of_published_generators():
    from clearhead.models import family

    electra = family("electra")
    for name, share in (("small", 0.25), ("base", 1 / 3), ("large", 0.25)):
        config = generator_config(electra.preset(f"electra-{name}-discriminator"), share)
        assert (config.hidden_size, config.num_attention_heads) == ((64, 1) if name == "small" else (256, 4))
        assert config.intermediate_size == 4 * config.hidden_size
    # width 56 has no 3 equal heads near 64
    assert generator_config(electra.config(hidden_size=800), 0.25).num_attention_heads == 2


@torch.no_grad()
def test_what_the_discriminator_is_asked():
    objective, model, both, batch = made()
    asked = []
    model.register_forward_pre_hook(lambda _, args, kwargs: asked.append((args, kwargs)), with_kwargs=True)
    out = both(**batch.inputs)
    (filled, mask), labels = asked[0][0], asked[0][1]["labels"]
    chosen = batch.inputs["labels"] >= 0
    original = torch.where(chosen, batch.inputs["labels"], batch.inputs["input_ids"])
    assert torch.equal(filled[~chosen], original[~chosen])
    assert not bool((filled == TOK.mask_token_id)[chosen].all())
    real = mask.bool()
    assert torch.equal(labels[real], (filled != original)[real].long())  # the same word again is not replaced
    assert bool((labels[~real] == -100).all())
    assert batch.counts == {"generator": int(chosen.sum()), "discriminator": int(real.sum())}
    scores = model(filled, mask).logits
    bce = F.binary_cross_entropy_with_logits(scores[real], labels[real].float())
    assert float(out["discriminator"]) == pytest.approx(float(bce), rel=1e-5)
    mlm = both.generator(batch.inputs["input_ids"], mask, labels=batch.inputs["labels"]).loss
    assert float(out["generator"]) == pytest.approx(float(mlm), rel=1e-5)
    assert int(out["replaced"]) == int(labels.eq(1).sum())
    total = objective.report(objective.measure(both, batch))["loss"]
    assert total == pytest.approx(float(mlm) + 50 * float(bce), rel=1e-5)


def test_a_perfect_generator_replaces_nothing():
    objective, _, both, batch = made()
    right = batch.inputs["labels"][batch.inputs["labels"] >= 0]
    head = both.generator.head.forward
    both.generator.head.forward = lambda hidden, given: sure(head(hidden, given), right)
    assert objective.measure(both, batch)["replaced"] == 0


def sure(out, ids):
    out.logits = F.one_hot(ids, out.logits.shape[-1])[None] * 1e4
    return out


def test_no_gradient_from_the_discriminator_to_the_generator():
    _, _, both, batch = made()
    both.train()(**batch.inputs)["discriminator"].backward()
    own = [p for name, p in both.generator.named_parameters() if "layers" in name]
    assert own and all(p.grad is None for p in own)


def test_it_learns():
    objective, model, _, batch = made()
    report = steps_lower_the_loss(objective, model, batch)
    assert list(report) == ["loss", "generator", "discriminator", "masked_accuracy", "recall", "precision"]
    assert report["loss"] == pytest.approx(report["generator"] + 50 * report["discriminator"])


def test_draws_belong_to_the_example():
    """The same words are filled in whatever else is in the batch."""
    objective, model, both, _ = made()
    noisy = [objective.noise(block, rng(n)) for n, block in enumerate(blocks(objective))]
    asked = []
    model.register_forward_pre_hook(lambda _, args: asked.append(args[0]))
    objective.measure(both, objective.collate(noisy))
    objective.measure(both, objective.collate(noisy[1:2]))
    assert torch.equal(asked[0][1], asked[1][0])
    other = [noisy[1] | {"draws": noisy[1]["draws"][::-1].copy()}]
    objective.measure(both, objective.collate(other))
    chosen = torch.from_numpy(noisy[1]["labels"] >= 0)
    assert not torch.equal(asked[2][0][chosen], asked[1][0][chosen])  # they are drawn, not the best
    assert torch.equal(asked[2][0][~chosen], asked[1][0][~chosen])


def test_a_last_block_without_words_counts_for_nothing():
    objective, _, both, _ = made()
    batch = batch_of(objective, [{"input_ids": np.array([TOK.sep_token_id])}])
    sums = objective.measure(both, batch)
    assert sums["generator"] == 0.0 and sums["generator.count"] == 0 and sums["discriminator"] > 0


def test_what_is_refused():
    objective = ReplacedTokens(TOK, 32)
    with pytest.raises(InputError, match="family electra"):
        objective.training_module(model_of("bert", TOK, "masked-lm"))
    with pytest.raises(InputError, match="generator_size"):
        ReplacedTokens(TOK, 32, generator_size=2)

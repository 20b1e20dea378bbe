import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models import lm, training
from models.transformer import Shape, Transformer, initialise, rope_table, rotate

Config = dict[str, Any]
SHAPE = Shape(vocab_size=11, context=16, width=12, depth=2, n_heads=4, kv_heads=2, head_dim=6, ffn=10, residual=0.5)


def model(**changes: Any) -> Transformer:
    shape = Shape(**{**SHAPE.__dict__, **changes})
    torch.manual_seed(0)
    result = Transformer(shape)
    for parameter in result.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.4)
    return result


def by_hand(net: Transformer, shape: Shape, tokens: Tensor) -> Tensor:
    """The same function, written out: complex rotation, explicit scores, a loop over heads."""

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + shape.norm_eps).sqrt() * gain

    length = tokens.shape[1]
    half = shape.head_dim // 2
    angle = torch.arange(length)[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    turn = torch.polar(torch.ones_like(angle), angle)

    def rotated(x: Tensor) -> Tensor:
        pairs = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * turn
        return torch.cat((pairs.real, pairs.imag), -1)

    x = net.embedding.weight[tokens]
    for block in net.blocks:
        a, normed, heads = block.attention, norm(x, block.attention_norm.weight), []
        for head in range(shape.n_heads):
            group = head // (shape.n_heads // shape.kv_heads)
            rows = slice(head * shape.head_dim, (head + 1) * shape.head_dim)
            shared = slice(group * shape.head_dim, (group + 1) * shape.head_dim)
            query = rotated(norm(normed @ a.query.weight[rows].T, a.query_norm.weight))
            key = rotated(norm(normed @ a.key.weight[shared].T, a.key_norm.weight))
            scores = query @ key.mT / math.sqrt(shape.head_dim)
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
            heads.append(scores.softmax(-1) @ (normed @ a.value.weight[shared].T))
        x = x + shape.residual * torch.cat(heads, -1) @ a.out.weight.T
        hidden = norm(x, block.mlp_norm.weight) @ block.mlp.gate_up.weight.T
        gate, up = hidden[..., : shape.ffn], hidden[..., shape.ffn :]
        x = x + shape.residual * (gate * torch.sigmoid(gate) * up) @ block.mlp.down.weight.T
    return shape.logit_scale * norm(x, net.norm.weight) @ net.head.weight.T


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_forward_is_the_written_out_function(kv_heads: int) -> None:
    net = model(kv_heads=kv_heads, logit_scale=0.25)
    tokens = torch.randint(11, (3, 13))
    expected = by_hand(net, Shape(**{**SHAPE.__dict__, "kv_heads": kv_heads, "logit_scale": 0.25}), tokens)
    torch.testing.assert_close(net(tokens), expected, rtol=1e-4, atol=1e-5)


def test_the_future_is_not_seen() -> None:
    net, tokens = model(), torch.randint(11, (2, 16))
    later = tokens.clone()
    later[:, 9:] = (later[:, 9:] + 1) % 11
    assert torch.equal(net(tokens)[:, :9], net(later)[:, :9])
    assert not torch.equal(net(tokens)[:, 9:], net(later)[:, 9:])


def test_rotation_depends_on_the_distance_alone() -> None:
    rope = rope_table(SHAPE)
    query, key = torch.randn(6), torch.randn(6)
    turned = rotate(query.expand(1, 16, 1, 6), rope)[0, :, 0], rotate(key.expand(1, 16, 1, 6), rope)[0, :, 0]
    products = turned[0] @ turned[1].T
    for distance in (0, 1, 7):
        diagonal = products.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-5)


def test_loss_is_the_mean_over_all_targets() -> None:
    net, tokens, targets = model(), torch.randint(11, (2, 5)), torch.randint(11, (2, 5))
    picked = F.log_softmax(net(tokens), -1).gather(-1, targets[..., None])
    assert net.loss(tokens, targets).item() == pytest.approx(-picked.mean().item(), rel=1e-5)


def test_every_parameter_is_in_one_group() -> None:
    net = model()
    groups = net.parameter_groups()
    listed = [id(p) for group in groups.values() for p in group]
    assert sorted(listed) == sorted(map(id, net.parameters()))
    shapes = [tuple(p.shape) for p in groups["hidden"][:6]]
    assert shapes == [(24, 12), (12, 12), (12, 12), (12, 24), (20, 12), (12, 10)]
    assert [p.ndim for p in groups["vector"]] == [1] * 9
    assert groups["embedding"] == [net.embedding.weight]
    assert groups["head"] == [net.head.weight]


@pytest.mark.parametrize("extra", [{}, {"n_heads": 6, "kv_heads": 2, "ffn_ratio": 2.7, "depth": 3}])
def test_the_estimate_counts_the_built_model(config: Config, extra: dict[str, Any]) -> None:
    config["model"] |= extra
    built = training.build(lm.resolve(config))
    assert sum(p.numel() for p in built.parameters()) == lm.estimate(config).n_params


def test_initial_spread_is_that_of_the_rule(config: Config) -> None:
    config["model"] |= {"width": 256, "head_dim": 32}
    built = training.build(lm.resolve(config))
    block = built.blocks[0]
    assert isinstance(block, torch.nn.Module)
    for weight, std in (
        (built.embedding.weight, 0.01),
        (built.head.weight, 1 / 16),
        (block.attention.query.weight, 1 / math.sqrt(3 * 256)),
        (block.mlp.down.weight, 1 / math.sqrt(3 * 512)),  # its fan_in is the inner width
    ):
        assert float(weight.detach().std()) == pytest.approx(std, rel=0.02)
    bound = math.sqrt(3) / math.sqrt(3 * 256)
    assert 0.99 * bound < float(block.attention.query.weight.detach().abs().max()) <= bound
    assert bool((built.norm.weight == 1).all())


def test_standard_spread_does_not_follow_the_fan_in(config: Config) -> None:
    config |= {"parametrization": "standard"}
    config["model"] |= {"width": 256, "head_dim": 32}
    block = training.build(lm.resolve(config)).blocks[0]
    for matrix in (block.attention.query, block.mlp.down):
        assert float(matrix.weight.detach().std()) == pytest.approx(0.02, rel=0.02)


def test_a_gain_of_one_third_is_kept_at_every_width(config: Config) -> None:
    # arXiv 2603.28743, Theorem 2: |W x|_rms = C |x|_rms with C = 1 / sqrt(3), at any width.
    for width in (64, 256):
        config["model"] |= {"width": width}
        matrix = training.build(lm.resolve(config)).blocks[0].attention.query.weight.detach()
        x = torch.randn(2000, width, generator=torch.Generator().manual_seed(1))
        gain = float((x @ matrix.T).square().mean().sqrt() / x.square().mean().sqrt())
        assert gain == pytest.approx(3**-0.5, rel=0.05)


def test_initialisation_follows_the_seed() -> None:
    normal = {"init": "normal", "init_std": 1.0, "init_fan_power": 0.0}
    groups: dict[str, dict[str, Any]] = dict.fromkeys(("hidden", "embedding", "head"), normal)
    groups["vector"] = {"init": "ones"}
    states = []
    for seed in (3, 3, 4):
        net = model()
        initialise(net, groups, 12, seed)
        states.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])

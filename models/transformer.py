"""A decoder-only transformer whose modules know which parameter group they belong to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer; all counts, `residual` and `logit_scale` are plain multipliers."""

    vocab_size: int
    context: int
    width: int
    depth: int
    n_heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    residual: float
    logit_scale: float = 1.0
    norm_eps: float = 1e-5
    rope_base: float = 10_000.0


class Matrix(nn.Module):
    """One weight [out, in], without bias. `group` names the parameter group; subclasses change it."""

    group: ClassVar[str] = "hidden"

    def __init__(self, n_out: int, n_in: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Embedding(Matrix):
    """Rows of a [vocabulary, width] table."""

    group = "embedding"

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight)


class Head(Matrix):
    """The unembedding [vocabulary, width]; not tied to the embedding."""

    group = "head"


class Gain(nn.Module):
    """Root-mean-square normalisation over the last dimension with a gain per channel."""

    group: ClassVar[str] = "vector"

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Causal attention with normalised queries and keys; each of its four matrices has its own sphere."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, self.head_dim = shape.n_heads, shape.kv_heads, shape.head_dim
        query, key_value = self.n_heads * self.head_dim, self.kv_heads * self.head_dim
        self.query = Matrix(query, shape.width)
        self.key = Matrix(key_value, shape.width)
        self.value = Matrix(key_value, shape.width)
        self.out = Matrix(shape.width, query)
        self.query_norm = Gain(self.head_dim, shape.norm_eps)
        self.key_norm = Gain(self.head_dim, shape.norm_eps)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, _ = x.shape
        # One product for the three matrices: at these widths the call costs more than the arithmetic.
        weight = torch.cat((self.query.weight, self.key.weight, self.value.weight))
        heads = F.linear(x, weight).view(batch, length, -1, self.head_dim)
        turned = rotate(self._normalise(heads[:, :, : -self.kv_heads]), rope).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(
            turned[:, : self.n_heads],
            turned[:, self.n_heads :],
            heads[:, :, -self.kv_heads :].transpose(1, 2),
            is_causal=True,
            enable_gqa=self.kv_heads != self.n_heads,
        )
        merged: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return merged

    def _normalise(self, queries_and_keys: Tensor) -> Tensor:
        """Both norms in one call: per head of [batch, length, n_heads + kv_heads, head_dim]."""
        query, key = self.query_norm.weight, self.key_norm.weight
        gains = torch.cat((query.expand(self.n_heads, -1), key.expand(self.kv_heads, -1)))
        return F.rms_norm(queries_and_keys, (self.head_dim,), eps=self.query_norm.eps) * gains


class GatedMLP(nn.Module):
    """SwiGLU: down(silu(gate x) * up x). Gate and up are one matrix, hence one sphere."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_up = Matrix(2 * shape.ffn, shape.width)
        self.down = Matrix(shape.width, shape.ffn)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        down: Tensor = self.down(F.silu(gate) * up)
        return down


class Block(nn.Module):
    """x + residual * attention(norm x), then the same with the MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.residual = shape.residual
        self.attention_norm = Gain(shape.width, shape.norm_eps)
        self.attention = Attention(shape)
        self.mlp_norm = Gain(shape.width, shape.norm_eps)
        self.mlp = GatedMLP(shape)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        x = torch.add(x, self.attention(self.attention_norm(x), rope), alpha=self.residual)
        return torch.add(x, self.mlp(self.mlp_norm(x)), alpha=self.residual)


class Transformer(nn.Module):
    """Tokens [batch, length] -> logits [batch, length, vocabulary]."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.logit_scale = shape.logit_scale
        self.embedding = Embedding(shape.vocab_size, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.norm = Gain(shape.width, shape.norm_eps)
        self.head = Head(shape.vocab_size, shape.width)
        cosine, sine = rope_table(shape)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        rope = self.cosine[:length], self.sine[:length]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, rope)
        logits: Tensor = self.head(self.norm(x))
        return logits if self.logit_scale == 1.0 else logits * self.logit_scale

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy, nats per token; tokens and targets [batch, length]."""
        return F.cross_entropy(self(tokens).flatten(0, 1).float(), targets.flatten())

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by the group of the module that owns them."""
        groups: dict[str, list[nn.Parameter]] = {"hidden": [], "embedding": [], "head": [], "vector": []}
        for module in self.modules():
            groups.get(str(getattr(module, "group", "")), []).extend(module.parameters(recurse=False))
        return groups


def rope_table(shape: Shape) -> tuple[Tensor, Tensor]:
    """cos, and sin with its first half negated: both [context, 1, head_dim] (arXiv 2104.09864)."""
    half = shape.head_dim // 2
    frequency = shape.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(shape.context, dtype=torch.float64)[:, None] * frequency
    cosine, sine = angle.cos(), angle.sin()
    table = torch.cat((cosine, cosine), 1), torch.cat((-sine, sine), 1)
    return table[0].float()[:, None], table[1].float()[:, None]


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate pairs (i, i + head_dim/2) of x [batch, length, heads, head_dim] by their position's angle."""
    cosine, sine = rope
    return torch.addcmul(x * cosine, x.roll(x.shape[-1] // 2, -1), sine)


@torch.no_grad()
def initialise(model: Transformer, groups: Mapping[str, Mapping[str, Any]], width: int, seed: int) -> None:
    """Draw every weight from its group's distribution; the same numbers on every device.

    groups: per group `init` (normal, uniform, ones), `init_std` and, for matrices, `init_fan_power`:
    std = init_std * (fan_in / width) ** init_fan_power.
    """
    generator = torch.Generator().manual_seed(seed)
    for group, parameters in model.parameter_groups().items():
        rule = groups[group]
        for parameter in parameters:
            if rule["init"] == "ones":
                parameter.fill_(1.0)
                continue
            std = rule["init_std"] * (parameter.shape[-1] / width) ** rule["init_fan_power"]
            draw = torch.empty(parameter.shape)
            if rule["init"] == "uniform":
                draw.uniform_(-math.sqrt(3) * std, math.sqrt(3) * std, generator=generator)
            else:
                draw.normal_(0.0, std, generator=generator)
            parameter.copy_(draw)

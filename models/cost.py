"""What a run will cost, counted from its shape alone."""

from __future__ import annotations

from dataclasses import dataclass

from models.config import FAMILIES, Config
from scaling.rules import rule

STATE_COPIES = {"adamw": 2, "adamh": 2, "muon": 1, "muonh": 1}  # optimizer state / parameters
LOG_BYTES = 160  # one event line
RUN_BYTES = 4096  # start, summary and end of a run's log


@dataclass(frozen=True)
class Cost:
    """n_params: all parameters; flops: of training; tokens: training targets; bytes: of the run's folder."""

    n_params: float | None
    flops: float | None
    tokens: float | None
    bytes: float | None


def parameters(config: Config, vocab_size: int) -> dict[str, int]:
    """Exact parameter count per group."""
    model, width, depth = config.model, config.model.width, config.model.depth
    query, key_value = config.n_heads * model.head_dim, config.kv_heads * model.head_dim
    attention = width * (query + 2 * key_value) + query * width
    return {
        "hidden": depth * (attention + 3 * width * config.ffn),
        "embedding": vocab_size * width,
        "head": vocab_size * width,
        "vector": depth * (2 * width + 2 * model.head_dim) + width,
    }


def flops_per_token(config: Config, vocab_size: int) -> float:
    """Training FLOPs per token: 6 N_matmul + 12 depth n_heads head_dim context.

    N_matmul: hidden matrices and head (the embedding is a lookup). The second term is attention, forward and
    backward, with all pairs of positions counted, not only the causal half (arXiv 2203.15556, appendix F).
    """
    counts = parameters(config, vocab_size)
    attention = 12 * config.model.depth * config.n_heads * config.model.head_dim * config.context
    return 6.0 * (counts["hidden"] + counts["head"]) + attention


def cost(config: Config, vocab_size: int) -> Cost:
    """flops, tokens and bytes are None while the run's length is unknown."""
    counts = parameters(config, vocab_size)
    n_params, steps = sum(counts.values()), config.n_steps
    if steps is None:
        return Cost(float(n_params), None, None, None)
    tokens = float(steps * config.step_tokens)
    family = config.optim.name
    kinds = dict(rule(config.parametrization).optimizers) if family == "auto" else FAMILIES[family]
    checkpoint = sum(4 * count * (1 + STATE_COPIES[kinds[group]]) for group, count in counts.items())
    logs = LOG_BYTES * (steps // (config.log_every or max(1, steps // 20)) + 5)
    return Cost(
        float(n_params),
        tokens * flops_per_token(config, vocab_size),
        tokens,
        float(checkpoint + logs + RUN_BYTES),
    )

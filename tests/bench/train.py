"""Speed of the language-model task beside a plain PyTorch loop over a network of the same shapes.

    OMP_NUM_THREADS=1 python tests/bench/train.py --widths 16 64

The plain loop is what one writes by hand: torch.nn.TransformerEncoderLayer blocks of about the same matrix sizes, one
torch.optim.AdamW, random batches, no logs, no checkpoint. The ratio says what the task's extras cost.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import corpus, lm

CONTEXT, BATCH, DEPTH, HEAD_DIM = 64, 8, 2, 8


class NoRun:
    """A run handle that keeps nothing."""

    threads = 1
    device = "cpu"

    def log(self, step: int, /, **values: float) -> None: ...

    def summary(self, **values: Any) -> None: ...

    def checkpoint(self, state: Any, *, step: int) -> None: ...

    def restore(self) -> None:
        return None

    def diverged(self, reason: str) -> None:
        raise SystemExit(reason)


class Plain(nn.Module):
    """Pre-norm blocks; a feed-forward of 3 width has the matrix sizes of a gated one of 2 width."""

    def __init__(self, width: int, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // HEAD_DIM, 3 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(DEPTH)
        )
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        logits: Tensor = self.head(x)
        return logits


def plain_loop(width: int, steps: int) -> None:
    data = corpus.load("stdlib")
    tokens = torch.from_numpy(data.train)
    model = Plain(width, data.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    window = torch.arange(CONTEXT + 1)
    for _ in range(steps):
        block = tokens[torch.randint(len(tokens) - CONTEXT, (BATCH, 1)) + window].long()
        loss = F.cross_entropy(model(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def task(width: int, steps: int, rule: str) -> None:
    config = {
        "context": CONTEXT,
        "batch": BATCH,
        "steps": steps,
        "parametrization": rule,
        "base": {"width": 16},
        "model": {"width": width, "depth": DEPTH, "head_dim": HEAD_DIM},
        "optim": {"lr": 0.01},
        "eval": {"tokens": CONTEXT, "every": steps},
    }
    lm.train(config, NoRun())


def tokens_per_second(call: Any, steps: int, repeats: int) -> float:
    """Best of several repeats, by CPU time: other programs on the machine don't count."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return steps * BATCH * CONTEXT / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus.load("stdlib")
    print(f"{'width':>6}{'plain':>12}{'standard':>12}{'hyperp':>12}{'standard/plain':>16}   tokens per CPU second")
    for width in options.widths:
        steps, repeats = options.steps, options.repeats
        plain = tokens_per_second(lambda: plain_loop(width, steps), steps, repeats)  # noqa: B023
        ours = {
            rule: tokens_per_second(lambda: task(width, steps, rule), steps, repeats)  # noqa: B023
            for rule in ("standard", "hyperp")
        }
        standard, hyperp = ours["standard"], ours["hyperp"]
        print(f"{width:>6}{plain:>12.0f}{standard:>12.0f}{hyperp:>12.0f}{standard / plain:>16.2f}")


if __name__ == "__main__":
    main()

"""The language-model task: `task: models.lm:train`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models import corpus
from models.config import parse, resolve
from models.cost import Cost, cost

if TYPE_CHECKING:
    from models.training import Run

__all__ = ["Cost", "estimate", "resolve", "train"]


def train(config: Mapping[str, Any], run: Run) -> None:
    """Train one language model on real text and log `train_loss` and `val_loss` (nats per token).

    config: see `models.config.Config`; resolved or not. With equal threads the result depends on the resolved
    configuration alone, also when the run is stopped and restored.
    Raises ValueError for a bad configuration, CorpusError for a corpus that is missing or not the frozen one.
    """
    resolved = resolve(config)
    data = _frozen_corpus(resolved)
    from models import training

    training.train(resolved, data, run)


def _frozen_corpus(resolved: Mapping[str, Any]) -> corpus.Corpus:
    name, tokenizer, frozen = resolved["corpus"], resolved["tokenizer"], resolved["resolved"]["corpus_sha256"]
    data = corpus.load(name, tokenizer)
    if data.sha256 != frozen:
        data = corpus.reload(name, tokenizer)
    if data.sha256 != frozen:
        raise corpus.CorpusError(
            f"corpus {name!r} on this machine is not the one of this run: its sha256 is {data.sha256[:12]}…, "
            f"the run was defined with {frozen[:12]}…"
        )
    return data


def estimate(config: Mapping[str, Any]) -> Cost:
    """Parameters, training FLOPs, tokens and bytes of the run's folder; None while the length is not given.

    Accepts resolved and unresolved configurations. Raises ValueError for an impossible one.
    """
    parsed = parse(config)
    if "resolved" in config:
        return cost(parsed, config["resolved"]["vocab_size"])
    return cost(parsed, corpus.load(parsed.corpus, parsed.tokenizer).vocab_size)

"""Optimizers for matrices: Muon, and the two that keep every matrix on its sphere, MuonH and AdamH.

A matrix is the last two dimensions of a parameter; leading dimensions (experts) are separate matrices.
Matrices of one shape are updated together, in one batched product each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

# arXiv 2603.28743, released code: five different steps; the last two settle at singular values near 1.
NEWTON_SCHULZ = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
MUON_SCALES = ("match_rms_adamw", "spectral", "original")


def newton_schulz(
    matrices: Tensor, steps: Iterable[tuple[float, float, float]] = NEWTON_SCHULZ, eps: float = 1e-8
) -> Tensor:
    """Nearly the orthogonal factor U V^T of each matrix [..., out, in]: singular values close to 1.

    X <- a X + (b A + c A^2) X with A = X X^T on the smaller side, from X / ||X||. Runs in the dtype it is
    given; a zero matrix stays zero.
    """
    x = matrices.reshape(-1, *matrices.shape[-2:])
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + eps)
    for a, b, c in steps:
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).reshape(matrices.shape)


def sphere_step(weights: Tensor, directions: Tensor, radii: Tensor, lr: float, eps: float = 1e-8) -> Tensor:
    """Move each matrix [n, out, in] by lr * radius against its direction, then back to its radius [n].

    The turn is at most arcsin(lr), and arctan(lr) for a direction orthogonal to the matrix. The direction's
    length does not matter; a zero direction leaves the matrix where it is. Source: arXiv 2603.28743, eq. 2.
    """
    radii = radii[:, None, None]
    length = directions.norm(dim=(-2, -1), keepdim=True).clamp_min(eps)
    moved = torch.addcmul(weights, directions, radii / length, value=-lr)
    back: Tensor = radii / moved.norm(dim=(-2, -1), keepdim=True).clamp_min(eps)
    return moved * back


class MatrixOptimizer(Optimizer):
    """Shared frame: directions per parameter, then one update per matrix shape."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if not defaults["lr"] >= 0:
            raise ValueError(f"lr: got {defaults['lr']!r}, expected a number of at least 0")
        super().__init__(params, defaults)
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.ndim < 2:
                raise ValueError(
                    f"{type(self).__name__} moves matrices; got a parameter of shape {tuple(parameter.shape)}"
                )
            self._prepare(parameter)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            if not trained:
                continue
            directions = self._directions(trained, group)
            for indices in _by_shape(trained):
                self._update([trained[i] for i in indices], [directions[i] for i in indices], group)
        return loss

    def _prepare(self, parameter: Tensor) -> None:
        """Make the parameter's state."""
        raise NotImplementedError

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """What to move against, one per parameter, before any normalisation by matrix."""
        raise NotImplementedError

    def _update(self, parameters: list[Tensor], directions: list[Tensor], group: dict[str, Any]) -> None:
        """Move parameters of one shape."""
        raise NotImplementedError


def _by_shape(parameters: list[Tensor]) -> Iterator[list[int]]:
    order = sorted(range(len(parameters)), key=lambda i: tuple(parameters[i].shape[-2:]))
    for _, indices in groupby(order, key=lambda i: parameters[i].shape[-2:]):
        yield list(indices)


def _stack(tensors: list[Tensor]) -> Tensor:
    """[n, out, in]: all matrices of the tensors, which share their last two dimensions."""
    if all(tensor.ndim == 2 for tensor in tensors):
        return torch.stack(tensors)
    return torch.cat([tensor.reshape(-1, *tensor.shape[-2:]) for tensor in tensors])


def _unstack(stack: Tensor, tensors: list[Tensor]) -> None:
    """Write the matrices of `stack` back into the tensors."""
    pieces = torch.split(stack, [tensor.shape[:-2].numel() for tensor in tensors])
    torch._foreach_copy_(tensors, [piece.view_as(t) for piece, t in zip(pieces, tensors, strict=True)])


class _Momentum(MatrixOptimizer):
    """Nesterov momentum in its sum form: M <- mu M + G, direction mu M + G."""

    def _prepare(self, parameter: Tensor) -> None:
        self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, gradients)
        return list(torch._foreach_add(gradients, buffers, alpha=group["momentum"]))


class Muon(_Momentum):
    """Momentum, orthogonalised. Decoupled weight decay: W <- (1 - lr wd) W - lr scale U.

    scale, with r = out / in: `match_rms_adamw` 0.2 sqrt(max(out, in)), `spectral` sqrt(r), `original`
    sqrt(max(1, r)).
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        scale: str = "match_rms_adamw",
        eps: float = 1e-8,
    ) -> None:
        if scale not in MUON_SCALES:
            raise ValueError(f"unknown scale {scale!r}; known: {', '.join(MUON_SCALES)}")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "scale": scale, "eps": eps}
        super().__init__(params, defaults)

    def _update(self, parameters: list[Tensor], directions: list[Tensor], group: dict[str, Any]) -> None:
        weights = _stack(parameters)
        step = newton_schulz(_stack(directions), eps=group["eps"])
        rate = group["lr"] * _muon_scale(group["scale"], *weights.shape[-2:])
        weights.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-rate)
        _unstack(weights, parameters)


def _muon_scale(name: str, n_out: int, n_in: int) -> float:
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(n_out, n_in))
    return math.sqrt(n_out / n_in if name == "spectral" else max(1.0, n_out / n_in))


def _radius(parameter: Tensor) -> Tensor:
    radius: Tensor = parameter.detach().norm(dim=(-2, -1))
    if not bool((radius > 0).all()):
        raise ValueError(
            f"a matrix of shape {tuple(parameter.shape[-2:])} is zero: its sphere has radius 0, so it could "
            "never move. Give it a random start"
        )
    return radius


def _refuse_decay(weight_decay: float) -> None:
    from models.config import DECAY_ON_SPHERE

    if weight_decay:
        raise ValueError(f"weight_decay: got {weight_decay!r}; {DECAY_ON_SPHERE}")


class _Sphere(MatrixOptimizer):
    """Keeps the Frobenius norm of every matrix at its first value, which is part of the state."""

    def _prepare(self, parameter: Tensor) -> None:
        super()._prepare(parameter)
        self.state[parameter]["radius"] = _radius(parameter)

    def _update(self, parameters: list[Tensor], directions: list[Tensor], group: dict[str, Any]) -> None:
        radii = torch.cat([self.state[parameter]["radius"].reshape(-1) for parameter in parameters])
        step = self._shaped(_stack(directions), group)
        _unstack(sphere_step(_stack(parameters), step, radii, group["lr"], group["eps"]), parameters)

    def _shaped(self, directions: Tensor, group: dict[str, Any]) -> Tensor:
        """The directions [n, out, in] as the sphere step takes them."""
        raise NotImplementedError


class MuonH(_Sphere, _Momentum):
    """Muon on the sphere: the orthogonalised momentum gives the direction, lr the relative step."""

    def __init__(
        self, params: Any, lr: float, *, momentum: float = 0.95, weight_decay: float = 0.0, eps: float = 1e-8
    ) -> None:
        _refuse_decay(weight_decay)
        super().__init__(params, {"lr": lr, "momentum": momentum, "eps": eps})

    def _shaped(self, directions: Tensor, group: dict[str, Any]) -> Tensor:
        return newton_schulz(directions, eps=group["eps"])


class _AdamDirection(MatrixOptimizer):
    """m / (sqrt(v) + eps), both bias-corrected (arXiv 1412.6980)."""

    def _prepare(self, parameter: Tensor) -> None:
        state = self.state[parameter]
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] = torch.zeros((), dtype=torch.float32)

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        return [self._direction(parameter, group["betas"], group["eps"]) for parameter in parameters]

    def _direction(self, parameter: Tensor, betas: tuple[float, float], eps: float) -> Tensor:
        (beta1, beta2), state, gradient = betas, self.state[parameter], parameter.grad
        assert gradient is not None
        state["step"] += 1
        count = int(state["step"])
        mean: Tensor = state["exp_avg"].lerp_(gradient, 1 - beta1)
        square: Tensor = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (square / (1 - beta2**count)).sqrt_().add_(eps)
        return mean / (1 - beta1**count) / scale


class AdamH(_Sphere, _AdamDirection):
    """Adam on the sphere: for the unembedding."""

    def __init__(
        self,
        params: Any,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        _refuse_decay(weight_decay)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def _shaped(self, directions: Tensor, group: dict[str, Any]) -> Tensor:  # noqa: ARG002
        return directions

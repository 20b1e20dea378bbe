import copy
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from models.optimizers import AdamH, Muon, MuonH, newton_schulz, sphere_step

KELLER_JORDAN = [(3.4445, -4.7750, 2.0315)] * 5  # the single triple of torch.optim.Muon


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def norms(stack: Tensor) -> Tensor:
    return stack.flatten(1).norm(dim=1)


def angle(one: Tensor, two: Tensor) -> float:
    """By the cross term, which keeps its digits near 0 where the arc cosine does not."""
    a, b = one.flatten() / one.norm(), two.flatten() / two.norm()
    return 2 * math.asin(min(1.0, float((a - b).norm()) / 2))


def step(weights: Tensor, direction: Tensor, lr: float) -> Tensor:
    return sphere_step(weights[None], direction[None], weights.norm()[None], lr)[0]


def parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.clone())


# The sphere step.

shapes = st.tuples(st.integers(1, 7), st.integers(1, 7))


@given(shape=shapes, seed=st.integers(0, 999), lr=st.floats(1e-6, 0.999), scale=st.floats(1e-6, 1e6))
def test_the_norm_stays_and_the_turn_is_bounded(shape: tuple[int, int], seed: int, lr: float, scale: float) -> None:
    weights, direction = gaussian(*shape, seed=seed) * scale, gaussian(*shape, seed=seed + 1)
    moved = step(weights, direction, lr)
    assert float(moved.norm()) == pytest.approx(float(weights.norm()), rel=1e-12)
    assert angle(weights, moved) <= math.asin(lr) + 1e-7 or shape == (1, 1)


@given(seed=st.integers(0, 999), lr=st.floats(1e-4, 3.0))
def test_an_orthogonal_direction_turns_by_the_arc_tangent(seed: int, lr: float) -> None:
    weights, direction = gaussian(4, 5, seed=seed), gaussian(4, 5, seed=seed + 1)
    direction -= weights * (direction * weights).sum() / weights.square().sum()
    assert angle(weights, step(weights, direction, lr)) == pytest.approx(math.atan(lr), rel=1e-9)


def test_the_bound_of_the_turn_is_attained() -> None:
    # |W - lr U| is tangent to the circle of radius lr around W: <W - lr U, U> = 0, hence <W, U> = lr R^2.
    lr, weights = 0.3, torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    direction = torch.tensor([[lr, math.sqrt(1 - lr**2)]], dtype=torch.float64)
    assert angle(weights, step(weights, direction, lr)) == pytest.approx(0.304693, abs=5e-7)


@given(seed=st.integers(0, 999), factor=st.floats(1e-3, 1e3))
def test_the_length_of_the_direction_does_not_matter(seed: int, factor: float) -> None:
    weights, direction = gaussian(3, 4, seed=seed), gaussian(3, 4, seed=seed + 1)
    torch.testing.assert_close(
        step(weights, direction * factor, 0.1), step(weights, direction, 0.1), rtol=1e-12, atol=1e-13
    )


@given(seed=st.integers(0, 999), lr=st.floats(1e-3, 0.5), decay=st.floats(0.0, 1.0))
def test_weight_decay_is_a_larger_step(seed: int, lr: float, decay: float) -> None:
    weights, direction = gaussian(3, 4, seed=seed), gaussian(3, 4, seed=seed + 1)
    radius = weights.norm()
    decayed = (1 - lr * decay) * weights - lr * radius * direction / direction.norm()
    decayed *= radius / decayed.norm()
    torch.testing.assert_close(step(weights, direction, lr / (1 - lr * decay)), decayed, rtol=1e-11, atol=1e-13)


def test_the_step_is_its_tangent_part_up_to_second_order() -> None:
    weights, direction = gaussian(6, 5), gaussian(6, 5, seed=1)
    direction *= weights.norm() / direction.norm()
    tangent = direction - weights * (direction * weights).sum() / weights.square().sum()
    rates = [2.0**-k for k in range(6, 14)]
    rest = [float((step(weights, direction, lr) - weights + lr * tangent).norm()) for lr in rates]
    slopes = [math.log2(a / b) for a, b in pairwise(rest)]
    assert slopes == pytest.approx([2.0] * 7, abs=0.05)


def test_a_zero_direction_leaves_the_matrix() -> None:
    weights = gaussian(3, 4)
    torch.testing.assert_close(step(weights, torch.zeros(3, 4, dtype=torch.float64), 0.5), weights, rtol=1e-15, atol=0)


# Newton-Schulz.


@pytest.mark.parametrize("shape", [(64, 16), (16, 64), (64, 24)])
def test_newton_schulz_is_nearly_the_polar_factor(shape: tuple[int, int]) -> None:
    matrix = gaussian(*shape)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    assert float((newton_schulz(matrix) - u @ vh).norm()) < 0.05 * math.sqrt(min(shape))


def test_newton_schulz_singular_values_of_a_gaussian() -> None:
    values = torch.linalg.svdvals(newton_schulz(gaussian(512, 128)))
    assert float(values.min()) > 0.975
    assert float(values.max()) < 1.035


def test_newton_schulz_of_a_stack_is_that_of_each() -> None:
    stack = gaussian(2, 3, 6, 4)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(newton_schulz(stack)[i, j], newton_schulz(stack[i, j]), rtol=1e-12, atol=1e-14)
    assert not newton_schulz(torch.zeros(2, 3, 3)).any()


# The optimizers.


def train(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], steps: int, seed: int = 10) -> None:
    for i in range(steps):
        for j, each in enumerate(parameters):
            each.grad = gaussian(*each.shape, seed=seed + 100 * i + j, dtype=each.dtype)
        optimizer.step()


def test_muonh_direction_is_that_of_torch_muon() -> None:
    start = gaussian(32, 16, dtype=torch.float32)
    ours, theirs = parameter(start), parameter(start)
    sphere, muon = MuonH([ours], lr=0.01), torch.optim.Muon([theirs], lr=1.0, weight_decay=0.0)
    train(sphere, [ours], 6)
    train(muon, [theirs], 5)
    before = theirs.detach().clone()
    train(muon, [theirs], 1, seed=510)
    gradient = theirs.grad
    assert gradient is not None
    ours_direction = newton_schulz(gradient + 0.95 * sphere.state[ours]["momentum_buffer"], KELLER_JORDAN)
    theirs_direction = before - theirs.detach()
    cosine = torch.nn.functional.cosine_similarity(ours_direction.flatten(), theirs_direction.flatten(), dim=0)
    assert float(cosine) > 0.9995  # theirs runs in bfloat16


@pytest.mark.parametrize(
    ("scale", "factor"), [("match_rms_adamw", 0.2 * math.sqrt(24)), ("spectral", 2.0), ("original", 2.0)]
)
def test_muon_step_is_decay_and_a_scaled_polar_factor(scale: str, factor: float) -> None:
    start = gaussian(24, 6)
    weights = parameter(start)
    optimizer = Muon([weights], lr=0.1, weight_decay=0.3, scale=scale)
    train(optimizer, [weights], 1)
    assert weights.grad is not None
    expected = (1 - 0.1 * 0.3) * start - 0.1 * factor * newton_schulz(weights.grad)
    torch.testing.assert_close(weights.detach(), expected, rtol=1e-7, atol=1e-9)  # epsilon counts


def test_adamh_without_memory_steps_against_the_sign() -> None:
    start = gaussian(5, 4)
    weights = parameter(start)
    train(AdamH([weights], lr=0.2, betas=(0.0, 0.0), eps=1e-300), [weights], 1)
    assert weights.grad is not None
    radius, sign = start.norm(), weights.grad.sign()
    moved = start - 0.2 * radius * sign / math.sqrt(20)
    torch.testing.assert_close(weights.detach(), radius * moved / moved.norm(), rtol=1e-12, atol=0)


def test_adamh_direction_is_that_of_torch_adam() -> None:
    start = gaussian(5, 4)
    ours, theirs = parameter(start), parameter(start)
    train(AdamH([ours], lr=0.05), [ours], 4)
    previous = ours.detach().clone()
    adam = torch.optim.Adam([theirs], lr=1.0, betas=(0.9, 0.95))
    train(adam, [theirs], 4)
    before = theirs.detach().clone()
    train(adam, [theirs], 1, seed=999)
    sphere = AdamH([ours], lr=0.05)  # a fresh one would lose its moments, so repeat the whole path
    ours.data.copy_(start)
    train(sphere, [ours], 4)
    train(sphere, [ours], 1, seed=999)
    expected = sphere_step(previous[None], (before - theirs.detach())[None], start.norm()[None], 0.05)[0]
    torch.testing.assert_close(ours.detach(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [MuonH, AdamH])
def test_norms_stay_in_float32_for_thousands_of_steps(kind: type[MuonH] | type[AdamH]) -> None:
    weights = parameter(gaussian(8, 4, dtype=torch.float32))
    radius = float(weights.detach().norm())
    train(kind([weights], lr=0.1), [weights], 2000)
    assert float(weights.detach().norm()) == pytest.approx(radius, rel=3e-7)


@pytest.mark.parametrize("kind", [Muon, MuonH, AdamH])
def test_a_batch_by_shape_equals_one_at_a_time(kind: type[Muon] | type[MuonH] | type[AdamH]) -> None:
    starts = [gaussian(*shape, seed=i) for i, shape in enumerate([(4, 6), (6, 4), (4, 6), (3, 4, 6), (6, 4)])]
    together = [parameter(start) for start in starts]
    train(kind(together, lr=0.1), together, 3)
    for j, start in enumerate(starts):
        alone = parameter(start)
        optimizer = kind([alone], lr=0.1)
        for i in range(3):
            alone.grad = gaussian(*start.shape, seed=10 + 100 * i + j)
            optimizer.step()
        torch.testing.assert_close(alone.detach(), together[j].detach(), rtol=1e-12, atol=1e-14)


def test_stacked_experts_have_a_sphere_each() -> None:
    start = gaussian(3, 4, 5) * torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)[:, None, None]
    weights = parameter(start)
    train(MuonH([weights], lr=0.3), [weights], 5)
    torch.testing.assert_close(norms(weights.detach()), norms(start), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", [Muon, MuonH, AdamH])
def test_state_dict_round_trip_is_exact(kind: type[Muon] | type[MuonH] | type[AdamH]) -> None:
    starts = [gaussian(4, 6, dtype=torch.float32), gaussian(2, 4, 6, dtype=torch.float32)]
    one = [parameter(start) for start in starts]
    first = kind(one, lr=0.1)
    train(first, one, 4)
    two = [parameter(each.detach()) for each in one]
    second = kind(two, lr=0.1)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(first, one, 3, seed=77)
    train(second, two, 3, seed=77)
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a, b)


def test_the_radius_comes_from_the_state_not_from_the_weights() -> None:
    weights = parameter(gaussian(4, 5))
    radius = float(weights.detach().norm())
    saved = MuonH([weights], lr=0.1).state_dict()
    shrunk = parameter(weights.detach() * 0.9)
    optimizer = MuonH([shrunk], lr=0.1)
    optimizer.load_state_dict(saved)
    train(optimizer, [shrunk], 1)
    assert float(shrunk.detach().norm()) == pytest.approx(radius, rel=1e-12)


def test_parameters_without_gradient_stay() -> None:
    one, two = parameter(gaussian(3, 3)), parameter(gaussian(3, 3, seed=1))
    optimizer = MuonH([one, two], lr=0.1)
    one.grad = gaussian(3, 3, seed=2)
    before = two.detach().clone()
    optimizer.step()
    assert torch.equal(two, before)


def test_a_zero_gradient_leaves_the_matrix() -> None:
    weights = parameter(gaussian(3, 4))
    before = weights.detach().clone()
    weights.grad = torch.zeros_like(weights)
    for optimizer in (MuonH([weights], lr=0.5), AdamH([weights], lr=0.5)):
        optimizer.step()
        torch.testing.assert_close(weights.detach(), before, rtol=1e-15, atol=0)


@pytest.mark.parametrize("kind", [MuonH, AdamH])
def test_a_zero_matrix_and_weight_decay_are_refused(kind: type[MuonH] | type[AdamH]) -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 4\) is zero: its sphere has radius 0"):
        kind([nn.Parameter(torch.zeros(2, 3, 4))], lr=0.1)
    with pytest.raises(ValueError, match=r"weight_decay: got 0.1; .*lr / \(1 - lr wd\)"):
        kind([nn.Parameter(torch.ones(3, 4))], lr=0.1, weight_decay=0.1)


def test_vectors_bad_rates_and_scales_are_refused() -> None:
    with pytest.raises(ValueError, match=r"MuonH moves matrices; got a parameter of shape \(3,\)"):
        MuonH([nn.Parameter(torch.ones(3))], lr=0.1)
    with pytest.raises(ValueError, match="lr: got -1"):
        MuonH([nn.Parameter(torch.ones(3, 3))], lr=-1)
    with pytest.raises(ValueError, match="unknown scale 'big'; known: match_rms_adamw"):
        Muon([nn.Parameter(torch.ones(3, 3))], lr=0.1, scale="big")

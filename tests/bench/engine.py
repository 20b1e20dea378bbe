"""The fit engine beside the usual ways, in CPU seconds of one thread, side by side in one process.

    OMP_NUM_THREADS=1 python tests/bench/engine.py

- A global Chinchilla fit: 4500 starts of L-BFGS-B over the customary grid (Besiroglu et al. 2024). A sample of the
  starts is run and scaled up: with automatic gradients as published, if the package autograd is there, and with a
  gradient written by hand, which is the best that way can do.
- 4000 bootstraps: BFGS from the optimum for each resample, a sample of them scaled up, in the same two ways.
- 4000 draws of a least-squares fit against the package simple-scaling-laws.
- One start: BFGS of the package chinchilla 0.2.0, the slope over its number of starts, and ours in a batch.
- Repeated data, seven parameters: one start of LBFGS in float32 with automatic gradients (torch), as published.
- 50 groups with 500 draws each, as a dashboard asks; peak memory of 4000 draws over 1000 rows.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import minimize

from scaling.fitting import fit_law
from scaling.laws import law_over
from scaling.objectives import Objective
from scaling.rows import Rows
from scaling.solver import Problem, box, refine, scan

DATA = Path(__file__).parents[2] / "sweeps" / "published" / "data"
DELTA = 1e-3
STARTS, DRAWS = 4500, 4000
SAMPLE = 40
BATCH = 24


def chinchilla() -> Rows:
    table = pl.read_csv(DATA / "chinchilla.csv", comment_prefix="#", infer_schema_length=None)
    n, c, y = (table[k].to_numpy() for k in ("Model Size", "Training FLOP", "loss"))
    keep = y < np.sort(y)[-5]
    return Rows(np.array([n, c / (6 * n)])[:, keep], y[keep])


def huber(theta: np.ndarray, rows: Rows, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """The plain objective and its gradient over log A, log B, log E, alpha, beta."""
    a, b, e, alpha, beta = theta
    n, d = np.log(rows.x)
    terms = np.array([a - alpha * n, b - beta * d, np.full(len(n), e)])
    top = terms.max(axis=0)
    share = np.exp(terms - top)
    total = share.sum(axis=0)
    r = top + np.log(total) - np.log(rows.y)
    share /= total
    size = np.abs(r)
    value = np.where(size < DELTA, 0.5 * r**2, DELTA * (size - 0.5 * DELTA)) * weight
    psi = np.clip(r, -DELTA, DELTA) * weight
    gradient = [psi @ share[0], psi @ share[1], psi @ share[2], -(psi * n) @ share[0], -(psi * d) @ share[1]]
    return float(value.sum()), np.array(gradient)


def automatic() -> Callable[..., tuple[float, np.ndarray]] | None:
    """The same objective with automatic gradients; None without autograd."""
    try:
        import autograd.numpy as anp
        from autograd import value_and_grad
        from autograd.scipy.special import logsumexp
    except ImportError:
        print("autograd is not installed: pip install autograd shows the published way as well")
        return None

    def objective(theta: Any, rows: Rows, weight: np.ndarray) -> Any:
        n, d = np.log(rows.x)
        terms = anp.vstack([theta[0] - theta[3] * n, theta[1] - theta[4] * d, theta[2] + 0 * n])
        size = anp.abs(logsumexp(terms, axis=0) - np.log(rows.y))
        return anp.sum(weight * anp.where(size < DELTA, 0.5 * size**2, DELTA * (size - 0.5 * DELTA)))

    return value_and_grad(objective)  # type: ignore[no-any-return]


def seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def row(name: str, peer: float, ours: float, bar: float) -> None:
    print(f"{name:44}{peer:10.3g} s{ours:10.3g} s{peer / ours:10.0f} x   (bar {bar:g} x)", flush=True)


def global_fit(rows: Rows) -> None:
    grid = np.array(np.meshgrid(np.arange(0, 30, 5), np.arange(0, 30, 5), np.arange(-1, 1.5, 0.5),
                                np.arange(0, 2.5, 0.5), np.arange(0, 2.5, 0.5))).reshape(5, -1).T  # fmt: skip
    picks = grid[np.random.default_rng(0).choice(len(grid), SAMPLE, replace=False)]
    one = np.ones(len(rows))
    ways = {"automatic gradients": automatic(), "by hand": huber}
    peers = {
        name: seconds(lambda f=f: [minimize(f, s, (rows, one), method="L-BFGS-B", jac=True) for s in picks])
        for name, f in ways.items()
        if f is not None
    }
    law = law_over("chinchilla", ("n_params", "tokens"))
    objective = Objective("huber", delta=DELTA)
    fit_law(law, rows, objective=objective, draws=0)  # the law is compiled once
    ours = seconds(lambda: fit_law(law, rows, objective=objective, draws=0))
    for name, peer in peers.items():
        row(f"global fit, {STARTS} starts, {name}", peer / SAMPLE * STARTS, ours, 1000)


def bootstraps(rows: Rows) -> None:
    best = np.array([np.log(477.826), np.log(2143.42), np.log(1.817218), 0.34731, 0.367172])
    rng = np.random.default_rng(1)
    counts = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), SAMPLE).astype(float)
    ways = {"automatic gradients": automatic(), "by hand": huber}
    peers = {
        name: seconds(lambda f=f: [minimize(f, best, (rows, w), method="BFGS", jac=True) for w in counts])
        for name, f in ways.items()
        if f is not None
    }
    law, objective = law_over("chinchilla", ("n_params", "tokens")), Objective("huber", delta=DELTA)
    base = seconds(lambda: fit_law(law, rows, objective=objective, draws=0))
    ours = seconds(lambda: fit_law(law, rows, objective=objective, draws=DRAWS)) - base
    for name, peer in peers.items():
        row(f"{DRAWS} bootstraps, {name}", peer / SAMPLE * DRAWS, ours, 100)


def least_squares(rows: Rows) -> None:
    """Draws of a least-squares fit against the package simple-scaling-laws, if it is there."""
    try:
        import simple_scaling_laws as peer
    except ImportError:
        print("simple-scaling-laws is not installed: pip install simple-scaling-laws shows it as well")
        return
    names = [f"run_{i:03}" for i in range(len(rows))]
    frame = pl.DataFrame({
        "training_run_id": names, "train_set_id": names, "test_set_id": ["all"] * len(rows), "optimizer_seed": 0,
        "model_size__n_params": rows.x[0], "dataset_size__n_tokens": rows.x[1], "test_loss__cross_entropy": rows.y,
    })  # fmt: skip
    few, many = (seconds(lambda n=n: peer.fit(frame, n_draws=n, seed=0)) for n in (50, 450))
    law, objective = law_over("chinchilla", ("n_params", "tokens")), Objective("l2")
    base = seconds(lambda: fit_law(law, rows, objective=objective, draws=0))
    ours = seconds(lambda: fit_law(law, rows, objective=objective, draws=DRAWS)) - base
    row(f"{DRAWS} least-squares draws, simple-scaling-laws", (many - few) / 400 * DRAWS, ours, 10)


def one_start(rows: Rows) -> None:
    """Ours are the best places of the scan, refined in one batch until the last has ended."""
    law, objective = (
        law_over("chinchilla", ("n_params", "tokens")),
        Objective("huber", delta=DELTA),
    )
    unit = np.exp(np.log(rows.x).mean(axis=1))
    x = rows.x / unit[:, None]
    low, high = box(law, x, rows.y)
    one = np.ones((1, len(rows)))
    problem = Problem(law, np.log(x)[:, None, :], rows.y[None], one, one, objective, low, high)
    theta = scan(problem, BATCH)[0]
    which = np.zeros(len(theta), dtype=int)
    refine(problem, theta, which)
    ours = seconds(lambda: refine(problem, theta, which)) / len(theta)
    print(f"one start in a batch of {len(theta)}: {1000 * ours:.2f} ms (bar 1 ms)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from chinchilla import Chinchilla
            from chinchilla._metrics import log_huber
    except ImportError as error:
        print(f"chinchilla is skipped: {error}")
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        n, d = rows.x
        pl.DataFrame({"C": 6 * n * d, "N": n, "D": d, "loss": rows.y}).write_csv(Path(folder) / "df.csv")

        def their_fit(starts: int) -> float:
            grid = {
                "e": np.linspace(0.3, 0.8, starts),
                "a": [6.0],
                "b": [7.0],
                "alpha": [0.3],
                "beta": [0.4],
            }
            way = Chinchilla(
                folder,
                param_grid=grid,
                loss_fn=lambda t, y: log_huber(t, y, DELTA),
                log_level=50,
            )
            return seconds(lambda: way.fit(parallel=False))

        their_fit(2)
        peer = (their_fit(10) - their_fit(2)) / 8
    print(f"one start of the package chinchilla: {1000 * peer:.1f} ms, {peer / ours:.0f} times ours")


def repeated() -> None:
    import torch

    table = pl.read_csv(DATA / "datablations.csv", comment_prefix="#", infer_schema_length=None)
    x = table.select("n_params", "tokens", "unique_tokens").cast(pl.Float64).to_numpy().T
    y = table["val_loss"].to_numpy()
    n, d, u = (torch.tensor(v, dtype=torch.float32) for v in x)
    goal = torch.log(torch.tensor(y, dtype=torch.float32))

    def one() -> None:
        t = torch.tensor([6.2, 7.3, 0.63, 0.35, 0.35, 2.0, 1.5], dtype=torch.float32, requires_grad=True)
        solver = torch.optim.LBFGS([t], max_iter=200, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            solver.zero_grad()
            a, b, e, alpha, beta, rd, rn = t
            g = ((a - b).exp() * alpha / beta) ** (1 / (alpha + beta))
            fitting = torch.minimum(n, g * (g * u) ** (beta / alpha))
            size = fitting * (1 - rn.exp() * torch.expm1(-(n / fitting - 1) / rn.exp()))
            data = u * (1 - rd.exp() * torch.expm1(-(d / u - 1) / rd.exp()))
            f = torch.logsumexp(torch.stack([a - alpha * size.log(), b - beta * data.log(), e.expand_as(n)]), dim=0)
            loss = torch.nn.functional.huber_loss(f, goal, delta=DELTA, reduction="sum")
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        solver.step(closure)

    torch.set_num_threads(1)
    one()
    peer = seconds(lambda: [one() for _ in range(5)]) / 5
    law = law_over("data_constrained", ("n_params", "tokens", "unique_tokens"))
    rows, objective = Rows(x, y), Objective("huber", delta=DELTA)
    fit_law(law, rows, objective=objective, draws=0)
    ours = seconds(lambda: fit_law(law, rows, objective=objective, draws=0)) / 24
    row("repeated data, 7 parameters, one start", peer, ours, 100)


def dashboard() -> None:
    x = 2.0 ** np.arange(4, 11)
    law = law_over("power_offset", "width")

    def group(i: int) -> None:
        y = (1.6 + 2.5 * x**-0.5) * np.exp(0.003 * np.random.default_rng(i).standard_normal(len(x)))
        fit_law(law, Rows(x, y), draws=500, seed=i)

    group(0)
    print(f"50 groups x 500 draws: {seconds(lambda: [group(i) for i in range(50)]):.2f} s (bar 3 s)")


def heavy(queue: Any) -> None:
    rng = np.random.default_rng(0)
    x = 10.0 ** rng.uniform(7, 10, (2, 1000))
    y = (1.8 + 480 * x[0] ** -0.35 + 2000 * x[1] ** -0.37) * np.exp(0.004 * rng.standard_normal(1000))
    fit_law(law_over("chinchilla", ("n_params", "tokens")), Rows(x, y), draws=DRAWS)
    queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def memory() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=heavy, args=(queue,))
    child.start()
    print(f"4000 draws x 1000 rows: peak {queue.get():.2f} GiB (bar 1 GiB)")
    child.join()


if __name__ == "__main__":
    table = chinchilla()
    print(f"{'':44}{'the usual way':>12}{'here':>12}")
    global_fit(table)
    bootstraps(table)
    least_squares(table)
    one_start(table)
    repeated()
    dashboard()
    memory()

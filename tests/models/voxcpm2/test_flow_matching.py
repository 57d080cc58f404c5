"""Schedules against their formula; a batch of different requests against each of them alone."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from models.voxcpm2.config import read_config
from models.voxcpm2.flow_matching import guide, solve, time_schedule, zero_init_steps
from models.voxcpm2.local_dit import LocalDiT
from tests.support.golden import CHECKPOINT

STEP_COUNTS = (2, 3, 10, 20, 49, 50, 100)
ZERO_INIT = {2: 1, 3: 1, 10: 1, 20: 1, 48: 1, 49: 2, 50: 2, 73: 2, 74: 3, 100: 4}


@pytest.mark.parametrize(("steps", "zeros"), ZERO_INIT.items())
def test_zero_init(steps: int, zeros: int) -> None:
    assert zero_init_steps(steps) == zeros
    times, widths = time_schedule(steps)
    assert times.shape == widths.shape == (steps - zeros,)


# -- the schedule --------------------------------------------------------------------------------------------


def warped(steps: int) -> list[float]:
    """Grid points in float64."""
    grid = [1 - i / steps for i in range(steps + 1)]
    return [t + (math.cos(math.pi / 2 * t) - 1 + t) for t in grid]


@pytest.mark.parametrize("steps", STEP_COUNTS)
def test_grid(steps: int) -> None:
    grid = warped(steps)[ZERO_INIT[steps] :]
    times, widths = time_schedule(steps)
    assert times.dtype == widths.dtype == torch.float32
    np.testing.assert_allclose(times, grid[:-1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(widths, np.negative(np.diff(grid)), rtol=0, atol=1e-6)
    assert (widths > 0).all()


def rounded(value: float, dtype: torch.dtype) -> float:
    return torch.tensor(value, dtype=torch.float64).to(dtype).item()


def recurrence(steps: int, dtype: torch.dtype) -> tuple[list[float], list[float]]:
    """Times and widths in Python numbers, rounded to `dtype` after every operation."""

    def low(value: float) -> float:
        return rounded(value, dtype)

    grid = []
    for t in torch.linspace(1, 0, steps + 1, dtype=dtype).tolist():
        cosine = low(math.cos(low(math.pi / 2 * t)))
        grid.append(low(t + low(low(cosine - 1) + t)))
    time, width, times, widths = grid[0], low(grid[0] - grid[1]), [], []
    for step in range(1, steps + 1):
        times.append(time)
        widths.append(width)
        time = low(time - width)
        if step < steps:
            width = low(time - grid[step + 1])
    return times, widths


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("steps", STEP_COUNTS)
def test_rounding_is_that_of_the_recurrence(steps: int, dtype: torch.dtype) -> None:
    times, widths = time_schedule(steps, dtype)
    expected_times, expected_widths = recurrence(steps, dtype)
    skipped = ZERO_INIT[steps]
    assert times.dtype == widths.dtype == dtype
    # An ulp of float32's cosine is allowed; bfloat16 has none to spare.
    tolerance = 2e-7 if dtype == torch.float32 else 0.0
    np.testing.assert_allclose(times.double(), expected_times[skipped:], rtol=0, atol=tolerance)
    np.testing.assert_allclose(widths.double(), expected_widths[skipped:], rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_time_is_the_previous_less_its_width(dtype: torch.dtype) -> None:
    times, widths = time_schedule(50, dtype)
    assert torch.equal(times[1:], times[:-1] - widths[:-1])
    assert abs((times[-1] - widths[-1]).item()) < 1e-6


# -- guidance ------------------------------------------------------------------------------------------------


def test_guidance_formula() -> None:
    torch.manual_seed(0)
    conditional, unconditional, cfg = (
        torch.randn(3, 4, 16),
        torch.randn(3, 4, 16),
        torch.tensor([1.0, 2.0, 3.5]),
    )
    got = guide(conditional, unconditional, cfg)
    for row in range(3):
        positive, negative = conditional[row].double().numpy(), unconditional[row].double().numpy()
        s = np.vdot(positive, negative) / (np.vdot(negative, negative) + 1e-8)
        expected = s * negative + cfg[row].item() * (positive - s * negative)
        np.testing.assert_allclose(got[row], expected, rtol=0, atol=1e-5)


def test_guidance_of_1_is_the_conditional_velocity() -> None:
    conditional, unconditional = torch.randn(2, 4, 16), torch.randn(2, 4, 16)
    torch.testing.assert_close(
        guide(conditional, unconditional, torch.ones(2)), conditional, rtol=0, atol=1e-6
    )


def test_an_unconditional_velocity_of_0_is_no_division_by_0() -> None:
    conditional, unconditional = torch.randn(2, 4, 16), torch.randn(2, 4, 16)
    unconditional[1] = 0
    got = guide(conditional, unconditional, torch.tensor([2.0, 3.0]))
    assert torch.isfinite(got).all()
    torch.testing.assert_close(got[1], 3 * conditional[1])


# -- the solver ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dit() -> LocalDiT:
    torch.manual_seed(0)
    dit = LocalDiT(read_config(CHECKPOINT))
    for parameter in dit.parameters():
        parameter.requires_grad_(False).normal_(0.0, 0.1)
    return dit


Row = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]  # noise, mu, condition, times, widths, cfg


def make_row(steps: int, cfg: float) -> Row:
    return torch.randn(4, 16), torch.randn(128), torch.randn(4, 16), *time_schedule(steps), cfg


def solve_rows(dit: LocalDiT, rows: list[Row], padding_time: float = 0.0) -> Tensor:
    longest = max(len(row[3]) for row in rows)
    times, widths = torch.full((len(rows), longest), padding_time), torch.zeros(len(rows), longest)
    for i, row in enumerate(rows):
        times[i, : len(row[3])], widths[i, : len(row[4])] = row[3], row[4]
    noise, mu, condition = (torch.stack([row[part] for row in rows]) for part in range(3))
    return solve(dit, noise, mu, condition, times, widths, torch.tensor([row[5] for row in rows]))


def test_a_mixed_batch_equals_each_row_alone(dit: LocalDiT) -> None:
    torch.manual_seed(1)
    rows = [make_row(steps, cfg) for steps, cfg in ((10, 2.0), (2, 1.0), (20, 3.0), (4, 1.5), (7, 0.0))]
    together = solve_rows(dit, rows)
    for row, patch in zip(rows, together, strict=True):
        torch.testing.assert_close(solve_rows(dit, [row])[0], patch, rtol=0, atol=1e-6)


def test_equals_euler_steps_in_float64(dit: LocalDiT) -> None:
    """The whole grid, the steps of velocity 0 included, with each of the two velocities by its own call."""
    torch.manual_seed(1)
    noise, mu, condition, *_, cfg = row = make_row(10, 2.5)
    grid, x = warped(10), noise.double()
    for index, (time, target) in enumerate(itertools.pairwise(grid)):
        if index < ZERO_INIT[10]:
            continue
        token = dit.embed_times(torch.tensor([[time]]), torch.zeros(1, 1))[:, 0]
        positive, negative = (
            dit(x.float().unsqueeze(0), token, dit.embed_context(m.unsqueeze(0), condition.unsqueeze(0)))[
                0
            ].double()
            for m in (mu, torch.zeros_like(mu))
        )
        s = (positive * negative).sum() / ((negative**2).sum() + 1e-8)
        x = x - (time - target) * (s * negative + cfg * (positive - s * negative))
    torch.testing.assert_close(solve_rows(dit, [row])[0].double(), x, rtol=0, atol=2e-5)
    assert (x - noise).abs().max() > 0.1


def test_steps_of_width_0_do_nothing(dit: LocalDiT) -> None:
    torch.manual_seed(1)
    short, long = make_row(4, 2.0), make_row(20, 2.0)
    alone = solve_rows(dit, [short])[0]
    for padding_time in (0.0, 1.0):
        torch.testing.assert_close(solve_rows(dit, [short, long], padding_time)[0], alone, rtol=0, atol=1e-6)
    noise = short[0]
    still = solve(
        dit, noise[None], short[1][None], short[2][None], torch.ones(1, 3), torch.zeros(1, 3), torch.ones(1)
    )
    assert torch.equal(still[0], noise)


def test_two_steps_move_the_noise_once(dit: LocalDiT) -> None:
    torch.manual_seed(1)
    row = make_row(2, 2.0)
    assert len(row[3]) == 1
    assert (solve_rows(dit, [row])[0] - row[0]).abs().max() > 1e-2


def test_dtype_is_kept() -> None:
    low = LocalDiT(read_config(CHECKPOINT)).bfloat16()
    times, widths = (row.unsqueeze(0) for row in time_schedule(4, torch.bfloat16))
    noise, mu = torch.randn(1, 4, 16).bfloat16(), torch.randn(1, 128).bfloat16()
    cfg = torch.ones(1, dtype=torch.bfloat16)
    assert solve(low, noise, mu, noise, times, widths, cfg).dtype == torch.bfloat16

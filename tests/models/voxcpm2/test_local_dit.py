"""Time embeddings against their formula, and what stands where in the transformer's sequence."""

import math

import pytest
import torch
from torch import Tensor, nn

from models.voxcpm2.config import VoxCPM2ModelConfig, read_config
from models.voxcpm2.local_dit import LocalDiT, TimeMLP, sinusoidal_embedding
from tests.support.golden import CHECKPOINT

HIDDEN = 64


def dit_config(mean_mode: bool = False) -> VoxCPM2ModelConfig:
    config = read_config(CHECKPOINT)
    dit = config.dit_config.model_copy(update={"dit_mean_mode": mean_mode})
    return config.model_copy(update={"dit_config": dit})


def local_dit(mean_mode: bool = False) -> LocalDiT:
    torch.manual_seed(0)
    dit = LocalDiT(dit_config(mean_mode))
    for parameter in dit.parameters():
        parameter.normal_(0.0, 0.2)
    return dit


@pytest.mark.parametrize("dim", [4, 64, 1024])
def test_sinusoids(dim: int) -> None:
    values = [0.0, 0.001, 0.25, 0.7, 1.0]
    got = sinusoidal_embedding(torch.tensor(values), dim)
    assert got.shape == (len(values), dim)
    half = dim // 2
    for row, value in enumerate(values):
        for i in range(half):
            angle = 1000.0 * value * 10000.0 ** (-i / (half - 1))
            rounding = 1e-6 + 1e-6 * angle  # of the angle, in float32
            assert got[row, i].item() == pytest.approx(math.sin(angle), abs=rounding)
            assert got[row, half + i].item() == pytest.approx(math.cos(angle), abs=rounding)


def test_sinusoids_keep_the_dtype() -> None:
    assert sinusoidal_embedding(torch.ones(2, dtype=torch.bfloat16), 8).dtype == torch.bfloat16


def test_time_mlp() -> None:
    torch.manual_seed(0)
    mlp, x = TimeMLP(6), torch.randn(2, 3, 6)
    inner = x.double() @ mlp.linear_1.weight.double().T + mlp.linear_1.bias.double()
    inner = inner / (1 + (-inner).exp())
    expected = inner @ mlp.linear_2.weight.double().T + mlp.linear_2.bias.double()
    torch.testing.assert_close(mlp(x).double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mean_mode", [False, True])
def test_time_tokens(mean_mode: bool) -> None:
    dit = local_dit(mean_mode)
    times, widths = torch.tensor([[1.0, 0.6, 0.1], [0.9, 0.5, 0.0]]), torch.full((2, 3), 0.3)
    tokens = dit.embed_times(times, widths)
    assert tokens.shape == (2, 3, HIDDEN)
    for row in range(2):
        for step in range(3):
            time = sinusoidal_embedding(times[row, step].view(1), HIDDEN)
            width = sinusoidal_embedding(torch.tensor([0.3 if mean_mode else 0.0]), HIDDEN)
            expected = dit.time_mlp(time) + dit.delta_time_mlp(width)
            torch.testing.assert_close(tokens[row, step], expected[0], rtol=1e-5, atol=1e-5)


def test_widths_count_in_mean_mode_only() -> None:
    times = torch.tensor([[1.0, 0.5]])
    short, wide = torch.full((1, 2), 0.1), torch.full((1, 2), 0.4)
    plain, mean = local_dit(), local_dit(mean_mode=True)
    assert torch.equal(plain.embed_times(times, short), plain.embed_times(times, wide))
    assert (mean.embed_times(times, short) - mean.embed_times(times, wide)).abs().max() > 1e-3


class Recorder(nn.Module):
    """Stands where the stack is and shows what enters it."""

    def forward(self, tokens: Tensor) -> Tensor:
        self.tokens = tokens
        return tokens * 2


def test_order_of_the_sequence_and_what_comes_out() -> None:
    dit = local_dit()
    dit.decoder = recorder = Recorder()
    mu, condition, noisy = torch.randn(3, 2 * HIDDEN), torch.randn(3, 4, 16), torch.randn(3, 4, 16)
    time = torch.randn(3, HIDDEN)
    velocity = dit(noisy, time, dit.embed_context(mu, condition))
    parts = recorder.tokens.split((1, 1, 1, 4, 4), dim=1)
    assert torch.equal(parts[0][:, 0], mu[:, :HIDDEN])
    assert torch.equal(parts[1][:, 0], mu[:, HIDDEN:])
    assert torch.equal(parts[2][:, 0], time)
    torch.testing.assert_close(parts[3], dit.cond_proj(condition))
    torch.testing.assert_close(parts[4], dit.in_proj(noisy))
    assert velocity.shape == noisy.shape
    torch.testing.assert_close(velocity, dit.out_proj(2 * parts[4]))


@pytest.mark.parametrize("part", ["noisy", "time", "mu", "condition"])
def test_the_velocity_depends_on(part: str) -> None:
    dit = local_dit()
    inputs = {
        "noisy": torch.randn(1, 4, 16),
        "time": torch.randn(1, HIDDEN),
        "mu": torch.randn(1, 2 * HIDDEN),
        "condition": torch.randn(1, 4, 16),
    }

    def velocity(noisy: Tensor, time: Tensor, mu: Tensor, condition: Tensor) -> Tensor:
        return dit(noisy, time, dit.embed_context(mu, condition))

    before = velocity(**inputs)
    inputs[part] = inputs[part] + 1.0
    assert (velocity(**inputs) - before).abs().max() > 1e-3

"""Rotary tables and normalisation against formulas in float64."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from models.voxcpm2.config import RopeScaling, TransformerConfig, read_config
from models.voxcpm2.rope import LongRoPE, RMSNorm, rotate
from tests.support.golden import CHECKPOINT

HEAD_DIM = 32
LONG = tuple(1.0 + 0.5 * i for i in range(HEAD_DIM // 2))
SHORT = tuple(1.0 + 0.01 * i for i in range(HEAD_DIM // 2))


def rope_config(positions: int, original: int, theta: float = 10000.0) -> TransformerConfig:
    scaling = RopeScaling(long_factor=LONG, short_factor=SHORT, original_max_position_embeddings=original)
    return read_config(CHECKPOINT).lm_config.model_copy(
        update={
            "kv_channels": HEAD_DIM,
            "max_position_embeddings": positions,
            "rope_scaling": scaling,
            "rope_theta": theta,
        }
    )


def angle(position: int, frequency: int, factors: tuple[float, ...], theta: float = 10000.0) -> float:
    return position / (factors[frequency] * theta ** (2 * frequency / HEAD_DIM))


def tables(config: TransformerConfig, positions: list[int]) -> tuple[Tensor, Tensor]:
    return LongRoPE(config)(torch.tensor(positions))


@pytest.mark.parametrize(
    ("maximum", "original", "factors"),
    [(1024, 1024, SHORT), (512, 1024, SHORT), (1025, 1024, LONG), (4096, 1024, LONG)],
)
@pytest.mark.parametrize("theta", [10000.0, 500.0])
def test_tables(maximum: int, original: int, factors: tuple[float, ...], theta: float) -> None:
    positions = [0, 1, 2, 17, 255, maximum - 1]
    cos, sin = tables(rope_config(maximum, original, theta), positions)
    scale = math.sqrt(1 + math.log(maximum / original) / math.log(original))
    assert cos.shape == sin.shape == (len(positions), HEAD_DIM)
    assert cos.dtype == sin.dtype == torch.float32
    for row, position in enumerate(positions):
        for i in range(HEAD_DIM):
            turn = angle(position, i % (HEAD_DIM // 2), factors, theta)
            rounding = 1e-6 + 4e-7 * turn  # of the angle, in float32
            assert cos[row, i].item() == pytest.approx(scale * math.cos(turn), abs=rounding)
            assert sin[row, i].item() == pytest.approx(scale * math.sin(turn), abs=rounding)


def test_any_order_of_positions() -> None:
    config = rope_config(64, 64)
    cos, _ = tables(config, [5, 3, 5])
    assert torch.equal(cos[0], cos[2])
    assert torch.equal(cos[1], tables(config, [3])[0][0])


def as_complex(heads: Tensor) -> npt.NDArray[np.complex128]:
    """Value i and value i + half of a head are one complex number."""
    values = heads.double().numpy()
    half = values.shape[-1] // 2
    return values[..., :half] + 1j * values[..., half:]


def test_rotation_is_a_complex_product() -> None:
    torch.manual_seed(0)
    heads, positions = torch.randn(2, 4, 3, HEAD_DIM), [0, 1, 7, 63]
    got = as_complex(rotate(heads, *tables(rope_config(64, 64), positions)))
    turns = np.array([[angle(p, i, SHORT) for i in range(HEAD_DIM // 2)] for p in positions])
    expected = as_complex(heads) * np.exp(1j * turns)[:, None, :]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_position_0_is_the_identity() -> None:
    heads = torch.randn(1, 2, HEAD_DIM)
    assert torch.equal(rotate(heads, *tables(rope_config(64, 64), [0])), heads)


def test_scores_depend_on_distance_alone() -> None:
    torch.manual_seed(0)
    config = rope_config(64, 64)
    q, k = torch.randn(1, 1, HEAD_DIM), torch.randn(1, 1, HEAD_DIM)

    def score(q_position: int, k_position: int) -> float:
        q_turned = rotate(q, *tables(config, [q_position]))
        return (q_turned * rotate(k, *tables(config, [k_position]))).sum().item()

    assert score(5, 2) == pytest.approx(score(60, 57), abs=1e-4)
    assert abs(score(5, 2) - score(5, 4)) > 1e-2


def test_bfloat16_is_kept_and_rounded_once() -> None:
    torch.manual_seed(0)
    heads = torch.randn(3, 2, HEAD_DIM).bfloat16()
    cos, sin = tables(rope_config(1024, 1024), [1, 500, 1023])
    turned = rotate(heads, cos, sin)
    assert turned.dtype == torch.bfloat16
    assert torch.equal(turned, rotate(heads.float(), cos, sin).bfloat16())


def test_tables_stay_out_of_checkpoints() -> None:
    assert LongRoPE(rope_config(64, 64)).state_dict() == {}


@pytest.mark.parametrize("size", [4, 2048])
def test_rms_norm(size: int) -> None:
    torch.manual_seed(0)
    norm = RMSNorm(size, eps=1e-2)
    norm.weight.copy_(torch.randn(size))
    hidden = torch.randn(3, 5, size) * torch.tensor([1e-3, 1.0, 50.0]).view(-1, 1, 1)
    x = hidden.double().numpy()
    root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-2)
    np.testing.assert_allclose(norm(hidden), x / root * norm.weight.double().numpy(), rtol=1e-5, atol=1e-6)


def test_rms_norm_has_a_float32_variance() -> None:
    """A variance rounded to bfloat16 would move about every fourth value to its neighbour."""
    torch.manual_seed(0)
    norm, hidden = RMSNorm(512, eps=1e-6).bfloat16(), torch.randn(64, 512).bfloat16()
    exact = hidden.double() / (hidden.double().pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    normed = norm(hidden)
    assert normed.dtype == torch.bfloat16
    assert (normed != exact.bfloat16()).double().mean() < 1e-3

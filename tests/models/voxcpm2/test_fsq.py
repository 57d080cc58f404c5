"""The quantiser against its formula."""

import numpy as np
import pytest
import torch

from models.voxcpm2.fsq import FiniteScalarQuantizer


def identity_quantizer(size: int, scale: int) -> FiniteScalarQuantizer:
    """One whose projections do nothing, so that what is left is the rounding."""
    fsq = FiniteScalarQuantizer(size, size, scale)
    for projection in (fsq.in_proj, fsq.out_proj):
        projection.weight.copy_(torch.eye(size))
        projection.bias.zero_()
    return fsq


@pytest.mark.parametrize("scale", [1, 4, 9])
def test_levels(scale: int) -> None:
    values = torch.linspace(-4, 4, 4001).unsqueeze(-1)
    got = identity_quantizer(1, scale)(values).numpy()
    expected = np.rint(np.tanh(values.double().numpy()) * scale) / scale
    off = np.abs(got - expected) > 1e-6
    assert off.mean() < 1e-3  # float32 may fall on the other side of a half
    assert len(np.unique(got)) == 2 * scale + 1
    assert (got.min(), got.max()) == (-1.0, 1.0)


def test_projections_with_bias() -> None:
    torch.manual_seed(0)
    fsq = FiniteScalarQuantizer(6, 3, 9)
    hidden = torch.randn(2, 5, 6)
    low = hidden.double() @ fsq.in_proj.weight.double().T + fsq.in_proj.bias.double()
    quantised = torch.round(torch.tanh(low) * 9) / 9
    expected = quantised @ fsq.out_proj.weight.double().T + fsq.out_proj.bias.double()
    torch.testing.assert_close(fsq(hidden).double(), expected, rtol=0, atol=1e-6)


def test_any_leading_shape() -> None:
    torch.manual_seed(0)
    fsq = FiniteScalarQuantizer(6, 3, 9)
    hidden = torch.randn(4, 6)
    torch.testing.assert_close(fsq(hidden.view(2, 2, 6)).flatten(0, 1), fsq(hidden))
    assert fsq(hidden[:0]).shape == (0, 6)


def test_bfloat16_is_kept() -> None:
    assert FiniteScalarQuantizer(6, 3, 9).bfloat16()(torch.randn(2, 6).bfloat16()).dtype == torch.bfloat16

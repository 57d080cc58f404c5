"""Float samples to 16 bits."""

import numpy as np

from app.pipeline.pcm import to_s16le


def test_scale_rounding_and_clipping() -> None:
    samples = np.array([0.0, 1.0, -1.0, 1.5, -7.0, 0.5, 0.49 / 32767, 0.51 / 32767], np.float32)
    expected = [0, 32767, -32767, 32767, -32767, 16384, 0, 1]
    assert np.frombuffer(to_s16le(samples), "<i2").tolist() == expected


def test_byte_order_is_little_endian() -> None:
    assert to_s16le(np.array([256 / 32767], np.float32)) == b"\x00\x01"


def test_parts_join_to_the_whole() -> None:
    samples = np.random.default_rng(0).uniform(-1.1, 1.1, 1000).astype(np.float32)
    assert to_s16le(samples[:300]) + to_s16le(samples[300:]) == to_s16le(samples)

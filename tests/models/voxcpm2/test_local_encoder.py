"""One patch in, one embedding out."""

import pytest
import torch
from torch import Tensor, nn

from models.voxcpm2.config import VoxCPM2ModelConfig, read_config
from models.voxcpm2.local_encoder import LocalEncoder
from tests.support.golden import CHECKPOINT


@pytest.fixture(scope="module")
def config() -> VoxCPM2ModelConfig:
    return read_config(CHECKPOINT)


@pytest.fixture
def encoder(config: VoxCPM2ModelConfig) -> LocalEncoder:
    torch.manual_seed(0)
    encoder = LocalEncoder(config)
    for parameter in encoder.parameters():
        parameter.normal_(0.0, 0.2)
    return encoder


def patches(count: int, config: VoxCPM2ModelConfig) -> Tensor:
    return torch.randn(count, config.patch_size, config.feat_dim)


class Recorder(nn.Module):
    """Stands where the stack is and shows what enters it."""

    def forward(self, tokens: Tensor) -> Tensor:
        self.tokens = tokens
        return tokens * 2


def test_the_special_token_gathers(encoder: LocalEncoder, config: VoxCPM2ModelConfig) -> None:
    encoder.encoder = recorder = Recorder()
    batch = patches(3, config)
    embeddings = encoder(batch)
    token = encoder.special_token.flatten()
    assert recorder.tokens.shape == (3, 1 + config.patch_size, 64)
    assert torch.equal(recorder.tokens[:, 0], token.expand(3, -1))
    torch.testing.assert_close(recorder.tokens[:, 1:], encoder.in_proj(batch))
    assert torch.equal(embeddings, 2 * token.expand(3, -1))


def test_patches_do_not_see_each_other(encoder: LocalEncoder, config: VoxCPM2ModelConfig) -> None:
    batch = patches(4, config)
    together = encoder(batch)
    assert together.shape == (4, 64)
    for row in range(4):
        torch.testing.assert_close(encoder(batch[row : row + 1])[0], together[row], rtol=0, atol=1e-5)
    assert (together[0] - together[1]).abs().max() > 1e-3


def test_frames_have_an_order(encoder: LocalEncoder, config: VoxCPM2ModelConfig) -> None:
    batch = patches(1, config)
    assert (encoder(batch) - encoder(batch.flip(1))).abs().max() > 1e-3


@pytest.mark.parametrize("frame", range(4))
def test_every_frame_counts(frame: int, encoder: LocalEncoder, config: VoxCPM2ModelConfig) -> None:
    batch = patches(1, config)
    changed = batch.clone()
    changed[:, frame] += 1.0
    assert (encoder(batch) - encoder(changed)).abs().max() > 1e-3

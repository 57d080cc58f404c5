"""The reference's numbers from a model without vLLM: whether the mathematics is right, and nothing else."""

import numpy as np
import pytest
import torch

from models.voxcpm2.config import read_config
from models.voxcpm2.weights import load_model_weights, read_checkpoint
from tests.support.dense_model import DenseRequest, DenseVoxCPM2
from tests.support.golden import CHECKPOINT, INDEX, TOLERANCE, golden


@pytest.fixture(scope="module")
def model() -> DenseVoxCPM2:
    dense = DenseVoxCPM2(read_config(CHECKPOINT))
    load_model_weights(dense, read_checkpoint(CHECKPOINT))
    return dense


def dense_request(name: str) -> DenseRequest:
    case, numbers = INDEX[name], golden(name)
    return DenseRequest(
        token_ids=torch.from_numpy(numbers.prompt_token_ids).long(),
        is_audio=torch.from_numpy(numbers.is_audio),
        latents=torch.from_numpy(numbers.prompt_latents),
        seed=case["seed"],
        cfg=case.get("cfg_value", 2.0),
        steps=case.get("inference_timesteps", 10),
        min_patches=case["min_len"],
        max_patches=case["max_len"],
    )


@pytest.mark.parametrize("name", INDEX)
def test_latents_and_stop_logits(name: str, model: DenseVoxCPM2) -> None:
    expected = golden(name)
    latents, stop_logits = model.speak(dense_request(name))
    assert len(latents) == INDEX[name]["patches"]
    np.testing.assert_allclose(latents, expected.latents, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(stop_logits, expected.stop_logits, rtol=0, atol=TOLERANCE)


def test_fused_projections_change_no_number(model: DenseVoxCPM2) -> None:
    fused = DenseVoxCPM2(model.config)
    load_model_weights(fused, read_checkpoint(CHECKPOINT))
    for layer in (*fused.local_encoder.encoder.layers, *fused.local_dit.decoder.layers):
        layer.self_attn.fuse_qkv()
    expected = golden("unicode")
    latents, stop_logits = fused.speak(dense_request("unicode"))
    np.testing.assert_allclose(latents, expected.latents, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(stop_logits, expected.stop_logits, rtol=0, atol=TOLERANCE)

"""What only a GPU can show; `make gpu-check` runs this and everything else here on one."""

import numpy as np
import pytest
import torch
from vllm.platforms import current_platform

from app.pipeline.generation import Generation
from app.pipeline.options import EngineOptions
from app.pipeline.speech import SpeechPipeline, SpeechRequest
from tests.engine.conftest import start
from tests.support.golden import golden
from tests.support.workload import golden_request, speak

pytestmark = pytest.mark.gpu


async def test_golden_numbers_are_those_of_a_gpu(pipeline: SpeechPipeline) -> None:
    """The golden tests must not have run on the CPU unnoticed."""
    assert current_platform.is_cuda()
    answer = await speak(pipeline, golden_request("zero_shot"))
    expected = golden("zero_shot")
    np.testing.assert_allclose(answer.latents, expected.latents, rtol=0, atol=2e-4)
    np.testing.assert_allclose(answer.pcm, expected.audio_full, rtol=0, atol=2e-4)


async def test_bfloat16_profiles_memory_and_speaks() -> None:
    """The production dtype, with the KV cache sized by vLLM's profiling run."""
    assert torch.cuda.is_available()
    pipeline = await start(EngineOptions(dtype="bfloat16", gpu_memory_utilization=0.5))
    try:
        request = SpeechRequest("Hello world.", Generation(seed=1, min_patches=9, max_patches=10))
        answer = await speak(pipeline, request)
        assert answer.indices == list(range(10))
        assert np.isfinite(answer.pcm).all()
        assert np.abs(answer.pcm).max() > 0
    finally:
        await pipeline.engine.shutdown()

"""The paged stacks beside their attention: loading, fusing, compiling. Attention itself: tests/engine/."""

import socket
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
    model_parallel_is_initialized,
)
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.model_loader.utils import process_weights_after_loading

from models.plugin import VOXCPM2_FORMAT, register
from models.voxcpm2.config import read_config
from models.voxcpm2.minicpm4_paged import MiniCPM4PagedForVoxCPM2, MiniCPM4PagedResidualLM
from models.voxcpm2.weights import read_tensors
from tests.support.golden import CHECKPOINT

CONFIG = read_config(CHECKPOINT)


@pytest.fixture(scope="module")
def native() -> dict[str, Tensor]:
    return read_tensors(CHECKPOINT / "model.safetensors")


@pytest.fixture(scope="module")
def vllm_config() -> Iterator[VllmConfig]:
    """One rank in this process, as each of vLLM's workers sees itself."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    register()
    config = AsyncEngineArgs(
        model=str(CHECKPOINT),
        config_format=VOXCPM2_FORMAT,
        load_format=VOXCPM2_FORMAT,
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
    ).create_engine_config()
    with set_current_vllm_config(config):
        if not model_parallel_is_initialized():  # other model tests of this process may have done so
            init_distributed_environment(1, 0, f"tcp://127.0.0.1:{port}", 0, "gloo")
            initialize_model_parallel()
        yield config
    cleanup_dist_env_and_memory()


@pytest.fixture
def base_lm(vllm_config: VllmConfig, native: dict[str, Tensor]) -> Iterator[MiniCPM4PagedForVoxCPM2]:
    model = MiniCPM4PagedForVoxCPM2(CONFIG, vllm_config, "base_lm")
    model.load_weights_from_native(native)
    yield model
    vllm_config.compilation_config.static_forward_context.clear()


def test_projections_are_fused_as_they_load(
    base_lm: MiniCPM4PagedForVoxCPM2, native: dict[str, Tensor]
) -> None:
    layer = "base_lm.layers.1"
    attention = [native[f"{layer}.self_attn.{name}_proj.weight"] for name in "qkv"]
    mlp = [native[f"{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up")]
    assert torch.equal(base_lm.layers[1].self_attn.qkv_proj.weight, torch.cat(attention))
    assert torch.equal(base_lm.layers[1].mlp.gate_up_proj.weight, torch.cat(mlp))


def test_loading_reports_every_parameter(base_lm: MiniCPM4PagedForVoxCPM2, native: dict[str, Tensor]) -> None:
    assert base_lm.load_weights_from_native(native) == dict(base_lm.named_parameters()).keys()


def test_an_unknown_tensor_is_an_error(base_lm: MiniCPM4PagedForVoxCPM2) -> None:
    with pytest.raises(KeyError, match=r"layers\.99"):
        base_lm.load_weights([("layers.99.mlp.down_proj.weight", torch.zeros(1))])


def test_embeddings_and_the_mup_scale(vllm_config: VllmConfig, native: dict[str, Tensor]) -> None:
    lm = CONFIG.lm_config.model_copy(update={"use_mup": True, "scale_emb": 12.0})
    model = MiniCPM4PagedForVoxCPM2(CONFIG.model_copy(update={"lm_config": lm}), vllm_config, "scaled")
    model.load_weights_from_native(native)
    ids = torch.tensor([5, 7])
    assert torch.equal(model.embed_input_ids(ids), native["base_lm.embed_tokens.weight"][ids] * 12.0)
    depth = lm.scale_depth / lm.num_hidden_layers**0.5
    assert model.layers[0].residual_scale == pytest.approx(depth)


def test_precompute_fused_qkv_leaves_one_copy(base_lm: MiniCPM4PagedForVoxCPM2) -> None:
    before = {name: parameter.data_ptr() for name, parameter in base_lm.named_parameters()}
    assert base_lm.precompute_fused_qkv() == base_lm.precompute_fused_qkv() == len(base_lm.layers)
    assert {name: parameter.data_ptr() for name, parameter in base_lm.named_parameters()} == before
    assert not any("q_proj" in name or "_fused" in name for name in before)


def test_compile_selective(base_lm: MiniCPM4PagedForVoxCPM2, vllm_config: VllmConfig) -> None:
    process_weights_after_loading(base_lm, vllm_config.model_config, torch.device("cpu"))
    hidden = torch.randn(3, CONFIG.lm_config.hidden_size)
    heads = torch.randn(3, CONFIG.lm_config.num_attention_heads * CONFIG.lm_config.head_dim)
    layer = base_lm.layers[0]
    with torch.inference_mode():
        eager = layer.mlp(hidden), layer.self_attn.o_proj(heads)
        assert base_lm.compile_selective() == ["layers.*.mlp", "layers.*.self_attn.o_proj"]
        assert base_lm.compile_selective() == []
        compiled = layer.mlp(hidden), layer.self_attn.o_proj(heads)
    for got, expected in zip(compiled, eager, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    assert layer.mlp._compiled_call_impl is not None
    assert layer.input_layernorm._compiled_call_impl is None


def test_the_residual_lm_has_neither_vocabulary_nor_positions(
    vllm_config: VllmConfig, native: dict[str, Tensor]
) -> None:
    model = MiniCPM4PagedResidualLM(CONFIG, vllm_config, "residual_lm")
    assert model.load_weights_from_native(native) == dict(model.named_parameters()).keys()
    assert model.rope is None
    assert len(model.layers) == CONFIG.residual_lm_num_layers

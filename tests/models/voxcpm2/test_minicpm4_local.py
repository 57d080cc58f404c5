"""The cache-free stack against a plain float64 one, before and after its weights are fused."""

import copy
import gc
import math
import weakref

import pytest
import torch
from torch import Tensor, nn

from models.voxcpm2.config import TransformerConfig, read_config
from models.voxcpm2.minicpm4_local import LocalAttention, MiniCPM4Local
from tests.support.golden import CHECKPOINT

LENGTH = 5


def local_config(use_mup: bool = False) -> TransformerConfig:
    return read_config(CHECKPOINT).local_dit.model_copy(update={"use_mup": use_mup})


def local_stack(config: TransformerConfig) -> MiniCPM4Local:
    torch.manual_seed(0)
    stack = MiniCPM4Local(config, LENGTH)
    for parameter in stack.parameters():
        parameter.normal_(0.0, 0.2)
    return stack


def attentions(stack: MiniCPM4Local) -> list[LocalAttention]:
    return [module for module in stack.modules() if isinstance(module, LocalAttention)]


# -- an independent stack: one sequence, one head and one position at a time ---------------------------------


def norm64(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def turn64(head: Tensor, config: TransformerConfig) -> Tensor:
    half = config.head_dim // 2
    factors = torch.tensor(config.rope_scaling.short_factor, dtype=torch.float64)
    exponents = torch.arange(half, dtype=torch.float64) / half
    angles = torch.arange(len(head)).unsqueeze(-1) / (factors * config.rope_theta**exponents)
    turned = torch.complex(head[:, :half], head[:, half:]) * torch.exp(1j * angles)
    return torch.cat((turned.real, turned.imag), dim=-1)


def attention64(x: Tensor, weights: dict[str, Tensor], config: TransformerConfig) -> Tensor:
    dim = config.head_dim
    q, k, v = (x @ weights[f"self_attn.{name}_proj.weight"].T for name in "qkv")
    group = config.num_attention_heads // config.num_key_value_heads
    heads = []
    for head in range(config.num_attention_heads):
        own, shared = (
            slice(head * dim, (head + 1) * dim),
            slice(head // group * dim, (head // group + 1) * dim),
        )
        scores = turn64(q[:, own], config) @ turn64(k[:, shared], config).T / math.sqrt(dim)
        heads.append(scores.softmax(dim=-1) @ v[:, shared])
    return torch.cat(heads, dim=-1) @ weights["self_attn.o_proj.weight"].T


def stack64(stack: MiniCPM4Local, hidden: Tensor, config: TransformerConfig) -> Tensor:
    state = {name: tensor.double() for name, tensor in stack.state_dict().items()}
    scale = config.scale_depth / math.sqrt(config.num_hidden_layers) if config.use_mup else 1.0
    x = hidden.double()
    for i in range(config.num_hidden_layers):
        prefix = f"layers.{i}."
        weights = {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}
        normed = norm64(x, weights["input_layernorm.weight"], config.rms_norm_eps)
        x = x + scale * attention64(normed, weights, config)
        normed = norm64(x, weights["post_attention_layernorm.weight"], config.rms_norm_eps)
        gate, up = (normed @ weights[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        x = x + scale * ((gate / (1 + (-gate).exp()) * up) @ weights["mlp.down_proj.weight"].T)
    return norm64(x, state["norm.weight"], config.rms_norm_eps)


@pytest.mark.parametrize("use_mup", [False, True])
def test_equals_a_plain_stack(use_mup: bool) -> None:
    config = local_config(use_mup)
    stack, hidden = local_stack(config), torch.randn(3, LENGTH, config.hidden_size)
    for got, row in zip(stack(hidden), hidden, strict=True):
        torch.testing.assert_close(got.double(), stack64(stack, row, config), rtol=1e-4, atol=1e-5)


def test_the_last_position_reaches_the_first() -> None:
    config = local_config()
    stack, hidden = local_stack(config), torch.randn(1, LENGTH, config.hidden_size)
    changed = hidden.clone()
    changed[:, -1] += 1.0
    assert (stack(changed)[:, 0] - stack(hidden)[:, 0]).abs().max() > 1e-3


# -- fusing --------------------------------------------------------------------------------------------------


def storage_bytes(module: nn.Module) -> int:
    """Bytes of all storages behind a module's parameters, each counted once and whole."""
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in module.parameters()}
    return sum(storages.values())


def test_fused_weights_give_the_same() -> None:
    stack = local_stack(local_config())
    fused, hidden = copy.deepcopy(stack), torch.randn(3, LENGTH, 64)
    for attention in attentions(fused):
        attention.fuse_qkv()
    torch.testing.assert_close(fused(hidden), stack(hidden), rtol=0, atol=1e-5)


def test_fusing_keeps_no_second_copy() -> None:
    stack = local_stack(local_config())
    before, split = storage_bytes(stack), []
    for attention in attentions(stack):
        assert attention.q_proj is not None
        split.append(weakref.ref(attention.q_proj.weight))
        attention.fuse_qkv()
    gc.collect()
    assert storage_bytes(stack) == before
    assert [reference() for reference in split] == [None] * len(split)
    names = [name for name, _ in stack.named_parameters()]
    assert not [name for name in names if any(f".{part}_proj." in name for part in "qkv")]
    assert sum("qkv_proj" in name for name in names) == len(split) == 2


def test_fusing_again_changes_nothing() -> None:
    (attention, *_) = attentions(local_stack(local_config()))
    attention.fuse_qkv()
    assert attention.qkv_proj is not None
    module, weight = attention.qkv_proj, attention.qkv_proj.weight
    attention.fuse_qkv()
    assert attention.qkv_proj is module
    assert attention.qkv_proj.weight is weight


def test_bfloat16_is_kept_through_fusing() -> None:
    stack = local_stack(local_config()).bfloat16()
    hidden = torch.randn(2, LENGTH, 64).bfloat16()
    before = stack(hidden)
    for attention in attentions(stack):
        attention.fuse_qkv()
    assert stack(hidden).dtype == before.dtype == torch.bfloat16
    torch.testing.assert_close(stack(hidden), before, rtol=0, atol=0.05)

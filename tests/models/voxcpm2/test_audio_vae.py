"""AudioVAE against golden data of the reference implementation, and its own invariants under every option."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
import torch
from torch import Tensor, nn

from models.checkpoint import CheckpointError
from models.voxcpm2.audio_vae import AudioVAE, fold_weight_norm, load_audio_vae_weights
from models.voxcpm2.config import AudioVAEConfig, VoxCPM2ModelConfig, read_config

FIXTURES = Path(__file__).parents[2] / "fixtures" / "voxcpm2"
CASES: dict[str, dict[str, Any]] = json.loads(
    (FIXTURES / "golden" / "index.json").read_text(encoding="utf-8")
)
CONTEXT_PATCHES = 3  # of the prompt that prime the decoder in continuation modes
GOLDEN_TOLERANCE = 1e-6  # measured: 1.2e-7 decoding, 5e-8 encoding; the contract is 2e-4

TINY = AudioVAEConfig(
    encoder_dim=4,
    encoder_rates=(2, 3),
    latent_dim=6,
    decoder_dim=16,
    decoder_rates=(3, 2),
    cond_dim=5,
)
CONDITIONS: list[dict[str, Any]] = [
    {"sr_bin_boundaries": None},
    {"cond_type": "scale_bias"},
    {"cond_type": "scale_bias_init", "cond_out_layer": True},
    {"cond_type": "add", "sr_bin_boundaries": ()},
    {"cond_type": "concat", "cond_out_layer": True, "sr_bin_boundaries": (48000,)},
]
OPTIONS = [
    {"depthwise": depthwise, "use_noise_block": noise, **condition, "decoder_rates": rates}
    for depthwise, noise, condition, rates in itertools.product(
        (True, False), (True, False), CONDITIONS, ((3, 2), (1, 5, 2))
    )
]


def tiny_vae(**options: Any) -> AudioVAE:
    """A small AudioVAE with random weights that make every part of it matter."""
    torch.manual_seed(0)
    vae = AudioVAE(TINY.model_copy(update=options))
    for name, parameter in vae.named_parameters():
        if name.endswith("alpha"):
            parameter.uniform_(0.2, 2.0)
        elif name.endswith(".bias"):
            parameter.normal_(0.0, 0.1)
    return vae


def draw_noise(vae: AudioVAE, batch: int, frames: int) -> Tensor | None:
    lengths = vae.noise_lengths(frames)
    return torch.randn(batch, sum(lengths)) if lengths else None


def decode_in_chunks(
    vae: AudioVAE, latents: Tensor, state: Tensor, chunks: list[int], noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Decode chunk by chunk; `noise` is that of a whole decode, dealt out to the chunks."""
    blocks = (
        torch.split(noise, list(vae.noise_lengths(latents.shape[-1])), dim=1) if noise is not None else ()
    )
    pcm, start = [], 0
    for chunk in torch.split(latents, chunks, dim=-1):
        frames = chunk.shape[-1]
        parts = [
            block[:, per_frame * start : per_frame * (start + frames)]
            for block, per_frame in zip(blocks, vae.noise_lengths(1), strict=True)
        ]
        samples, state = vae.decode_step(chunk, state, torch.cat(parts, dim=1) if parts else None)
        pcm.append(samples)
        start += frames
    return torch.cat(pcm, dim=-1), state


def assert_near(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(actual, expected, rtol=0.0, atol=tolerance)


# -- golden data -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config() -> VoxCPM2ModelConfig:
    return read_config(FIXTURES / "checkpoint")


@pytest.fixture(scope="module")
def released_state() -> dict[str, Tensor]:
    path = FIXTURES / "checkpoint" / "audiovae.pth"
    state: dict[str, Tensor] = torch.load(path, weights_only=True)["state_dict"]
    return state


@pytest.fixture(scope="module")
def vae(config: VoxCPM2ModelConfig, released_state: dict[str, Tensor]) -> AudioVAE:
    module = AudioVAE(config.audio_vae_config)
    load_audio_vae_weights(module, released_state)
    return module


def read_case(name: str) -> dict[str, Tensor]:
    with np.load(FIXTURES / "golden" / f"{name}.npz") as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}


def as_frames(patches: Tensor) -> Tensor:
    """Patches `[n, P, D]` to latents `[1, D, n * P]`."""
    return patches.flatten(0, 1).T.unsqueeze(0)


def trailing_context(case: dict[str, Tensor]) -> Tensor | None:
    """The last prompt patches, where the prompt ends in audio."""
    mask = case["prompt_audio_mask"].bool()
    return case["prompt_latents"][mask][-CONTEXT_PATCHES:] if mask[-1] else None


@pytest.mark.parametrize("name", CASES)
def test_patch_by_patch_equals_reference_stream(name: str, vae: AudioVAE, config: VoxCPM2ModelConfig) -> None:
    case = read_case(name)
    patches = case["latents"]
    cold = vae.new_decoder_state(1, "cpu")
    pcm, _ = decode_in_chunks(vae, as_frames(patches), cold, [config.patch_size] * len(patches))
    assert_near(pcm[0], case["audio_streaming"], GOLDEN_TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_primed_stream_and_whole_decode_equal_reference(
    name: str, vae: AudioVAE, config: VoxCPM2ModelConfig
) -> None:
    case = read_case(name)
    patches, context = case["latents"], trailing_context(case)
    assert (context is not None) == ("prompt_wav_path" in CASES[name])
    state = vae.new_decoder_state(1, "cpu")
    if context is None:
        assert_near(vae.decode(as_frames(patches))[0], case["audio_full"], GOLDEN_TOLERANCE)
    else:
        _, state = vae.decode_step(as_frames(context), state)
    pcm, _ = decode_in_chunks(vae, as_frames(patches), state, [config.patch_size] * len(patches))
    assert_near(pcm[0], case["audio_full"], GOLDEN_TOLERANCE)


def read_voice(name: str, config: VoxCPM2ModelConfig, pad_left: bool) -> Tensor:
    """A voice at the AudioVAE's rate, padded to whole patches: float32 `[1, N]`."""
    rate = config.audio_vae_config.sample_rate
    audio, source_rate = soundfile.read(FIXTURES / name, dtype="float32")
    length = math.ceil(len(audio) * rate / source_rate)
    audio = soxr.resample(audio, source_rate, rate, quality="HQ")[:length]
    audio = np.pad(audio, (0, length - len(audio)))
    missing = -length % config.patch_input_samples
    return torch.from_numpy(np.pad(audio, (missing, 0) if pad_left else (0, missing))).unsqueeze(0)


@pytest.mark.parametrize("name", [name for name in CASES if "continuation" in name or "reference" in name])
def test_encode_equals_reference(name: str, vae: AudioVAE, config: VoxCPM2ModelConfig) -> None:
    case = read_case(name)
    voices = [(CASES[name].get("reference_wav_path"), False), (CASES[name].get("prompt_wav_path"), True)]
    patches = [
        vae.encode(read_voice(voice, config, pad_left))[0].T.reshape(-1, config.patch_size, config.feat_dim)
        for voice, pad_left in voices
        if voice
    ]
    expected = case["prompt_latents"][case["prompt_audio_mask"].bool()]
    assert_near(torch.cat(patches), expected, GOLDEN_TOLERANCE)


# -- streaming ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_any_chunking_equals_whole_decode(options: dict[str, Any]) -> None:
    vae = tiny_vae(**options)
    chunks = [1, 5, 2, 1, 1, 4, 3]
    latents = torch.randn(2, TINY.latent_dim, sum(chunks))
    noise = draw_noise(vae, 2, sum(chunks))
    whole = vae.decode(latents, noise)
    streamed, _ = decode_in_chunks(vae, latents, vae.new_decoder_state(2, "cpu"), chunks, noise)
    assert whole.shape == (2, sum(chunks) * vae.config.decoder_hop)
    assert_near(streamed, whole, 1e-6 * whole.abs().max().item())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rows_of_a_batch_are_independent(options: dict[str, Any]) -> None:
    vae = tiny_vae(**options)
    latents, state = torch.randn(3, TINY.latent_dim, 2), torch.randn(3, vae.decoder_state_size)
    noise = draw_noise(vae, 3, 2)
    pcm, updated = vae.decode_step(latents, state, noise)
    for row in range(3):
        one = slice(row, row + 1)
        alone = vae.decode_step(latents[one], state[one], noise[one] if noise is not None else None)
        assert_near(alone[0], pcm[one], 1e-6)
        assert_near(alone[1], updated[one], 1e-5)


def test_streams_come_and_go_over_slots() -> None:
    vae = tiny_vae()
    latents = torch.randn(3, TINY.latent_dim, 4)
    slots = vae.new_decoder_state(5, "cpu")
    pcm: dict[int, list[Tensor]] = {0: [], 1: [], 2: []}
    slot_of, done = torch.tensor([4, 0, 2]), torch.zeros(3, dtype=torch.int64)
    for streams in ([0], [2, 0], [1, 2, 0], [1], [0, 1, 2], [2, 1]):
        frames = torch.stack([latents[s, :, done[s] : done[s] + 1] for s in streams])
        rows = slot_of[streams]
        samples, updated = vae.decode_step(frames, slots.index_select(0, rows))
        slots.index_copy_(0, rows, updated)
        for stream, chunk in zip(streams, samples, strict=True):
            pcm[stream].append(chunk)
        done[streams] += 1
    whole = vae.decode(latents)
    for stream, chunks in pcm.items():
        assert_near(torch.cat(chunks), whole[stream], 1e-6)
    assert not slots[[1, 3]].any()


def test_a_step_changes_neither_its_arguments_nor_the_weights() -> None:
    vae = tiny_vae(use_noise_block=True)
    latents, state = torch.randn(2, TINY.latent_dim, 3), torch.randn(2, vae.decoder_state_size)
    noise = draw_noise(vae, 2, 3)
    assert noise is not None
    before = [tensor.clone() for tensor in (latents, state, noise, *vae.state_dict().values())]
    first, second = vae.decode_step(latents, state, noise), vae.decode_step(latents, state, noise)
    after = (latents, state, noise, *vae.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_runs_under_inference_mode_in_float32_whatever_the_default_dtype() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        vae = tiny_vae()
        state = vae.new_decoder_state(1, "cpu")
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        pcm, state = vae.decode_step(torch.randn(1, TINY.latent_dim, 1), state)
        pcm, state = vae.decode_step(torch.randn(1, TINY.latent_dim, 1), state)
        assert vae.encode(torch.randn(1, 5)).dtype == torch.float32
    assert pcm.dtype == state.dtype == torch.float32


def test_a_step_never_looks_at_values() -> None:
    """Tensors on the meta device have none: reading one would raise, and break a CUDA graph."""
    vae = tiny_vae(use_noise_block=True).to("meta")
    latents, noise = torch.empty(2, TINY.latent_dim, 3, device="meta"), torch.empty(2, 27, device="meta")
    pcm, updated = vae.decode_step(latents, vae.new_decoder_state(2, "meta"), noise)
    assert pcm.shape == (2, 3 * vae.config.decoder_hop)
    assert updated.shape == (2, vae.decoder_state_size)


# -- noise, conditioning, encoder --------------------------------------------------------------------------


def test_noise_is_an_argument() -> None:
    vae = tiny_vae(use_noise_block=True)
    assert vae.noise_lengths(4) == (4 * 3, 4 * 3 * 2)
    latents, noise = torch.randn(1, TINY.latent_dim, 4), torch.randn(1, 36)
    assert torch.equal(vae.decode(latents, noise), vae.decode(latents, noise))
    assert not torch.allclose(vae.decode(latents, noise), vae.decode(latents, torch.randn(1, 36)))
    quiet = tiny_vae(use_noise_block=True)
    quiet.decoder.get_parameter("model.2.block.2.linear.weight").zero_()
    early_changed, late_changed = noise.clone(), noise.clone()
    early_changed[:, :12] += 1.0
    late_changed[:, 12:] += 1.0
    assert torch.equal(quiet.decode(latents, noise), quiet.decode(latents, early_changed))
    assert not torch.allclose(quiet.decode(latents, noise), quiet.decode(latents, late_changed))


def test_noise_must_fit_the_configuration() -> None:
    latents = torch.randn(2, TINY.latent_dim, 1)
    assert tiny_vae().noise_lengths(4) == ()
    with pytest.raises(ValueError, match="no noise blocks"):
        tiny_vae().decode(latents, torch.randn(2, 9))
    with pytest.raises(ValueError, match=r"has noise blocks: give \[2, 9\]"):
        tiny_vae(use_noise_block=True).decode(latents)
    with pytest.raises(ValueError, match=r"\[2, 8\]: give \[2, 9\]"):
        tiny_vae(use_noise_block=True).decode(latents, torch.randn(2, 8))


@pytest.mark.parametrize(
    ("rate", "bucket"), [(16000, 0), (20000, 0), (20001, 1), (30000, 1), (40000, 2), (48000, 3)]
)
def test_output_rate_chooses_its_bucket(rate: int, bucket: int) -> None:
    boundaries = (20000, 30000, 40000)
    assert torch.bucketize(torch.tensor(rate), torch.tensor(boundaries)).item() == bucket
    latents = torch.randn(1, TINY.latent_dim, 1)
    for other in range(4):
        vae = tiny_vae(out_sample_rate=rate, sr_bin_boundaries=boundaries, cond_type="add")
        before = vae.decode(latents)
        vae.decoder.get_parameter("sr_cond_model.2.cond_embed.weight")[other] += 1.0
        assert torch.equal(vae.decode(latents), before) == (other != bucket)


def test_concat_needs_the_output_layer() -> None:
    with pytest.raises(CheckpointError, match="set cond_out_layer to true"):
        tiny_vae(cond_type="concat")


@pytest.mark.parametrize("rates", [(2, 3), (5, 1, 3), (4,)])
@pytest.mark.parametrize("depthwise", [True, False])
def test_encoder_pads_to_whole_frames_and_is_causal(rates: tuple[int, ...], depthwise: bool) -> None:
    vae = tiny_vae(encoder_rates=rates, depthwise=depthwise)
    hop = vae.config.encoder_hop
    audio = torch.randn(2, 5 * hop - 1)
    latents = vae.encode(audio)
    assert latents.shape == (2, TINY.latent_dim, 5)
    assert_near(vae.encode(nn.functional.pad(audio, (0, 1))), latents, 1e-6)
    assert_near(vae.encode(audio[:, : 3 * hop]), latents[..., :3], 1e-6)


# -- weights -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize(
    "layer", [nn.Conv1d(4, 6, 3), nn.ConvTranspose1d(4, 6, 3)], ids=["conv", "transposed"]
)
def test_folding_equals_weight_norm(layer: nn.Module) -> None:
    weight = layer.get_parameter("weight").detach().clone()
    for norm in (nn.utils.weight_norm, nn.utils.parametrizations.weight_norm):
        normed = norm(type(layer)(4, 6, 3))
        state = {f"net.0.{name}": tensor for name, tensor in normed.state_dict().items()}
        for name, tensor in state.items():
            if name.endswith(("weight_g", "original0")):
                tensor.uniform_(0.5, 2.0)  # at first a gain is just the norm of its direction
        state["net.1.weight"] = weight
        normed(torch.randn(1, 4, 5))  # the classic form computes its weight on the way
        expected = normed.weight
        assert isinstance(expected, Tensor)
        folded = fold_weight_norm(state)
        assert set(folded) == {"net.0.bias", "net.0.weight", "net.1.weight"}
        torch.testing.assert_close(folded["net.0.weight"], expected.detach())
        assert folded["net.1.weight"] is weight


def test_plain_weights_of_the_module_load_again(vae: AudioVAE) -> None:
    again = AudioVAE(vae.config)
    load_audio_vae_weights(again, vae.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(vae.parameters(), again.parameters(), strict=True))


def test_all_problems_are_named_at_once(vae: AudioVAE, released_state: dict[str, Tensor]) -> None:
    state = dict(released_state)
    state["decoder.model.8.alpha"] = torch.ones(1, 3, 1)
    state["decoder.extra"] = torch.zeros(1)
    state["decoder.sr_bin_boundaries"] = torch.tensor([1, 2])
    del state["encoder.fc_mu.bias"], state["encoder.fc_mu.weight_v"]
    with pytest.raises(CheckpointError) as error:
        load_audio_vae_weights(AudioVAE(vae.config), state)
    for problem in (
        "decoder.model.8.alpha has shape [1, 3, 1], the configuration says [1, 2, 1]",
        "decoder.extra is not part of this model",
        "decoder.sr_bin_boundaries is [1, 2], the configuration says [20000, 30000, 40000]",
        "encoder.fc_mu.bias is missing",
        "encoder.fc_mu.weight is missing",
        "encoder.fc_mu.weight_g is not part of this model",
    ):
        assert problem in str(error.value)


def test_boundaries_without_conditioning_are_an_error() -> None:
    vae = tiny_vae(sr_bin_boundaries=None)
    with pytest.raises(CheckpointError, match="the configuration says none"):
        load_audio_vae_weights(vae, {**vae.state_dict(), "decoder.sr_bin_boundaries": torch.tensor([1])})


def test_a_gain_that_does_not_fit_its_direction_is_named() -> None:
    state = {"a.weight_g": torch.ones(1, 1, 1), "a.weight_v": torch.ones(2, 3, 4)}
    with pytest.raises(CheckpointError, match=r"a\.weight_g has shape \[1, 1, 1\].*\[2, 1, 1\]"):
        fold_weight_norm(state)

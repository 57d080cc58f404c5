"""AudioVAE V2: conditioning audio to latents, latents to speech, both float32 and strictly causal.

    encode       [B, N]                            -> [B, D, T]
    decode_step  [B, D, T], state [B, state_size]  -> [B, T * hop], next state

A stream's decoder state is one flat row: the left contexts of all convolutions, one behind the other. A cold
stream is a row of zeros. Decoding step by step, in chunks of any size, equals decoding the whole.
Source: AudioVAE V2 of VoxCPM2 (openbmb/VoxCPM2).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from models.checkpoint import CheckpointError
from models.voxcpm2.audio_vae_decoder import Decoder, DecoderContext
from models.voxcpm2.audio_vae_encoder import Encoder
from models.voxcpm2.causal_conv import ZeroContext, context_size
from models.voxcpm2.config import AudioVAEConfig
from models.voxcpm2.manifest import find_problems

# Gain and direction of a weight-normed tensor: classic naming, then that of torch's parametrizations.
WEIGHT_NORM_SUFFIXES = (
    (".weight_g", ".weight_v"),
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
)
BOUNDARIES = "decoder.sr_bin_boundaries"  # a checkpoint repeats this part of its configuration as a tensor


class AudioVAE(nn.Module):
    """The audio codec of VoxCPM2, for inference: float32, weight norm folded, no gradients.

    Attributes:
        decoder_state_size: floats of decoder state per stream.

    Raises:
        CheckpointError: the configuration contradicts itself.
    """

    def __init__(self, config: AudioVAEConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.decoder_state_size = context_size(self.decoder)
        self.float().requires_grad_(False)

    def encode(self, audio: Tensor) -> Tensor:
        """Mean latents of whole recordings; the last frame is filled up with silence.

        Args:
            audio: float32 `[B, N]`, mono samples in [-1, 1] at `config.sample_rate`, N >= 1.

        Returns:
            float32 `[B, D, T]`, T = ceil(N / `config.encoder_hop`).
        """
        padding = -audio.shape[-1] % self.config.encoder_hop
        samples = pad(audio, (0, padding)).unsqueeze(1)
        return self.encoder(samples, ZeroContext())

    def decode(self, latents: Tensor, noise: Tensor | None = None) -> Tensor:
        """Whole utterances, from silence. Arguments and errors as of `decode_step`.

        Returns:
            float32 `[B, T * config.decoder_hop]`, samples in [-1, 1] at `config.out_sample_rate`.
        """
        cold = self.new_decoder_state(latents.shape[0], latents.device)
        return self.decode_step(latents, cold, noise)[0]

    def new_decoder_state(self, num_slots: int, device: torch.device | str) -> Tensor:
        """Cold decoder state of `num_slots` streams: float32 zeros `[num_slots, decoder_state_size]`."""
        return torch.zeros(num_slots, self.decoder_state_size, dtype=torch.float32, device=device)

    def noise_lengths(self, frames: int) -> tuple[int, ...]:
        """Noise samples per noise block for `frames` latent frames, in drawing order; empty without."""
        return self.decoder.noise_lengths(frames)

    def decode_step(
        self, latents: Tensor, state_rows: Tensor, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next frames of a batch of streams. Changes no argument and never waits for the device.

        Args:
            latents: float32 `[B, D, T]`, T >= 1.
            state_rows: float32 `[B, decoder_state_size]`, what the streams' last step returned, or zeros.
            noise: float32 `[B, sum(noise_lengths(T))]`, standard normal; for decoders with noise blocks only.

        Returns:
            Samples in [-1, 1] at `config.out_sample_rate`, float32 `[B, T * config.decoder_hop]`, and the
            state rows for the next step.

        Raises:
            ValueError: noise is missing, superfluous or of another shape.
        """
        self._check_noise(latents, noise)
        context = DecoderContext(state_rows, noise)
        samples = self.decoder(latents, context)
        return samples, context.updated

    def _check_noise(self, latents: Tensor, noise: Tensor | None) -> None:
        batch, _, frames = latents.shape
        samples = sum(self.noise_lengths(frames))
        if not samples and noise is not None:
            raise ValueError("this AudioVAE has no noise blocks (use_noise_block is false): give no noise")
        if samples and noise is None:
            raise ValueError(f"this AudioVAE has noise blocks: give [{batch}, {samples}] samples of noise")
        if noise is not None and noise.shape != (batch, samples):
            raise ValueError(f"noise has shape {list(noise.shape)}: give [{batch}, {samples}]")


def fold_weight_norm(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replace each pair of gain g and direction v by `weight = g * v / |v|`; other tensors pass unchanged.

    The norm is over all dimensions but the first, also for transposed convolutions. Half of a pair passes
    unchanged too, so that a strict load names it.
    Source: weight normalization (arXiv 1602.07868).

    Raises:
        CheckpointError: a gain does not fit its direction; all such are named with both shapes.
    """
    folded = dict(state_dict)
    problems = []
    for gain_suffix, direction_suffix in WEIGHT_NORM_SUFFIXES:
        for gain_name in [name for name in state_dict if name.endswith(gain_suffix)]:
            layer = gain_name.removesuffix(gain_suffix)
            direction_name = layer + direction_suffix
            if direction_name not in folded:
                continue
            gain, direction = folded.pop(gain_name), folded.pop(direction_name)
            norm = torch.linalg.vector_norm(direction, dim=tuple(range(1, direction.ndim)), keepdim=True)
            if gain.shape != norm.shape:
                problems.append(
                    f"{gain_name} has shape {list(gain.shape)}, "
                    f"{direction_name} of shape {list(direction.shape)} takes {list(norm.shape)}"
                )
                continue
            folded[f"{layer}.weight"] = direction * (gain / norm)
    if problems:
        raise CheckpointError(_unusable(problems))
    return folded


def load_audio_vae_weights(module: AudioVAE, state_dict: Mapping[str, Tensor]) -> None:
    """Fill `module`: its parameters are overwritten, on their device, in float32.

    Arguments and errors as of `match_audio_vae_weights`; after an error nothing has been loaded.
    """
    module.load_state_dict(match_audio_vae_weights(module, state_dict))


def match_audio_vae_weights(module: AudioVAE, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by the names of `module`, which may be on the meta device.

    Args:
        state_dict: exactly the module's tensors, weight-normed or plain, in the released naming; the
            sample-rate boundaries may be among them.

    Raises:
        CheckpointError: a tensor is missing, unexpected or wrongly shaped, or the boundaries are not those of
            the configuration. All problems are listed.
    """
    tensors = fold_weight_norm(state_dict)
    expected = module.state_dict()
    boundaries = tensors.pop(BOUNDARIES, None)
    problems = find_problems(
        {name: tuple(tensor.shape) for name, tensor in expected.items()},
        {name: tuple(tensor.shape) for name, tensor in tensors.items()},
    )
    configured = module.config.sr_bin_boundaries
    if boundaries is not None and (configured is None or boundaries.tolist() != list(configured)):
        says = "none" if configured is None else list(configured)
        problems.append(f"{BOUNDARIES} is {boundaries.tolist()}, the configuration says {says}")
    if problems:
        raise CheckpointError(_unusable(problems))
    return tensors


def _unusable(problems: list[str]) -> str:
    return (
        f"the AudioVAE's weights do not match audio_vae_config: {'; '.join(problems)}. "
        "Download the checkpoint again, or check that both files belong together"
    )

"""VoxCPM2 as one vLLM model: the order in which its parts turn a step's positions into patches and PCM.

    text ids, latents -> embeddings -> base LM -> FSQ (audio positions) -> h
    h, audio embeddings -> fusion -> residual LM -> r
    h, r of a sequence's last position -> CFM solver -> patch -> AudioVAE -> PCM;  h -> stop logits

Invariant: a forward reads and writes request state only through the slots named in `StepInputs`.
"""

from collections.abc import Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.sequence import IntermediateTensors

from models.voxcpm2.audio_vae import AudioVAE
from models.voxcpm2.config import VoxCPM2ModelConfig
from models.voxcpm2.flow_matching import solve
from models.voxcpm2.fsq import FiniteScalarQuantizer
from models.voxcpm2.local_dit import LocalDiT
from models.voxcpm2.local_encoder import LocalEncoder
from models.voxcpm2.manifest import STOP_CLASSES
from models.voxcpm2.minicpm4_local import LocalAttention
from models.voxcpm2.minicpm4_paged import MiniCPM4PagedForVoxCPM2, MiniCPM4PagedResidualLM
from models.voxcpm2.patch_hash import PatchHasher
from models.voxcpm2.slots import SlotState, StepInputs, StepOutputs
from models.voxcpm2.weights import load_model_weights


class VoxCPM2ForTextToSpeech(nn.Module):
    """The class behind the architecture of that name in vLLM's registry."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config: VoxCPM2ModelConfig = vllm_config.model_config.hf_config.voxcpm2
        if vllm_config.parallel_config.pipeline_parallel_size > 1:
            raise ValueError("VoxCPM2 does not run pipeline-parallel: use tensor parallelism instead")
        self.config = config
        hidden, dit_hidden = config.lm_config.hidden_size, config.dit_config.hidden_dim
        self.base_lm = MiniCPM4PagedForVoxCPM2(config, vllm_config, _join(prefix, "base_lm"))
        self.residual_lm = MiniCPM4PagedResidualLM(config, vllm_config, _join(prefix, "residual_lm"))
        self.local_encoder = LocalEncoder(config)
        self.local_dit = LocalDiT(config)
        self.fsq = FiniteScalarQuantizer(
            hidden, config.scalar_quantization_latent_dim, config.scalar_quantization_scale
        )
        self.enc_to_lm_proj = nn.Linear(config.encoder_config.hidden_dim, hidden)
        self.lm_to_dit_proj = nn.Linear(hidden, dit_hidden)
        self.res_to_dit_proj = nn.Linear(hidden, dit_hidden)
        self.fusion_concat_proj = nn.Linear(2 * hidden, hidden)
        self.stop_proj = nn.Linear(hidden, hidden)
        self.stop_head = nn.Linear(hidden, STOP_CLASSES, bias=False)
        self.audio_vae = AudioVAE(config.audio_vae_config).float()
        self.patch_hash = PatchHasher(
            config.patch_size * config.feat_dim,
            config.lm_config.vocab_size,
            torch.device(vllm_config.device_config.device),
        )

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Text ids `[T]` to embeddings `[T, H]`. Part of vLLM's interface."""
        return self.base_lm.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: Tensor | None = None,
        *,
        state: SlotState,
        step: StepInputs,
        outputs: StepOutputs,
    ) -> Tensor:
        """Run one step of all scheduled requests, prefill and decode mixed.

        Args:
            input_ids: `[T]`, text ids, and content hashes at audio positions.
            positions: int64 `[T]`.
            intermediate_tensors, inputs_embeds: of vLLM's interface; not used.
            state: slots; those of `step` get their next patch and VAE context.
            step: what belongs where.
            outputs: rows 0 to R get this step's patches.

        Returns:
            Base LM states after quantisation, `[T, H]`.
        """
        del intermediate_tensors, inputs_embeds
        is_audio = step.is_audio.unsqueeze(-1)
        audio = self._embed_audio(state, step, positions.shape[0])
        text = self.base_lm.embed_input_ids(input_ids.masked_fill(step.is_audio, 0))
        hidden = self.base_lm(None, positions, torch.where(is_audio, audio, text))
        hidden = torch.where(is_audio, self.fsq(hidden), hidden)
        residual = self.residual_lm(self.fusion_concat_proj(torch.cat((hidden, audio), dim=-1)), positions)
        if step.last_rows.shape[0]:
            self._emit(hidden[step.last_rows], residual[step.last_rows], state, step, outputs)
        return hidden

    def _embed_audio(self, state: SlotState, step: StepInputs, length: int) -> Tensor:
        """Embeddings of audio positions in `[T, H]`, zeros at text positions, which skip the encoder."""
        dtype = self.enc_to_lm_proj.weight.dtype
        audio = torch.zeros(
            length, self.config.lm_config.hidden_size, dtype=dtype, device=step.is_audio.device
        )
        if step.audio_rows.shape[0]:
            patches = state.latents[step.audio_slots, step.audio_positions]
            audio[step.audio_rows] = self.enc_to_lm_proj(self.local_encoder(patches))
        return audio

    def _emit(
        self, hidden: Tensor, residual: Tensor, state: SlotState, step: StepInputs, outputs: StepOutputs
    ) -> None:
        """The next patch of `R` sequences: latents, PCM, stop decision and token id."""
        slots, steps = step.slots, step.num_steps
        previous = state.latents[slots, step.last_positions]
        condition = torch.where(step.is_audio[step.last_rows].view(-1, 1, 1), previous, 0)
        patches = solve(
            self.local_dit,
            step.noise,
            torch.cat((self.lm_to_dit_proj(hidden), self.res_to_dit_proj(residual)), dim=-1),
            condition,
            state.times[slots, :steps],
            state.widths[slots, :steps],
            state.cfg[slots],
        )
        state.latents[slots, step.last_positions + 1] = patches
        pcm = self._decode(patches, state, slots, step.vae_noise)
        stop_logits = self.stop_head(F.silu(self.stop_proj(hidden)))
        stops = step.may_stop & (stop_logits.argmax(dim=-1) == 1)
        rows = slots.shape[0]
        outputs.packed[:rows] = torch.cat((pcm, patches.flatten(1).float(), stop_logits.float()), dim=-1)
        outputs.token_ids[:rows] = torch.where(
            stops, self.config.lm_config.eos_token_id, self.patch_hash(patches)
        )

    def _decode(self, patches: Tensor, state: SlotState, slots: Tensor, noise: Tensor | None) -> Tensor:
        frames = patches.float().transpose(1, 2)
        pcm, context = self.audio_vae.decode_step(frames, state.vae[slots], noise)
        state.vae[slots] = context
        return pcm

    def prime_decoder(
        self, patches: Tensor, state: SlotState, slots: Tensor, noise: Tensor | None = None
    ) -> None:
        """Warm cold decoder states with the last patches of a prompt, so that speech continues it smoothly.

        Args:
            patches: `[N, patches, patch_size, feat_dim]`.
            state: its rows `slots` are cold and get warm.
            slots: int64 `[N]`.
            noise: `[N, samples]` for decoders with noise blocks.
        """
        self._decode(patches.flatten(1, 2), state, slots, noise)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """Part of vLLM's interface. Tokens come from `StepOutputs`; nothing samples from these."""
        return hidden_states

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load a checkpoint that was checked against its manifest; released naming, `audio_vae.` prefixed."""
        return load_model_weights(self, dict(weights))

    def precompute_fused_qkv(self) -> int:
        """Fuse q, k and v of every attention into one weight; returns how many are fused. Idempotent."""
        local = [module for module in self.modules() if isinstance(module, LocalAttention)]
        for attention in local:
            attention.fuse_qkv()
        return len(local) + self.base_lm.precompute_fused_qkv() + self.residual_lm.precompute_fused_qkv()

    def compile_selective(self) -> list[str]:
        """Compile the dense parts of both LMs; returns patterns of what is newly compiled. Idempotent."""
        stacks: Mapping[str, MiniCPM4PagedForVoxCPM2 | MiniCPM4PagedResidualLM] = {
            "base_lm": self.base_lm,
            "residual_lm": self.residual_lm,
        }
        return [f"{name}.{part}" for name, stack in stacks.items() for part in stack.compile_selective()]


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name

"""From text and conditioning latents to the sequence the model reads. Free of torch and vLLM.

    zero-shot                 text 101
    reference                 103 ref... 104 text 101
    continuation              (prompt text + text) 101 prompt...
    reference + continuation  103 ref... 104 (prompt text + text) 101 prompt...

Audio positions carry content hashes of their patches as ids; the patches themselves travel as bytes beside
them, in `SpeechParams`.
"""

import hashlib
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from models.voxcpm2 import limits
from models.voxcpm2.content_ids import prompt_ids
from models.voxcpm2.tokenizer import TextTokenizer

AUDIO_START, AUDIO_END = 101, 102
REFERENCE_START, REFERENCE_END = 103, 104

Patches = npt.NDArray[np.float32]  # [N, patch_size, feat_dim]


class AudioSpan(msgspec.Struct, frozen=True):
    """`length` audio positions of a prompt from position `start` on."""

    start: int
    length: int


class SpeechParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the engine must know of a request beyond its token ids; travels in `SamplingParams.extra_args`.

    Attributes:
        seed: of the request's own noise generator.
        cfg, steps, temperature: of the CFM solver.
        min_patches: the stop flag of patch i counts only when i > min_patches.
        channel: where its patches go; see `models.runtime.audio_channel`. Empty: nowhere.
        spans: audio positions of the prompt, in order.
        latents: float32 patches of those positions, in order.
        context_patches: last prompt patches that warm the decoder, where the prompt ends in audio.
    """

    seed: int
    cfg: float = limits.DEFAULT_CFG
    steps: int = limits.DEFAULT_STEPS
    temperature: float = 1.0
    min_patches: int = limits.DEFAULT_MIN_PATCHES
    channel: str = ""
    spans: tuple[AudioSpan, ...] = ()
    latents: bytes = b""
    context_patches: int = limits.CONTEXT_PATCHES

    def to_extra_args(self) -> dict[str, bytes]:
        """The `extra_args` of a request."""
        return {EXTRA_ARGS_KEY: msgspec.msgpack.encode(self)}

    @classmethod
    def from_extra_args(cls, extra_args: dict[str, bytes] | None) -> "SpeechParams":
        """Back from `extra_args`; a request without them gets the defaults and seed 0."""
        if not extra_args or EXTRA_ARGS_KEY not in extra_args:
            return cls(seed=0)
        return msgspec.msgpack.decode(extra_args[EXTRA_ARGS_KEY], type=cls)


EXTRA_ARGS_KEY = "voxcpm2"


@dataclass(frozen=True)
class Conditioning:
    """Audio that a request imitates (`reference`) or continues (`prompt`, which says `prompt_text`)."""

    reference: Patches | None = None
    prompt: Patches | None = None
    prompt_text: str = ""


@dataclass(frozen=True)
class Prompt:
    """A laid-out request: ids of every position, where audio lies, and its patches.

    Attributes:
        token_ids: of all positions.
        spans: audio positions.
        latents: their patches `[N, patch_size, feat_dim]`.
        cache_salt: strong hash of all conditioning audio. Prefix caches are shared only within it, so that a
            crafted collision of the 31-bit ids cannot read another voice's states. None without audio.
        patch_limit: the reference's bound on the length of the answer, in patches.
    """

    token_ids: list[int]
    spans: tuple[AudioSpan, ...]
    latents: Patches
    cache_salt: str | None
    patch_limit: int

    def require_room(self, max_model_len: int) -> None:
        """Raise `ValueError` unless a model of `max_model_len` positions has some left for speech."""
        if len(self.token_ids) >= max_model_len:
            raise ValueError(
                f"text and audio take {len(self.token_ids)} positions of the model's {max_model_len}, which "
                "leaves none for speech: shorten the text or the audio"
            )


class PromptBuilder:
    """Lays out prompts for one checkpoint."""

    def __init__(self, tokenizer: TextTokenizer, text_vocab_size: int, patch_shape: tuple[int, int]) -> None:
        self._tokenize = tokenizer
        self._text_vocab_size = text_vocab_size
        self._patch_shape = patch_shape

    def build(self, text: str, conditioning: Conditioning | None = None) -> Prompt:
        """Lay out `text`, spoken under `conditioning`.

        Raises:
            ValueError: `text` has no tokens, or patches are not `[N, patch_size, feat_dim]`.
        """
        conditioning = conditioning or Conditioning()
        target_tokens = self._tokenize(text)
        if not target_tokens:
            raise ValueError("the text has nothing to speak: give at least one word")
        layout = _Layout()
        if conditioning.reference is not None:
            layout.add_text([REFERENCE_START])
            self._add_audio(layout, conditioning.reference)
            layout.add_text([REFERENCE_END])
        layout.add_text([*self._tokenize(conditioning.prompt_text + text), AUDIO_START])
        if conditioning.prompt is not None:
            self._add_audio(layout, conditioning.prompt)
        latents = (
            np.concatenate(layout.patches)
            if layout.patches
            else np.zeros((0, *self._patch_shape), np.float32)
        )
        salt = hashlib.sha256(latents.tobytes()).hexdigest() if layout.patches else None
        limit = limits.PATCHES_PER_TEXT_TOKEN * len(target_tokens) + limits.EXTRA_PATCHES
        return Prompt(
            token_ids=layout.token_ids,
            spans=tuple(layout.spans),
            latents=latents,
            cache_salt=salt,
            patch_limit=min(limit, limits.MAX_PATCHES),
        )

    def _add_audio(self, layout: "_Layout", patches: Patches) -> None:
        if patches.ndim != 3 or patches.shape[1:] != self._patch_shape or not len(patches):
            raise ValueError(
                f"conditioning patches have shape {list(patches.shape)}, expected [N, "
                f"{self._patch_shape[0]}, {self._patch_shape[1]}] with N of at least 1"
            )
        layout.add_audio(patches, prompt_ids(patches, self._text_vocab_size).tolist())


class _Layout:
    """A sequence under construction."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.spans: list[AudioSpan] = []
        self.patches: list[Patches] = []

    def add_text(self, ids: list[int]) -> None:
        self.token_ids += ids

    def add_audio(self, patches: Patches, ids: list[int]) -> None:
        self.spans.append(AudioSpan(start=len(self.token_ids), length=len(ids)))
        self.patches.append(np.ascontiguousarray(patches, dtype=np.float32))
        self.token_ids += ids

"""The four layouts position by position, and parameters on their way to the engine."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.voxcpm2 import limits
from models.voxcpm2.config import read_config
from models.voxcpm2.content_ids import prompt_ids
from models.voxcpm2.prompt import (
    EXTRA_ARGS_KEY,
    AudioSpan,
    Conditioning,
    Patches,
    Prompt,
    PromptBuilder,
    SpeechParams,
)
from models.voxcpm2.tokenizer import TextTokenizer
from tests.support.golden import CHECKPOINT, INDEX, golden

VOCABULARY = 512


@pytest.fixture(scope="module")
def tokenize() -> TextTokenizer:
    return TextTokenizer.from_checkpoint(CHECKPOINT)


@pytest.fixture(scope="module")
def builder(tokenize: TextTokenizer) -> PromptBuilder:
    return PromptBuilder(tokenize, read_config(CHECKPOINT).lm_config.vocab_size, (4, 16))


def random_patches(count: int, seed: int = 0) -> Patches:
    return np.random.default_rng(seed).standard_normal((count, 4, 16), dtype=np.float32)


def ids_of(patches: Patches) -> list[int]:
    return prompt_ids(patches, VOCABULARY).tolist()


# -- layouts -------------------------------------------------------------------------------------------------


def test_zero_shot(builder: PromptBuilder, tokenize: TextTokenizer) -> None:
    prompt = builder.build("Hello world.")
    assert prompt.token_ids == [*tokenize("Hello world."), 101]
    assert prompt.spans == ()
    assert prompt.latents.shape == (0, 4, 16)


def test_reference(builder: PromptBuilder, tokenize: TextTokenizer) -> None:
    voice = random_patches(3)
    prompt = builder.build("Hello.", Conditioning(reference=voice))
    assert prompt.token_ids == [103, *ids_of(voice), 104, *tokenize("Hello."), 101]
    assert prompt.spans == (AudioSpan(1, 3),)
    np.testing.assert_array_equal(prompt.latents, voice)


def test_continuation(builder: PromptBuilder, tokenize: TextTokenizer) -> None:
    said = random_patches(2)
    prompt = builder.build(" jumps.", Conditioning(prompt=said, prompt_text="The fox"))
    text = tokenize("The fox jumps.")
    assert prompt.token_ids == [*text, 101, *ids_of(said)]
    assert prompt.spans == (AudioSpan(len(text) + 1, 2),)
    np.testing.assert_array_equal(prompt.latents, said)


def test_reference_and_continuation(builder: PromptBuilder, tokenize: TextTokenizer) -> None:
    voice, said = random_patches(3, seed=1), random_patches(2, seed=2)
    prompt = builder.build(" jumps.", Conditioning(voice, said, "The fox"))
    text = tokenize("The fox jumps.")
    assert prompt.token_ids == [103, *ids_of(voice), 104, *text, 101, *ids_of(said)]
    assert prompt.spans == (AudioSpan(1, 3), AudioSpan(len(text) + 6, 2))
    np.testing.assert_array_equal(prompt.latents, np.concatenate((voice, said)))


def test_prompt_text_and_text_are_tokenised_together(builder: PromptBuilder, tokenize: TextTokenizer) -> None:
    """Apart, the second word would get a mark of a new word that the whole has not."""
    prompt = builder.build("est.", Conditioning(prompt=random_patches(1), prompt_text="for"))
    apart = [*tokenize("for"), *tokenize("est.")]
    assert prompt.token_ids[:-2] == tokenize("forest.") != apart


@pytest.mark.parametrize("name", INDEX)
def test_golden_ids_and_spans(name: str, builder: PromptBuilder) -> None:
    case, expected = INDEX[name], golden(name)
    patches = expected.prompt_latents[expected.is_audio]
    split = int(expected.is_audio[1:].argmin()) if "reference_wav_path" in case else 0
    reference = patches[:split] if split else None
    prompt = builder.build(
        case["target_text"],
        Conditioning(
            reference, patches[split:] if "prompt_wav_path" in case else None, case.get("prompt_text", "")
        ),
    )
    is_audio = np.zeros(len(prompt.token_ids), dtype=bool)
    for span in prompt.spans:
        is_audio[span.start : span.start + span.length] = True
    np.testing.assert_array_equal(is_audio, expected.is_audio)
    ids = np.array(prompt.token_ids)
    np.testing.assert_array_equal(ids[~is_audio], expected.prompt_token_ids[~is_audio])
    assert (ids[is_audio] >= VOCABULARY).all()
    np.testing.assert_array_equal(prompt.latents, patches)


# -- salt, limit, errors -------------------------------------------------------------------------------------


def test_salt_is_of_the_audio(builder: PromptBuilder) -> None:
    def salt(text: str, conditioning: Conditioning) -> str | None:
        return builder.build(text, conditioning).cache_salt

    voice, other = random_patches(2), random_patches(2, seed=1)
    assert salt("Hello.", Conditioning()) is None
    own = salt("Hello.", Conditioning(voice))
    assert own is not None
    assert own == salt("Another text.", Conditioning(voice.copy()))
    assert own != salt("Hello.", Conditioning(other))
    barely = voice.copy()
    barely[1, 3, 15] = np.nextafter(barely[1, 3, 15], np.float32(9))
    assert own != salt("Hello.", Conditioning(barely))


@pytest.mark.parametrize("words", [1, 2, 30, 400])
def test_patch_limit(words: int, builder: PromptBuilder, tokenize: TextTokenizer) -> None:
    text = "fox " * words
    limit = builder.build(text).patch_limit
    assert limit == min(6 * len(tokenize(text)) + 10, 2000)
    assert (limit == 2000) == (words == 400)


def test_patch_limit_counts_the_target_text_alone(builder: PromptBuilder, tokenize: TextTokenizer) -> None:
    conditioning = Conditioning(random_patches(9), random_patches(9), "A long text that was said before.")
    assert builder.build("Hi.", conditioning).patch_limit == 6 * len(tokenize("Hi.")) + 10


@pytest.mark.parametrize("shape", [(2, 4, 8), (2, 16, 4), (4, 16), (0, 4, 16), (1, 2, 4, 16)])
@pytest.mark.parametrize("role", ["reference", "prompt"])
def test_patches_of_another_shape(role: str, shape: tuple[int, ...], builder: PromptBuilder) -> None:
    with pytest.raises(ValueError, match=rf"{list(shape)}, expected \[N, 4, 16\]".replace("[", r"\[", 1)):
        builder.build("Hello.", Conditioning(**{role: np.zeros(shape, np.float32)}))


def test_empty_text(builder: PromptBuilder) -> None:
    with pytest.raises(ValueError, match="nothing to speak"):
        builder.build("", Conditioning(prompt=random_patches(1), prompt_text="Hello."))


def test_builds_share_nothing(builder: PromptBuilder) -> None:
    voice = random_patches(2)
    first: Prompt = builder.build("Hello.", Conditioning(voice))
    second = builder.build("Hello.", Conditioning(voice))
    assert first.token_ids == second.token_ids
    first.token_ids.append(1)
    assert first.token_ids != second.token_ids


# -- parameters ----------------------------------------------------------------------------------------------

spans = st.builds(AudioSpan, start=st.integers(0, 10**6), length=st.integers(1, 10**6))
speech_params = st.builds(
    SpeechParams,
    seed=st.integers(0, limits.MAX_SEED),
    cfg=st.floats(0, limits.MAX_CFG),
    steps=st.integers(limits.MIN_STEPS, limits.MAX_STEPS),
    temperature=st.floats(0, limits.MAX_TEMPERATURE),
    min_patches=st.integers(0, limits.MAX_PATCHES),
    channel=st.text(st.characters(codec="ascii")),
    spans=st.lists(spans, max_size=2).map(tuple),
    latents=st.binary(max_size=64),
    context_patches=st.integers(0, 8),
)


@given(params=speech_params)
def test_parameters_arrive_as_they_left(params: SpeechParams) -> None:
    extra_args = params.to_extra_args()
    assert set(extra_args) == {"voxcpm2"}
    assert SpeechParams.from_extra_args(extra_args) == params


@pytest.mark.parametrize("extra_args", [None, {}, {"another_plugin": b"1"}])
def test_a_request_without_parameters_gets_the_defaults(extra_args: dict[str, bytes] | None) -> None:
    params = SpeechParams.from_extra_args(extra_args)
    assert (params.seed, params.cfg, params.steps, params.temperature) == (0, 2.0, 10, 1.0)
    assert (params.min_patches, params.context_patches) == (2, 3)
    assert (params.channel, params.spans, params.latents) == ("", (), b"")


@pytest.mark.parametrize(
    "fields", [{"seed": 1, "sed": 2}, {"cfg": 2.0}, {"seed": "one"}, {"seed": 1, "steps": 2.5}]
)
def test_unknown_missing_and_mistyped_fields_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        SpeechParams.from_extra_args({EXTRA_ARGS_KEY: msgspec.msgpack.encode(fields)})

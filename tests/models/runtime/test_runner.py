"""`SpeechRunner` without an engine: what it tells the model of each step, checked position by position.

The model is a stand-in that records; requests, slots, noise and index arithmetic are the real ones.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.runtime import runner as runner_module
from models.runtime.audio_channel import AudioReceiver
from models.runtime.runner import AUDIO_ENDPOINT, SpeechRunner
from models.voxcpm2.audio_vae import AudioVAE
from models.voxcpm2.config import read_config
from models.voxcpm2.flow_matching import time_schedule
from models.voxcpm2.prompt import AudioSpan, SpeechParams
from models.voxcpm2.slots import SlotState, StepInputs, packed_width
from tests.support.golden import CHECKPOINT

CONFIG = read_config(CHECKPOINT)
SLOTS, MAX_MODEL_LEN = 4, 64
PATCH = (CONFIG.patch_size, CONFIG.feat_dim)


class StandIn:
    """What the runner asks of the model, and a record of it."""

    def __init__(self, use_noise_block: bool = False) -> None:
        self.config = CONFIG
        self.audio_vae = AudioVAE(
            CONFIG.audio_vae_config.model_copy(update={"use_noise_block": use_noise_block})
        )
        self.fused = 0
        self.primed: list[tuple[Tensor, list[int], Tensor | None]] = []

    def precompute_fused_qkv(self) -> int:
        self.fused += 1
        return 0

    def prime_decoder(
        self, patches: Tensor, state: SlotState, slots: Tensor, noise: Tensor | None = None
    ) -> None:
        assert not state.vae[slots].any(), "a decoder is primed from a cold state"
        self.primed.append((patches.clone(), slots.tolist(), noise))
        state.vae[slots] = 1.0


def make_runner(
    model: StandIn | None = None, endpoint: str | None = None, dtype: torch.dtype = torch.float32
) -> SpeechRunner:
    vllm_config: Any = SimpleNamespace(
        model_config=SimpleNamespace(dtype=dtype, max_model_len=MAX_MODEL_LEN),
        scheduler_config=SimpleNamespace(max_num_seqs=SLOTS),
        additional_config={} if endpoint is None else {AUDIO_ENDPOINT: endpoint},
    )
    stand_in: Any = model or StandIn()
    return SpeechRunner(stand_in, vllm_config, torch.device("cpu"))


def enter(runner: SpeechRunner, name: str, prompt_length: int, **params: Any) -> None:
    extra_args = SpeechParams(**{"seed": 1, **params}).to_extra_args()
    runner.update(finished=(), new=[(name, prompt_length, extra_args)])


def audio_params(*spans: tuple[int, int], seed: int = 0) -> dict[str, Any]:
    """Parameters of random audio at `spans` of (start, length)."""
    count = sum(length for _, length in spans)
    latents = np.random.default_rng(seed).standard_normal((count, *PATCH), dtype=np.float32)
    return {"spans": tuple(AudioSpan(*span) for span in spans), "latents": latents.tobytes()}


def patches_of(params: dict[str, Any]) -> Tensor:
    return torch.frombuffer(bytearray(params["latents"]), dtype=torch.float32).view(-1, *PATCH)


Scheduled = tuple[str, int, int, bool]  # id, first position, positions, whether a patch follows


def step(runner: SpeechRunner, scheduled: list[Scheduled]) -> StepInputs:
    arguments = runner.prepare(
        request_ids=[name for name, *_ in scheduled],
        starts=np.array([start for _, start, _, _ in scheduled], np.int32),
        lengths=np.array([length for _, _, length, _ in scheduled], np.int32),
        emits=np.array([emits for *_, emits in scheduled], np.bool_),
    )
    assert arguments["state"] is runner.state
    assert arguments["outputs"] is runner.outputs
    return arguments["step"]


def emit_patches(runner: SpeechRunner, scheduled: list[Scheduled]) -> list[int]:
    """Play the model: rows of patches get ids 1000, 1001, ..."""
    count = sum(emits for *_, emits in scheduled)
    runner.outputs.token_ids[:count] = 1000 + torch.arange(count)
    return runner.emit(len(scheduled)).tolist()


# -- entering and leaving ------------------------------------------------------------------------------------


def test_projections_are_fused_once_at_the_start() -> None:
    model = StandIn()
    make_runner(model)
    assert model.fused == 1


def test_schedule_and_guidance_of_a_slot() -> None:
    runner = make_runner()
    enter(runner, "a", 5, steps=20, cfg=3.0)
    slot = runner.pool["a"].slot
    times, widths = time_schedule(20)
    assert runner.pool["a"].num_steps == len(times)
    assert torch.equal(runner.state.times[slot, : len(times)], times)
    assert torch.equal(runner.state.widths[slot, : len(widths)], widths)
    assert runner.state.cfg[slot] == 3.0


def test_conditioning_audio_lies_at_its_positions() -> None:
    runner = make_runner()
    params = audio_params((1, 3), (8, 2))
    enter(runner, "a", 10, **params)
    latents = runner.state.latents[runner.pool["a"].slot]
    assert torch.equal(latents[[1, 2, 3, 8, 9]], patches_of(params))
    assert not latents[[0, 4, 5, 6, 7, 10]].any()


def test_a_slot_is_set_up_entirely() -> None:
    """A short request after a long one, in the same slot, has the state of one in a fresh slot."""
    used, fresh = make_runner(), make_runner()
    names = [str(i) for i in range(SLOTS)]
    for name in names:
        enter(used, name, 10, steps=50, cfg=4.0, **audio_params((0, 10)))
    used.state.vae.fill_(7.0)
    used.update(finished=names, new=[])
    for runner in (used, fresh):
        enter(runner, "a", 6, steps=4, cfg=1.5)
    for name in ("vae", "times", "widths", "cfg"):
        got, expected = (getattr(runner.state, name)[runner.pool["a"].slot] for runner in (used, fresh))
        assert torch.equal(got, expected), name
    np.testing.assert_array_equal(
        used.pool.is_audio[used.pool["a"].slot], fresh.pool.is_audio[fresh.pool["a"].slot]
    )


def test_entering_touches_no_other_slot() -> None:
    runner = make_runner()
    enter(runner, "a", 4, **audio_params((0, 4)))
    slot = runner.pool["a"].slot
    before = {
        name: getattr(runner.state, name)[slot].clone() for name in ("latents", "vae", "times", "widths")
    }
    enter(runner, "b", 8, steps=50, **audio_params((0, 8), seed=1))
    for name, tensor in before.items():
        assert torch.equal(getattr(runner.state, name)[slot], tensor), name


def test_slots_are_freed_before_new_requests_take_them() -> None:
    runner = make_runner()
    names = [str(i) for i in range(SLOTS)]
    for name in names:
        enter(runner, name, 5)
    assert runner.stats()["free_slots"] == 0
    new = [(f"new-{i}", 5, None) for i in range(SLOTS)]
    runner.update(finished=[*names, "never started"], new=new)
    assert (runner.stats()["running"], runner.stats()["free_slots"]) == (SLOTS, 0)
    runner.update(finished=[name for name, *_ in new], new=[])
    assert (runner.stats()["running"], runner.stats()["free_slots"]) == (0, SLOTS)


def test_latents_are_in_the_models_dtype() -> None:
    runner = make_runner(dtype=torch.bfloat16)
    params = audio_params((0, 2))
    enter(runner, "a", 4, **params)
    enter(runner, "b", 4)
    assert torch.equal(runner.state.latents[runner.pool["a"].slot, :2], patches_of(params).bfloat16())
    assert step(runner, [("b", 0, 4, True)]).noise.dtype == torch.bfloat16


# -- warming the decoder -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt_length", "spans", "context", "primed"),
    [
        (10, (), 3, 0),
        (10, ((1, 4),), 3, 0),  # a reference: text stands between it and the answer
        (10, ((5, 5),), 3, 3),
        (10, ((8, 2),), 3, 2),  # fewer than asked for
        (10, ((1, 4), (8, 2)), 3, 3),  # the reference's last patch helps out
        (10, ((5, 5),), 0, 0),
    ],
)
def test_the_decoder_is_warmed_where_the_prompt_ends_in_audio(
    prompt_length: int, spans: tuple[tuple[int, int], ...], context: int, primed: int
) -> None:
    model = StandIn()
    runner = make_runner(model)
    params = audio_params(*spans)
    enter(runner, "a", prompt_length, context_patches=context, **params)
    slot = runner.pool["a"].slot
    if not primed:
        assert model.primed == []
        assert not runner.state.vae[slot].any()
        return
    ((patches, slots, noise),) = model.primed
    assert slots == [slot]
    assert torch.equal(patches, patches_of(params)[-primed:].unsqueeze(0))
    assert noise is None


def test_requests_that_enter_together_are_warmed_by_length() -> None:
    model = StandIn()
    runner = make_runner(model)
    wanted = {"a": 3, "b": 2, "c": 3, "d": 0}
    params = {
        name: {"context_patches": count, **audio_params((2, 3), seed=i)}
        for i, (name, count) in enumerate(wanted.items())
    }
    new = [(name, 5, SpeechParams(seed=1, **params[name]).to_extra_args()) for name in wanted]
    runner.update(finished=(), new=new)
    got = {slot: patches[row] for patches, slots, _ in model.primed for row, slot in enumerate(slots)}
    assert sorted(len(slots) for _, slots, _ in model.primed) == [1, 2]
    expected = {runner.pool[n].slot: patches_of(params[n])[-count:] for n, count in wanted.items() if count}
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[slot], expected[slot]) for slot in expected)


def test_noise_of_the_decoder_is_the_requests_own() -> None:
    model = StandIn(use_noise_block=True)
    runner = make_runner(model)
    enter(runner, "a", 5, seed=9, context_patches=2, **audio_params((2, 3)))
    inputs = step(runner, [("a", 0, 5, True)])
    generator = torch.Generator().manual_seed(9)
    ((_, _, primed),) = model.primed
    assert primed is not None
    assert inputs.vae_noise is not None
    context = [
        torch.randn((1, 1, n), generator=generator).flatten() for n in model.audio_vae.noise_lengths(8)
    ]
    noise = torch.randn((1, PATCH[1], PATCH[0]), generator=generator)[0].T
    patch = [torch.randn((1, 1, n), generator=generator).flatten() for n in model.audio_vae.noise_lengths(4)]
    assert torch.equal(primed[0], torch.cat(context))
    assert torch.equal(inputs.noise[0], noise)
    assert torch.equal(inputs.vae_noise[0], torch.cat(patch))


# -- what a step computes ------------------------------------------------------------------------------------


def test_a_prefill_and_two_decodes() -> None:
    runner = make_runner()
    enter(runner, "a", 6, **audio_params((1, 2)))
    enter(runner, "b", 4)
    enter(runner, "c", 3, steps=4)
    a, b, c = (runner.pool[name].slot for name in "abc")
    inputs = step(runner, [("b", 7, 1, True), ("a", 0, 6, True), ("c", 4, 1, True)])
    assert inputs.is_audio.tolist() == [True, False, True, True, False, False, False, True]
    assert inputs.audio_rows.tolist() == [0, 2, 3, 7]
    assert inputs.audio_slots.tolist() == [b, a, a, c]
    assert inputs.audio_positions.tolist() == [7, 1, 2, 4]
    assert inputs.last_rows.tolist() == [0, 6, 7]
    assert inputs.slots.tolist() == [b, a, c]
    assert inputs.last_positions.tolist() == [7, 5, 4]
    assert inputs.noise.shape == (3, *PATCH)
    assert inputs.num_steps == 9  # of the longest schedule: ten steps, the first of velocity 0
    assert inputs.vae_noise is None


def test_only_those_that_emit_draw_noise_and_set_the_steps() -> None:
    runner = make_runner()
    enter(runner, "a", 8, seed=3, steps=50)
    enter(runner, "b", 4, seed=4, steps=4)
    inputs = step(runner, [("a", 0, 5, False), ("b", 0, 4, True)])
    assert inputs.last_rows.tolist() == [8]
    assert inputs.num_steps == 3
    inputs = step(runner, [("a", 5, 3, True), ("b", 4, 1, True)])
    first_of_a = torch.randn((1, PATCH[1], PATCH[0]), generator=torch.Generator().manual_seed(3))[0].T
    assert torch.equal(inputs.noise[0], first_of_a)


def test_a_chunk_of_a_prefill_emits_nothing() -> None:
    runner = make_runner()
    enter(runner, "a", 8)
    scheduled = [("a", 0, 5, False)]
    inputs = step(runner, scheduled)
    assert inputs.last_rows.shape == inputs.slots.shape == inputs.may_stop.shape == (0,)
    assert inputs.noise.shape == (0, *PATCH)
    assert inputs.num_steps == 0
    assert emit_patches(runner, scheduled) == [0]
    assert runner.pool["a"].num_patches == 0
    assert runner.stats()["patches"] == 0


def test_the_stop_flag_counts_after_min_patches() -> None:
    runner = make_runner()
    enter(runner, "a", 4, min_patches=2)
    enter(runner, "b", 4, min_patches=0)
    seen = []
    for index in range(5):
        scheduled = [(name, 4 + index, 1, True) for name in "ab"]
        seen.append(step(runner, scheduled).may_stop.tolist())
        emit_patches(runner, scheduled)
    assert seen == [[False, False], [False, True], [False, True], [True, True], [True, True]]


scheduled_requests = st.lists(
    st.tuples(
        st.integers(1, 12),  # prompt length
        st.integers(0, 11),  # audio positions at its end
        st.integers(0, 20),  # first position
        st.integers(1, 15),  # positions
        st.booleans(),  # emits
    ),
    min_size=1,
    max_size=SLOTS,
)
RUNNER = make_runner()


@settings(deadline=None)
@given(drawn=scheduled_requests, order=st.randoms(use_true_random=False))
def test_index_arithmetic_of_any_batch(drawn: list[tuple[int, int, int, int, bool]], order: Any) -> None:
    """Against the plainest loop over requests and positions."""
    runner = RUNNER
    runner.update(finished=[str(i) for i in range(SLOTS)], new=[])
    spans = []
    for i, (prompt_length, wanted, *_) in enumerate(drawn):
        audio = min(wanted, prompt_length)
        spans.append(range(prompt_length - audio, prompt_length))
        enter(
            runner, str(i), prompt_length, **(audio_params((prompt_length - audio, audio)) if audio else {})
        )
    batch = list(enumerate(drawn))
    order.shuffle(batch)
    inputs = step(runner, [(str(i), start, length, emits) for i, (_, _, start, length, emits) in batch])

    is_audio, audio_rows, audio_at, last = [], [], [], []
    for i, (prompt_length, _, start, length, emits) in batch:
        slot = runner.pool[str(i)].slot
        for position in range(start, start + length):
            if position in spans[i] or position >= prompt_length:
                audio_rows.append(len(is_audio))
                audio_at.append((slot, position))
                is_audio.append(True)
            else:
                is_audio.append(False)
        if emits:
            last.append((len(is_audio) - 1, slot, start + length - 1))
    assert inputs.is_audio.tolist() == is_audio
    assert inputs.audio_rows.tolist() == audio_rows
    assert list(zip(inputs.audio_slots.tolist(), inputs.audio_positions.tolist(), strict=True)) == audio_at
    rows = zip(inputs.last_rows.tolist(), inputs.slots.tolist(), inputs.last_positions.tolist(), strict=True)
    assert list(rows) == last


# -- what comes out ------------------------------------------------------------------------------------------


def test_tokens_go_to_the_rows_that_emit() -> None:
    runner = make_runner()
    for name in "abc":
        enter(runner, name, 4)
    scheduled = [("a", 0, 4, True), ("b", 0, 2, False), ("c", 0, 4, True)]
    step(runner, scheduled)
    assert emit_patches(runner, scheduled) == [1000, 0, 1001]
    assert [runner.pool[name].num_patches for name in "abc"] == [1, 0, 1]
    assert runner.stats()["patches"] == 2


async def test_patches_go_out_on_their_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "get_tensor_model_parallel_rank", lambda: 0)
    endpoint = f"ipc://{tmp_path}/audio"
    receiver = AudioReceiver(endpoint)
    runner = make_runner(endpoint=endpoint)
    assert runner._sender is not None
    queues = {name: receiver.open(name) for name in ("to-a", "to-b")}
    enter(runner, "a", 4, channel="to-a")
    enter(runner, "b", 4, channel="to-b")
    steps = [[("b", 0, 4, True), ("a", 0, 4, True)], [("a", 4, 1, True), ("b", 4, 1, True)]]
    width = packed_width(CONFIG)
    for index, scheduled in enumerate(steps):
        step(runner, scheduled)
        runner.outputs.packed[:2] = torch.tensor([[10.0 * index], [10.0 * index + 1]]).expand(2, width)
        emit_patches(runner, scheduled)
    got = {name: [await queue.get() for _ in steps] for name, queue in queues.items()}
    assert [(patch.index, patch.row[0]) for patch in got["to-a"]] == [(0, 1.0), (1, 10.0)]
    assert [(patch.index, patch.row[-1]) for patch in got["to-b"]] == [(0, 0.0), (1, 11.0)]
    assert got["to-a"][0].row.shape == (width,)
    runner._sender._socket.close(linger=0)
    await receiver.close()


@pytest.mark.parametrize(("rank", "publishes"), [(0, True), (1, False)])
def test_one_rank_publishes(
    rank: int, publishes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "get_tensor_model_parallel_rank", lambda: rank)
    runner = make_runner(endpoint=f"ipc://{tmp_path}/audio")
    assert (runner._sender is not None) == publishes
    if runner._sender is not None:
        runner._sender._socket.close(linger=0)


# -- counters ------------------------------------------------------------------------------------------------


def test_a_prefix_that_was_cached() -> None:
    runner = make_runner()
    enter(runner, "a", 20, **audio_params((1, 17)))
    inputs = step(runner, [("a", 16, 4, True)])
    assert inputs.audio_positions.tolist() == [16, 17]
    assert inputs.last_positions.tolist() == [19]
    step(runner, [("a", 20, 1, True)])
    stats = runner.stats()
    assert (stats["cached_positions"], stats["recomputed_positions"], stats["steps"]) == (16, 0, 2)


def test_a_preempted_request_is_computed_again_from_its_own_latents() -> None:
    runner = make_runner()
    enter(runner, "a", 6, seed=3, min_patches=0)
    for index, scheduled in enumerate(([("a", 0, 6, True)], [("a", 6, 1, True)])):
        step(runner, scheduled)
        runner.state.latents[runner.pool["a"].slot, 6 + index] = float(index + 1)  # as the model does
        emit_patches(runner, scheduled)
    # Preempted here: its blocks are gone, its slot and patches are not. In two chunks it comes back.
    first = step(runner, [("a", 0, 5, False)])
    assert first.num_steps == 0
    emit_patches(runner, [("a", 0, 5, False)])
    second = step(runner, [("a", 5, 3, True)])
    assert second.audio_positions.tolist() == [6, 7]
    latents = runner.state.latents[second.audio_slots, second.audio_positions]
    assert latents[:, 0, 0].tolist() == [1.0, 2.0]
    assert second.may_stop.tolist() == [True]
    generator = torch.Generator().manual_seed(3)
    draws = [torch.randn((1, PATCH[1], PATCH[0]), generator=generator)[0].T for _ in range(3)]
    assert torch.equal(second.noise[0], draws[2])  # recomputing drew none
    stats = runner.stats()
    assert stats["recomputed_positions"] == 5 + 2  # position 7 is new
    assert (stats["cached_positions"], stats["patches"]) == (0, 2)


def test_chunks_of_a_prefill_are_neither_cached_nor_recomputed() -> None:
    runner = make_runner()
    enter(runner, "a", 9)
    for start in (0, 3, 6):
        step(runner, [("a", start, 3, start == 6)])
    assert runner.stats()["cached_positions"] == runner.stats()["recomputed_positions"] == 0


# -- beside the steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_tokens", [1, SLOTS, 50])
@pytest.mark.parametrize("use_noise_block", [False, True])
def test_dummy_inputs(num_tokens: int, use_noise_block: bool) -> None:
    model = StandIn(use_noise_block)
    runner = make_runner(model)
    enter(runner, "a", 5)
    arguments = runner.prepare_dummy(num_tokens)
    inputs: StepInputs = arguments["step"]
    rows = min(num_tokens, SLOTS)
    for tensor in (inputs.is_audio, inputs.audio_rows, inputs.audio_slots, inputs.audio_positions):
        assert tensor.shape == (num_tokens,)
    for tensor in (inputs.last_rows, inputs.slots, inputs.last_positions, inputs.may_stop):
        assert tensor.shape == (rows,)
    assert set(inputs.audio_slots.tolist()) == set(inputs.slots.tolist()) == {SLOTS}, "no request's slot"
    assert not inputs.may_stop.any()
    samples = sum(model.audio_vae.noise_lengths(4))
    assert (inputs.vae_noise is None) == (not use_noise_block)
    assert inputs.vae_noise is None or inputs.vae_noise.shape == (rows, samples)
    real = step(runner, [("a", 0, 5, True)])
    for name, tensor in vars(real).items():
        if isinstance(tensor, Tensor):
            assert getattr(inputs, name).dtype == tensor.dtype, name


def test_a_dummy_run_is_no_step() -> None:
    runner = make_runner()
    enter(runner, "a", 5, seed=3)
    runner.prepare_dummy(8)
    assert runner.stats()["steps"] == 0
    expected = torch.randn((1, PATCH[1], PATCH[0]), generator=torch.Generator().manual_seed(3))[0].T
    assert torch.equal(step(runner, [("a", 0, 5, True)]).noise[0], expected)

"""`voxserve synth` on a fake engine: what is refused before it starts, and the files that it leaves."""

import asyncio
import io
import json
import os
import signal
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from app.cli import run
from app.commands import engine_session
from app.commands.outputs import check_output, write_whole
from app.commands.progress import Progress
from app.commands.synth_requests import MAX_PROBLEMS
from app.errors import EngineDead, GenerationFailed
from app.pipeline.pcm import to_s16le
from app.pipeline.speech import SpeechPipeline
from app.settings import Settings, load_settings
from models.checkpoint import made_here
from models.voxcpm2.tokenizer import TextTokenizer
from tests.support.fake_engine import FakeEngine
from tests.support.golden import CHECKPOINT, FIXTURES

VOICE = FIXTURES / "voice_a.wav"
MODEL = ("--model", str(CHECKPOINT))
RATE = 48000
PATCH_SAMPLES = 7680

Speak = Callable[..., int]


class Started(Exception):
    """An engine would have been started, which costs a minute."""


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    def start(*_args: object, **_kwargs: object) -> int:
        raise Started

    monkeypatch.setattr(engine_session, "run_with_engine", start)
    for name in ("SPEECH_MODEL", "SPEECH_MODEL_REVISION", "LLM_MODEL", "LLM_MODEL_REVISION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VOXSERVE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeEngine], list[Settings]]:
    """Let commands run on a fake engine; the list gets the settings that they start it with."""

    def install(engine: FakeEngine) -> list[Settings]:
        seen: list[Settings] = []

        def start(settings: Settings, work: engine_session.Work, *, verbose: bool) -> int:
            del verbose
            seen.append(settings)
            pipeline = SpeechPipeline(engine, TextTokenizer.from_checkpoint(CHECKPOINT))  # type: ignore[arg-type]
            return asyncio.run(work(pipeline))

        monkeypatch.setattr(engine_session, "run_with_engine", start)
        return seen

    return install


def synth(*arguments: object) -> int:
    return run(["synth", *map(str, arguments)])


def write_batch(directory: Path, *lines: object) -> Path:
    path = directory / "batch.jsonl"
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Standard error, all of it errors."""
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines
    assert all(line.startswith("error: ") for line in lines), lines
    return [line.removeprefix("error: ") for line in lines]


# What is refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--steps", 1), "--steps"),
        (("--steps", 101), "--steps"),
        (("--cfg", "nan"), "--cfg"),
        (("--cfg", "inf"), "--cfg"),
        (("--cfg", -1), "--cfg"),
        (("--cfg", 11), "--cfg"),
        (("--temperature", "nan"), "--temperature"),
        (("--temperature", 2.1), "--temperature"),
        (("--seed", -1), "--seed"),
        (("--seed", 2**63), "--seed"),
        (("--min-patches", -1), "--min-patches"),
        (("--max-patches", 0), "--max-patches"),
        (("--max-patches", 2001), "--max-patches"),
        (("--min-patches", 9, "--max-patches", 8), "min patches"),
        (("--prompt-audio", VOICE), "belong together"),
        (("--prompt-text", "Hello."), "belong together"),
        (("--prompt-audio", VOICE, "--prompt-text", " "), "--prompt-text"),
        (("--reference", "none.wav"), "--reference: none.wav is missing"),
        (("--reference", FIXTURES), "--reference"),
        (("--reference", FIXTURES / "README.md"), "--reference"),
        (("--revision", "main"), "--revision"),
        (("--out-dir", "."), "--out-dir"),
        (("--latents", "latents.txt"), "--latents: latents.txt does not end in .npz"),
        (("--latents", "none/latents.npz"), "--latents"),
        (("--model", "/none"), "/none"),
        (("--model", FIXTURES), "config.json"),
    ],
)
def test_options_are_checked(
    arguments: tuple[object, ...], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert synth("--text", "Hello.", "--out", tmp_path / "a.wav", *arguments) == 2
    assert any(named in line for line in errors(capsys))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--text"),
        (("--text", "Hello."), "--out"),
        (("--out", "a.wav"), "--text"),
        (("--text", "", "--out", "a.wav"), "--text"),
        (("--text", " \n", "--out", "a.wav"), "--text"),
        (("--text", "\udcff", "--out", "a.wav"), "--text: is not valid Unicode"),
        (("--text", "Hello.", "--out", "a.mp3"), "--out: a.mp3 does not end in .wav"),
        (("--text", "Hello.", "--out", "none/a.wav"), "--out: none is not a directory"),
        (("--text", "Hello.", "--out", "/proc/a.wav"), "--out: /proc/a.wav cannot be written"),
        (("--batch", "none.jsonl", "--out-dir", "."), "none.jsonl cannot be read"),
        (("--batch", "none.jsonl"), "--out-dir"),
        (("--batch", "b.jsonl", "--out-dir", ".", "--text", "Hello."), "--text: not together with --batch"),
        (("--batch", "b.jsonl", "--out-dir", ".", "--out", "a.wav"), "--out"),
        (("--batch", "b.jsonl", "--out-dir", ".", "--min-patches", 3), "--min-patches"),
    ],
)
def test_what_to_say_and_where(
    arguments: tuple[object, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert synth(*arguments) == 2
    (line,) = errors(capsys)
    assert named in line


def test_a_text_longer_than_the_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert synth("--text", "Hello world. " * 400, "--out", tmp_path / "a.wav", *MODEL) == 2
    assert "positions of the model's 2048" in errors(capsys)[0]


def test_an_incomplete_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in CHECKPOINT.iterdir():
        if path.name != "audiovae.pth":
            (tmp_path / path.name).symlink_to(path)
    assert synth("--text", "Hello.", "--out", tmp_path / "a.wav", "--model", tmp_path) == 2
    assert "audiovae.pth" in errors(capsys)[0]


def test_settings_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPEECH_MODLE", "x")
    assert synth("--text", "Hello.", "--out", tmp_path / "a.wav", *MODEL) == 2
    assert "SPEECH_MODEL" in errors(capsys)[0]


@pytest.mark.parametrize("llm_model", ["", "somewhere"])
def test_a_service_without_speech(
    llm_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPEECH_MODEL", "none")
    monkeypatch.setenv("LLM_MODEL", llm_model)
    assert synth("--text", "Hello.", "--out", tmp_path / "a.wav") == 2
    (line,) = errors(capsys)
    assert "SPEECH_MODEL" in line
    assert "speech model" in line
    with pytest.raises(Started):
        synth("--text", "Hello.", "--out", tmp_path / "a.wav", *MODEL)
    assert synth("--text", "Hello.", "--out", tmp_path / "a.wav", "--model", "none") == 2


GOOD = {"name": "good", "text": "Hello."}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 2: invalid JSON"),
        ("[]", "line 2"),
        ({"name": "a"}, "line 2: text: is missing"),
        ({"text": "Hello."}, "line 2: name: is missing"),
        ({"name": "a", "text": ""}, "line 2: text: is empty"),
        ({"name": "a", "text": "Hello.", "voice": "x"}, "line 2: voice: is not known"),
        ({"name": "a", "text": "Hello.", "seed": "7"}, "line 2: seed"),
        ({"name": "a", "text": "Hello.", "seed": 1.5}, "line 2: seed"),
        ({"name": "a", "text": "Hello.", "steps": True}, "line 2: steps"),
        ('{"name": "a", "text": "Hello.", "cfg": NaN}', "line 2: cfg"),
        ({"name": "a", "text": "Hello.", "prompt_text": "Hi."}, "line 2: prompt audio and prompt text"),
        ({"name": "a", "text": "Hello.", "reference": "none.wav"}, "line 2: reference"),
        ({"name": "../a", "text": "Hello."}, "line 2: name: is unsafe"),
        ({"name": ".a", "text": "Hello."}, "line 2: name"),
        ({"name": "", "text": "Hello."}, "line 2: name"),
        ({"name": "a\n", "text": "Hello."}, "line 2: name"),
        ({"name": "a" * 201, "text": "Hello."}, "line 2: name"),
        ({"name": "GOOD", "text": "Hello."}, "line 2: name: 'GOOD' is that of line 1"),
    ],
)
def test_lines_of_a_batch_are_checked(
    line: object, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = write_batch(tmp_path, GOOD, line)
    assert synth("--batch", batch, "--out-dir", tmp_path / "out", *MODEL) == 2
    found = errors(capsys)
    assert any(f"{batch} {named}" in problem for problem in found), found
    assert not (tmp_path / "out").exists()


def test_all_lines_are_checked_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"name": "bad", "text": "Hello.", "steps": 1, "cfg": -1}
    assert synth("--batch", write_batch(tmp_path, bad, "", GOOD, bad), "--out-dir", tmp_path) == 2
    found = errors(capsys)
    assert [problem.partition("jsonl ")[2][:13] for problem in found] == [
        "line 1: cfg: ",
        "line 1: steps",
        "line 4: cfg: ",
        "line 4: steps",
    ]


def test_a_wholly_wrong_file_gets_a_short_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert synth("--batch", write_batch(tmp_path, *["x"] * 50), "--out-dir", tmp_path) == 2
    assert errors(capsys)[-1] == f"and {50 - MAX_PROBLEMS} more"


def test_an_empty_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert synth("--batch", write_batch(tmp_path, "", " "), "--out-dir", tmp_path) == 2
    assert "no requests" in errors(capsys)[0]


def test_a_batch_in_latin_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "batch.jsonl").write_bytes('{"name": "a", "text": "café"}'.encode("latin-1"))
    assert synth("--batch", tmp_path / "batch.jsonl", "--out-dir", tmp_path) == 2
    assert "line 1" in errors(capsys)[0]


def test_a_long_line_of_a_batch_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = write_batch(tmp_path, GOOD, {"name": "long", "text": "Hello world. " * 400})
    assert synth("--batch", batch, "--out-dir", tmp_path / "out", *MODEL) == 2
    assert errors(capsys)[0].startswith("long: ")


# What it writes


def expected_pcm(engine: FakeEngine, seed: int, patches: int) -> bytes:
    return b"".join(to_s16le(engine._patch(seed, index).pcm) for index in range(patches))


def test_one_text(
    tmp_path: Path,
    fake: Callable[[FakeEngine], list[Settings]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPEECH_MODEL_REVISION", "of-another-model")
    monkeypatch.setenv("SPEECH_MODEL", "another/model")
    monkeypatch.setenv("LLM_MODEL", "a/language/model")
    engine = FakeEngine(patches=3)
    seen = fake(engine)
    out, npz = tmp_path / "a.wav", tmp_path / "a.npz"
    out.write_text("an earlier file")
    assert synth("--text", "Hello.", "--out", out, "--latents", npz, "--seed", 5, *MODEL) == 0
    assert [(s.speech_model, s.speech_model_revision) for s in seen] == [(str(CHECKPOINT), None)]
    assert not seen[0].serves_language, "speech has the whole machine"
    samples, rate = soundfile.read(out, dtype="int16")
    assert rate == RATE
    assert soundfile.info(out).subtype == "PCM_16"
    assert samples.tobytes() == expected_pcm(engine, 5, 3)
    with np.load(npz) as data:
        assert {name: (data[name].shape, data[name].dtype.name) for name in data} == {
            "latents": ((3, 4, 16), "float32"),
            "stop_logits": ((3, 2), "float32"),
            "prompt_token_ids": ((len(data["prompt_token_ids"]),), "int64"),
        }
        ids = TextTokenizer.from_checkpoint(CHECKPOINT)("Hello.")
        assert data["prompt_token_ids"].tolist() == [*ids, 101]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "a.wav"]
    err = capsys.readouterr().err
    assert "0.48 s of audio, 3 patches, seed 5" in err
    assert "real-time factor" in err


def test_a_seed_is_drawn_and_said(
    tmp_path: Path, fake: Callable[[FakeEngine], list[Settings]], capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine(patches=1)
    fake(engine)
    seeds = []
    for name in ("a", "b"):
        assert synth("--text", "Hello.", "--out", tmp_path / f"{name}.wav", *MODEL) == 0
        seeds.append(int(capsys.readouterr().err.partition(" seed ")[2].split()[0]))
        samples, _ = soundfile.read(tmp_path / f"{name}.wav", dtype="int16")
        assert samples.tobytes() == expected_pcm(engine, seeds[-1], 1)
    assert seeds[0] != seeds[1]


def test_without_a_model(
    tmp_path: Path,
    fake: Callable[[FakeEngine], list[Settings]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VOXSERVE_CACHE_DIR", str(tmp_path / "cache"))
    seen = fake(FakeEngine())
    assert synth("--text", "Hello.", "--out", tmp_path / "a.wav") == 0
    assert made_here(Path(str(seen[0].speech_model)))
    assert "NOISE" in capsys.readouterr().err


def test_a_batch(tmp_path: Path, fake: Callable[[FakeEngine], list[Settings]]) -> None:
    engine = FakeEngine(patches=4)
    fake(engine)
    (tmp_path / "voices").mkdir()
    (tmp_path / "voices" / "me.wav").write_bytes(VOICE.read_bytes())
    lines = [
        {"name": "plain", "text": "Hello.", "seed": 1, "max_patches": 2},
        {"name": "v1.5", "text": "Hello.", "seed": 2, "reference": "voices/me.wav"},
        {
            "name": "more",
            "text": "Hello.",
            "seed": 3,
            "cfg": 3,
            "steps": 4,
            "temperature": 0.5,
            "min_patches": 1,
            "prompt_audio": "voices/me.wav",
            "prompt_text": "So.",
        },
    ]
    out = tmp_path / "deep" / "out"
    assert synth("--batch", write_batch(tmp_path, *lines), "--out-dir", out, *MODEL) == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{line['name']}{suffix}" for line in lines for suffix in (".wav", ".npz")
    )
    for line, patches in zip(lines, (2, 4, 4), strict=True):
        samples, _ = soundfile.read(out / f"{line['name']}.wav", dtype="int16")
        assert samples.tobytes() == expected_pcm(engine, int(str(line["seed"])), patches)


class OneBadSeed(FakeEngine):
    """Fails the requests of a seed."""

    def __init__(self, seed: int, error: Exception) -> None:
        super().__init__(patches=3)
        self.bad_seed, self.bad_error = seed, error

    async def generate(self, prompt, generation):
        async for patch in super().generate(prompt, generation):
            if generation.seed == self.bad_seed and patch.index == 1:
                raise self.bad_error
            yield patch


@pytest.mark.parametrize("error", [GenerationFailed("it broke"), EngineDead("it died")])
def test_a_failure_takes_nothing_with_it(
    error: Exception,
    tmp_path: Path,
    fake: Callable[[FakeEngine], list[Settings]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake(OneBadSeed(1, error))
    batch = write_batch(tmp_path, *({"name": f"n{i}", "text": "Hello.", "seed": i} for i in range(4)))
    assert synth("--batch", batch, "--out-dir", tmp_path / "out", *MODEL) == 1
    assert sorted(path.name for path in (tmp_path / "out").glob("*.wav")) == ["n0.wav", "n2.wav", "n3.wav"]
    assert not list((tmp_path / "out").glob(".*"))
    err = capsys.readouterr().err
    assert f"error: n1: {error}" in err
    assert "error: 1 of 4 requests failed: n1" in err
    assert "Traceback" not in err


def test_a_full_disk_fails_one_request(
    tmp_path: Path,
    fake: Callable[[FakeEngine], list[Settings]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake(FakeEngine())
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if target.name == "n1.wav":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    batch = write_batch(tmp_path, *({"name": f"n{i}", "text": "Hello."} for i in range(2)))
    assert synth("--batch", batch, "--out-dir", tmp_path / "out", *MODEL) == 1
    assert (tmp_path / "out" / "n0.wav").is_file()
    assert "No space left" in capsys.readouterr().err


class Counting(FakeEngine):
    """Notes how many requests ran at the same time."""

    most = 0

    async def generate(self, prompt, generation):
        async for patch in super().generate(prompt, generation):
            self.most = max(self.most, self.running)
            yield patch


def test_a_batch_runs_at_the_same_time_within_the_bound(
    tmp_path: Path, fake: Callable[[FakeEngine], list[Settings]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEECH_MAX_NUM_SEQS", "3")
    engine = Counting(patches=5, delay_s=0.001)
    fake(engine)
    batch = write_batch(tmp_path, *({"name": f"n{i}", "text": "Hello."} for i in range(8)))
    assert synth("--batch", batch, "--out-dir", tmp_path / "out", *MODEL) == 0
    assert engine.most == 3


# Its parts


def test_files_appear_whole_with_ordinary_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    umask = os.umask(0o027)
    try:
        write_whole(path, lambda stream: stream.write(b"new"))
    finally:
        os.umask(umask)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def fail(_stream: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        write_whole(path, fail)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "dir.wav").mkdir()
    os.mkfifo(tmp_path / "pipe.wav")
    for name in ("dir.wav", "pipe.wav"):
        assert "is no file" in str(check_output(tmp_path / name, ".wav"))
    assert check_output(tmp_path / ("a" * 300 + ".wav"), ".wav")
    assert check_output(tmp_path / "A.WAV", ".wav") is None
    assert check_output(Path("a.wav"), ".wav") is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_redrawn_on_a_terminal_only() -> None:
    for stream, redraws in ((Terminal(), True), (io.StringIO(), False)):
        now = iter(range(100))
        progress = Progress(2, stream, clock=lambda now=now: float(next(now)))
        for _ in range(3):
            progress.add_patch(0.16)
        progress.end_request("one is done")
        progress.close()
        text = stream.getvalue()
        assert ("\r" in text) is redraws
        assert "one is done\n" in text
        assert text.endswith("\n")
        last = text.splitlines()[-1]
        assert "1 of 2 requests, 3 patches, 0.48 s of audio, real-time factor " in last


# The session around the engine, which is ended whatever happens


def session(monkeypatch: pytest.MonkeyPatch, start: object, work: engine_session.Work) -> int:
    monkeypatch.setattr(engine_session, "start_speech", start)
    return asyncio.run(engine_session._Session(load_settings(), work).run())


def pipeline_on(engine: FakeEngine) -> Callable[..., object]:
    async def start(_settings: Settings, report: Callable[[str], None]) -> SpeechPipeline:
        report("starting")
        return SpeechPipeline(engine, TextTokenizer.from_checkpoint(CHECKPOINT))  # type: ignore[arg-type]

    return start


@pytest.mark.parametrize(
    ("verbose", "user", "expected"),
    [
        (False, None, ("WARNING", "ignore")),
        (True, None, ("INFO", None)),
        (False, "ERROR", ("ERROR", "ignore")),
    ],
)
def test_vllm_is_quiet_unless_asked(
    verbose: bool,
    user: str | None,
    expected: tuple[str, str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("VLLM_LOGGING_LEVEL", "PYTHONWARNINGS", "VLLM_LOGGING_STREAM")
    for name in names:
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    if user:
        monkeypatch.setenv("VLLM_LOGGING_LEVEL", user)
    monkeypatch.setattr(sys, "warnoptions", [])
    with warnings.catch_warnings():
        engine_session._quieten(verbose)
    assert tuple(os.environ.get(name) for name in names) == (*expected, "ext://sys.stderr")


def test_the_engine_is_shut_down_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()

    async def work(pipeline: SpeechPipeline) -> int:
        assert pipeline.engine is engine
        return 5

    assert session(monkeypatch, pipeline_on(engine), work) == 5
    assert engine.shut_down


def test_the_engine_is_shut_down_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()

    async def work(_pipeline: SpeechPipeline) -> int:
        raise EngineDead("it died")

    with pytest.raises(EngineDead):
        session(monkeypatch, pipeline_on(engine), work)
    assert engine.shut_down


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_work(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()

    async def work(_pipeline: SpeechPipeline) -> int:
        os.kill(os.getpid(), number)
        await asyncio.sleep(30)
        return 0

    assert session(monkeypatch, pipeline_on(engine), work) == 128 + number
    assert engine.shut_down


def test_signals_end_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start is in a thread that waits for processes, so they are killed until it gives up."""
    killed = asyncio.Event()
    monkeypatch.setattr(engine_session, "kill_children", killed.set)

    async def start(_settings: Settings, _report: object) -> SpeechPipeline:
        os.kill(os.getpid(), signal.SIGINT)
        await killed.wait()
        raise EngineDead("a process is gone")

    async def work(_pipeline: SpeechPipeline) -> int:
        raise AssertionError

    assert session(monkeypatch, start, work) == 130


def test_a_start_that_was_quicker_than_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    killed = asyncio.Event()
    monkeypatch.setattr(engine_session, "kill_children", killed.set)

    async def start(settings: Settings, report: Callable[[str], None]) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        await killed.wait()
        return await pipeline_on(engine)(settings, report)  # type: ignore[misc]

    async def work(_pipeline: SpeechPipeline) -> int:
        raise AssertionError

    assert session(monkeypatch, start, work) == 130
    assert engine.shut_down

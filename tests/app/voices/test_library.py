"""The library: what is kept comes back, through crashes, damage and other processes."""

import fcntl
import json
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from app.errors import InvalidRequest, NotFound, StorageFailed
from app.voices import changes, shelf
from app.voices.library import VoiceLibrary
from app.voices.records import NewVoice, VoiceRecord
from app.voices.reference import AudioClip
from tests.support.recordings import voice

RATE = 16000
CLIP = AudioClip(voice(rate=RATE), RATE)
ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "data" / "voices"


@pytest.fixture
def library(place: Path) -> VoiceLibrary:
    return VoiceLibrary(place, max_entries=100)


def named(name: str, **fields: object) -> NewVoice:
    return NewVoice(name=name, **fields)


def names(library: VoiceLibrary) -> list[str]:
    return [record.name for record in library.voices()]


# -- what is kept --------------------------------------------------------------------------------------------


def test_a_library_that_is_not_there_is_empty_and_stays_away(library: VoiceLibrary, place: Path) -> None:
    assert library.voices() == library.consents() == []
    with pytest.raises(NotFound, match="there is no voice 'x'"):
        library.voice("x")
    assert not place.exists()


def test_a_voice_comes_back_as_it_was(library: VoiceLibrary, place: Path) -> None:
    kept = library.add_voice(
        named("Anna", transcript="Hello there.", description="calm", cfg=1.5, seed=7, consent="mine"), CLIP
    )
    for reader in (library, VoiceLibrary(place, 100)):
        record = reader.voice(kept.id)
        assert record == kept == reader.voice("anna") == reader.voices()[0]
        clip = reader.read_clip(record)
        assert clip.rate == RATE
        np.testing.assert_allclose(clip.samples, CLIP.samples, atol=2**-24)
    assert (kept.type, kept.transcript, kept.description) == ("audio_sample", "Hello there.", "calm")
    assert (kept.cfg, kept.seed, kept.consent) == (1.5, 7, "mine")
    assert abs(kept.created - time.time()) < 60


def test_a_designed_voice_has_no_clip(library: VoiceLibrary, place: Path) -> None:
    kept = library.add_voice(named("Old man", description="an old man"), None)
    assert (kept.type, kept.clip) == ("prompt", None)
    assert VoiceLibrary(place, 100).voices() == [kept]
    assert os.listdir(place / "voices" / kept.id) == ["record.json"]


def test_equal_recordings_have_equal_keys(library: VoiceLibrary) -> None:
    first, second = (library.add_voice(named(name), CLIP) for name in ("a1", "a2"))
    assert first.clip == second.clip


def test_files_are_private_and_their_names_are_ids(library: VoiceLibrary, place: Path) -> None:
    kept = library.add_voice(named("..%2f..%2fetc"), CLIP)
    assert place.stat().st_mode & 0o777 == 0o700
    files = {path.relative_to(place).as_posix() for path in place.rglob("*")}
    assert files == {
        ".lock", "incoming", "voices", f"voices/{kept.id}",
        f"voices/{kept.id}/record.json", f"voices/{kept.id}/clip.flac",
    }  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.text(max_size=30))
@example(" 0\r")
def test_any_name_is_refused_or_comes_back_and_leaves_nothing_outside(tmp_path: Path, name: str) -> None:
    place = tmp_path / "hypothesis" / "voices"
    library = VoiceLibrary(place, 100)
    try:
        draft = named(name, description="words")
    except ValidationError:
        return
    try:
        kept = library.add_voice(draft, None)
        assert library.voice(draft.name) == kept == library.voice(name)
        assert {path.name for path in (place / "voices").iterdir()} == {kept.id}
        assert {path.name for path in tmp_path.rglob("*")} == {
            "hypothesis", "voices", ".lock", "incoming", kept.id, "record.json",
        }  # fmt: skip
    finally:
        shutil.rmtree(tmp_path / "hypothesis", ignore_errors=True)


# -- names, limits, consents ---------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["Zoë", "zoë", "ZOË", "Zoe\u0308", "\uff3aoë"])
def test_names_that_look_alike_are_taken(second: str, library: VoiceLibrary, place: Path) -> None:
    library.add_voice(named("Zoë"), CLIP)
    for check in (
        lambda: library.add_voice(named(second), CLIP),
        lambda: library.check_new(named(second), with_clip=True),
    ):
        with pytest.raises(InvalidRequest, match="choose another name, or delete it first") as caught:
            check()
        assert caught.value.param == "name"
    assert os.listdir(place / "incoming") == []


def test_a_name_is_free_again_once_its_voice_is_deleted(library: VoiceLibrary) -> None:
    first = library.add_voice(named("Anna"), CLIP)
    assert library.delete_voice("ANNA") == first
    for gone in ("Anna", first.id):
        with pytest.raises(NotFound):
            library.delete_voice(gone)
    assert library.add_voice(named("Anna"), CLIP).id != first.id


def test_a_deleted_voice_leaves_no_file(library: VoiceLibrary, place: Path) -> None:
    library.delete_voice(library.add_voice(named("Anna"), CLIP).id)
    assert [path.name for path in place.rglob("*") if path.is_file()] == [".lock"]


def test_no_more_voices_than_allowed(place: Path) -> None:
    library = VoiceLibrary(place, max_entries=2)
    for name in ("a1", "a2"):
        library.add_voice(named(name), CLIP)
    with pytest.raises(InvalidRequest, match="the library holds 2 voices, and no more than that"):
        library.add_voice(named("a3"), CLIP)
    library.delete_voice("a1")
    library.add_voice(named("a3"), CLIP)
    assert names(library) == ["a2", "a3"]
    for name in ("c1", "c2"):
        library.add_consent(name, "en", CLIP)
    with pytest.raises(InvalidRequest, match="2 consents"):
        library.add_consent("c3", "en", CLIP)


def test_consents(library: VoiceLibrary, place: Path) -> None:
    kept = library.add_consent("Anna's", "en-US", CLIP)
    other = VoiceLibrary(place, 100)
    assert other.consents() == [kept] == [other.consent(kept.id)]
    renamed = library.rename_consent(kept.id, "Anna's, of May")
    assert renamed == kept.model_copy(update={"name": "Anna's, of May"})
    assert other.consents() == [renamed]
    assert library.delete_consent(kept.id) == renamed
    for call in (library.consent, library.delete_consent, lambda gone: library.rename_consent(gone, "x")):
        with pytest.raises(NotFound, match="there is no consent"):
            call(kept.id)


def test_renames_within_one_tick_of_the_clock_are_seen(library: VoiceLibrary, place: Path) -> None:
    kept = library.add_consent("n0", "en", CLIP)
    other = VoiceLibrary(place, 100)
    for n in range(1, 30):
        library.rename_consent(kept.id, f"n{n}")
        assert other.consent(kept.id).name == f"n{n}"


def test_a_consent_that_a_voice_rests_on_stays(library: VoiceLibrary) -> None:
    consent = library.add_consent("Anna's", "en", CLIP)
    library.add_voice(named("Anna", consent=consent.id), CLIP)
    with pytest.raises(
        InvalidRequest, match="the voice 'Anna' rests on this consent: delete the voice first"
    ):
        library.delete_consent(consent.id)
    library.delete_voice("Anna")
    assert library.consents() == [consent], "deleting the voice keeps it"
    library.delete_consent(consent.id)


def test_a_consent_of_ours_must_be_there(library: VoiceLibrary) -> None:
    unknown = "cons_" + "0" * 24
    with pytest.raises(InvalidRequest, match=r"there is no consent 'cons_0+': record one") as caught:
        library.add_voice(named("Anna", consent=unknown), CLIP)
    assert caught.value.param == "consent"
    library.add_voice(named("Anna", consent="somebody's own file 7"), CLIP)


def test_where_consents_are_required(place: Path) -> None:
    library = VoiceLibrary(place, 100, consent_required=True)
    for consent in (None, "my own", "cons_" + "0" * 24):
        with pytest.raises(InvalidRequest, match="consent"):
            library.add_voice(named("Anna", consent=consent), CLIP)
    library.add_voice(named("Anna", consent=library.add_consent("Anna's", "en", CLIP).id), CLIP)
    library.add_voice(named("Old man", description="an old man"), None)


# -- what is on the disk -------------------------------------------------------------------------------------


def damage_json(entry: Path) -> None:
    (entry / "record.json").write_text("{", encoding="utf-8")


def change(entry: Path, **fields: object) -> None:
    record = json.loads((entry / "record.json").read_text(encoding="utf-8"))
    (entry / "record.json").write_text(json.dumps(record | fields), encoding="utf-8")


def link_elsewhere(entry: Path) -> None:
    elsewhere = entry.parent.parent / "elsewhere"
    entry.rename(elsewhere)
    entry.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_json, "record.json: Invalid JSON"),
        (lambda entry: (entry / "record.json").unlink(), "a file of it is missing"),
        (lambda entry: (entry / "record.json").write_bytes(b"\xff" * 100), "record.json: Invalid JSON"),
        (lambda entry: (entry / "record.json").write_bytes(b" " * 2**17), "too large"),
        (lambda entry: (entry / "clip.flac").unlink(), "a file of it is missing"),
        (lambda entry: (entry / "clip.flac").write_bytes(b""), "clip.flac is not what was stored"),
        (lambda entry: change(entry, format=2), "format: "),
        (lambda entry: change(entry, name="../x"), "name: "),
        (lambda entry: change(entry, cfg=99), "cfg: "),
        (lambda entry: change(entry, id="voice_" + "0" * 24), "the record is another's"),
        (lambda entry: change(entry, id="../../x"), "the id is none of this kind"),
        (lambda entry: change(entry, clip=None), "has a description and no transcript"),
        (lambda entry: change(entry, unknown=1), "unknown: "),
        (lambda entry: entry.rename(entry.with_name("a copy")), "the name is not an id"),
        (link_elsewhere, "it is no directory"),
        (lambda entry: (shutil.rmtree(entry), entry.write_bytes(b"")), "it is no directory"),
    ],
)
def test_bad_entries_are_skipped_with_one_warning(
    damage: Callable[[Path], object], said: str, library: VoiceLibrary, place: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    bad = library.add_voice(named("Bad", transcript="Hello."), CLIP)
    library.add_voice(named("Good"), CLIP)
    damage(place / "voices" / bad.id)
    reader = VoiceLibrary(place, 100)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert names(reader) == ["Good"]
    (record,) = caplog.records
    assert said in record.getMessage()
    with pytest.raises(NotFound):
        reader.voice("Bad")
    library.add_voice(named("Bad too"), CLIP)


def test_several_bad_entries_share_the_warning(
    library: VoiceLibrary, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = [library.add_voice(named(name), CLIP) for name in ("a1", "a2", "a3")]
    for record in kept[:2]:
        damage_json(place / "voices" / record.id)
    with caplog.at_level(logging.WARNING):
        assert names(VoiceLibrary(place, 100)) == ["a3"]
    (warning,) = caplog.records
    assert all(record.id in warning.getMessage() for record in kept[:2])


def test_hidden_files_are_nobodys(
    library: VoiceLibrary, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library.add_voice(named("Anna"), CLIP)
    (place / "voices" / ".DS_Store").write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        assert names(VoiceLibrary(place, 100)) == ["Anna"]
    assert not caplog.records


def test_a_clip_that_was_changed_is_not_spoken_with(library: VoiceLibrary, place: Path) -> None:
    kept = library.add_voice(named("Anna"), CLIP)
    path = place / "voices" / kept.id / "clip.flac"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StorageFailed, match="the recording of the voice 'Anna' is damaged: delete it"):
        library.read_clip(library.voice("Anna"))


def test_a_voice_deleted_meanwhile(library: VoiceLibrary) -> None:
    kept = library.add_voice(named("Anna"), CLIP)
    library.delete_voice(kept.id)
    with pytest.raises(NotFound, match="was deleted"):
        library.read_clip(kept)


@pytest.mark.parametrize("moment", ["write_synced", "sync", "locked"])
def test_a_write_that_fails_leaves_nothing(
    moment: str, library: VoiceLibrary, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add_voice(named("Before"), CLIP)

    def fail(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shelf, moment, fail)
        with pytest.raises(StorageFailed, match=r"No space left on device.*: see the server's log"):
            library.add_voice(named("After"), CLIP)
    assert names(library) == ["Before"]
    assert os.listdir(place / "incoming") == []


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    library = VoiceLibrary(tmp_path / "file" / "voices", 100)
    assert library.voices() == []
    with pytest.raises(StorageFailed, match="Not a directory"):
        library.add_voice(named("Anna"), CLIP)


def test_a_lock_that_nobody_gives_back(
    library: VoiceLibrary, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add_voice(named("Anna"), CLIP)
    monkeypatch.setattr(changes, "LOCK_TIMEOUT_S", 0.05)
    with (place / ".lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StorageFailed, match="another process holds its lock"):
            library.add_voice(named("Berta"), CLIP)
        assert names(library) == ["Anna"], "readers need no lock"
    library.add_voice(named("Berta"), CLIP)


# -- crashes -------------------------------------------------------------------------------------------------


def test_old_leftovers_are_removed_and_young_ones_may_be_anothers(
    library: VoiceLibrary, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add_voice(named("Anna"), CLIP)
    leftover = place / "incoming" / "0123"
    leftover.mkdir()
    (leftover / "record.json").write_text("{")
    VoiceLibrary(place, 100)
    assert leftover.exists()
    monkeypatch.setattr(changes, "LEFTOVER_AGE_S", -1.0)
    assert names(VoiceLibrary(place, 100)) == ["Anna"]
    assert not leftover.exists()


WRITER = """
import sys
from pathlib import Path
from app.voices.library import VoiceLibrary
from app.voices.records import NewVoice
from app.voices.reference import AudioClip
from tests.support.recordings import voice
library = VoiceLibrary(Path(sys.argv[1]), 10**6)
clip = AudioClip(voice(rate=16000), 16000)
print("writing", flush=True)
for n in range(10**6):
    library.add_voice(NewVoice(name=f"{sys.argv[2]} {n}"), clip)
    print(n, flush=True)
    if n % 3 == 2:
        library.delete_voice(f"{sys.argv[2]} {n}")
"""


@pytest.fixture
def writer(place: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts processes that add voices, and delete every third, until they are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            (sys.executable, "-c", WRITER, str(place), name),
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.011, 0.023, 0.05])
def test_kill_9_in_mid_write_leaves_a_library_that_loads(
    delay_s: float, writer: Callable[[str], subprocess.Popen[str]], place: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    process = writer("w")
    assert process.stdout is not None
    while process.stdout.readline() != "4\n":
        pass
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    acknowledged = [int(line) for line in process.communicate()[0].split()]
    monkeypatch.setattr(changes, "LEFTOVER_AGE_S", -1.0)
    with caplog.at_level(logging.WARNING):
        library = VoiceLibrary(place, 10**6)
        found = set(names(library))
        for record in library.voices():
            assert library.read_clip(record).samples.size == CLIP.samples.size
    assert not caplog.records
    last = max([4, *acknowledged])
    assert {f"w {n}" for n in range(last) if n % 3 != 2} <= found
    assert found <= {f"w {n}" for n in range(last + 2)}
    assert os.listdir(place / "incoming") == []
    library.add_voice(named("after"), CLIP)


def _die_at_the_clip(place: Path) -> None:
    """In a process of its own: add a voice, and be killed when its record is written and its clip is half."""

    def write(path: Path, data: bytes) -> None:
        if path.name == "clip.flac":
            path.write_bytes(data[:1000])
            os.kill(os.getpid(), signal.SIGKILL)
        path.write_bytes(data)

    shelf.write_synced = write
    VoiceLibrary(place, 100).add_voice(named("Killed"), CLIP)


def test_a_process_killed_between_the_files_of_an_upload(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    VoiceLibrary(place, 100).add_voice(named("Before"), CLIP)
    process = multiprocessing.get_context("spawn").Process(target=_die_at_the_clip, args=(place,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (leftover,) = (place / "incoming").iterdir()
    assert {path.name for path in leftover.iterdir()} == {"record.json", "clip.flac"}
    library = VoiceLibrary(place, 100)
    assert names(library) == ["Before"]
    assert leftover.exists(), "it may be another's"
    library.add_voice(named("Killed"), CLIP)
    monkeypatch.setattr(changes, "LEFTOVER_AGE_S", -1.0)
    VoiceLibrary(place, 100)
    assert not leftover.exists()


# -- several at once -----------------------------------------------------------------------------------------


def test_two_processes_see_each_others_changes(
    writer: Callable[[str], subprocess.Popen[str]], library: VoiceLibrary
) -> None:
    """What one has acknowledged the other sees in its next look, while it writes itself."""
    process = writer("other")
    assert process.stdout is not None
    for n in range(9):
        assert process.stdout.readline() == f"{n}\n"
        if n % 3 != 2:
            assert library.voice(f"other {n}").name == f"other {n}"
        library.add_voice(named(f"mine {n}"), CLIP)
        assert library.voice(f"mine {n}").name == f"mine {n}"


def test_an_old_directory_is_not_read_again(
    library: VoiceLibrary, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = library.add_voice(named("Anna"), CLIP)
    hour_ago = time.time() - 3600
    os.utime(place / "voices", (hour_ago, hour_ago))
    reader = VoiceLibrary(place, 100)
    assert names(reader) == ["Anna"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", None)
        assert names(reader) == ["Anna"]
    VoiceLibrary(place, 100).delete_voice(kept.id)
    assert names(reader) == []


def test_a_rename_is_seen_in_a_directory_that_is_old(library: VoiceLibrary, place: Path) -> None:
    kept = library.add_consent("before", "en", CLIP)
    hour_ago = time.time() - 3600
    os.utime(place / "consents", (hour_ago, hour_ago))
    reader = VoiceLibrary(place, 100)
    assert reader.consent(kept.id).name == "before"
    library.rename_consent(kept.id, "after")
    assert reader.consent(kept.id).name == "after"


def test_a_change_in_the_same_tick_as_a_look_is_seen(library: VoiceLibrary, place: Path) -> None:
    """Times of change are coarse, so a young one is not relied on."""
    reader = VoiceLibrary(place, 100)
    for n in range(10):
        library.add_voice(named(f"v{n}"), CLIP)
        moment = time.time_ns()
        os.utime(place / "voices", ns=(moment, moment))
        assert len(reader.voices()) == n + 1
        library.add_voice(named(f"w{n}"), CLIP)
        os.utime(place / "voices", ns=(moment, moment))
        assert f"w{n}" in names(reader)
        library.delete_voice(f"w{n}")


def test_one_name_goes_to_one_of_many_who_want_it(place: Path) -> None:
    barrier = threading.Barrier(8)

    def add(_: int) -> VoiceRecord | None:
        library = VoiceLibrary(place, 100)
        barrier.wait()
        try:
            return library.add_voice(named("Anna"), CLIP)
        except InvalidRequest:
            return None

    with ThreadPoolExecutor(8) as threads:
        kept = [record for record in threads.map(add, range(8)) if record]
    assert VoiceLibrary(place, 100).voices() == kept
    assert len(kept) == 1


def _add_named_alike(place: Path, count: int) -> int:
    """In a process of its own: how many of the names it got."""
    library = VoiceLibrary(place, 100)
    got = 0
    for n in range(count):
        try:
            library.add_voice(named(f"v{n}"), CLIP)
            got += 1
        except InvalidRequest:
            continue
    return got


def test_names_are_unique_across_processes(place: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        got = pool.starmap(_add_named_alike, [(place, 10)] * 3)
    assert sum(got) == 10
    assert sorted(names(VoiceLibrary(place, 100))) == [f"v{n}" for n in range(10)]


def test_threads_read_while_others_write(library: VoiceLibrary) -> None:
    with ThreadPoolExecutor(6) as threads:
        written = [threads.submit(library.add_voice, named(f"v{n}"), CLIP) for n in range(20)]
        read = [threads.submit(library.voices) for _ in range(40)]
        for task in [*written, *read]:
            task.result()
    assert sorted(names(library)) == sorted(f"v{n}" for n in range(20))

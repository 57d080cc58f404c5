"""Settings: read from the environment and `.env`; mistakes stop the start and are named."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.settings import Settings, SettingsError, env_example, load_settings, settings_table

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


def test_defaults() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.speech_model) == ("127.0.0.1", 8000, None)


def test_environment_wins_over_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PORT=1\nLOG_LEVEL=ERROR\nSPEECH_KV_CACHE_BYTES=2GiB\nSPEECH_MODEL=\n")
    monkeypatch.setenv("PORT", "2")
    settings = load_settings()
    assert (settings.port, settings.log_level, settings.speech_model) == (2, "error", None)
    assert settings.speech_kv_cache_bytes == 2 * 2**30
    assert load_settings({"port": 3}).port == 3


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PORT": "abc"}, "PORT=abc: "),
        ({"PORT": "70000"}, "PORT=70000: "),
        ({"LOG_LEVEL": "loud"}, "LOG_LEVEL=loud: "),
        ({"SPEECH_MAX_NUM_SEQS": "0"}, "SPEECH_MAX_NUM_SEQS=0: "),
        ({"SPEECH_KV_CACHE_BYTES": "3"}, "at least 1MiB"),
        ({"SPEECH_KV_CACHE_BYTES": "many"}, "SPEECH_KV_CACHE_BYTES=many: "),
        ({"SPEECH_GPU_MEMORY_UTILIZATION": "nan"}, "SPEECH_GPU_MEMORY_UTILIZATION=nan: "),
        ({"SPEECH_PREFIX_CACHING": "perhaps"}, "SPEECH_PREFIX_CACHING=perhaps: "),
        ({"SPEECH_MODEL_REVISION": "main"}, "set SPEECH_MODEL"),
        ({"SPEECH_KV_CACHE_BYTES": "1GiB", "SPEECH_GPU_MEMORY_UTILIZATION": "0.5"}, "unset one"),
        ({"SPEECH_MAX_NUM_BATCHED_TOKENS": "8", "SPEECH_MAX_NUM_SEQS": "9"}, "raise it"),
        ({"SPEECH_MODL": "x"}, "SPEECH_MODL in the environment is not a setting: did you mean SPEECH_MODEL?"),
        ({"VOXSERVE_CACHE": "x"}, "did you mean VOXSERVE_CACHE_DIR?"),
        ({"SPEECH_MODL": "x", "PORT": "y"}, "PORT=y: "),
        ({"VOICES_DIRECTORY": "x"}, "did you mean VOICES_DIR?"),
        ({"VOICES_MAX_SECONDS": "61"}, "VOICES_MAX_SECONDS=61: "),
        ({"VOICES_MAX_UPLOAD_MIB": "0"}, "VOICES_MAX_UPLOAD_MIB=0: "),
    ],
)
def test_mistakes_are_named(variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert said in str(caught.value)


def test_unknown_key_in_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SPEECH_MODLE=x\nHF_TOKEN=y\n")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "SPEECH_MODLE in .env is not a setting: did you mean SPEECH_MODEL?" in str(caught.value)
    assert "HF_TOKEN in .env is not a setting: remove it" in str(caught.value)
    assert "=y" not in str(caught.value)


def test_kubernetes_service_links_are_no_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPEECH_SERVICE_HOST", "SPEECH_SERVICE_PORT_HTTP", "SPEECH_PORT", "SPEECH_PORT_80_TCP_ADDR"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:80")
    load_settings()


def test_directories_follow_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    settings = load_settings()
    assert settings.voxserve_cache_dir == Path("/somewhere/voxserve")
    assert settings.voices_dir == Path("/elsewhere/voxserve/voices")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    assert load_settings().voices_dir == Path("/home/me/.local/share/voxserve/voices")


def test_bad_settings_end_the_process_with_2(tmp_path: Path) -> None:
    code = "from app.server import run; raise SystemExit(run())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PORT": "x", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "PORT=x: " in done.stderr
    assert "Traceback" not in done.stderr


def test_env_example_is_current(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert text == env_example()
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, "")
    lines = [line[1:] for line in text.splitlines() if line.startswith("#") and not line.startswith("# ")]
    (tmp_path / ".env").write_text("\n".join(line for line in lines if "_DIR=" not in line))
    read = load_settings()
    (tmp_path / ".env").unlink()
    assert read == load_settings()


def test_table_has_every_setting() -> None:
    table = settings_table()
    for name, field in Settings.model_fields.items():
        assert f"| `{name.upper()}` |" in table
        assert field.description

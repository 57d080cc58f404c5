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
    assert (settings.serves_speech, settings.serves_language, settings.llm_names) == (True, False, ())


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
        ({"LLM_MODLE": "x"}, "LLM_MODLE in the environment is not a setting: did you mean LLM_MODEL?"),
        ({"llm_modle": "x"}, "LLM_MODLE in the environment is not a setting"),
        ({"LLM_TEMPERATURE_OF_ALL": "x"}, "is not a setting: remove it"),
        ({"LLM_CLASSES": "theirs"}, "LLM_CLASSES=theirs: "),
        ({"LLM_DTYPE": "float16"}, "LLM_DTYPE=float16: "),
        ({"LLM_MAX_REQUESTS": "0"}, "LLM_MAX_REQUESTS=0: "),
        ({"LLM_MAX_NUM_SEQS": "1025"}, "LLM_MAX_NUM_SEQS=1025: "),
        ({"LLM_MAX_MODEL_LEN": "15"}, "LLM_MAX_MODEL_LEN=15: "),
        ({"LLM_KV_CACHE_BYTES": "1000"}, "LLM_KV_CACHE_BYTES=1000: must be at least 1MiB"),
        ({"LLM_GPU_MEMORY_UTILIZATION": "0"}, "LLM_GPU_MEMORY_UTILIZATION=0: "),
        ({"LLM_GPU_MEMORY_UTILIZATION": "1.1"}, "LLM_GPU_MEMORY_UTILIZATION=1.1: "),
        ({"LLM_TENSOR_PARALLEL_SIZE": "0"}, "LLM_TENSOR_PARALLEL_SIZE=0: "),
        ({"LLM_PIPELINE_PARALLEL_SIZE": "two"}, "LLM_PIPELINE_PARALLEL_SIZE=two: "),
        ({"LLM_EXPERT_PARALLEL": "perhaps"}, "LLM_EXPERT_PARALLEL=perhaps: "),
        ({"LLM_DRAFT_TOKENS": "9"}, "LLM_DRAFT_TOKENS=9: "),
        ({"LLM_DRAFT_TOKENS": "-1"}, "LLM_DRAFT_TOKENS=-1: "),
        ({"LLM_CORES": "3-1"}, "LLM_CORES=3-1: must be a list such as 0-3 or 0,2"),
        ({"LLM_CORES": "a"}, "LLM_CORES=a: must be a list"),
        ({"LLM_CORES": "1,"}, "LLM_CORES=1,: must be a list"),
        ({"LLM_CORES": "-1"}, "LLM_CORES=-1: must be a list"),
        ({"LLM_CORES": "0-99999"}, "LLM_CORES=0-99999: must be a list"),
        ({"LLM_CORES": "0-3,2"}, "LLM_CORES=0-3,2: names a number twice"),
        ({"LLM_MODEL_REVISION": "main"}, "set LLM_MODEL, or unset it"),
        ({"LLM_MODEL_REVISION": "main", "LLM_MODEL": "none"}, "set LLM_MODEL, or unset it"),
        ({"SPEECH_MODEL_REVISION": "main", "SPEECH_MODEL": "none", "LLM_MODEL": "a"}, "set SPEECH_MODEL"),
        ({"SPEECH_MODEL": "none"}, "leaves nothing to serve: set LLM_MODEL or a speech model"),
        ({"LLM_KV_CACHE_BYTES": "1GiB", "LLM_GPU_MEMORY_UTILIZATION": "0.5"}, "LLM_KV_CACHE_BYTES and LLM_"),
        (
            {"LLM_MAX_NUM_BATCHED_TOKENS": "63"},
            "LLM_MAX_NUM_BATCHED_TOKENS=63 is less than LLM_MAX_NUM_SEQS=64",
        ),
        ({"LLM_DEVICES": "0-2", "LLM_TENSOR_PARALLEL_SIZE": "2"}, "LLM_DEVICES names 3 GPUs, but LLM_TENSOR"),
        ({"SPEECH_DEVICES": "0-1"}, "SPEECH_DEVICES names 2 GPUs, but SPEECH_TENSOR_PARALLEL_SIZE is 1"),
        ({"LLM_MODEL": "x", "LLM_MODEL_NAME": "voxcpm2"}, "both engines would serve 'voxcpm2'"),
        ({"LLM_MODEL": "x", "SPEECH_MODEL": "x"}, "change SPEECH_MODEL_NAME or LLM_MODEL_NAME"),
        (
            {
                "LLM_MODEL": "x",
                "SPEECH_GPU_MEMORY_UTILIZATION": "0.6",
                "LLM_GPU_MEMORY_UTILIZATION": "0.5",
            },
            "LLM_GPU_MEMORY_UTILIZATION=0.5 are more than a whole GPU",
        ),
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


@pytest.mark.parametrize("service", ["SPEECH", "LLM", "LLM_MODEL"])
def test_kubernetes_service_links_are_no_mistakes(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP_ADDR"):
        monkeypatch.setenv(f"{service}_{suffix}", "tcp://10.0.0.1:80")
    load_settings()


def test_all_language_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, tuple[str, object]] = {
        "llm_model": ("XiaomiMiMo/MiMo-V2-Flash", "XiaomiMiMo/MiMo-V2-Flash"),
        "llm_model_revision": ("main", "main"),
        "llm_model_name": ("flash", "flash"),
        "llm_classes": ("vllm", "vllm"),
        "llm_dtype": ("bfloat16", "bfloat16"),
        "llm_max_requests": ("7", 7),
        "llm_max_num_seqs": ("3", 3),
        "llm_max_num_batched_tokens": ("512", 512),
        "llm_max_model_len": ("1024", 1024),
        "llm_kv_cache_bytes": ("4GiB", 4 * 2**30),
        "llm_devices": ("0-2,6", (0, 1, 2, 6)),
        "llm_cores": (" 1 , 3-3 ", (1, 3)),
        "llm_tensor_parallel_size": ("2", 2),
        "llm_pipeline_parallel_size": ("2", 2),
        "llm_expert_parallel": ("true", True),
        "llm_draft_tokens": ("2", 2),
        "llm_prefix_caching": ("false", False),
    }
    left_out = {"llm_gpu_memory_utilization"}  # contradicts the size of the KV cache
    assert given.keys() | left_out == {name for name in Settings.model_fields if name.startswith("llm_")}
    for name, (text, _) in given.items():
        monkeypatch.setenv(name.upper(), text)
    settings = load_settings()
    assert {name: getattr(settings, name) for name in given} == {name: v for name, (_, v) in given.items()}
    assert settings.llm_names == ("flash", "XiaomiMiMo/MiMo-V2-Flash")
    assert (settings.llm_ranks, settings.spans_cores) == (4, True)


@pytest.mark.parametrize("none", ["none", "None", "NONE"])
def test_one_engine_can_be_left_out(none: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("LLM_MODEL=somewhere\n")
    monkeypatch.setenv("SPEECH_MODEL", none)
    settings = load_settings()
    assert (settings.serves_speech, settings.serves_language) == (False, True)
    assert not settings.serves("voxcpm2")
    assert not settings.serves(none)
    monkeypatch.delenv("SPEECH_MODEL")
    monkeypatch.setenv("LLM_MODEL", none)
    settings = load_settings()
    assert (settings.serves_speech, settings.serves_language, settings.llm_names) == (True, False, ())


def test_names_matter_only_between_engines_that_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_MODEL_NAME", "voxcpm2")
    load_settings()
    monkeypatch.setenv("LLM_MODEL", "somewhere")
    monkeypatch.setenv("SPEECH_MODEL", "none")
    assert load_settings().llm_names == ("voxcpm2", "somewhere")


@pytest.mark.parametrize(
    ("variables", "shared"),
    [
        ({}, True),
        ({"SPEECH_DEVICES": "0", "LLM_DEVICES": "0"}, True),
        ({"SPEECH_DEVICES": "0", "LLM_DEVICES": "1"}, False),
        ({"LLM_DEVICES": "1"}, False),
        ({"SPEECH_DEVICES": "1"}, False),
        ({"SPEECH_DEVICES": "1", "LLM_TENSOR_PARALLEL_SIZE": "2"}, True),
        ({"SPEECH_MODEL": "none"}, False),
    ],
)
def test_engines_share_gpus_unless_told_otherwise(
    variables: dict[str, str], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ({"LLM_MODEL": "x"} | variables).items():
        monkeypatch.setenv(name, value)
    assert load_settings().shares_gpus is shared
    for name in ("SPEECH_GPU_MEMORY_UTILIZATION", "LLM_GPU_MEMORY_UTILIZATION"):
        monkeypatch.setenv(name, "0.9")
    if not shared:
        load_settings()
        return
    with pytest.raises(SettingsError, match="more than a whole GPU"):
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

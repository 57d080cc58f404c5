"""`voxserve doctor` on language checkpoints: whole ones are fine, and each fault of another is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from app.cli import run
from app.commands import doctor
from app.commands.doctor_language import INDEX_FILE, SINGLE_FILE, check_language_checkpoint
from app.commands.findings import ok
from models.mimo_v2.make_checkpoint import KINDS, make_checkpoint
from tests.support.golden import CHECKPOINT

CONFIG, TOKENIZER, WEIGHTS = "language config", "language tokenizer", "language weights"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each kind."""
    directory = tmp_path_factory.mktemp("checkpoints")
    for kind in KINDS:
        make_checkpoint(directory / kind, kind)
    return {kind: directory / kind for kind in KINDS}


@pytest.fixture
def copy(whole: dict[str, Path], tmp_path: Path) -> Path:
    """One to break."""
    return shutil.copytree(whole["flash"], tmp_path / "checkpoint")


@pytest.fixture
def parted(copy: Path) -> Path:
    """The same in two files with an index, as the releases are."""
    tensors = load_file(copy / SINGLE_FILE)
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, copy / file)
    places = {name: file for file, part in parts.items() for name in part}
    (copy / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (copy / SINGLE_FILE).unlink()
    return copy


def faults(directory: Path) -> dict[str, str]:
    """Details of what is wrong, by name."""
    findings = list(check_language_checkpoint(directory))
    assert all(finding.remedy for finding in findings if not finding.ok)
    return {finding.name: finding.detail for finding in findings if not finding.ok}


def edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_checkpoint(kind: str, whole: dict[str, Path]) -> None:
    findings = list(check_language_checkpoint(whole[kind]))
    assert [(finding.name, finding.ok) for finding in findings] == [
        (TOKENIZER, True),
        (CONFIG, True),
        (WEIGHTS, True),
    ]
    assert "6 layers of 128" in findings[1].detail or kind != "flash"


def test_a_checkpoint_in_parts(parted: Path) -> None:
    assert faults(parted) == {}


def test_an_absent_part(parted: Path) -> None:
    (parted / "model-2.safetensors").unlink()
    assert faults(parted)[WEIGHTS].endswith("model-2.safetensors is missing")


def test_a_part_cut_short(parted: Path) -> None:
    path = parted / "model-1.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "model-1.safetensors cannot be read" in faults(parted)[WEIGHTS]


def test_a_part_without_a_tensor_of_the_index(parted: Path) -> None:
    path = parted / "model-1.safetensors"
    tensors = load_file(path)
    gone = sorted(tensors)[3]
    del tensors[gone]
    save_file(tensors, path)
    assert faults(parted)[WEIGHTS] == f"{gone} is in no file, though {INDEX_FILE} says so"


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": {"a": 1}}'])
def test_an_index_of_something_else(content: str, parted: Path) -> None:
    (parted / INDEX_FILE).write_text(content)
    assert INDEX_FILE in faults(parted)[WEIGHTS]


def test_missing_tensors(copy: Path) -> None:
    tensors = load_file(copy / SINGLE_FILE)
    del tensors["model.layers.1.mlp.experts.2.up_proj.weight"]
    save_file(tensors, copy / SINGLE_FILE)
    assert faults(copy) == {WEIGHTS: "model.layers.1.mlp.experts.2.up_proj.weight is missing"}
    kept = {name: tensor for name, tensor in tensors.items() if ".layers.0." not in name}
    del kept["lm_head.weight"]
    save_file(kept, copy / SINGLE_FILE)
    detail = faults(copy)[WEIGHTS]
    assert detail.startswith("lm_head.weight, model.layers.0.")
    assert detail.endswith(" more are missing")


def test_tied_embeddings_need_no_head(copy: Path) -> None:
    tensors = load_file(copy / SINGLE_FILE)
    del tensors["lm_head.weight"]
    save_file(tensors, copy / SINGLE_FILE)
    edit(copy / "config.json", lambda config: config.update(tie_word_embeddings=True))
    assert faults(copy) == {}


def test_no_weights(copy: Path) -> None:
    (copy / SINGLE_FILE).unlink()
    assert faults(copy)[WEIGHTS].endswith(f"{SINGLE_FILE} is missing")


def test_another_model(copy: Path) -> None:
    edit(copy / "config.json", lambda config: config.update(model_type="qwen3"))
    assert "model_type is 'qwen3', not 'mimo_v2_flash' or 'mimo_v2'" in faults(copy)[CONFIG]
    assert "model_type is None" in next(
        finding.detail for finding in check_language_checkpoint(CHECKPOINT) if finding.name == CONFIG
    )


def test_a_missing_field(copy: Path) -> None:
    edit(copy / "config.json", lambda config: config.pop("moe_intermediate_size"))
    assert faults(copy) == {CONFIG: "config field moe_intermediate_size is missing"}


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_a_config_of_something_else(content: str | None, copy: Path) -> None:
    (copy / "config.json").unlink()
    if content is not None:
        (copy / "config.json").write_text(content)
    assert "config.json" in faults(copy)[CONFIG]


def test_a_tokenizer_that_cannot_be_read(copy: Path) -> None:
    text = (copy / "tokenizer.json").read_text()
    (copy / "tokenizer.json").write_text(text[:100])
    assert "tokenizer.json cannot be read" in faults(copy)[TOKENIZER]
    (copy / "tokenizer.json").unlink()
    assert "tokenizer.json cannot be read" in faults(copy)[TOKENIZER]


def test_a_chat_template(copy: Path) -> None:
    config = copy / "tokenizer_config.json"
    template: list[object] = []
    edit(config, lambda content: template.append(content.pop("chat_template")))
    assert "chat template" in faults(copy)[TOKENIZER]
    (copy / "chat_template.jinja").write_text(str(template[0]))
    assert faults(copy) == {}
    config.unlink()
    assert faults(copy) == {}
    (copy / "chat_template.jinja").unlink()
    assert "chat template" in faults(copy)[TOKENIZER]


# The command


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine on which all is well, at once; and these settings."""
    for name in ("check_versions", "check_devices", "check_tools", "check_plugin"):
        monkeypatch.setattr(doctor, name, lambda name=name: [ok(name, "fine")])
    for name in ("SPEECH_MODEL", "SPEECH_MODEL_REVISION", "LLM_MODEL", "LLM_MODEL_REVISION"):
        monkeypatch.delenv(name, raising=False)

    def set_all(**variables: object) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    return set_all


def report(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Verdict and name of what was found of checkpoints."""
    lines = capsys.readouterr().out.splitlines()[4:]
    return [(line[:6].strip(), line[6:].partition("  ")[0]) for line in lines]


def test_both_models_of_the_settings(
    copy: Path, settings_of: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    settings_of(SPEECH_MODEL=CHECKPOINT, LLM_MODEL=copy)
    assert run(["doctor"]) == 0
    speech = ["tokenizer", "config", "weights", "audio VAE"]
    assert report(capsys) == [("ok", name) for name in (*speech, TOKENIZER, CONFIG, WEIGHTS)]
    (copy / "tokenizer.json").unlink()
    assert run(["doctor"]) == 1
    assert ("FAIL", TOKENIZER) in report(capsys)


def test_a_language_model_alone(
    copy: Path, settings_of: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    settings_of(SPEECH_MODEL="none", LLM_MODEL=copy)
    assert run(["doctor"]) == 0
    assert [name for _, name in report(capsys)] == [TOKENIZER, CONFIG, WEIGHTS]


def test_a_named_language_model(
    copy: Path, settings_of: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    settings_of(LLM_MODLE="a mistake that is not looked at")
    assert run(["doctor", "--llm-model", str(copy)]) == 0
    assert [name for _, name in report(capsys)] == [TOKENIZER, CONFIG, WEIGHTS]
    assert run(["doctor", "--llm-model", str(copy), "--model", str(CHECKPOINT)]) == 0
    assert len(report(capsys)) == 7


@pytest.mark.parametrize("model", ["/none", "nobody/nothing", "a/b/c"])
def test_a_language_model_that_is_not_here(
    model: str, settings_of: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    settings_of(SPEECH_MODEL="none", LLM_MODEL=model)
    assert run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "FAIL  language checkpoint" in out
    assert model in out


def test_the_revision_of_the_settings(
    settings_of: Callable[..., None], monkeypatch: pytest.MonkeyPatch, copy: Path
) -> None:
    asked: list[object] = []

    def download(model: str, revision: str | None, local_files_only: bool) -> str:
        asked.append((model, revision, local_files_only))
        return str(copy)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    settings_of(SPEECH_MODEL="none", LLM_MODEL="some/model", LLM_MODEL_REVISION="v2")
    assert run(["doctor"]) == 0
    assert asked == [("some/model", "v2", True)]

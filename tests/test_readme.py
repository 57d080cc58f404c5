"""The README and `.env.example` say what is there."""

import re

from app.schemas import SpeechBody
from app.settings import env_example
from scripts.update_readme import ENV_EXAMPLE, OTHERS, README, ROOT, file_tree, filled

TEXT = README.read_text(encoding="utf-8")
REFUSED_FIELDS = {"speed", "instructions"}


def test_settings_and_tree_are_current() -> None:
    assert filled(TEXT) == TEXT, "run: .venv/bin/python -m scripts.update_readme"
    assert ENV_EXAMPLE.read_text(encoding="utf-8") == env_example()


def test_every_entry_of_the_tree_exists_and_has_a_comment() -> None:
    for line in file_tree().splitlines()[1:-1]:
        assert re.fullmatch(r" *\S+ +\S.*", line), line
    assert all((ROOT / name).exists() for name in OTHERS)


def test_every_field_of_a_request_is_described() -> None:
    described = set(re.findall(r"`(\w+)`", TEXT[TEXT.index("## The API") : TEXT.index("## Configuration")]))
    assert set(SpeechBody.model_fields) - REFUSED_FIELDS <= described

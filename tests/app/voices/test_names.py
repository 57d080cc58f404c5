"""Names of voices, descriptions and transcripts: what passes, and that whatever passes is harmless."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.voices.names import (
    BUILT_IN_VOICES,
    MAX_NAME_CHARS,
    checked_label,
    checked_name,
    is_built_in,
    name_key,
)
from app.voices.records import checked_description, checked_text

NAMES = st.text(max_size=MAX_NAME_CHARS + 5)


def outcome(text: str) -> str | None:
    """The name that is kept, or None where it is refused."""
    try:
        return checked_name(text)
    except ValueError:
        return None


@pytest.mark.parametrize(
    "name",
    [
        "Anna",
        "anna-2",
        "Dr. Müller (calm)",
        "小明",
        "Zoë",
        "O'Brien",
        "voice_of_god",
        "50 %",
        "a" * 100,
        "..a",
        "C:",
    ],
)
def test_names_that_pass(name: str) -> None:
    assert checked_name(f"  {name}\t") == name


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "...", "..", ".", "-", "🎉", "../x", "..\\x", "/etc/passwd", "a/b", "a\0b", "a\nb",
        "a\u202eb",
        "a\u200bb", "a\ud800", "a" * 101, "voice_0123456789abcdef01234567", "Voice_0123456789ABCDEF01234567",
    ],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    with pytest.raises(ValueError, match=r"name"):
        checked_name(name)


@pytest.mark.parametrize("name", BUILT_IN_VOICES)
def test_names_of_the_models_own_voice_are_taken(name: str) -> None:
    for spelled in (
        name,
        name.upper(),
        name.title(),
        f" {name} ",
        "\uff41" + name[1:] if name[0] == "a" else name,
    ):
        assert is_built_in(spelled.strip())
        with pytest.raises(ValueError, match="the model's own voice: choose another"):
            checked_name(spelled)


@given(NAMES)
def test_what_passes_is_visible_short_and_no_path(text: str) -> None:
    name = outcome(text)
    if name is None:
        return
    assert name == name.strip()
    assert 1 <= len(name) <= MAX_NAME_CHARS
    assert not set(name) & set("/\\\0\n\r")
    assert name not in (".", "..")
    assert any(map(str.isalnum, name))
    name.encode()  # valid Unicode


@given(NAMES)
def test_a_name_that_passed_passes_again_unchanged(text: str) -> None:
    name = outcome(text)
    assert name is None or checked_name(name) == name


@given(NAMES)
def test_the_key_does_not_change_with_case_or_composition(text: str) -> None:
    for same in (name_key(text), unicodedata.normalize("NFD", text), unicodedata.normalize("NFC", text)):
        assert name_key(same) == name_key(text)


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_a_checked_description_has_words_and_no_parentheses(text: str) -> None:
    try:
        checked = checked_description(text)
    except ValueError:
        return
    assert not set(checked) & set("()（）\n")
    assert any(map(str.isalnum, checked))
    assert checked_description(checked) == checked


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("a young woman", "a young woman"),
        (" (a young  woman)\n", "a young woman"),
        ("（温柔的女声）", "温柔的女声"),
        ("((old man))", "old man"),
    ],
)
def test_descriptions(given_text: str, kept: str) -> None:
    assert checked_description(given_text) == kept


@pytest.mark.parametrize("text", ["", "()", "((", "...", "a (b) c", "(a) and (b)", "a\ud800"])
def test_descriptions_that_do_not_pass(text: str) -> None:
    with pytest.raises(ValueError, match=r"text|parentheses"):
        checked_description(text)


def test_texts() -> None:
    assert checked_text(" Hello,\nworld! ") == "Hello,\nworld!"
    for text in ("", "\n", "?!", "\udfff"):
        with pytest.raises(ValueError, match="text"):
            checked_text(text)


def test_labels_may_be_names_of_voices() -> None:
    assert checked_label("alloy") == "alloy"

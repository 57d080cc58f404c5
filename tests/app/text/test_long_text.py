"""Long texts in natural parts of about even size, with the pause after each."""

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from app.text.long_text import Part, parts


def split_long(text: str, max_chars: int) -> list[str]:
    return [part.text for part in parts(text, max_chars)]


WORDS = "one two three four five six seven eight nine ten "


@pytest.mark.parametrize(
    ("text", "max_chars", "expected"),
    [
        pytest.param("", 10, [], id="nothing"),
        pytest.param("Short.", 10, [Part("Short.", "none")], id="what fits is one part"),
        pytest.param(
            "A heading\n\nSome text. More text.",
            40,
            [Part("A heading", "paragraph"), Part("Some text. More text.", "none")],
            id="paragraphs are apart",
        ),
        pytest.param(
            "We walked home. It was late. The moon was up.",
            30,
            [Part("We walked home. It was late.", "sentence"), Part("The moon was up.", "none")],
            id="at a sentence, evenly",
        ),
        pytest.param(
            "We walked home in the dark, and it was very late by then.",
            40,
            [Part("We walked home in the dark,", "clause"), Part("and it was very late by then.", "none")],
            id="at a clause",
        ),
        pytest.param(
            "We walked home in the dark and slept until noon.",
            30,
            [Part("We walked home in the dark", "none"), Part("and slept until noon.", "none")],
            id="at a space, evenly",
        ),
        pytest.param(
            "aaaaabbbbbccccc", 10, [Part("aaaaabbb", "none"), Part("bbccccc", "none")], id="anywhere, evenly"
        ),
        pytest.param(
            "He met Dr. Smith of St. Louis. They talked a lot.",
            32,
            [Part("He met Dr. Smith of St. Louis.", "sentence"), Part("They talked a lot.", "none")],
            id="not at an abbreviation",
        ),
        pytest.param(
            "我们今天去北京。明天回来。",
            9,
            [Part("我们今天去北京。", "sentence"), Part("明天回来。", "none")],
            id="Chinese",
        ),
        pytest.param(
            "First line\nsecond line\r\n\r\nThird",
            40,
            [Part("First line\nsecond line", "paragraph"), Part("Third", "none")],
            id="a line end is no paragraph",
        ),
    ],
)
def test_parts(text: str, max_chars: int, expected: list[Part]) -> None:
    assert parts(text, max_chars) == expected
    assert split_long(text, max_chars) == [part.text for part in expected]


def test_no_small_part_is_left() -> None:
    lengths = [len(part) for part in split_long(WORDS * 41, 200)]
    assert min(lengths) > 150


def test_a_small_last_sentence_stays_with_the_clause_before_it() -> None:
    text = "The long day ended at last, and all of us were tired and went to bed early. Yes."
    assert split_long(text, 78) == [
        "The long day ended at last,",
        "and all of us were tired and went to bed early. Yes.",
    ]


def test_a_part_has_a_length() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        parts("text", 0)


PIECES = st.sampled_from(
    [*"ab .,;!?\n。，é好", "\n\n", "Dr. ", "word ", "e\u0301", "\u0301", "👨\u200d👩\u200d👧", "नि", "The "]
)
TEXTS = st.lists(PIECES, max_size=80).map("".join) | st.text()


@given(TEXTS, st.integers(1, 40))
@example("好。好", 1)
def test_nothing_is_lost_and_no_part_is_long(text: str, max_chars: int) -> None:
    found = split_long(text, max_chars)
    assert all(0 < len(part) <= max_chars for part in found)
    assert "".join("".join(found).split()) == "".join(text.split())


@given(TEXTS)
def test_only_what_is_followed_by_something_pauses(text: str) -> None:
    found = parts(text, 12)
    assert all(part.pause == "none" for part in found[-1:])
    assert sum(part.pause == "paragraph" for part in found) < max(1, len(found))


@given(st.lists(st.sampled_from(["e\u0301", "👨\u200d👩\u200d👧", "🇺🇸", "नि", "a", "好", " "]), max_size=60))
def test_no_character_is_cut(characters: list[str]) -> None:
    text = "".join(characters)
    found = [character for part in split_long(text, 8) for character in regex.findall(r"\X", part)]
    assert [c for c in found if c != " "] == [c for c in regex.findall(r"\X", text) if c != " "]

"""What holds for any text: it is read, it stays, and in a time that its length bounds."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.long_text import parts
from app.text.normalise import normalise
from app.text.segment import Segmenter, sentences

WRITTEN_TEXT = (
    "Dr.|St.|Mr.|3.14|1,234|-5|50%|1/2|2nd|10:30|pm|am|1984|in|$5.20|£3|kg|km/h|m²|20°C|5'10\"|e.g.|"
    "etc.|U.S.A.|NASA|FBI|HTML5|COVID-19|555-123-4567|v2.3.1|example.com|https://x.com/a?b=1|me@x.com|"
    "#1|No.|C++|&|@|+|=|5-10|Henry|VIII|II|…|?!|—|–|**bold**|`code`|[a](b)|(see)|#|-|>|<|~|_|😀|I|THE|"
    "STOP|iPhone|24/7|3x|2x4|1e6|10^3|½|²|.|,|;|:|'|the|The|and|May|1|2024|é|house|1990s|'90s|9am|"
    "2024-05-01"
)
WRITTEN = st.sampled_from(WRITTEN_TEXT.split("|"))
SENTENCES = st.lists(WRITTEN, max_size=12).map(" and ".join)
ANY_TEXT = (
    st.text()
    | st.lists(WRITTEN, max_size=12).map("".join)
    | st.text(alphabet="0123456789 .,-/:$%aAmIVx'\"^*()<\n")
)


@given(ANY_TEXT)
def test_what_can_be_spoken_is_never_lost(text: str) -> None:
    said = normalise(text)
    assert any(map(str.isalnum, said)) or not any(map(str.isalnum, text))


@given(SENTENCES)
def test_what_is_said_stays(text: str) -> None:
    said = normalise(text)
    assert normalise(said) == said


@given(SENTENCES)
def test_no_digits_are_left(text: str) -> None:
    assert not re.search(r"[0-9]", normalise("This is " + text))


@given(st.text(st.characters(categories=["Lo", "Zs", "Po"]), max_size=40))
def test_other_scripts_keep_their_numbers(text: str) -> None:
    if sum(map(str.isalpha, text)):
        assert "5" in normalise(text + " 汉字汉字" + "汉" * len(text) + " 5 汉")


def seconds(work: Callable[[str], object], text: str) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work(text)
        times.append(time.perf_counter() - start)
    return min(times)


LENGTH = 8_000  # characters of the longer text
GROWTH = 4  # times as long
TOO_MUCH = 9  # times the time: between 4, for a linear pass on a busy machine, and 16, for a quadratic one
AWKWARD = [
    "1", "1 ", "1,", "1-", "1/", "1.", "1:", "a", "A", "A.", "a.", "a@", "a_", "[", "[](", "(", "<", "<b ",
    "<!--", "&amp;", "*", "_", "`", "~", "#", "|", "| - ", "> ", "- a\n", "http://", "/a", "$", "$1-", "'",
    '"', "—", "-", ".", "!?", "IVX", " ", "\n", "😀 ", "e\u0301", "\u0301", "½", "²", "^", "May 1 ",
    "in 1984 ", "Dr. A", "THE ", "5 kg ", "www.", "中1", "! ", "。", "\u200d",
    "the quick brown fox ", "Aa St. ", "1 am ", "x,",
]  # fmt: skip


@pytest.mark.parametrize(
    "work", [normalise, sentences, lambda text: parts(text, 200)], ids=["say", "part", "split"]
)
@pytest.mark.parametrize("unit", AWKWARD)
def test_time_grows_with_the_length(unit: str, work: Callable[[str], object]) -> None:
    longer = (unit * LENGTH)[:LENGTH]
    work(longer[:100])
    floor = 0.002  # seconds, below which a clock says little
    assert seconds(work, longer) < TOO_MUCH * max(floor, seconds(work, longer[: LENGTH // GROWTH]))


def test_time_of_a_stream_grows_with_its_length() -> None:
    def stream(text: str) -> None:
        segmenter = Segmenter()
        for letter in text:
            segmenter.push(letter)

    assert seconds(stream, "x" * LENGTH) < TOO_MUCH * seconds(stream, "x" * (LENGTH // GROWTH))

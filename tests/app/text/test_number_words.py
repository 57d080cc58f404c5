"""Numbers as American English says them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.number_words import MAX_CARDINAL_DIGITS, cardinal, identifier, number, ordinal, year


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (99, "ninety-nine"),
        (110, "one hundred ten"),
        (1_001, "one thousand one"),
        (1_000_000, "one million"),
        (20_000_300, "twenty million three hundred"),
        (10**15, "one quadrillion"),
    ],
)
def test_cardinal(value: int, words: str) -> None:
    assert cardinal(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1, "first"),
        (12, "twelfth"),
        (20, "twentieth"),
        (42, "forty-second"),
        (100, "one hundredth"),
        (103, "one hundred third"),
        (1_000, "one thousandth"),
    ],
)
def test_ordinal(value: int, words: str) -> None:
    assert ordinal(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (44, "forty-four"),
        (476, "four seventy-six"),
        (1000, "one thousand"),
        (1066, "ten sixty-six"),
        (1900, "nineteen hundred"),
        (1905, "nineteen oh five"),
        (1984, "nineteen eighty-four"),
        (2000, "two thousand"),
        (2009, "two thousand nine"),
        (2010, "twenty ten"),
    ],
)
def test_year(value: int, words: str) -> None:
    assert year(value) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("007", "zero zero seven"),
        ("0.50", "zero point five zero"),
        (".5", "point five"),
        ("1,000", "one thousand"),
        ("5551234567", "five five five one two three four five six seven"),
        ("5000000000", "five billion"),
    ],
)
def test_number(text: str, words: str) -> None:
    assert number(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "zero"),
        ("19", "nineteen"),
        ("101", "one oh one"),
        ("747", "seven forty-seven"),
        ("500", "five hundred"),
        ("4090", "forty ninety"),
        ("007", "zero zero seven"),
        ("94103", "nine four one zero three"),
    ],
)
def test_identifier(text: str, words: str) -> None:
    assert identifier(text) == words


VALUES = {
    **{cardinal(value): value for value in range(100)},
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "quadrillion": 10**15,
}


def read_back(words: str) -> int:
    total = group = 0
    for word in words.split():
        value = VALUES[word]
        if value >= 1000:
            total, group = total + group * value, 0
        else:
            group = group * value if word == "hundred" else group + value
    return total + group


@given(st.integers(0, 10**MAX_CARDINAL_DIGITS - 1))
def test_a_listener_hears_the_same_number(value: int) -> None:
    assert read_back(cardinal(value)) == value

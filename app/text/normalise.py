"""Written text as a careful speaker would say it: a list of passes, in order.

Marks without sound go in every language. Numbers, abbreviations and signs become words in English only: a
text of another language keeps them, as a voice reads them better in its own. What comes out goes through
again unchanged.
"""

import re
from collections.abc import Callable

from app.text.abbreviations import expand_abbreviations
from app.text.capitals import read_capitals
from app.text.characters import clean, fold, tidy_spaces
from app.text.dates import read_dates
from app.text.emoji import remove_emoji
from app.text.identifiers import part_letters_and_digits, read_identifiers
from app.text.language import is_english
from app.text.markdown import read_numbered_items, remove_markdown
from app.text.maths import read_maths, read_ranges, read_signs
from app.text.money import read_money
from app.text.numbers import read_numbers, read_ordinals
from app.text.phones import read_phones
from app.text.punctuation import tidy_punctuation
from app.text.roman import read_roman
from app.text.shouting import lower_shouting
from app.text.symbols import read_symbols
from app.text.times import read_times
from app.text.units import read_units
from app.text.versions import read_versions
from app.text.web import read_web
from app.text.years import read_years

Pass = Callable[[str], str]

# In any language.
_NEUTRAL: tuple[Pass, ...] = (clean, tidy_spaces, remove_emoji, remove_markdown, tidy_spaces)

# Each pass leaves to the next what is not its own, so the more special forms come first: an ISO date looks
# like a range, and an amount of money has a decimal point.
_WORDS: tuple[Pass, ...] = (fold, read_web, lower_shouting, read_numbered_items, expand_abbreviations)
_NUMBERS: tuple[Pass, ...] = (
    read_dates,
    read_times,
    read_phones,
    read_versions,
    read_identifiers,
    read_signs,
    read_money,
    read_ordinals,
    read_years,
    read_ranges,
    read_units,
    read_maths,
)
_LETTERS: tuple[Pass, ...] = (
    read_roman,
    part_letters_and_digits,
    read_symbols,
    read_numbers,
    read_capitals,
    tidy_punctuation,
    tidy_spaces,
)
_DIGIT = re.compile(r"[0-9]")
_SPEAKABLE = re.compile(r"[^\W_]")
_UNSPEAKABLE = re.compile(r"[\W_]+")


def normalise(text: str) -> str:
    """`text` with all that is not said taken out and, in English, all that is said spelled out.

    Empty only where `text` has neither letter nor digit. Takes any string, in linear time.
    """
    result = _run(text)
    if _SPEAKABLE.search(result) or not _SPEAKABLE.search(text):
        return result
    return _run(_UNSPEAKABLE.sub(" ", text))  # all letters stood within marks: "<b>"


def _run(text: str) -> str:
    text = _through(_NEUTRAL, text)
    if not is_english(text):
        return text
    text = _through(_WORDS, text)
    if _DIGIT.search(text):
        text = _through(_NUMBERS, text)
    return _through(_LETTERS, text)


def _through(passes: tuple[Pass, ...], text: str) -> str:
    for step in passes:
        text = step(text)
    return text

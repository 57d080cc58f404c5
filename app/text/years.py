"""Which four digits are a year, and decades: "in 1984", "1914-1918", "the '90s", "44 BC".

From 1900 to 2099 a bare number is a year unless it counts or measures; before that, only after a word that
asks for one.
"""

import re

from app.text.lexicon import COUNTS_FOLLOW
from app.text.number_words import cardinal, plural, two_digits, year
from app.text.unit_signs import UNIT_FOLLOWS

_YEAR = r"(?:1[0-9]{3}|20[0-9]{2})"
_RECENT = r"(?:19|20)[0-9]{2}"
_SEASONS = "spring|summer|autumn|fall|winter"
# After these a year follows, unless it is round and counts something ("in 1500 cases").
_STRONG = rf"in|since|until|till|during|year|early|late|mid|circa|{_SEASONS}"
# After these it may as well be an amount ("by 1066 votes").
_WEAK = "of|by|from|to|and|or|around|about|before|after|between"
_AMOUNT = (
    "than|over|under|nearly|almost|least|most|exactly|only|approximately|roughly|up to|costs?|paid|number"
)

_NO_YEAR = rf"(?!\w|[.,/:][0-9]|-[0-9]| ?[%€£¥+=*×^<>]| (?:USD|EUR|GBP)\b)(?!{UNIT_FOLLOWS})"
_RANGE = re.compile(
    rf"(?<![\w.,$£€¥#/+-])({_YEAR}) ?[–—-] ?({_YEAR}|[0-9]{{2}})(?![0-9]){_NO_YEAR}(?!{COUNTS_FOLLOW})"
)
_ERA = re.compile(
    r"(?<![\w.,])([0-9]{1,4}) ?(AD|BCE|BC|CE|A\.D\.|B\.C\.)(?!\w)|(?<!\w)AD ([0-9]{1,4})(?![\w.,]?[0-9])"
)
_AFTER_STRONG = re.compile(
    rf"(?i:(?<!\w)(?P<lead>(?:{_STRONG})[ -]))(?P<year>{_YEAR}){_NO_YEAR}(?P<counts>{COUNTS_FOLLOW})?"
)
_AFTER_WEAK = re.compile(rf"(?i:(?<!\w)(?:{_WEAK}) )({_YEAR}){_NO_YEAR}(?!{COUNTS_FOLLOW})")
_IN_BRACKETS = re.compile(rf"(?<=[(©])({_YEAR})(?=[),;])")
_BARE = re.compile(rf"(?<![\w.,:$£€¥#/'-])(?<![+=*×^<>~≈±-] )({_RECENT}){_NO_YEAR}(?!{COUNTS_FOLLOW})")
_AFTER_AMOUNT = re.compile(rf"(?<!\w)((?:{_AMOUNT}) )({_RECENT})(?![\w.,-]?[0-9])", re.IGNORECASE)

_DECADE = re.compile(r"(?<![\w.,])(?<!\w')'?((?:1[0-9]|20)[0-9]0)'?s(?!\w)")
_SHORT_DECADE = re.compile(
    r"(?<!\w)(?:'|(?P<lead>(?:the|early|late|mid|his|her|their|my|your|our|in)[ -])'?)"
    r"(?P<tens>[1-9]0)'?s(?!\w)",
    re.IGNORECASE,
)
_SHORT_YEAR = re.compile(r"(?<![\w'])'([0-9]{2})(?![\w'])")


def read_years(text: str) -> str:
    """Years and decades in words."""
    text = _DECADE.sub(lambda match: plural(year(int(match[1]))), text)
    text = _SHORT_DECADE.sub(lambda match: (match["lead"] or "") + plural(cardinal(int(match["tens"]))), text)
    text = _ERA.sub(_era, text)
    text = _RANGE.sub(_range, text)
    text = _AFTER_STRONG.sub(_after_strong, text)
    text = _AFTER_AMOUNT.sub(lambda match: match[1] + cardinal(int(match[2])), text)
    text = _AFTER_WEAK.sub(_only_year, text)
    text = _IN_BRACKETS.sub(_only_year, text)
    text = _BARE.sub(_only_year, text)
    return _SHORT_YEAR.sub(lambda match: two_digits(int(match[1])), text)


def _only_year(match: re.Match[str]) -> str:
    return match[0][: match.start(1) - match.start()] + year(int(match[1]))


def _after_strong(match: re.Match[str]) -> str:
    number = int(match["year"])
    if match["counts"] is not None and number % 100 == 0:
        return match[0]
    return match["lead"] + year(number)


def _era(match: re.Match[str]) -> str:
    if match[3]:
        return f"A D {year(int(match[3]))}"
    return f"{year(int(match[1]))} {' '.join(match[2].replace('.', ''))}"


def _range(match: re.Match[str]) -> str:
    first, last = int(match[1]), match[2]
    if len(last) == 2:
        return match[0] if int(last) <= first % 100 else f"{year(first)} to {cardinal(int(last))}"
    if first % 100 == 0 == int(last) % 100:
        return match[0]
    return f"{year(first)} to {year(int(last))}"

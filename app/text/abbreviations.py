"""Shortened words in full: Dr. and St. by what stands around them, Latin phrases, ranks, companies, roads.

A full stop that also ends the sentence is kept.
"""

import re

from app.text.lexicon import (
    ENDS_BEFORE_CAPITAL,
    ENDS_HERE,
    MONTH_OF_ABBREVIATION,
    WEEKDAY_BEFORE_DATE,
    WEEKDAY_OF_ABBREVIATION,
)

# Before a name, with or without a stop.
_TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Messrs": "Messieurs", "Mx": "Mix", "Prof": "Professor",
    "Dr": "Doctor", "Drs": "Doctors", "St": "Saint",
    "Capt": "Captain", "Cmdr": "Commander", "Lt": "Lieutenant", "Sgt": "Sergeant", "Cpl": "Corporal",
}  # fmt: skip
# Before a name, only with a stop.
_RANKS = {
    "Gen": "General", "Col": "Colonel", "Maj": "Major", "Adm": "Admiral", "Sen": "Senator",
    "Rep": "Representative", "Gov": "Governor", "Pres": "President", "Rev": "Reverend", "Hon": "Honorable",
    "Fr": "Father", "Mt": "Mount", "Ft": "Fort", "Supt": "Superintendent",
}  # fmt: skip
# After a name.
_SUFFIXES = {
    "Jr": "Junior", "Sr": "Senior", "Esq": "Esquire", "Inc": "Incorporated", "Corp": "Corporation",
    "Ltd": "Limited", "Co": "Company", "Bros": "Brothers", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road",
    "Ln": "Lane", "Hwy": "Highway", "Pkwy": "Parkway", "Apt": "Apartment", "Bldg": "Building", "Sq": "Square",
    "Univ": "University",
}  # fmt: skip
# Wherever they stand.
_PHRASES = {
    "e.g.": "for example", "i.e.": "that is", "etc.": "et cetera", "et al.": "and others", "cf.": "compare",
    "viz.": "namely", "a.k.a.": "also known as", "approx.": "approximately", "dept.": "department",
    "Dept.": "Department", "govt.": "government", "Govt.": "Government", "assoc.": "association",
    "Assoc.": "Association", "asst.": "assistant", "Asst.": "Assistant", "vs.": "versus", "vs": "versus",
    "N/A": "N A", "misc.": "miscellaneous", "incl.": "including", "excl.": "excluding", "N.B.": "note well",
    "w/o": "without", "w/": "with",
    "c/o": "care of", "and/or": "and or", "E.g.": "For example", "I.e.": "That is",
}  # fmt: skip
_AT_THE_END = ("etc.", "et al.")  # of sentences; the others lead on
# Before a number.
_COUNTED = {
    "no": "number", "nos": "numbers", "p": "page", "pp": "pages", "vol": "volume", "vols": "volumes",
    "ch": "chapter", "chap": "chapter", "fig": "figure", "figs": "figures", "sec": "section",
    "eq": "equation", "ed": "edition",
    "art": "article", "pt": "part", "ext": "extension", "est": "established", "ca": "circa",
    "c": "circa", "max": "maximum", "min": "minimum", "tel": "telephone", "apt": "apartment", "ste": "suite",
}  # fmt: skip


def _any_of(words: dict[str, str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_NAME = r"(?=\s(?:[A-Z]))"
_HOUSE = (
    r"(?<!\w)(?P<house>[0-9]{1,5}\s(?:[NSEW]\.?\s)?(?:[A-Z][a-z]{1,20}\s|[0-9]{1,3}(?:st|nd|rd|th)\s){1,3})"
)
_STREETS = {"Dr": "Drive", "St": "Street"}
_HOUSE_STREET = re.compile(rf"{_HOUSE}(?P<road>Dr|St)(?:\.(?P<ends>{ENDS_HERE})?|\b)")
# A capital or ordinal before, and no name after.
_STREET = re.compile(
    rf"(?P<before>(?<!\w)(?:[A-Z][a-z]{{1,20}}(?:'s)?|[0-9]{{1,3}}(?:st|nd|rd|th))\s)"
    rf"(?P<road>Dr|St)\b(?:\.(?P<ends>{ENDS_HERE})|\.?(?!\.?\s[A-Z]|\w|'))"
)
_TITLE = re.compile(rf"(?<![\w.])({_any_of(_TITLES)})\.?{_NAME}")
_TITLE_ALONE = re.compile(r"(?<![\w.])(Mr|Mrs|Ms|Dr|Prof)\.")
_RANK = re.compile(rf"(?<![\w.])({_any_of(_RANKS)})\.{_NAME}")
_SUFFIX = re.compile(rf"(?<=[\w,]\s)({_any_of(_SUFFIXES)})\.(?P<ends>{ENDS_HERE})?|(?<=[a-z]\s)(Jr|Sr)\b")
_PHRASE = re.compile(rf"(?<![\w./])({_any_of(_PHRASES)})(?P<ends>{ENDS_BEFORE_CAPITAL})?(?![\w])")
_BEFORE_NUMBER = re.compile(rf"(?<![\w.])({_any_of(_COUNTED)})\.\s?(?=[0-9#])", re.IGNORECASE)
_MONTH = re.compile(rf"(?<!\w)({_any_of(MONTH_OF_ABBREVIATION)})\.(?=\s[a-z0-9]|,)")
_PERIODS = MONTH_OF_ABBREVIATION | WEEKDAY_OF_ABBREVIATION
_PERIOD = _any_of(_PERIODS)
_FROM_TO = re.compile(rf"(?<!\w)({_PERIOD})\.? ?[–-] ?({_PERIOD})(?!\w)(?:\.(?= [a-z0-9]))?")
_WEEKDAY = re.compile(WEEKDAY_BEFORE_DATE)
_CASE = re.compile(r"(?<=[a-z]) v\. (?=[A-Z])")


def expand_abbreviations(text: str) -> str:
    """Abbreviations of English as the words they stand for."""
    text = _PHRASE.sub(_phrase, text)
    text = _BEFORE_NUMBER.sub(_before_number, text)
    text = _FROM_TO.sub(lambda match: f"{_PERIODS[match[1]]} to {_PERIODS[match[2]]}", text)
    text = _WEEKDAY.sub(lambda match: WEEKDAY_OF_ABBREVIATION[match[1]], text)
    text = _MONTH.sub(lambda match: MONTH_OF_ABBREVIATION[match[1]], text)
    text = _HOUSE_STREET.sub(lambda match: match["house"] + _road(match), text)
    text = _STREET.sub(lambda match: match["before"] + _road(match), text)
    text = _TITLE.sub(lambda match: _TITLES[match[1]], text)
    text = _TITLE_ALONE.sub(lambda match: _TITLES[match[1]], text)
    text = _RANK.sub(lambda match: _RANKS[match[1]], text)
    text = _SUFFIX.sub(_suffix, text)
    return _CASE.sub(" versus ", text)


def _stop(match: re.Match[str]) -> str:
    return "" if match["ends"] is None else "."


def _phrase(match: re.Match[str]) -> str:
    return _PHRASES[match[1]] + (_stop(match) if match[1] in _AT_THE_END else "")


def _before_number(match: re.Match[str]) -> str:
    is_measured = match[1] in ("min", "sec") and match.string[match.start() - 2 : match.start() - 1].isdigit()
    if is_measured or match[1] in ("C", "P"):  # "5 min. 3 people", "Plan C. 5 people"
        return match[0]
    words = _COUNTED[match[1].lower()]
    return f"{words.capitalize() if match[1][0].isupper() else words} "


def _road(match: re.Match[str]) -> str:
    return _STREETS[match["road"]] + _stop(match)


def _suffix(match: re.Match[str]) -> str:
    return _SUFFIXES[match[1] or match[3]] + _stop(match)

"""Dates and parts of the century: "2024-05-01" as "May first, twenty twenty-four".

A date all in numbers is read month first, as in the United States, unless that is no date.
"""

import re

from app.text.lexicon import COUNTS_FOLLOW, MONTH_OF_ABBREVIATION, MONTHS
from app.text.number_words import ordinal, year

_MONTHS = (
    {month: month for month in MONTHS} | {month.upper(): month for month in MONTHS} | MONTH_OF_ABBREVIATION
)
_MONTH = rf"(?:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})"
_DAY = r"(?:3[01]|[12][0-9]|0?[1-9])"
_YEAR = r"(?:1[0-9]{3}|20[0-9]{2})"
_SUFFIX = r"(?:st|nd|rd|th)"
_PIVOT = 50  # two digits below it are of this century

_ISO = re.compile(
    rf"(?<![\w.,/-])(?P<year>{_YEAR})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12][0-9]|3[01])"
    r"(?:(?P<time>T(?=[0-9]{2}:))|(?![\w-]))"
)
_ISO_MONTH = re.compile(rf"(?<![\w.,/-])({_YEAR})-(0[1-9])(?![\w-])")
_NUMERIC = re.compile(
    r"(?<![\w.,/-])([0-9]{1,2})(?:(/)([0-9]{1,2})/([0-9]{4}|[0-9]{2})|([.-])([0-9]{1,2})\5([0-9]{4}))"
    r"(?![\w/-]|[.,][0-9])"
)
_MONTH_DAY = re.compile(
    rf"(?<!\w)(?P<month>{_MONTH})\.? (?:the )?(?P<day>{_DAY})(?P<suffix>{_SUFFIX})?(?!\w)"
    rf"(?: ?[–-] ?(?P<until>{_DAY}){_SUFFIX}?(?!\w))?(?:,? (?P<year>{_YEAR}))?(?![\w%/:-]|[.,][0-9])"
    rf"(?!{COUNTS_FOLLOW})"
)
_DAY_MONTH = re.compile(
    rf"(?<![\w.,:/$£€-])(?P<the>[Tt]he )?(?P<day>{_DAY}){_SUFFIX}? (?:of )?(?P<month>{_MONTH})(?!\w)"
    rf"(?:\.(?= ))?(?:,? (?P<year>{_YEAR})(?![\w-]|[.,][0-9]))?"
)
_MONTH_YEAR = re.compile(rf"(?<!\w)({_MONTH})\.?,? (?:of )?({_YEAR})(?![\w%/-]|[.,][0-9])")


def read_dates(text: str) -> str:
    """Dates in words."""
    text = _ISO.sub(_iso, text)
    text = _ISO_MONTH.sub(lambda match: f"{MONTHS[int(match[2]) - 1]} {year(int(match[1]))}", text)
    text = _NUMERIC.sub(_numeric, text)
    text = _MONTH_DAY.sub(_month_day, text)
    text = _DAY_MONTH.sub(_day_month, text)
    return _MONTH_YEAR.sub(lambda match: f"{_MONTHS[match[1]]} {year(int(match[2]))}", text)


def _date(month: str, day: int, full_year: int) -> str:
    return f"{month} {ordinal(day)}, {year(full_year)}"


def _iso(match: re.Match[str]) -> str:
    date = _date(MONTHS[int(match["month"]) - 1], int(match["day"]), int(match["year"]))
    return f"{date}, " if match["time"] else date


def _numeric(match: re.Match[str]) -> str:
    separator = match[2] or match[5]
    month, day = int(match[1]), int(match[3] or match[6])
    short = match[4] or match[7]
    if separator == "." or month > len(MONTHS):
        month, day = day, month
    if not (1 <= month <= len(MONTHS) and 1 <= day <= 31 and int(short)):
        return match[0]
    return _date(MONTHS[month - 1], day, _full_year(short))


def _full_year(short: str) -> int:
    value = int(short)
    if len(short) > 2:
        return value
    return value + (2000 if value < _PIVOT else 1900)


def _month_day(match: re.Match[str]) -> str:
    words = f"{_MONTHS[match['month']]} {ordinal(int(match['day']))}"
    if match["until"]:
        words += f" to {ordinal(int(match['until']))}"
    return f"{words}, {year(int(match['year']))}" if match["year"] else words


def _day_month(match: re.Match[str]) -> str:
    words = f"{match['the'] or 'the '}{ordinal(int(match['day']))} of {_MONTHS[match['month']]}"
    return f"{words}, {year(int(match['year']))}" if match["year"] else words

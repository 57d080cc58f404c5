"""Arithmetic between numbers: ranges, fractions, powers, signs."""

import re

from app.text.number_words import cardinal, number, ordinal, plural, year
from app.text.patterns import NUMBER
from app.text.unit_signs import UNIT_SIGN, unit_words

_RANGE = re.compile(
    rf"(?<![\w.,/-])(?P<first>{NUMBER}(?:%| ?°[CF]?|(?:{UNIT_SIGN})(?!\w)| ?[AP] M)?)"
    r"(?: ?[–—] ?|-)(?=[$£€¥]?\.?[0-9])"
)
_MINUS = re.compile(r"(?<![^\s(\[=<>,:;|/*×+^~≈±\"'])[-−](?=[$£€¥]?\.?[0-9])")
_STARS = re.compile(r"(?<=[0-9)]) ?(\*{1,2}) ?(?=[0-9(])")
_BETWEEN = re.compile(
    rf"(?<![\w.,])(?P<first>{NUMBER}) - (?=(?P<last>{NUMBER})(?P<result> ?=)?)|(?<=[)%]) - (?=[0-9(])"
)
_AFTER_SIGN = re.compile(r"([$£€¥])[-−](?=[0-9])")
_LETTER_MINUS = re.compile(r"(?<=\b[a-z])-(?=[0-9])")

_SCIENTIFIC = re.compile(r"(?<![\w.,])([0-9]{1,18}(?:\.[0-9]{1,18})?)[eE]([+-]?)([0-9]{1,3})(?!\w|\.[0-9])")
_POWER = re.compile(r"(?<=[\w)]) ?\^ ?\(?([+-]?)([0-9]{1,6}|[a-z](?!\w))\)?")
_NAMED_POWERS = {"2": "squared", "3": "cubed"}

# Said by their numbers alone.
_PAIRS = re.compile(r"(?<![\w.,/])(24/7|50/50|9/11|20/20|7/11)(?![\w/]|[.,][0-9])")
_UNIT = rf"(?: ?(?P<unit>{UNIT_SIGN})(?!\w)(?:\.(?= [a-z]))?)?"
_MIXED = re.compile(
    rf"(?<![\w.,/])(?P<whole>[0-9]{{1,6}})[ -](?P<top>[0-9]{{1,2}})/(?P<bottom>[0-9]{{1,3}})"
    rf"(?![0-9/]|[.,][0-9]){_UNIT}"
)
_FRACTION = re.compile(
    rf"(?<![\w.,/])(?P<top>[0-9]{{1,6}})/(?P<bottom>[0-9]{{1,6}})(?:st|nd|rd|ths?|rds)?(?![\w/]|[.,][0-9]){_UNIT}"
)
_DIVIDED = re.compile(r"(?<=[0-9)]) ?÷ ?(?=[0-9(])|(?<=[0-9)]) / (?=[0-9(])")
_BY = re.compile(r"(?<=[0-9])(?: ?[xX] ?|×)(?=[0-9])")
_TIMES = re.compile(r"(?<=[0-9a-z)]) ?× ?(?=[0-9a-z(])")
_FOLD = re.compile(rf"(?<![\w.,])({NUMBER}) ?[x×](?![\w]| ?[=+*^<>-])")
_RATIO = re.compile(r"(?<![\w.,:/])([0-9]{1,4}):(?=[0-9]{1,4}(?![\w:]|\.[0-9]))")
_ABOUT = re.compile(r"[~≈] ?(?=[$£€]?[0-9])")


def read_signs(text: str) -> str:
    """Signs in front of a number or amount ("-5", "~5"), and the stars of programs."""
    text = _AFTER_SIGN.sub(r"-\1", text)
    text = _STARS.sub(lambda match: " times " if match[1] == "*" else "^", text)
    return _ABOUT.sub("about ", _MINUS.sub("minus ", text))


def read_ranges(text: str) -> str:
    """The dash between two numbers as "to", or as "minus" with spaces around it."""
    text = _RANGE.sub(r"\g<first> to ", text)
    return _BETWEEN.sub(_between, _LETTER_MINUS.sub(" minus ", text))


def read_maths(text: str) -> str:
    """Fractions, powers and products in words."""
    text = _SCIENTIFIC.sub(_scientific, text)
    text = _POWER.sub(_power, text)
    text = _PAIRS.sub(lambda match: " ".join(cardinal(int(part)) for part in match[1].split("/")), text)
    text = _FRACTION.sub(_fraction, _MIXED.sub(_mixed, text))
    text = _BY.sub(" by ", _DIVIDED.sub(" divided by ", text))
    text = _FOLD.sub(lambda match: f"{number(match[1])} times", text)
    return _RATIO.sub(r"\1 to ", _TIMES.sub(" times ", text))


def _between(match: re.Match[str]) -> str:
    """A spaced hyphen leads up ("50 - 60 people") or takes away ("10 - 4")."""
    if match["first"] is None:
        return " minus "
    first, last = (float(match[name].replace(",", "")) for name in ("first", "last"))
    return f"{match['first']} {'to' if first < last and match['result'] is None else 'minus'} "


def _exponent(sign: str, digits: str) -> str:
    words = number(digits) if digits.isdigit() else digits
    return f"to the power of {'minus ' if sign == '-' else ''}{words}"


def _scientific(match: re.Match[str]) -> str:
    return f"{number(match[1])} times ten {_exponent(match[2], match[3])}"


def _power(match: re.Match[str]) -> str:
    if not match[1] and match[2] in _NAMED_POWERS:
        return f" {_NAMED_POWERS[match[2]]}"
    return f" {_exponent(match[1], match[2])}"


def _parts(top: int, bottom: int) -> str:
    """`top` of `bottom` equal parts, with `bottom` from 2 on."""
    name = {2: "half", 4: "quarter"}.get(bottom) or ordinal(bottom)
    if top != 1:
        name = "halves" if bottom == 2 else plural(name)
    return f"{cardinal(top)} {name}"


def _mixed(match: re.Match[str]) -> str:
    top, bottom = int(match["top"]), int(match["bottom"])
    if not 0 < top < bottom:
        return match[0]
    part = "a half" if bottom == 2 else _parts(top, bottom).replace("one ", "a ", 1)
    words = f"{number(match['whole'])} and {part}"
    return f"{words} {unit_words(match['unit'], singular=False)}" if match["unit"] else words


def _fraction(match: re.Match[str]) -> str:
    top, bottom = int(match["top"]), int(match["bottom"])
    unit = unit_words(match["unit"], singular=True) if match["unit"] else ""
    if unit and 0 < top < bottom:
        of = f" of a{'n' if unit[0] in 'aeiou' or unit == 'hour' else ''}" if top > 1 else ""
        return f"{_parts(top, bottom)}{of} {unit}"
    return f"{_plain_fraction(top, bottom, match['bottom'])} {unit}".rstrip()


def _plain_fraction(top: int, bottom: int, written: str) -> str:
    if 1900 <= top < 2100 and len(written) == 2:  # the season of 2023/24
        return f"{year(top)} {number(written)}"
    if top == bottom or (bottom in (10, 100) and 1 < top < bottom):
        return f"{cardinal(top)} out of {cardinal(bottom)}"
    if 1 < bottom <= 100 and top > 0 and (top < bottom or bottom <= 4):
        return _parts(top, bottom)
    return f"{cardinal(top)} over {cardinal(bottom)}"

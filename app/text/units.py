"""Measures: "5kg", "10 km/h", "72°F", "50%", "5'10\\"", "10K"."""

import re

from app.text.number_words import cardinal, number
from app.text.patterns import NUMBER
from app.text.unit_signs import ATTACHED_SIGN, LENGTH_SIGN, UNIT_SIGN, unit_words

_SCALES = {
    "k": "thousand", "K": "thousand", "M": "million", "mn": "million", "B": "billion", "bn": "billion",
}  # fmt: skip
_POWERS = {"2": "square", "3": "cubic"}
_MEASURE = re.compile(
    rf"(?:(?P<article>(?<!\w)[Aa]n? )|(?<![\w.,/^]))(?P<number>{NUMBER})"
    rf"(?:(?P<gap>[ -]?)(?:(?P<length>{LENGTH_SIGN})\^?(?P<power>[23])|(?P<unit>{UNIT_SIGN}))"
    rf"|(?P<attached>{ATTACHED_SIGN}))"
    rf"(?: ?/ ?(?P<per>{UNIT_SIGN})(?:\^2|(?P<squared>2))?)?(?!\w)(?:\.(?=\s[a-z0-9]))?(?P<noun>(?=\s[a-z]))?"
    rf"(?P<race>(?= (?:run|race|sprint|dash|walk|swim|hurdles|radius|stretch|freestyle)\b))?"
)
_PERCENT = re.compile(rf"(?<![\w.,])({NUMBER}) ?%(?!\w)")
_SCALED = re.compile(rf"(?<![\w.,])(?P<number>{NUMBER})(?P<scale>k|K|mn|M|bn|B)(?![\w])")
_RESOLUTION = re.compile(r"(?<![\w.,])([48])K(?!\w)")
_HEIGHT = re.compile(r"(?<![\w'.,])([0-9]{1,2}) ?['′] ?([0-9]|1[01])(?: ?(?:\"|′′|'')|(?![\w.,'′]))")
_FEET_AND_INCHES = re.compile(r"(?<![\w.,])([0-9]{1,3}) ?ft\.?,? ([0-9]{1,2}) ?in(?!\w)(?:\.(?= [a-z]))?")
_EXTENT = re.compile(
    rf"(?<![\w.,])({NUMBER})(?P<mark>′′|''|\"|['′])"
    r"(?= (?:(?P<adjective>tall|long|wide|high|deep|thick)|"
    r"screen|laptop|monitor|display|TV|pizza|pipe|wheel)s?\b)"
)
_DURATION = re.compile(r"(?<![\w.,])([0-9]{1,4}) ?h ([0-9]{1,2}) ?m(?:in)?(?: ([0-9]{1,2}) ?s)?(?!\w)")


def read_units(text: str) -> str:
    """Units in words, in the number that their amount asks for. The amount itself becomes words too."""
    text = _HEIGHT.sub(_height, text)
    text = _FEET_AND_INCHES.sub(_feet_and_inches, text)
    text = _DURATION.sub(_duration, _EXTENT.sub(_extent, text))
    text = _PERCENT.sub(lambda match: f"{number(match[1])} percent", text)
    text = _RESOLUTION.sub(r"\1 K", text)
    text = _SCALED.sub(lambda match: f"{number(match['number'])} {_SCALES[match['scale']]}", text)
    return _MEASURE.sub(_measure, text)


def _measure(match: re.Match[str]) -> str:
    sign = match["unit"] or match["length"] or match["attached"]
    # "a 10 km run", "a 5-gallon bucket": in front of a noun the unit stands in the singular.
    before_noun = match["noun"] is not None and (
        match["article"] is not None or match["race"] is not None or match["gap"] == "-"
    )
    singular = match["number"] == "1" or before_noun
    words = [number(match["number"])]
    if match["power"]:
        words.append(_POWERS[match["power"]])
    words.append(unit_words(sign, singular))
    if match["per"]:
        words += ["per", unit_words(match["per"], singular=True)]
        if "^2" in match[0] or match["squared"]:
            words.append("squared")
    return (match["article"] or "") + " ".join(words)


def _height(match: re.Match[str]) -> str:
    return f"{cardinal(int(match[1]))} foot {cardinal(int(match[2]))}"


def _feet_and_inches(match: re.Match[str]) -> str:
    feet, inches = unit_words("ft", match[1] == "1"), unit_words("in", match[2] == "1")
    return f"{number(match[1])} {feet} {number(match[2])} {inches}"


def _extent(match: re.Match[str]) -> str:
    sign = "ft" if match["mark"] in ("'", "′") else "in"
    return f"{number(match[1])} {unit_words(sign, singular=match['adjective'] is None or match[1] == '1')}"


def _duration(match: re.Match[str]) -> str:
    amounts = zip(match.groups(), ("h", "min", "s"), strict=True)
    return " ".join(
        f"{number(amount)} {unit_words(sign, amount == '1')}" for amount, sign in amounts if amount
    )

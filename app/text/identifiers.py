"""Numbers that are part of a name: "Flight 370", "Room 5B", "HTML5", "COVID-19"."""

import re

from app.text.number_words import identifier, number, plural

_NUMBERED = re.compile(
    r"(?<!\w)((?:Boeing|Airbus|[Ff]light|[Rr]oom|[Rr]oute|[Hh]ighway|Interstate|[Ss]uite|"
    r"[Ee]rror(?: code)?|HTTP|[Ss]tatus(?: code)?) )"
    r"([0-9]{3,4})(?!\w|[.,]?[0-9])"
)
_LETTERED = re.compile(
    r"(?<!\w)((?:Room|Apartment|Suite|Unit|Flat|Seat|Gate|Row|Section|Figure|Table|Class|Building) )"
    r"([0-9]{1,4})([A-Za-z])(?!\w)"
)
_HOUSE = re.compile(
    r"(?<![\w.,/$£€-])[1-9][0-9]{2,3}"
    r"(?= (?:[A-Z][a-z]{1,20} ){1,3}(?:Avenue|Boulevard|Drive|Lane|Road|Street)\b)"
)

# H2SO4: two capitals between digits are letters, not a word.
_FORMULA = re.compile(r"(?<![^\W0-9])([A-Z])([A-Z])(?=[0-9])")
# COVID-19, HTML5, H2O, GPT-3.5, F-16s
_AFTER_LETTER = re.compile(
    r"(?<=[A-Za-z])-?([0-9]{1,18})(\.[0-9]{1,18})?(?P<plural>s(?!\w))?(?![0-9])(?P<glued>(?=[A-Za-z]))?"
)
# 3D, 5G, 1080p
_BEFORE_LETTER = re.compile(r"(?<![\w.,])([0-9]{1,18})(\.[0-9]{1,18})?(?=[A-Za-z])")


def read_identifiers(text: str) -> str:
    """Numbers after what they name in words."""
    text = _LETTERED.sub(lambda match: f"{match[1]}{identifier(match[2])} {match[3]}", text)
    text = _HOUSE.sub(lambda match: identifier(match[0]), text)
    return _NUMBERED.sub(lambda match: match[1] + identifier(match[2]), text)


def part_letters_and_digits(text: str) -> str:
    """Numbers that touch letters in words, apart from them."""
    text = _FORMULA.sub(r"\1 \2", text)
    text = _AFTER_LETTER.sub(_after_letter, text)
    return _BEFORE_LETTER.sub(lambda match: f"{_number(match)} ", text)


def _number(match: re.Match[str]) -> str:
    return number(match[1] + match[2]) if match[2] else identifier(match[1])


def _after_letter(match: re.Match[str]) -> str:
    words = plural(_number(match)) if match["plural"] else _number(match)
    return f" {words}" + ("" if match["glued"] is None else " ")

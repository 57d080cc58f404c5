"""The numbers that no stage before has read: ordinals, and plain amounts."""

import re

from app.text.number_words import MAX_CARDINAL_DIGITS, digits, number, ordinal, plural
from app.text.patterns import NUMBER

_ORDINAL = re.compile(
    rf"(?<![\w.,])([0-9]{{1,3}}(?:,[0-9]{{3}}){{1,4}}|[0-9]{{1,{MAX_CARDINAL_DIGITS}}})(?:st|nd|rd|th)(?P<many>s)?(?!\w)",
    re.IGNORECASE,
)
_LONG = re.compile(rf"((?<=[0-9])\.)?([0-9]{{{MAX_CARDINAL_DIGITS + 1},}})")
_PLAIN = re.compile(rf"(?P<number>{NUMBER})(?P<comma>,(?=[0-9]))?")
_REST = re.compile(r"[0-9]+")


def read_ordinals(text: str) -> str:
    """ "21st" in words."""
    return _ORDINAL.sub(_ordinal, text)


def read_numbers(text: str) -> str:
    """All remaining ASCII digits in words."""
    text = _LONG.sub(lambda match: _apart(match, ("point " if match[1] else "") + digits(match[2])), text)
    text = _PLAIN.sub(
        lambda match: _apart(match, number(match["number"])) + (", " if match["comma"] else ""), text
    )
    return _REST.sub(lambda match: _apart(match, digits(match[0])), text)


def _ordinal(match: re.Match[str]) -> str:
    words = ordinal(int(match[1].replace(",", "")))
    return plural(words) if match["many"] else words


def _apart(match: re.Match[str], words: str) -> str:
    """`words`, with a space where letters or digits touch the match."""
    before = match.string[match.start() - 1] if match.start() else " "
    after = match.string[match.end()] if match.end() < len(match.string) else " "
    return f"{' ' if before.isalnum() else ''}{words}{' ' if after.isalnum() else ''}"

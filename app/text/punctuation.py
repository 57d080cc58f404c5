"""Marks as a voice needs them: one of each, dashes as pauses."""

import re

_BROKEN_OFF = re.compile(r" ?(?:—|–|--+)(?=[\"']|$)", re.MULTILINE)
_DASH_AT_START = re.compile(r"^(?:—|–|-{1,3}) ?(?=\S)", re.MULTILINE)
_DASH = re.compile(r"(?: ?(?:—|--+)-?| [–-](?= ))+ ?")
_SHORT_DASH = re.compile(r"(?<=\w)–(?=\w)")
_DOTS = re.compile(r" ?\.(?: ?\.)+")
_EMPTY = re.compile(r"\(\s*\)|\[\s*\]|\"\s*\"")
_LOUD = re.compile(r" ?[!?](?: ?[!?])+")
_NEEDLESS_COMMA = re.compile(r"(?:, ?)+(?=[.!?;:,]|$)|^ ?, ?", re.MULTILINE)
_SPACE_AFTER_OPENING = re.compile(r"(?<=[(\[]) +")
_SPACE_BEFORE = re.compile(r" +(?=[,.!?;:](?!\w))")


def tidy_punctuation(text: str) -> str:
    """No doubled marks, and commas for dashes."""
    text = _BROKEN_OFF.sub("...", text)
    text = _DASH.sub(", ", _DASH_AT_START.sub("", text))
    text = _SHORT_DASH.sub("-", text)
    text = _DOTS.sub("...", _EMPTY.sub("", text))
    text = _LOUD.sub(_mixed, text)
    text = _SPACE_AFTER_OPENING.sub("", text)
    return _SPACE_BEFORE.sub("", _NEEDLESS_COMMA.sub(_comma, text))


def _mixed(match: re.Match[str]) -> str:
    marks = match[0]
    return "?!" if "!" in marks and "?" in marks else marks.lstrip()[0]


def _comma(match: re.Match[str]) -> str:
    return "," if match.string[match.end() : match.end() + 1] in ("\n", "") and match.start() else ""

"""Where to part text that has no end of sentence in reach: never within what is one character to a reader."""

import re
from collections.abc import Iterator

import regex

from app.text.boundaries import CONTINUES, clause_ends

_SPACE = re.compile(r"\s+")
_GRAPHEME = regex.compile(r"\X")


def space_ends(text: str) -> Iterator[int]:
    """All places before a white space that one may cut at."""
    for space in _SPACE.finditer(text):
        if space.start() and not CONTINUES.match(text, space.end()):
            yield space.start()


def grapheme_end(text: str, high: int) -> int:
    """The last end of a whole character at or before `high`; `high` itself if one character is longer.

    Needs one character of text after `high` to be sure, unless the text ends there.
    """
    last = 0
    for grapheme in _GRAPHEME.finditer(text, 0, high + 1):
        if grapheme.end() > high:
            break
        last = grapheme.end()
    return last or high


def last_cut(text: str, low: int, high: int) -> int:
    """The best place to cut at or before `high`: the last clause from `low` on, the last space, or character.

    Looks at no text beyond `high`.
    """
    window = text[: high + 1]
    clause = max((end for end in clause_ends(window) if low <= end <= high), default=0)
    if clause:
        return clause
    spaces = [end for end in space_ends(window) if end <= high]
    return spaces[-1] if spaces else grapheme_end(window, high)

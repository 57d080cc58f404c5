"""Where to part text that has no end of sentence in reach: never within what a reader sees as one character."""

import regex

from app.text.boundaries import CONTINUES, clause_ends

_GRAPHEME = regex.compile(r"\X")


def space_ends(text: str, low: int, high: int) -> int:
    """The last space in text[low:high] that one may cut at, or -1."""
    while high > low:
        place = max(text.rfind(" ", low, high), text.rfind("\n", low, high))
        if place < 0 or not CONTINUES.match(text, place + 1):
            return place
        high = place
    return -1


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
    """The best place to cut in text[low:high + 1]: the last clause, else the last space, else the last character.

    Looks at no text beyond `high`.
    """
    window = text[: high + 1]
    clause = max((end for end in clause_ends(window) if low <= end <= high), default=0)
    if clause:
        return clause
    space = space_ends(window, max(low, 1), high + 1)
    return space if space > 0 else grapheme_end(window, high)

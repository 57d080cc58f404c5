"""A long text in parts that are spoken one by one, with the pause that belongs after each."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.text.boundaries import NONE, SENTENCE_CANDIDATE, clause_ends, sentence_end
from app.text.cuts import grapheme_end, space_ends

Pause = Literal["paragraph", "sentence", "clause", "none"]

_PARAGRAPH_GAP = re.compile(r"\n\s*\n|\u2029")
_SPACE = re.compile(r"\s+")
_SPEAKABLE = re.compile(r"[^\W_]")
_SMALL = 3  # a part less than a third of the even size is small


@dataclass(frozen=True)
class Part:
    """A piece of a text, and what ends with it; "none" where it was cut elsewhere, and after the last."""

    text: str
    pause: Pause


def parts(text: str, max_chars: int) -> list[Part]:
    """`text` in parts of at most `max_chars` characters, about even in size within each paragraph.

    A part holds no more than a paragraph. A longer paragraph is cut between sentences, else between clauses,
    else between words, else between characters. All but white space is kept.

    Raises:
        ValueError: `max_chars` is not positive.
    """
    if max_chars < 1:
        raise ValueError("max_chars is a length: give at least 1")
    result: list[Part] = []
    for paragraph in _PARAGRAPH_GAP.split(text):
        collapsed = _SPACE.sub(_one_space, paragraph).strip()
        if collapsed:
            result += _cut(collapsed, max_chars)
    if result:
        result[-1] = Part(result[-1].text, "none")
    return result


def _one_space(match: re.Match[str]) -> str:
    return "\n" if "\n" in match[0] else " "


def _cut(text: str, max_chars: int) -> list[Part]:
    sentences = _sentence_ends(text) if len(text) > max_chars else []
    result: list[Part] = []
    start = 0
    while len(text) - start > max_chars:
        end, pause = _best_end(text, start, max_chars, sentences)
        result.append(Part(text[start:end].strip(), pause))
        start = end
        while text[start : start + 1].isspace():
            start += 1
    result.append(Part(text[start:], "paragraph"))
    return result


def _best_end(text: str, start: int, max_chars: int, sentences: Sequence[int]) -> tuple[int, Pause]:
    """Where to cut first: as near to an even division as the text allows, and with no small part left."""
    rest = len(text) - start
    even = _divided(rest, _divided(rest, max_chars))
    low, aim, high = start + max(1, even // 2), start + even, start + max_chars
    balanced = max(aim, min(high, len(text) - even // _SMALL))
    window = text[start : high + 1]
    clauses = [start + end for end in clause_ends(window)]
    levels: tuple[tuple[Sequence[int], Pause], ...] = ((sentences, "sentence"), (clauses, "clause"))
    for limit in (balanced, high):
        for ends, pause in levels:
            if end := _nearest(ends, low, aim, limit):
                return end, pause
    spaces = [start + end for end in space_ends(window)]
    end = _nearest(spaces, low, aim, high) or _nearest(spaces, start + 1, aim, high)
    return end or start + grapheme_end(window, aim - start), "none"


def _nearest(ends: Sequence[int], low: int, aim: int, high: int) -> int:
    """The one of sorted `ends` from `low` to `high` that is nearest to `aim`; 0 if there is none."""
    within = ends[bisect_left(ends, low) : bisect_right(ends, high)]
    return min(within, key=lambda end: abs(end - aim), default=0)


def _divided(size: int, count: int) -> int:
    """`size` over `count`, rounded up."""
    return -(-size // count)


def _sentence_ends(text: str) -> list[int]:
    ends: list[int] = []
    start = silent = 0  # neither letter nor digit from `start` to `silent`
    for candidate in SENTENCE_CANDIDATE.finditer(text):
        end = sentence_end(text, start, candidate, final=True)
        if end == NONE:
            continue
        if _SPEAKABLE.search(text, silent, end):
            ends.append(end)
            start = end
            while text[start : start + 1].isspace():
                start += 1
        silent = max(start, end)
    return ends

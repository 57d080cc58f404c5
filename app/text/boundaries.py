"""Where sentences and clauses end, in text that may still be growing.

A judgement looks a bounded way ahead. Where the text ends before that and more may come, it is UNSURE: so
a judgement once made holds, however the text arrives. White space must be collapsed: single spaces, or one
or two line ends, and none at the end of the text.
"""

import re
from collections.abc import Iterator
from typing import Final

import regex

from app.text.stops import ends_sentence

UNSURE: Final = -1
NONE: Final = 0

_MARKS = ".!?…"  # stops before a space, or before a character that is written without spaces
_STOPS = "。！？；｡؟۔؛।॥։።។။"  # stops wherever they stand
_CLAUSE_MARKS = ",;:،–"
_CLAUSE_STOPS = "、，：—"
SENTENCE_CANDIDATE = re.compile(rf"[{_MARKS}{_STOPS}]+|\n\n?")
CLAUSE_CANDIDATE = re.compile(rf"[{_CLAUSE_MARKS}{_CLAUSE_STOPS}]+")
ANY_CANDIDATE = re.compile(rf"{SENTENCE_CANDIDATE.pattern}|{CLAUSE_CANDIDATE.pattern}")

_MAX_CLOSERS = 8  # quotes and brackets after a stop; nobody writes more
_MAX_WORD = 24  # letters looked at of the word after an abbreviation, and of the one before a stop
_CLOSERS = re.compile(rf"[\"'”’»)\]}}」』》）】〉]{{0,{_MAX_CLOSERS}}}")
_SPACED_CLOSER = re.compile(r" »(?=[\s,.;:!?]|\Z)")  # French
_OPENERS = "\"'“‘«([{¿¡„"
_NEXT = re.compile(rf"(?P<space>\s{{1,2}})[{re.escape(_OPENERS)}]{{0,3}}(?P<word>[^\W_]{{0,{_MAX_WORD}}})")
_LAST_WORD = re.compile(rf"[^\s{re.escape(_OPENERS)}]*\Z")
_LIST_MARK = re.compile(
    r"(?:[-*•+]|#{1,6}|[0-9]{1,3}[.)])(?: |(?P<open>\Z))|\||(?:#{1,6}|[0-9]{1,3})(?P<cut>\Z)"
)
_HEADING = re.compile(r"#{1,6} ")
_LOUD = re.compile(r"[!?]")
_SPELLED = re.compile(r"(?<!\w)[A-Z] [A-Z]\Z")  # the end of "F B I"
_MAX_ITEM_DIGITS = 3  # of the number of a list's item
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}]")
# What goes on with the character before it, so that nothing may end between them.
CONTINUES = regex.compile(r"[\p{M}\p{Grapheme_Extend}\u200d\U0001F3FB-\U0001F3FF]")


def sentence_end(text: str, start: int, candidate: re.Match[str], final: bool) -> int:
    """Whether and where a sentence that began at `start` ends, at one match of SENTENCE_CANDIDATE.

    Returns:
        the position after it, with its closing quotes and brackets; NONE; or UNSURE, never if `final`, which
        says that no text will follow.
    """
    if candidate[0][0] == "\n":
        return _line_end(text, start, candidate, final)
    end = _after_closers(text, candidate.end(), final)
    if end == len(text) or end == UNSURE:
        return end
    following = text[end]
    if candidate[0][-1] in _STOPS or _UNSPACED.match(following):
        return NONE if following in ",，、" or CONTINUES.match(following) else end
    return _before_space(text, start, candidate, end, final) if following.isspace() else NONE


def clause_end(text: str, candidate: re.Match[str], final: bool) -> int:
    """The same for a clause, at one match of CLAUSE_CANDIDATE."""
    end = _after_closers(text, candidate.end(), final)
    if end == len(text) or end == UNSURE:
        return end
    following = text[end]
    if candidate[0][-1] in _CLAUSE_STOPS or _UNSPACED.match(following):
        return NONE if CONTINUES.match(following) else end
    if not following.isspace() or CONTINUES.match(text, end + 1):
        return NONE
    return end


def clause_ends(text: str) -> Iterator[int]:
    """All ends of clauses that `text` shows for certain."""
    for candidate in CLAUSE_CANDIDATE.finditer(text):
        end = clause_end(text, candidate, final=False)
        if end > 0:
            yield end


def _after_closers(text: str, position: int, final: bool) -> int:
    closers = _CLOSERS.match(text, position)
    assert closers is not None
    end = closers.end()
    spaced = _SPACED_CLOSER.match(text, end)
    if spaced is not None:
        end = spaced.end()
    return UNSURE if end == len(text) and not final else end


def _before_space(text: str, start: int, candidate: re.Match[str], end: int, final: bool) -> int:
    """A mark of Latin text, with a space after it: by what stands before and after."""
    following = _NEXT.match(text, end)
    assert following is not None
    if CONTINUES.match(text, following.end("space")):
        return NONE
    word = following["word"]
    at_the_end = following.end() == len(text) and not final
    if at_the_end and not word:
        return UNSURE
    has_closers = end > candidate.end()
    # '"Stop!" he said', "wait... what"
    if word[:1].islower() and (has_closers or (candidate[0] != "." and not _LOUD.search(candidate[0]))):
        return NONE
    if candidate[0] != ".":
        return end
    is_complete = not at_the_end or len(word) == _MAX_WORD
    if len(word) == 1 and text.startswith(".", following.end()):
        word += "."  # an initial, not the word "A" or "I"
    ends = _full_stop(text, start, candidate.start(), word if is_complete else None)
    return UNSURE if ends is None else end if ends else NONE


def _full_stop(text: str, start: int, stop: int, following: str | None) -> bool | None:
    """Whether the full stop at `stop` ends a sentence, by the words around it; None for unsure."""
    before = _LAST_WORD.search(text, max(start, stop - _MAX_WORD), stop)
    assert before is not None
    begins_line = before.start() == start or text[before.start() - 1] == "\n"
    if begins_line and before[0].isdigit() and len(before[0]) <= _MAX_ITEM_DIGITS:
        return False
    if _SPELLED.search(text, max(start, before.start() - 3), stop):
        return True
    return ends_sentence(before[0], following)


def _line_end(text: str, start: int, candidate: re.Match[str], final: bool) -> int:
    """An empty line ends a sentence, and so does a line before an item of a list or after a heading."""
    line_start = text.rfind("\n", start, candidate.start()) + 1 or start
    if len(candidate[0]) > 1 or _HEADING.match(text, line_start):
        return candidate.end()
    mark = _LIST_MARK.match(text, candidate.end())
    if mark is None:
        return NONE
    is_open = mark["open"] is not None or mark["cut"] is not None
    if is_open and not final:
        return UNSURE
    return NONE if is_open else candidate.end()

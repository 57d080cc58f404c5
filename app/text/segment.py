"""Text in pieces to speak: whole sentences, as they become certain.

What the pieces are does not depend on how the text arrived, and they hold all of it but white space.
"""

import re
from dataclasses import dataclass

from app.text.boundaries import (
    ANY_CANDIDATE,
    CLAUSE_CANDIDATE,
    CONTINUES,
    NONE,
    SENTENCE_CANDIDATE,
    UNSURE,
    clause_end,
    sentence_end,
)
from app.text.cuts import last_cut

_PIECE = re.compile(r"\s+|\S+")
_SPEAKABLE = re.compile(r"[^\W_]")
_LINE_ENDS = {"\n": 1, "\u2028": 1, "\u2029": 2}  # to count; a paragraph separator is an empty line
_UNLIMITED = 10**12  # characters
_CUT_FROM = 4  # a clause that ends in the first quarter of what fits is no place to cut


@dataclass(frozen=True)
class SegmentOptions:
    """How long pieces may be, in characters.

    Attributes:
        min_chars: a sentence shorter than this is joined with the next, so that "Yes." is no piece by itself.
        first_min_chars: the same for the first piece, which may be shorter for a quick start.
        max_chars: longer sentences are cut, at a clause if there is one.
        first_clause: whether the first piece may be a clause.
    """

    min_chars: int = 20
    first_min_chars: int = 8
    max_chars: int = 300
    first_clause: bool = False

    def __post_init__(self) -> None:
        if min(self.min_chars, self.first_min_chars) < 1:
            raise ValueError("min_chars and first_min_chars are lengths: give at least 1")
        if max(self.min_chars, self.first_min_chars) > self.max_chars:
            raise ValueError("max_chars is less than the shortest piece: raise it, or lower min_chars")


class Segmenter:
    """Takes text as it arrives and gives pieces to speak.

    It holds back at most one piece and the few characters that decide where it ends.
    """

    def __init__(self, options: SegmentOptions | None = None) -> None:
        self._options = options or SegmentOptions()
        self._reset()

    def _reset(self) -> None:
        self._text = ""  # white space collapsed, none at either end
        self._gap = ""  # the white space after it
        self._scan = 0  # nothing before this ends a piece
        self._silent = 0  # neither letter nor digit before this
        self._is_first = True

    @property
    def pending(self) -> str:
        """What has arrived and not been given."""
        return self._text

    @property
    def waiting(self) -> bool:
        """Whether there is any: if nothing more comes for a while, `flush` gives it."""
        return bool(self._text)

    def push(self, text: str) -> list[str]:
        """Add text; the pieces that are now certain."""
        self._append(text)
        return self._take(final=False)

    def flush(self) -> list[str]:
        """The rest. What comes after is a new text, with a first piece of its own."""
        pieces = self._take(final=True)
        self._reset()
        return pieces

    def _append(self, text: str) -> None:
        collapsed = [self._text]
        for piece in _PIECE.findall(text):
            if piece.isspace():
                self._gap = _joined(self._gap, piece)
            else:
                if len(collapsed) > 1 or collapsed[0]:
                    collapsed.append(self._gap)
                collapsed.append(piece)
                self._gap = ""
        self._text = "".join(collapsed)

    def _take(self, final: bool) -> list[str]:
        pieces: list[str] = []
        start = 0
        while end := self._piece_end(start, final):
            pieces.append(self._text[start:end].rstrip())
            start = self._scan = self._silent = _after_space(self._text, end)
            self._is_first = False
        self._text = self._text[start:]
        self._scan -= start
        self._silent -= start
        return pieces

    def _piece_end(self, start: int, final: bool) -> int:
        """Where the piece from `start` ends; 0 if that is not certain yet, or nothing is left."""
        text, limit = self._text, start + self._options.max_chars
        shortest = self._options.first_min_chars if self._is_first else self._options.min_chars
        pattern = ANY_CANDIDATE if self._is_first and self._options.first_clause else SENTENCE_CANDIDATE
        while candidate := pattern.search(text, self._scan, limit + 1):
            end = _judge(text, start, candidate, final)
            if end == UNSURE and candidate.end() <= limit:
                return 0
            visible = _visible_end(text, end)
            if end == UNSURE or visible > limit:
                break
            self._scan = max(end, candidate.end())
            if end != NONE and visible - start >= shortest and self._is_speakable(end):
                return end
        if len(text) > limit:
            return start + last_cut(
                text[start : limit + 1], self._options.max_chars // _CUT_FROM, limit - start
            )
        return len(text) if final and start < len(text) else 0

    def _is_speakable(self, end: int) -> bool:
        """Whether there is a letter or digit before `end`. No text is searched twice."""
        found = _SPEAKABLE.search(self._text, self._silent, end)
        self._silent = found.start() if found else end
        return found is not None


def _judge(text: str, start: int, candidate: re.Match[str], final: bool) -> int:
    if CLAUSE_CANDIDATE.match(candidate[0]):
        return clause_end(text, candidate, final)
    return sentence_end(text, start, candidate, final)


def _visible_end(text: str, end: int) -> int:
    while end > 0 and text[end - 1].isspace():
        end -= 1
    return end


def _after_space(text: str, position: int) -> int:
    """The next character that is no space, or a space that a combining mark sits on."""
    while position < len(text) and text[position].isspace() and not CONTINUES.match(text, position + 1):
        position += 1
    return position


def _joined(gap: str, space: str) -> str:
    """White space as one of: a space, a line end, an empty line."""
    lines = gap.count("\n") + sum(space.count(end) * lines for end, lines in _LINE_ENDS.items())
    return "\n" * min(lines, 2) or " "


def sentences(text: str) -> list[str]:
    """The sentences of `text`, in any of the scripts that `boundaries` knows.

    All characters but white space are kept; marks without a word belong to the next sentence.
    """
    segmenter = Segmenter(SegmentOptions(min_chars=1, first_min_chars=1, max_chars=_UNLIMITED))
    return segmenter.push(text) + segmenter.flush()

"""Acronyms and loud words: "FBI" as letters, "NASA" as it is, "VERY" in lower case.

A dotted form ("U.S.A.") is letters always. Digits beside letters ("HTML5", "COVID-19") are read before, by
`identifiers`.
"""

import re

from app.text.acronyms import SPELLED, SPOKEN, is_emphasis, spelled
from app.text.lexicon import ENDS_HERE

_SPECIAL = {
    "PhD": "P H D",
    "PhDs": "P H D's",
    "MSc": "M S C",
    "BSc": "B S C",
    "WWI": "World War one",
    "WWII": "World War two",
    "OK": "okay",
    "OKAY": "okay",
}
_SPECIAL_WORD = re.compile(rf"(?<![\w'])(?:{'|'.join(_SPECIAL)})(?![\w'])")

# Two to nine letters with stops between; the last stop stays where the sentence ends.
_DOTTED = re.compile(
    rf"(?<![\w.])((?:(?:[A-Za-z]|Ph)\.){{1,8}}(?:[A-Za-z]|Sc))(?:\.(?P<ends>{ENDS_HERE})?)?(?![\w.])"
)
# The C of "Plan C. Then" ends a sentence, the J of "J. Smith" does not.
_INITIAL = re.compile(rf"(?<![\w.'-])(?<!\b[A-Z] )([A-Z])\.(?!{ENDS_HERE})(?: ?(?=[A-Z]))")
_WORD = re.compile(r"(?<![\w'])([A-Z]{2,})('[sS]\b|s\b)?(?!\w)")
# iOS, OpenAI, ChatGPT: capitals at the end are letters.
_TAIL = re.compile(
    r"(?<!\w)((?:[A-Z]?[a-z]{1,20}){1,3})([A-Z]{3,5}|AI|DB|HD|ID|IO|IP|OS|PC|RT|TV|UI|VR)(?=s?\b)"
)
# HTMLElement: a known acronym at the start.
_HEAD = re.compile(rf"(?<!\w)({'|'.join(sorted(SPELLED, key=len, reverse=True))})(?=[A-Z][a-z])")


def read_capitals(text: str) -> str:
    """Acronyms apart in their letters, words in capitals in lower case."""
    text = _DOTTED.sub(_dotted, text)
    text = _INITIAL.sub(r"\1 ", text)
    text = _SPECIAL_WORD.sub(lambda match: _SPECIAL[match[0]], text)
    text = _HEAD.sub(r"\1 ", text)
    text = _TAIL.sub(r"\1 \2", text)
    return _WORD.sub(_word, text)


def _dotted(match: re.Match[str]) -> str:
    letters = spelled(match[1].replace(".", "").upper())
    return letters if match["ends"] is None else f"{letters}."


def _word(match: re.Match[str]) -> str:
    word, ending = match[1], (match[2] or "").lower()
    if word == "AM" and not match.string.endswith("I ", 0, match.start()):  # radio, not "I AM"
        return spelled(word)
    if word in SPOKEN:
        return word + ending
    if is_emphasis(word):
        before = match.string[max(0, match.start() - 2) : match.start()].rstrip(" ")
        begins = not before or before[-1] in ".!?\n"
        return (word.capitalize() if begins else word.lower()) + ending
    return spelled(word) + ("'s" if ending else "")

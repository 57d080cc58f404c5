"""Sentences in capitals, which are loud words and not acronyms."""

import re

from app.text.acronyms import EMPHASISED, SPELLED, SPOKEN, is_emphasis
from app.text.lexicon import MONTHS, WEEKDAYS

_SENTENCE_GAP = re.compile(
    r"(?<=[.!?])(?<!\w\.\w\.)(?<!\b[DJMS][RST]\.)(?<!\bMRS\.)(?<!\bPROF\.)[\"')]{0,3}\s|\n"
)
# A word with its apostrophes; not part of a web address, a number with letters, or a dotted abbreviation.
_WORD = re.compile(r"(?<![\w.@/'])[^\W\d_]+(?:'[^\W\d_]+)?(?![\w@/]|\.[\w])")
_ROMAN = re.compile(r"[IVX]{2,8}")
_TITLE = re.compile(r"(?<!\w)(?:DR|MR|MRS|MS|PROF|ST)\.(?=\s)")
_CAPITALISED = frozenset(word.upper() for word in (*MONTHS, *WEEKDAYS)) - {"MARCH", "MAY"}
_FIRST_LETTER = re.compile(r"[^\W\d_]")

_MIN_WORDS = 2  # a single word in capitals is judged by itself
_SHOUTED_SHARE = 0.8  # of the words of two letters and more


def lower_shouting(text: str) -> str:
    """Sentences in capitals in lower case, but for acronyms, numerals, names of months and days, and "I"."""
    parts: list[str] = []
    start = 0
    for gap in _SENTENCE_GAP.finditer(text):
        parts += [_sentence(text[start : gap.start()]), gap[0]]
        start = gap.end()
    return "".join([*parts, _sentence(text[start:])])


def _sentence(sentence: str) -> str:
    if not _is_shouted(sentence):
        return sentence
    titles = list(_TITLE.finditer(sentence))
    names = {title.end() for title in titles} | {title.start() for title in titles}

    def lower(match: re.Match[str]) -> str:
        before_space = match.start() - 1
        if match.start() in names or before_space in names or _is_date(match):
            return match[0].capitalize()
        return _lower_word(match[0])

    lowered = _WORD.sub(lower, sentence)
    first = _FIRST_LETTER.search(lowered)
    if first is None:
        return lowered
    return lowered[: first.start()] + first[0].upper() + lowered[first.end() :]


def _is_shouted(sentence: str) -> bool:
    words = [word for word in _WORD.findall(sentence) if len(word) > 1]
    loud = [word for word in words if word.isupper()]
    return (
        len(words) >= _MIN_WORDS
        and len(loud) >= _SHOUTED_SHARE * len(words)
        and any(is_emphasis(word.replace("'", "")) for word in loud)
    )


def _is_date(match: re.Match[str]) -> bool:
    return match[0] in ("MAY", "MARCH") and match.string[match.end() : match.end() + 2].strip().isdigit()


def _lower_word(word: str) -> str:
    bare = word.removesuffix("'S")
    if bare in _CAPITALISED:
        return word.capitalize()
    keeps = bare in SPOKEN or (bare in SPELLED and bare not in EMPHASISED) or _ROMAN.fullmatch(bare)
    if keeps and bare not in ("US", "IT"):
        return bare + word[len(bare) :].lower()
    return f"I{word[1:].lower()}" if word == "I" or word.startswith("I'") else word.lower()

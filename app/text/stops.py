"""Whether a full stop ends a sentence or only an abbreviation, by the words around it."""

import re

from app.text.lexicon import MONTHS, SENTENCE_STARTERS, WEEKDAYS, words

# Abbreviations in lower case, without their last stop. After these the sentence goes on;
_LEADING = words("""
    mr mrs ms messrs mx prof drs capt cmdr lt sgt cpl gen col maj adm sen rep gov pres rev hon fr mt supt
    e.g i.e cf viz vs approx nos vol vols pp fig figs eq sec chap incl excl esp resp v
""")
# so it does after these, unless a word follows that begins sentences;
_BEFORE_NAME = words("""
    dr st jr sr esq inc ltd co corp bros ave blvd rd hwy sq dept univ assoc ft ca al p ch art ext tel est
    jan feb mar apr jun jul aug sep sept oct nov dec
""")
# and after these, unless a capital follows that begins no day, month or time zone;
_TRAILING = words("etc a.m p.m b.c a.d")
# and after these, if a number follows.
_BEFORE_NUMBER = words("no")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]")
_CALENDAR = frozenset([*MONTHS, *WEEKDAYS])


def ends_sentence(before: str, after: str | None) -> bool | None:
    """Whether a stop between two words ends a sentence.

    Args:
        before: the word before it, with the stops within.
        after: the word after it, without marks; None if it is not all there yet.

    Returns:
        None if that depends on `after` and it is None.
    """
    lower = before.lower()
    if lower in _LEADING:
        return False
    is_initial = len(before) == 1 and before.isupper()
    if is_initial or lower in _BEFORE_NAME or (_DOTTED.fullmatch(before) and lower not in _TRAILING):
        return None if after is None else after in SENTENCE_STARTERS
    if lower in _TRAILING:
        return None if after is None else _begins(after)
    if lower in _BEFORE_NUMBER:
        return None if after is None else not after[:1].isdigit()
    return True


def _begins(word: str) -> bool:
    is_capital = word[:1].isupper()
    is_zone = len(word) > 1 and word.isupper()
    return is_capital and not is_zone and word not in _CALENDAR

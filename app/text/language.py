"""Whether a text is English, judged by its letters and its commonest words.

Numbers in a text of another language are better left to the voice than read in English.
"""

import re
from itertools import pairwise

import regex

from app.text.lexicon import words

_NO_LETTERS = regex.compile(r"\P{L}+")
_LATIN = regex.compile(r"[\p{Latin}]+")
_INNER_STOP = re.compile(r"[A-Za-z0-9]\.[A-Za-z]{2}")
_WORD = re.compile(r"[^\W\d_]+")
_ACCENTED = re.compile(r"[\u00c0-\u024f\u1e00-\u1eff]")

_ENGLISH = words("""
    a about after all also am an and any are as at be been before but by can could did do does each
    every first for from get had has have he her here him his how i if in into is it its just know like
    made make many may me more most must my no not now of on one only or other our out over please said
    see she should since so some such than that the their them then there these they this those through
    time to too two until up us very was way we were what when where which while who why will with would
    you your
""")
# Frequent words of other languages in Latin script, without those that are also English ("die", "come").
_FOREIGN = words("""
    das der dem und ist nicht ein eine einen mit auf für von zu sich auch wie nur noch nach bei aus wird
    sind haben ich wir sie es oder aber über kostet kosten uhr le la les une est et dans que qui pas sur
    avec ce cette il elle nous vous je tu mais où du au aux sont être ont coûte à el los las una y por
    con para su lo como más pero sus del está muy también yo qué cuesta tiene gli che è di sono della
    nel questo anche più costa uma não em são você custa dos de het een en van dat niet te zijn voor
    maar ook als naar uit heb wij jij ik nie jest się że jak już och att det som på är av inte jag ikke
    jeg og ei että oli mutta ve bir bu için ile çok yang untuk dengan ini itu dari tidak adalah saya là
    và của không có được cho một nang mga ang
""")
# In front of another capital these are part of a name: Los Angeles, El Paso, De Niro.
_NAME_PARTICLES = words("""
    De Del Der Di Du El Il La Las Le Les Los Van Von
""")

_WORD_WEIGHT = 2
_ACCENT_WEIGHT = 1  # naïve, Beyoncé: English has some


def is_english(text: str) -> bool:
    """Whether to read `text` as English. A text without letters is ("3.14")."""
    letters = _NO_LETTERS.sub("", text)
    if 2 * len(_LATIN.sub("", letters)) > len(letters):
        return False
    english, foreign = _votes(_words(text))
    return foreign < _WORD_WEIGHT or foreign <= english


def _words(text: str) -> list[str]:
    """Words outside web addresses, which are in no language."""
    found: list[str] = []
    for token in text.split():
        if not ("@" in token or "://" in token or _INNER_STOP.search(token)):
            found += _WORD.findall(token)
    return found


def _votes(spoken: list[str]) -> tuple[int, int]:
    english = foreign = 0
    for word, following in pairwise([*spoken, ""]):
        lower = word.lower()
        if lower in _ENGLISH:
            english += _WORD_WEIGHT
        elif lower in _FOREIGN:
            if not (word in _NAME_PARTICLES and following[:1].isupper()):
                foreign += _WORD_WEIGHT
        elif _ACCENTED.search(word):
            foreign += _ACCENT_WEIGHT
    return english, foreign

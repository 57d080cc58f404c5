"""Roman numerals: "Henry VIII" as "Henry the eighth", "World War II" as "World War two"."""

import re

from app.text.lexicon import NUMBERED
from app.text.number_words import cardinal, ordinal

_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
# From 1 to 99, as numerals above are years at the end of films.
_NUMERAL = r"(?=[IVXL])(?:X[CL]|L?X{0,3})(?:I[XV]|V?I{0,3})(?!\w)"
_RULERS = (
    "Alexander|Alfonso|Benedict|Catherine|Charles|Christian|Clement|Darius|David|Edward|Elizabeth|Eric|Ferdinand|"
    "Francis|Franz|Frederick|Frederik|George|Gregory|Gustav|Haakon|Harald|Henry|Innocent|Ivan|James|John|Joseph|"
    "Karl|Leo|Leopold|Louis|Ludwig|Mary|Maximilian|Mehmed|Michael|Napoleon|Nicholas|Olav|Otto|Paul|"
    "Pedro|Peter|Philip|Pius|Ptolemy|Rameses|Ramesses|Ramses|Richard|Robert|Rudolf|Sixtus|Urban|Victor|Wilhelm|"
    "William|Xerxes"
)
_OFFICES = "King|Queen|Pope|Emperor|Empress|Tsar|Czar|Kaiser|Prince|Sultan|Pharaoh|Shah"
_RULER = re.compile(
    rf"(?<!\w)((?:{_RULERS}|(?:{_OFFICES}) [A-Z][a-z]{{2,20}}) )"
    rf"(?=[IVX]{{2}}|[IVX](?= of | was |[,.;:)]|$))({_NUMERAL})"
)
# After a numbered thing a single I may also be the speaker: "the Part I like".
_AFTER_ONE = "and|or|of|in|is|was|has|had|began|ended|errors?|trials?|studies|diabetes"
_IS_SPEAKER = rf"(?!(?<=\sI)(?:'| (?!(?:{_AFTER_ONE})\b)[a-z]))"
_COUNTED = re.compile(rf"(?<!\w)((?:{NUMBERED}|Super Bowl|Olympiad|Psalm) )({_NUMERAL}){_IS_SPEAKER}")
_AFTER_NAME = re.compile(rf"(?<!\w)([A-Z][a-z]{{1,20}} )(?=[IVX]{{2,6}}(?!\w))(?!XX)({_NUMERAL})")
# Those by themselves that are no other word or acronym.
_ALONE = re.compile(r"(?<![\w'-])()(II|III|VII|VIII|IX|XI|XII|XIII|XIV|XVI|XVII|XVIII)(?![\w'-])")
_CENTURY = re.compile(rf"(?<!\w)({_NUMERAL})(?= [Cc]entur)")


def read_roman(text: str) -> str:
    """Roman numerals in words, where a name or a numbered thing stands before."""
    text = _RULER.sub(lambda match: f"{match[1]}the {ordinal(_value(match[2]))}", text)
    text = _COUNTED.sub(_cardinal, text)
    text = _CENTURY.sub(lambda match: ordinal(_value(match[1])), text)
    return _ALONE.sub(_cardinal, _AFTER_NAME.sub(_cardinal, text))


def _cardinal(match: re.Match[str]) -> str:
    return match[1] + cardinal(_value(match[2]))


def _value(numeral: str) -> int:
    total = previous = 0
    for letter in reversed(numeral):
        value = _VALUES[letter]
        total += value if value >= previous else -value
        previous = max(previous, value)
    return total

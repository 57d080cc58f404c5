"""Signs with a name: &, @, +, =, #, arrows, comparisons. What has none is dropped."""

import re

import regex

from app.text.acronyms import spelled

_AND = re.compile(r"(?<!\w)([A-Z]{1,4})&([A-Z]{1,4})(?!\w)")
_LANGUAGES = re.compile(r"(?<!\w)([A-Z])(#|\+\+)(?!\w)")
_LANGUAGE_SIGNS = {"#": " sharp", "++": " plus plus"}
_NUMBER = re.compile(r"(?<![\w&])# ?(?=[0-9])")
_HASHTAG = re.compile(r"(?<![\w&])#(?=[^\W\d_])")
_PER = re.compile(
    r"(?<=\w) ?/ ?(?=(?:second|minute|hour|day|night|week|month|quarter|year|person|unit|piece|page|user)\b)"
)
_SPEEDS = {"km/h": "kilometers per hour", "m/s": "meters per second", "mph": "miles per hour"}
_SPEED = re.compile(rf"(?<![\w/])(?:{'|'.join(_SPEEDS)})(?![\w/])")
_PER_SECOND = re.compile(r"(?<=[a-z])/s(?!\w)")
_DOT = re.compile(r"(?<![^\s/~])\.(?=[A-Za-z])")  # .NET
_FLAG = re.compile(r"(?<![^\s\"'(\[])--(?=[A-Za-z])")  # of a command
_MULTIPLE = {
    "!=": "is not equal to", "<=": "is less than or equal to", ">=": "is greater than or equal to",
    "~=": "is about", "->": "to", "=>": "to", "<-": "from", "++": "plus plus",
}  # fmt: skip
_NAMES = {
    "&": "and", "@": "at", "+": "plus", "=": "equals", "<": "is less than", ">": "is greater than",
    "≠": "is not equal to", "≤": "is less than or equal to", "≥": "is greater than or equal to",
    "≈": "is about", "±": "plus or minus", "×": "times", "÷": "divided by", "→": "to", "⇒": "to",
    "%": "percent",
    "‰": "per mille", "°": "degrees", "§": "section", "©": "copyright", "/": "slash", "\\": "backslash",
    "∞": "infinity", "√": "square root of", "π": "pi", "♯": "sharp", "♭": "flat", "^": "to the power of",
    "#": "number sign",
}  # fmt: skip
_SIGN = re.compile(
    rf" ?(?:({'|'.join(map(re.escape, _MULTIPLE))})|={{2,3}}|([{re.escape(''.join(_NAMES))}])) ?"
)
_SEPARATOR = re.compile(r" ?[|•·‣▪] ?")
_SILENT = regex.compile(r"[{}~_†‡¶]|(?![$£€¥°©])[\p{So}\p{Sk}]")


def read_symbols(text: str) -> str:
    """Signs in words."""
    text = _AND.sub(lambda match: f"{spelled(match[1])} and {spelled(match[2])}", text)
    text = _LANGUAGES.sub(lambda match: match[1] + _LANGUAGE_SIGNS[match[2]], text)
    text = _HASHTAG.sub("hashtag ", _NUMBER.sub("number ", text))
    text = _SPEED.sub(lambda match: _SPEEDS[match[0]], text)
    text = _PER_SECOND.sub(" per second", _PER.sub(" per ", text))
    text = _FLAG.sub("dash dash ", text)
    text = _DOT.sub("dot ", text)
    text = _SIGN.sub(_name, text)
    text = _SEPARATOR.sub(", ", text)
    return _SILENT.sub(" ", text)


def _name(match: re.Match[str]) -> str:
    name = _MULTIPLE[match[1]] if match[1] else _NAMES[match[2]] if match[2] else "equals"
    return f" {name} "

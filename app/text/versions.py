"""Numbers with several points: addresses of machines, versions, "1.000.000"."""

import re

from app.text.number_words import cardinal, digits, number

_IP = re.compile(
    r"(?<![\w.,-])([0-9]{1,3}(?:\.[0-9]{1,3}){3})(?:(?P<port>:[0-9]{1,5})|(?P<net>/[0-9]{1,2}))?(?!\w|\.[0-9])"
)
# 1.450,50 and 1.000.000, as on the Continent
_CONTINENTAL = re.compile(
    r"(?<![\w.,-])(?:(?P<whole>[0-9]{1,3}(?:\.[0-9]{3}){1,4}),(?P<part>[0-9]{2})"
    r"|(?P<round>[1-9][0-9]{0,2}(?:\.[0-9]{3}){2,4}))(?!\w|[.,][0-9])"
)
_VERSION = re.compile(r"(?<![\w.,-])(?P<v>[vV]\.? ?)?([0-9]{1,6}(?:\.[0-9]{1,6}){2,6})(?![0-9]|\.[0-9])")
_SHORT = re.compile(r"(?<![\w.,-])[vV]\.?([0-9]{1,4}(?:\.[0-9]{1,4})?)(?!\w|\.[0-9])")
_NAMED = re.compile(
    r"(?<!\w)((?:[Vv]ersion|[Rr]elease|Python|Java|Ubuntu|Android|iOS|macOS) )"
    r"([0-9]{1,3}\.[0-9]{1,3})(?!\w|\.[0-9])"
)


def read_versions(text: str) -> str:
    """Versions and addresses in words; Continental amounts in the American form."""
    text = _CONTINENTAL.sub(_american, _IP.sub(_ip, text))
    text = _VERSION.sub(lambda match: ("version " if match["v"] else "") + _points(match[2]), text)
    text = _SHORT.sub(lambda match: f"version {_points(match[1])}", text)
    return _NAMED.sub(lambda match: match[1] + _points(match[2]), text)


def _ip(match: re.Match[str]) -> str:
    words = " dot ".join(digits(part) for part in match[1].split("."))
    if match["port"]:
        return f"{words} colon {digits(match['port'])}"
    return f"{words} slash {cardinal(int(match['net'][1:]))}" if match["net"] else words


def _american(match: re.Match[str]) -> str:
    whole = (match["round"] or match["whole"]).replace(".", ",")
    return f"{whole}.{match['part']}" if match["part"] else whole


def _points(text: str) -> str:
    return " point ".join(number(part) for part in text.split("."))

"""Numbers that are names: telephones, addresses of machines, versions, rooms, and digits beside letters."""

import re

from app.text.number_words import cardinal, digits, identifier, number, plural

# Groups of digits, said one by one with a breath between.
_PHONE = re.compile(
    r"(?<![\w.,/-])(?:(?P<plus>\+)[0-9]{1,3}[ .-]?|1[ .-])?(?:\([0-9]{3}\) ?|[0-9]{3}[ .-])"
    r"[0-9]{3}[ .-][0-9]{4}"
    r"(?![\w-]|[.,][0-9])"
)
_INTERNATIONAL = re.compile(
    r"(?<![\w.,/-])(?P<plus>\+)[0-9]{1,3}(?:[ -](?:\(0\))?[0-9]{2,5}){2,5}(?![\w-]|[.,][0-9])"
)
_TRUNK = re.compile(r"(?<![\w.,/-])0[0-9]{2,4}(?: [0-9]{3,4}){2}(?![\w-]|[.,][0-9])")
_LOCAL_PHONE = re.compile(r"(?<![\w.,/$£€-])([0-9]{3})-([0-9]{4})(?![\w-]|[.,][0-9])")
_CHAIN = re.compile(r"(?<![\w.,/-])[0-9]{1,8}(?:-[0-9]{1,8}){2,8}(?![\w-]|[.,][0-9])")
_TOLL_FREE = re.compile(r"(?<![\w.,/-])1-8[0-9]{2}(?=-[A-Z])")
_CARD = re.compile(r"(?<![\w.,/-])[0-9]{4}(?: [0-9]{4}){3}(?![\w-]|[.,][0-9])")
_GROUP = re.compile(r"[0-9]+")

_IP = re.compile(
    r"(?<![\w.,-])([0-9]{1,3}(?:\.[0-9]{1,3}){3})(?:(?P<port>:[0-9]{1,5})|(?P<net>/[0-9]{1,2}))?(?!\w|\.[0-9])"
)
_VERSION = re.compile(r"(?<![\w.,-])(?P<v>[vV]\.? ?)?([0-9]{1,6}(?:\.[0-9]{1,6}){2,6})(?![0-9]|\.[0-9])")
_SHORT_VERSION = re.compile(r"(?<![\w.,-])[vV]\.?([0-9]{1,4}(?:\.[0-9]{1,4})?)(?!\w|\.[0-9])")
_NAMED_VERSION = re.compile(
    r"(?<!\w)((?:[Vv]ersion|[Rr]elease|Python|Java|Ubuntu|Android|iOS|macOS) )"
    r"([0-9]{1,3}\.[0-9]{1,3})(?!\w|\.[0-9])"
)

_EMERGENCY = re.compile(
    r"(?<!\w)((?:call|dial)(?:ed|ing|s)? )(911|999|988|411|311|112)(?![\w,.]?[0-9])", re.IGNORECASE
)
_NAMED = re.compile(
    r"(?<!\w)((?:Boeing|Airbus|[Ff]light|[Rr]oom|[Rr]oute|[Hh]ighway|Interstate|[Ss]uite|"
    r"[Ee]rror(?: code)?|HTTP|[Ss]tatus(?: code)?) )"
    r"([0-9]{3,4})(?!\w|[.,]?[0-9])"
)
_SECRET = re.compile(
    r"(?<!\w)((?:pin|passcode|password|pass code|access code|code|zip|zip code|postcode)(?: is|:)? )"
    r"([0-9]{4,8})(?!\w|[.,]?[0-9])",
    re.IGNORECASE,
)
_ZIP = re.compile(r"(?<=\b[A-Z]{2} )([0-9]{5})(?:-([0-9]{4}))?(?![\w-]|[.,][0-9])")

# COVID-19, HTML5, H2O, GPT-3.5, F-16s
_AFTER_LETTER = re.compile(
    r"(?<=[A-Za-z])-?([0-9]{1,18})(\.[0-9]{1,18})?(?P<plural>s(?!\w))?(?![0-9])(?P<glued>(?=[A-Za-z]))?"
)
# 3D, 5G, 1080p
_BEFORE_LETTER = re.compile(r"(?<![\w.,])([0-9]{1,18})(\.[0-9]{1,18})?(?=[A-Za-z])(?!x\b)")


def read_identifiers(text: str) -> str:
    """Telephone numbers, addresses, versions and numbered names in words."""
    for pattern in (_PHONE, _INTERNATIONAL, _TRUNK, _CARD, _CHAIN, _TOLL_FREE):
        text = pattern.sub(_groups, text)
    text = _LOCAL_PHONE.sub(_local_phone, text)
    text = _IP.sub(_ip, text)
    text = _VERSION.sub(lambda match: ("version " if match["v"] else "") + _points(match[2]), text)
    text = _SHORT_VERSION.sub(lambda match: f"version {_points(match[1])}", text)
    text = _NAMED_VERSION.sub(lambda match: match[1] + _points(match[2]), text)
    text = _EMERGENCY.sub(lambda match: match[1] + digits(match[2]), text)
    text = _SECRET.sub(lambda match: match[1] + digits(match[2]), text)
    text = _NAMED.sub(lambda match: match[1] + identifier(match[2]), text)
    return _ZIP.sub(lambda match: ", ".join(digits(group) for group in match.groups() if group), text)


def part_letters_and_digits(text: str) -> str:
    """Numbers that touch letters in words, apart from them."""
    return _BEFORE_LETTER.sub(_before_letter, _AFTER_LETTER.sub(_after_letter, text))


def _groups(match: re.Match[str]) -> str:
    spoken = ", ".join(digits(group) for group in _GROUP.findall(match[0]))
    return f"plus {spoken}" if match[0].startswith("+") else spoken


def _local_phone(match: re.Match[str]) -> str:
    """Seven digits are a telephone, two round numbers a range."""
    if match[1].endswith("0") and match[2].endswith("0"):
        return match[0]
    return _groups(match)


def _ip(match: re.Match[str]) -> str:
    words = " dot ".join(digits(part) for part in match[1].split("."))
    if match["port"]:
        return f"{words} colon {digits(match['port'])}"
    return f"{words} slash {cardinal(int(match['net'][1:]))}" if match["net"] else words


def _points(text: str) -> str:
    return " point ".join(number(part) for part in text.split("."))


def _after_letter(match: re.Match[str]) -> str:
    words = number(match[1] + match[2]) if match[2] else identifier(match[1])
    if match["plural"]:
        words = plural(words)
    return f" {words}" + ("" if match["glued"] is None else " ")


def _before_letter(match: re.Match[str]) -> str:
    words = number(match[1] + match[2]) if match[2] else identifier(match[1])
    return f"{words} "

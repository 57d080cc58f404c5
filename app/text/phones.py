"""Numbers said digit by digit: telephones, cards, codes."""

import re

from app.text.number_words import digits

_START = r"(?<![\w.,/-])"
_END = r"(?![\w-]|[.,][0-9])"
# Groups, with a breath between.
_GROUPED = (
    re.compile(
        rf"{_START}(?:\+[0-9]{{1,3}}[ .-]?|1[ .-])?(?:\([0-9]{{3}}\) ?|[0-9]{{3}}[ .-])"
        rf"[0-9]{{3}}[ .-][0-9]{{4}}{_END}"
    ),
    re.compile(rf"{_START}\+[0-9]{{1,3}}(?:[ -](?:\(0\))?[0-9]{{2,5}}){{2,5}}{_END}"),
    re.compile(rf"{_START}0[0-9]{{2,4}}(?: [0-9]{{3,4}}){{2}}{_END}"),
    re.compile(rf"{_START}[0-9]{{4}}(?: [0-9]{{4}}){{3}}{_END}"),
    re.compile(rf"{_START}[0-9]{{1,8}}(?:-[0-9]{{1,8}}){{2,8}}{_END}"),
    re.compile(rf"{_START}1-8[0-9]{{2}}(?=-[A-Z])"),
)
_GROUP = re.compile(r"[0-9]+")
_LOCAL = re.compile(rf"{_START}(?<![$£€])([0-9]{{3}})-([0-9]{{4}}){_END}")
_ZIP = re.compile(rf"(?<=\b[A-Z]{{2}} )[0-9]{{5}}(?:-[0-9]{{4}})?{_END}")

_EMERGENCY = re.compile(
    r"(?<!\w)((?:call|dial)(?:ed|ing|s)? )(911|999|988|411|311|112)(?![\w,.]?[0-9])", re.IGNORECASE
)
_SECRET = re.compile(
    r"(?<!\w)((?:pin|passcode|password|pass code|access code|code|zip|zip code|postcode)(?: is|:)? )"
    r"([0-9]{4,8})(?!\w|[.,]?[0-9])",
    re.IGNORECASE,
)


def read_phones(text: str) -> str:
    """Telephone and card numbers, codes and such in single digits."""
    for pattern in (*_GROUPED, _ZIP):
        text = pattern.sub(_groups, text)
    text = _LOCAL.sub(_local, text)
    for pattern in (_EMERGENCY, _SECRET):
        text = pattern.sub(lambda match: match[1] + digits(match[2]), text)
    return text


def _groups(match: re.Match[str]) -> str:
    spoken = ", ".join(digits(group) for group in _GROUP.findall(match[0]))
    return f"plus {spoken}" if match[0].startswith("+") else spoken


def _local(match: re.Match[str]) -> str:
    """Seven digits are a telephone, two round numbers a range."""
    is_range = match[1].endswith("0") and match[2].endswith("0")
    return match[0] if is_range else _groups(match)

"""Times of day: "10:30 pm", "9am", "23:59", "10:05:30"."""

import re

from app.text.lexicon import ENDS_BEFORE_CAPITAL
from app.text.number_words import cardinal, two_digits

# "p.m." may also end its sentence; then one stop stays.
_HALF = rf"(?:(?P<half>[aApP])(?:[mM](?![\w])|\.\s?[mM](?:\.(?P<ends>{ENDS_BEFORE_CAPITAL})?|(?!\w))))"
_CLOCK = re.compile(
    r"(?<![\w:.,/$-])(?P<hour>2[0-4]|[01]?[0-9]):(?P<minute>[0-5][0-9])"
    rf"(?::(?P<second>[0-5][0-9])(?:\.[0-9]{{1,9}})?)?(?![0-9:])(?:\s?{_HALF}|Z?(?!\w|\.[0-9]))"
)
_AFTER_RANGE = re.compile(r"(?<=[0-9]) ?[–-] ?(?=[0-9]{1,2}:[0-9]{2})")
_RATIO = re.compile(
    r"(?:(?<=scale of )|(?<=ratio of )|(?<=odds of ))([0-9]{1,4}):(?=[0-9])"
    r"|(?<![\w:.,])([0-9]{1,4}):(?=[0-9]{1,4} (?:scale|ratio|odds|mix)\b)"
)
_MILITARY = re.compile(r"(?<![\w:.,])(?P<hour>[01][0-9]|2[0-3])(?P<minute>[0-5][0-9])(?= (?:hours|hrs)\b)")
_BRITISH = re.compile(rf"(?<![\w:.,/$-])(?P<hour>1[0-2]|[1-9])\.(?P<minute>[0-5][0-9])\s?{_HALF}")
_HOUR = re.compile(rf"(?<![\w:.,/$])(?P<hour>1[0-2]|0?[1-9])\s?{_HALF}")
_HOURS_TO = re.compile(
    r"(?<![\w:.,/$])((?:1[0-2]|0?[1-9])(?::[0-5][0-9])?(?:\s?[aApP]\.?[mM]\.?)?) ?[–-] ?"
    rf"(?=(?:1[0-2]|0?[1-9])(?::[0-5][0-9])?\s?{_HALF})"
)


def read_times(text: str) -> str:
    """Times in words."""
    text = _RATIO.sub(lambda match: match[0].replace(":", " to "), text)
    text = _MILITARY.sub(_military, text)
    text = _HOURS_TO.sub(r"\1 to ", text)
    text = _AFTER_RANGE.sub(" to ", text)
    text = _BRITISH.sub(_clock, _CLOCK.sub(_clock, text))
    return _HOUR.sub(lambda match: f"{cardinal(int(match['hour']))} {_half(match)}", text)


def _half(match: re.Match[str]) -> str:
    return f"{match['half'].upper()} M" + ("" if match["ends"] is None else ".")


def _clock(match: re.Match[str]) -> str:
    groups = match.groupdict()
    hour, minute, second = int(match["hour"]), int(match["minute"]), groups.get("second")
    has_half = match["half"] is not None
    words = _hour_and_minute(hour, minute, has_half)
    if second and int(second):
        words += f" and {cardinal(int(second))} second{'' if int(second) == 1 else 's'}"
    return f"{words} {_half(match)}" if has_half else words


def _military(match: re.Match[str]) -> str:
    hour, minute = match["hour"], int(match["minute"])
    hours = f"zero {cardinal(int(hour))}" if hour[0] == "0" else cardinal(int(hour))
    return f"{hours} {two_digits(minute)}" if minute else f"{hours} hundred"


def _hour_and_minute(hour: int, minute: int, has_half: bool) -> str:
    if minute:
        return f"{cardinal(hour)} {two_digits(minute)}"
    if has_half:
        return cardinal(hour)
    if hour in (0, 24):
        return "midnight"
    return f"{cardinal(hour)} o'clock" if hour <= 12 else f"{cardinal(hour)} hundred"

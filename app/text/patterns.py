"""Pieces of patterns that several stages share. All are bounded, so that no text takes quadratic time."""

from app.text.number_words import MAX_CARDINAL_DIGITS

_GROUPS = MAX_CARDINAL_DIGITS // 3 - 1
# 1,234,567.89 or 1234.5 or .5; not followed by more digits
NUMBER = (
    rf"(?:(?:[0-9]{{1,3}}(?:,[0-9]{{3}}){{1,{_GROUPS}}}|[0-9]{{1,{MAX_CARDINAL_DIGITS}}})"
    rf"(?:\.[0-9]{{1,{MAX_CARDINAL_DIGITS}}})?|\.[0-9]{{1,{MAX_CARDINAL_DIGITS}}})(?![0-9]|,[0-9]{{3}}(?![0-9]))"
)

"""Characters that are not text (controls, zero-width marks), white space, and look-alikes of ASCII."""

import re
import unicodedata

_LINE_ENDS = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
# Joiners spell words in Arabic and Indic scripts (U+0600 to U+109F, by and large); elsewhere they are noise.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e01ef]"
    r"|(?<![\u0600-\u109f])[\u200c\u200d]"
)
_SPACES = re.compile(r"[^\S\n]+")
_SPACES_AT_LINE_END = re.compile(r" ?\n ?")
_EMPTY_LINES = re.compile(r"\n{3,}")

# NFKC would merge these with their neighbours or part them with a space.
_BEFORE_FOLDING = str.maketrans({
    "´": "'", "‘": "'", "’": "'", "‚": "'", "‛": "'", "ʼ": "'",
    "“": '"', "”": '"', "„": '"', "‟": '"', "«": '"', "»": '"', "¨": None, "¯": None, "¸": None,
    "№": "No. ", "™": None, "℠": None, "®": None, "…": "...", "−": "-", "‐": "-", "‑": "-",
    "‒": "–", "―": "—", "º": "°", "℅": "care of ", "∕": "/",
})  # fmt: skip
_FRACTION = re.compile(r"([¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])")
_SUPERSCRIPT = re.compile(r"(?<=[A-Za-z0-9)°])([⁺⁻]?[⁰¹²³⁴-⁹]{1,12})")


def clean(text: str) -> str:
    """Without controls and zero-width marks, lines ended by one `\\n`."""
    return _INVISIBLE.sub("", _LINE_ENDS.sub("\n", text))


def tidy_spaces(text: str) -> str:
    """Single spaces, none at the ends of lines, at most one empty line between others."""
    text = _SPACES_AT_LINE_END.sub("\n", _SPACES.sub(" ", text))
    return _EMPTY_LINES.sub("\n\n", text).strip()


def fold(text: str) -> str:
    """Full-width, circled, styled characters, ligatures and typographic quotes as plain ones.

    A fraction becomes `n/m`, a superscript after a letter or digit `^n`. For English only.
    """
    text = _FRACTION.sub(_plain_fraction, text)
    text = _SUPERSCRIPT.sub(lambda match: "^" + unicodedata.normalize("NFKC", match[1]), text)
    return unicodedata.normalize("NFKC", text.translate(_BEFORE_FOLDING)).replace("−", "-").replace("⁄", "/")


def _plain_fraction(match: re.Match[str]) -> str:
    plain = unicodedata.normalize("NFKC", match[1]).replace("⁄", "/")
    before = match.string[match.start() - 1 : match.start()]
    return f" {plain}" if before.isalnum() else plain

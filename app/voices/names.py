"""What voices may be called, and which names are taken from the start.

Names are data: they live in JSON and in requests, never in a path. They are compared without regard to case,
to space around them, or to how Unicode composes them, so that two that look alike are the same.
"""

import re
import unicodedata

DEFAULT_VOICE = "default"
# Clients offer only OpenAI's names, so each is accepted; all speak with the model's own voice.
OPENAI_VOICES = (
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable",
    "marin", "nova", "onyx", "sage", "shimmer", "verse",
)  # fmt: skip
BUILT_IN_VOICES = (DEFAULT_VOICE, *OPENAI_VOICES)
MAX_NAME_CHARS = 100  # room for a person, a style and a date
FORBIDDEN = "/\\"  # names are parts of URLs
FORBIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # what cannot be seen, or is no character
VOICE_ID = re.compile(r"voice_[0-9a-f]{24}")
CONSENT_ID = re.compile(r"cons_[0-9a-f]{24}")


def name_key(name: str) -> str:
    """What two names have in common that are the same."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return unicodedata.normalize("NFKC", folded).strip()


def is_built_in(name: str) -> bool:
    """Whether the model's own voice goes by that name."""
    return name_key(name) in BUILT_IN_VOICES


def checked_label(name: str) -> str:
    """A name in its composed form, or `ValueError` with what to change."""
    name = unicodedata.normalize("NFC", name.strip())
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise ValueError(f"give a name of 1 to {MAX_NAME_CHARS} characters")
    for character in name:
        if character in FORBIDDEN or unicodedata.category(character) in FORBIDDEN_CATEGORIES:
            raise ValueError(f"a name cannot have {character!a} in it: leave it out")
    if not any(map(str.isalnum, name)):
        raise ValueError("a name needs a letter or a digit")
    return name


def checked_name(name: str) -> str:
    """A voice's name in its composed form, or `ValueError` with what to change."""
    name = checked_label(name)
    if is_built_in(name):
        raise ValueError(f"{name!r} is a name of the model's own voice: choose another")
    if VOICE_ID.fullmatch(name_key(name)):
        raise ValueError("the name looks like the id of a voice: choose another")
    return name

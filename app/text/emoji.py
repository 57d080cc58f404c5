"""Emoji and emoticons, which have no sound."""

import regex

# Letters and digits are never taken, though Unicode counts ℹ and ❶ as pictographs; ♭♮♯ are read.
_PICTURE = r"[\p{Emoji_Presentation}☀-➿🀀-🫿]|\p{Extended_Pictographic}\uFE0F"
_EMOJI = rf"(?![\p{{L}}\p{{N}}♭♮♯])(?:{_PICTURE})[\uFE0F\u200D\u20E3]*"
_RUN = regex.compile(rf"\s*(?:{_EMOJI})(?:\s*{_EMOJI})*(\s*)([,.!?;:…。！？，])?")
_KEYCAP_OR_VARIANT = regex.compile(r"[\uFE00-\uFE0F\u20E3]")
_EMOTICON = regex.compile(r"(?<!\S)[:;8=]['’]?-?[)(DPpO*/\\|](?=[\s.,!?]|$)")


def remove_emoji(text: str) -> str:
    """Without emoji; a keycap keeps its digit. Expects no long runs of white space."""
    text = _KEYCAP_OR_VARIANT.sub("", _RUN.sub(_gap, text))
    return _EMOTICON.sub("", text)


def _gap(match: regex.Match[str]) -> str:
    if match[2]:
        return match[2]
    return "\n" * min(match[0].count("\n"), 2) or " "

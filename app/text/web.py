"""Addresses of the web and names of files, said as one dictates them."""

import re

from app.text.acronyms import spelled
from app.text.lexicon import words
from app.text.number_words import identifier

# Ends of hosts that are said as words; all others are letters.
_SPOKEN_ENDS = words("""
    com co org net gov info biz dev app shop online site store blog cloud tech space live news page zone
    art agency academy email club pro mil museum travel name jobs
""")
# Two-letter ends that are no English words, so that "like this.it is" stays two sentences.
_LETTER_ENDS = words("""
    ai au br ca cc cn de dk edu ee es eu fi fr gg gl gr hk ie il io jp kr ly mx nl nz pl pt ru se sg sk
    tv tw ua uk xyz
""")
_EXTENSIONS = words("""
    bat bmp c cc cfg conf cpp css csv doc docx exe gif go gz h html ini ipynb java jpeg jpg js json jsx
    log lua md mkv mov mp mp3 mp4 pdf php png ppt pptx py rb rs rtf sh sql svg tar toml ts tsx txt wav
    webm webp xls xlsx xml yaml yml zip
""")
_SPOKEN_EXTENSIONS = words("""
    bat conf doc exe gif go ini java json log toml yaml zip tar
""")
_SIGNS = {
    ".": "dot", "/": "slash", "-": "dash", "_": "underscore", "?": "question mark", "=": "equals", "&": "and",
    "#": "hash", "%": "percent", ":": "colon", "~": "tilde", "@": "at", "+": "plus",
}  # fmt: skip

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_TAIL = r"(?::[0-9]{1,5})?(?:[/?#][^\s<>\"'`*|]{0,2000})?"
_ENDS = "|".join(sorted({*_SPOKEN_ENDS, *_LETTER_ENDS}, key=len, reverse=True))
_EMAIL = re.compile(
    r"(?<![\w.+@-])(?:mailto:)?([A-Za-z0-9_](?:[\w.+-]{0,62}\w)?)"
    rf"@((?:{_LABEL}\.){{1,5}}[A-Za-z]{{2,24}})(?![\w@-])"
)
_URL = re.compile(rf"(?<![\w@])(?:https?|ftp)://([^\s<>\"'`*|/?#]{{1,253}}{_TAIL})", re.IGNORECASE)
_HOST = re.compile(
    r"(?<![\w.@/\\:-])"
    rf"((?:www\.(?:{_LABEL}\.){{0,5}}[A-Za-z]{{2,24}}|(?:{_LABEL}\.){{1,5}}(?:{_ENDS}))(?![\w@-]|\.\w){_TAIL})"
)
_EXTENSION = "|".join(sorted(_EXTENSIONS, key=len, reverse=True))
_FILE = re.compile(rf"(?<![\w.@])([A-Za-z0-9](?:[\w-]{{0,60}}\w)?)\.({_EXTENSION})(?![\w-]|\.\w)")
_PATH = re.compile(r"(?<![\w.,/<])(?:~|\.{1,2})?(?:/[\w.-]{1,100}){2,20}/?|(?<![\w.,/<])~/[\w.-]{1,100}")
_END = re.compile(r"[.,;:!?)\]}'\"]{1,20}$")
_TOKEN = re.compile(r"[0-9]{1,40}|[^\W\d_]{1,200}|.")
_MENTION = re.compile(r"(?<![\w@])@(?=\w)")


def read_web(text: str) -> str:
    """E-mail and web addresses, files, paths and mentions in words."""
    text = _EMAIL.sub(_email, text)
    text = _URL.sub(_address, text)
    text = _HOST.sub(_address, text)
    text = _PATH.sub(_path, text)
    text = _FILE.sub(_file, text)
    return _MENTION.sub("at ", text)


def _dictated(text: str) -> str:
    spoken = []
    for token in _TOKEN.findall(text):
        if "0" <= token[0] <= "9":
            spoken.append(identifier(token))
        elif token.isalpha():
            spoken.append(token)
        elif token in _SIGNS:
            spoken.append(_SIGNS[token])
    return " ".join(spoken)


def _host(host: str) -> str:
    labels = host.rstrip(".").split(".")
    spoken = [_dictated(label) for label in labels]
    end = labels[-1].lower()
    if len(labels) > 1 and end not in _SPOKEN_ENDS:
        spoken[-1] = spelled(end.upper())
    if labels[0].lower() == "www":
        spoken[0] = "W W W"
    return " dot ".join(spoken)


def _email(match: re.Match[str]) -> str:
    return f"{_dictated(match[1])} at {_host(match[2])}"


def _address(match: re.Match[str]) -> str:
    address = match[1]
    closing = _END.search(address)
    after = closing[0] if closing else ""
    address = address[: len(address) - len(after)]
    cut = next((place for place, character in enumerate(address) if character in "/?#:@"), len(address))
    host, rest = address[:cut], address[cut:].rstrip("/")
    return f"{_host(host)} {_dictated(rest)}".strip() + after


def _path(match: re.Match[str]) -> str:
    path = match[0]
    closing = _END.search(path)
    after = closing[0] if closing else ""
    return _dictated(path[: len(path) - len(after)].rstrip("/")) + after


def _file(match: re.Match[str]) -> str:
    stem, extension = match[1], match[2]
    end = extension if extension in _SPOKEN_EXTENSIONS else _dictated(spelled(extension.upper()))
    return f"{_dictated(stem)} dot {end}"

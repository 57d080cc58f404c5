"""Markdown and HTML marks, which are not read aloud.

A heading, a list item or a table row that does not end with a mark of its own gets a full stop, so that it is
heard as a sentence. Patterns are bounded: the time is linear in the text.
"""

import re

_FENCE = re.compile(r" {0,3}(?:```|~~~)[^`\n]{0,80}$")
_RULE = re.compile(r" {0,3}(?:(?:[-*_] ?){3,100}|={3,100})$")
_TABLE_RULE = re.compile(r" ?\|?(?: ?:?-{2,60}:? ?\|){1,60}(?: ?:?-{2,60}:? ?)?$|\| ?:?-{1,60}:? ?$")
_HEADING = re.compile(r" {0,3}#{1,6} +(?=\S)")
_HEADING_END = re.compile(r" #{1,6}$")
_QUOTE = re.compile(r"(?:> ?){1,20}(?![\d=])")
_BULLET = re.compile(r" {0,20}(?:[-–*•‣◦▪·]|\+(?! ?\d)) +(?:\[[ xX]\] +)?(?=\S)")
_NUMBERED_ITEM = re.compile(r"^( {0,20}[0-9]{1,3})[.)] +(?=\S)", re.MULTILINE)
_CELL = re.compile(r" ?\| ?")

_IMAGE_OR_LINK = re.compile(
    r"!?\[([^\[\]\n]{0,300})\]\((?:[^()\s]|\([^()\s]{0,200}\)){0,2000}(?: \"[^\"\n]{0,200}\")?\)"
)
_FOOTNOTE = re.compile(r"\[\^[\w-]{1,40}\]:?")
_REFERENCE_LINK = re.compile(r"\[([^\[\]\n]{1,300})\]\[[^\[\]\n]{0,100}\]")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]{1,2000}|[\w.+-]{1,64}@[\w.-]{1,255})>")
_PLACEHOLDER = re.compile(r"<([A-Za-z][\w-]{0,40})>")
_ENTITY = re.compile(r"&(?:amp;){0,20}(lt|gt|quot|apos|nbsp|#39|#x27);")
_AMPERSAND = re.compile(r"&(?:amp;)+")
_ENTITIES = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " ", "#39": "'", "#x27": "'"}
_COMMENT = re.compile(r"<!--[^<>]{0,300}-->")
_BLOCK_TAG = re.compile(r"</?(?:br|p|div|h[1-6]|li|ul|ol|tr|table|hr)(?: [^<>\n]{0,300})?/?>", re.IGNORECASE)
_INLINE_TAG = re.compile(
    r"</?(?:a|abbr|b|code|del|em|i|img|ins|kbd|mark|pre|s|small|span|strong|sub|sup|td|th|u)"
    r"(?: [^<>\n]{0,300})?/?>",
    re.IGNORECASE,
)
# Web addresses and arithmetic keep their signs; elsewhere * and ` and ~~ are marks, and so is _ at the edge
# of a word.
_EMPHASIS = re.compile(
    r"(?P<kept>(?:https?://|www\.)[^\s`*]{1,2000}|(?<=[0-9)])(?: \* |\*{1,2})(?=[0-9(]))"
    r"|\\(?=[\\`*_{}\[\]()#+.!|~>-])|[*`]+|~~|(?<!\w)_+|_+(?!\w)"
)

# What ends a sentence or clause by itself, possibly before closing quotes or brackets.
_ENDED = re.compile(r"[.!?:;,…。！？：；，、।॥؟۔؛—–-][\"'”’)\]」』》]{0,3}$")
_CJK_END = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af][\"'”’)\]」』》]{0,3}$")
_INDIC_END = re.compile(r"[\u0900-\u097f]$")


def remove_markdown(text: str) -> str:
    """The words of `text` without the marks."""
    text = "\n".join(line for line in map(_line, text.split("\n")) if line is not None)
    return _inline(text)


def read_numbered_items(text: str) -> str:
    """Numbers of list items with a comma after them, as a pause."""
    return _NUMBERED_ITEM.sub(r"\1, ", text)


def _line(line: str) -> str | None:
    """The words of a line; None where nothing is left of it."""
    is_rule = _RULE.match(line) is not None
    if is_rule or _FENCE.match(line) or _TABLE_RULE.match(line):
        return "" if is_rule else None
    line = _QUOTE.sub("", line, count=1) if line.startswith(">") else line
    if heading := _HEADING.match(line):
        return _ended(_HEADING_END.sub("", line[heading.end() :]))
    if bullet := _BULLET.match(line):
        return _ended(line[bullet.end() :])
    if _NUMBERED_ITEM.match(line):
        return _ended(line)
    stripped = line.strip()
    if stripped.startswith("|") and stripped.count("|") > 1:
        return _ended(_CELL.sub(", ", stripped.strip("| ")))
    return line


def _ended(line: str) -> str:
    line = line.rstrip()
    bare = line.rstrip("*_`~ ")
    if not bare or _ENDED.search(bare[-4:]):
        return line
    if _CJK_END.search(bare[-4:]):
        return f"{line}。"
    return f"{line}।" if _INDIC_END.search(bare) else f"{line}."


def _inline(text: str) -> str:
    text = _ENTITY.sub(lambda match: _ENTITIES[match[1]], text)
    text = _AMPERSAND.sub("&", text)
    text = _FOOTNOTE.sub("", _COMMENT.sub("", text))
    text = _REFERENCE_LINK.sub(r"\1", _IMAGE_OR_LINK.sub(r"\1", text))
    text = _AUTOLINK.sub(r"\1", text)
    text = _INLINE_TAG.sub("", _BLOCK_TAG.sub("\n", text))
    text = _PLACEHOLDER.sub(r"\1", text)
    return _EMPHASIS.sub(lambda match: match["kept"] or "", text)

"""Marks without a sound, and texts that are not English. Expected values are written by hand."""

import pytest

from app.text.normalise import normalise

Cases = list[tuple[str, str]]

PUNCTUATION: Cases = [
    ("Wait…", "Wait..."),
    ("Well.....no", "Well...no"),
    ("Stop!!!", "Stop!"),
    ("What?!?!", "What?!"),
    ("Really???", "Really?"),
    ("yes—no", "yes, no"),
    ("yes -- no", "yes, no"),
    ("yes – no", "yes, no"),
    ("“But—” she said", '"But..." she said'),
    ("“Hi,” she said, ‘now’", "\"Hi,\" she said, 'now'"),
    ("It’s fine", "It's fine"),
    ("a \u200bzero\u200b width\ufeff", "a zero width"),
    ("tab\there \r\n  next", "tab here\nnext"),
    ("one\n\n\n\ntwo", "one\n\ntwo"),
    ("bell\x07", "bell"),
]

MARKDOWN: Cases = [
    ("**bold** and *it* and __b__ and _i_", "bold and it and b and i"),
    ("`code`", "code"),
    ("[link](https://example.com/a_(b))", "link"),
    ("![a cat](cat.png)", "a cat"),
    ("# Heading\nText.", "Heading.\nText."),
    ("- eggs\n- milk", "eggs.\nmilk."),
    ("* **Bold** item", "Bold item."),
    ("1. Wash\n2. Dry", "one, Wash.\ntwo, Dry."),
    ("- [x] done", "done."),
    ("> quoted", "quoted"),
    ("```python\nx = 1\n```", "x equals one"),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a, b.\none, two."),
    ("above\n\n---\n\nbelow", "above\n\nbelow"),
    ("~~gone~~ here", "gone here"),
    ("a <b>bold</b> tag<br/>", "a bold tag"),
    ("Tom &amp; Jerry", "Tom and Jerry"),
    ("2*3", "two times three"),
    ("note[^1]", "note"),
    ("**5** apples", "five apples"),
    ("to ensure **100% good** results", "to ensure one hundred percent good results"),
    ("write to <me@example.com>, please", "write to me at example dot com, please"),
    ("give a <name>", "give a name"),
]

EMOJI: Cases = [
    ("Hi 😀!", "Hi!"),
    ("I ❤️ you", "I you"),
    ("👍🏽 yes 👨‍👩‍👧 family", "yes family"),
    ("1️⃣ first", "one first"),
    ("🇺🇸 flag", "flag"),
    ("fine :)", "fine"),
]

OTHER_LANGUAGES: Cases = [
    ("我有3个苹果，价格是¥500。", "我有3个苹果，价格是¥500。"),
    ("今天是2024-05-01 😀！", "今天是2024-05-01！"),
    ("**重要**：价格5%", "重要：价格5%"),
    ("# 标题\n正文", "标题。\n正文"),
    ("لدي 5 تفاحات", "لدي 5 تفاحات"),
    ("मेरे पास 5 सेब हैं", "मेरे पास 5 सेब हैं"),
    ("Das kostet 5 €.", "Das kostet 5 €."),
    ("El café cuesta 3,50 €.", "El café cuesta 3,50 €."),
    ("Il y a 24 heures dans une journée.", "Il y a 24 heures dans une journée."),
    ("У меня 5 яблок", "У меня 5 яблок"),
    ("Los Angeles is 5 hours away", "Los Angeles is five hours away"),
    ("می\u200cخواهم", "می\u200cخواهم"),
]

ALL = {name: cases for name, cases in list(globals().items()) if name.isupper() and isinstance(cases, list)}


@pytest.mark.parametrize(
    ("written", "spoken"),
    [pytest.param(*case, id=f"{name.lower()}: {case[0]}") for name, cases in ALL.items() for case in cases],
)
def test_normalise(written: str, spoken: str) -> None:
    assert normalise(written) == spoken.strip()


@pytest.mark.parametrize("written", [case[0] for cases in ALL.values() for case in cases])
def test_what_is_said_stays(written: str) -> None:
    said = normalise(written)
    assert normalise(said) == said

"""English or not, by letters and words."""

import pytest

from app.text.language import is_english


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3.14",
        "Dr. Smith has 3 cats.",
        "The café costs 5 dollars.",
        "Beyoncé",
        "Los Angeles",
        "HTML5",
        "example.com",
        "She said 你好 to me and left",
    ],
)
def test_english(text: str) -> None:
    assert is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "我有3个苹果。",
        "これは5円です。",
        "사과 3개",
        "لدي 5 تفاحات",
        "मेरे पास 5 सेब हैं",
        "У меня 5 яблок",
        "Έχω 5 μήλα",
        "Der Zug kommt um 10:30 Uhr.",
        "J'ai 5 pommes et une poire.",
        "Tengo 5 manzanas y una pera.",
        "Ho 5 mele e una pera, che sono buone.",
        "Tôi có 5 quả táo.",
        "Ik heb 5 appels en een peer.",
        "我用 Python 和 vLLM 写代码，今天写了很多很多",
    ],
)
def test_other_languages(text: str) -> None:
    assert not is_english(text)

"""Amounts of money: "$5.20", "£3", "$1.5 million", "10 €", "USD 5"."""

import re
from typing import NamedTuple

from app.text.number_words import number
from app.text.patterns import NUMBER
from app.text.unit_signs import UNIT_SIGN, unit_words


class Currency(NamedTuple):
    """What a currency and its hundredth are called; no hundredth where nobody uses one."""

    one: str
    many: str
    hundredth: str = ""
    hundredths: str = ""


_DOLLAR = Currency("dollar", "dollars", "cent", "cents")


def _dollar_of(country: str) -> Currency:
    return Currency(f"{country} dollar", f"{country} dollars", "cent", "cents")


_SIGNS = {
    "$": _DOLLAR, "US$": _dollar_of("U S"), "A$": _dollar_of("Australian"), "C$": _dollar_of("Canadian"),
    "CA$": _dollar_of("Canadian"), "AU$": _dollar_of("Australian"), "NZ$": _dollar_of("New Zealand"),
    "HK$": _dollar_of("Hong Kong"), "R$": Currency("real", "reais", "centavo", "centavos"),
    "£": Currency("pound", "pounds", "penny", "pence"), "€": Currency("euro", "euros", "cent", "cents"),
    "¥": Currency("yen", "yen"), "₹": Currency("rupee", "rupees", "paisa", "paise"),
    "Rs.": Currency("rupee", "rupees", "paisa", "paise"), "₩": Currency("won", "won"),
    "₽": Currency("ruble", "rubles", "kopeck", "kopecks"), "₺": Currency("lira", "lira", "kurus", "kurus"),
    "₪": Currency("shekel", "shekels", "agora", "agorot"), "₫": Currency("dong", "dong"),
    "฿": Currency("baht", "baht", "satang", "satang"), "₿": Currency("bitcoin", "bitcoins"),
    "₱": Currency("peso", "pesos", "centavo", "centavos"), "₦": Currency("naira", "naira", "kobo", "kobo"),
    "₴": Currency("hryvnia", "hryvnias", "kopiyka", "kopiykas"),
}  # fmt: skip
_CODES = {
    "USD": _SIGNS["US$"], "EUR": _SIGNS["€"], "GBP": _SIGNS["£"], "JPY": _SIGNS["¥"], "CAD": _SIGNS["C$"],
    "AUD": _SIGNS["A$"], "NZD": _SIGNS["NZ$"], "INR": _SIGNS["₹"], "KRW": _SIGNS["₩"],
    "CHF": Currency("Swiss franc", "Swiss francs"), "CNY": Currency("yuan", "yuan"),
}  # fmt: skip
_SCALES = {
    "k": "thousand", "K": "thousand", "m": "million", "M": "million", "mn": "million", "b": "billion",
    "B": "billion", "bn": "billion", "T": "trillion", "tn": "trillion",
}  # fmt: skip

_SIGN = "|".join(re.escape(sign) for sign in sorted(_SIGNS, key=len, reverse=True))
_CODE = "|".join(_CODES)
_SCALE = rf"(?P<scale> ?(?:thousand|million|billion|trillion)\b|(?:{'|'.join(_SCALES)})(?!\w))"
# "a $5 bill", "the $5 fee": in front of a noun the currency stands in the singular.
_PRICED = (
    "bill|bonus|bonuses|budget|coin|contract|coupon|deal|discount|donation|fee|fees|fine|fund|gift|grant|house|"
    "investment|loan|note|plan|price|prize|reward|salary|tax|ticket|tip"
)
_NOUN = rf"(?:(?P<priced>(?=[ -](?:{_PRICED})\b))|(?P<noun>(?=[ -][a-z])))?"
_PER = rf"(?: ?/ ?(?P<per>{UNIT_SIGN})(?!\w))?"
_PREFIXED = re.compile(
    rf"(?P<article>(?<!\w)[Aa]n? )?(?<![\w$])(?P<sign>{_SIGN}|(?:{_CODE})(?= ?[0-9])) ?(?P<amount>{NUMBER})"
    rf"(?: ?[–-] ?(?P=sign)?(?P<until>{NUMBER}))?{_SCALE}?{_NOUN}{_PER}"
)
_SUFFIXED = re.compile(
    rf"(?P<article>(?<!\w)[Aa]n? )?(?<![\w.,])(?P<amount>{NUMBER})"
    rf"(?:(?: ?– ?|-)(?P<until>{NUMBER}))?{_SCALE}?"
    rf" ?(?P<sign>[$£€¥₹₩₽₺₪₫₴](?![\w.]?[0-9])|(?:{_CODE})(?!\w)){_NOUN}{_PER}"
)
_CENTS = re.compile(rf"(?<![\w.,])({NUMBER}) ?¢")
_WITH_HUNDREDTHS = re.compile(r"([0-9,]{0,30})\.([0-9]{2})")


def read_money(text: str) -> str:
    """Amounts of money in words, with the currency after the number."""
    text = _SUFFIXED.sub(_amount, _PREFIXED.sub(_amount, text))
    return _CENTS.sub(lambda match: f"{number(match[1])} {'cent' if match[1] == '1' else 'cents'}", text)


def _amount(match: re.Match[str]) -> str:
    currency = (_SIGNS | _CODES)[match["sign"]]
    article = match["article"] or ""
    before_noun = match["priced"] is not None or (bool(article) and match["noun"] is not None)
    scale = _scale(match["scale"])
    per = f" per {unit_words(match['per'], singular=True)}" if match["per"] else ""
    split = _WITH_HUNDREDTHS.fullmatch(match["amount"])
    if split and currency.hundredth and not (scale or match["until"] or before_noun):
        return article + _with_hundredths(split[1], split[2], currency) + per
    words = number(match["amount"])
    if match["until"]:
        words += f" to {number(match['until'])}"
    is_one = match["amount"] == "1" and not scale and not match["until"]
    return f"{article}{words}{scale} {currency.one if is_one or before_noun else currency.many}{per}"


def _scale(text: str | None) -> str:
    """Of the scale as written: a space and the word, or nothing."""
    if not text:
        return ""
    return f" {_SCALES.get(text, text.strip())}"


def _with_hundredths(whole: str, part: str, currency: Currency) -> str:
    words = []
    if whole.strip("0"):
        words.append(f"{number(whole)} {currency.one if whole == '1' else currency.many}")
    if int(part):
        words.append(
            f"{number(part.lstrip('0'))} {currency.hundredth if int(part) == 1 else currency.hundredths}"
        )
    return " and ".join(words) or f"zero {currency.many}"

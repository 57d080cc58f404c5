"""Numbers as English words.

American usage throughout: no "and" inside a number, and no commas, which a voice would take for pauses.
Own code, as the libraries that do this are slow (0.2 ms a number) or have parts without a wheel.
"""

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
_TENS = (
    "-", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
)  # fmt: skip
_SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion")
_IRREGULAR_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth",
    "eight": "eighth", "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip

MAX_CARDINAL_DIGITS = 3 * len(_SCALES)  # what `cardinal` has names for
# As many digits without separators are an account or a telephone, not a quantity, unless round.
MIN_IDENTIFIER_DIGITS = 10


def cardinal(number: int) -> str:
    """`number`, from 0 to below 10**MAX_CARDINAL_DIGITS, in words."""
    assert 0 <= number < 10**MAX_CARDINAL_DIGITS
    if number == 0:
        return _ONES[0]
    words: list[str] = []
    for scale in _SCALES:
        number, group = divmod(number, 1000)
        if group:
            words.insert(0, f"{_below_thousand(group)} {scale}".rstrip())
    return " ".join(words)


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    if rest:
        words.append(_below_hundred(rest))
    return " ".join(words)


def _below_hundred(number: int) -> str:
    if number < len(_ONES):
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return f"{_TENS[tens]}-{_ONES[ones]}" if ones else _TENS[tens]


def ordinal(number: int) -> str:
    """`number` as a place in a row: "twenty-first"."""
    words = cardinal(number)
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    if last in _IRREGULAR_ORDINALS:
        return words[:start] + _IRREGULAR_ORDINALS[last]
    return words[:-1] + "ieth" if last.endswith("y") else words + "th"


def plural(words: str) -> str:
    """The last word of `words` as more than one: "nineties", "sixes", "thirds"."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith("x") else "s")


def digits(text: str) -> str:
    """Each ASCII digit of `text` by itself; anything else is left out."""
    return " ".join(_ONES[int(character)] for character in text if "0" <= character <= "9")


def number(text: str) -> str:
    """A plain number, with or without thousands' commas and a decimal part, as one says it.

    Digit by digit where it starts with a needless zero or is too long for a quantity.
    """
    whole, point, fraction = text.partition(".")
    plain = whole.replace(",", "")
    if not plain:
        words = ""
    elif _is_identifier(whole, plain):
        words = digits(plain)
    else:
        words = cardinal(int(plain))
    return f"{words} point {digits(fraction)}".lstrip() if point else words


def _is_identifier(whole: str, plain: str) -> bool:
    if len(plain) > MAX_CARDINAL_DIGITS or (len(plain) > 1 and plain[0] == "0"):
        return True
    return len(plain) >= MIN_IDENTIFIER_DIGITS and "," not in whole and not plain.endswith("000")


def year(number: int) -> str:
    """A year from 1 to 9999: "nineteen oh five", "two thousand one", "twenty ten"."""
    century, rest = divmod(number, 100)
    if century == 0 or (century % 10 == 0 and rest < 10):
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {two_digits(rest)}"


def identifier(text: str) -> str:
    """The digits of a name (flight, room, model), in pairs where one says it so: "seven forty-seven"."""
    if len(text) > 4 or text[0] == "0":
        return cardinal(int(text)) if text == "0" else digits(text)
    value = int(text)
    return cardinal(value) if value < 100 else year(value)


def two_digits(number: int) -> str:
    """What follows an hour or a century: "oh five", "thirty"."""
    return f"oh {_ONES[number]}" if number < 10 else _below_hundred(number)

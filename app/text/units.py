"""Measures: "5kg", "10 km/h", "72°F", "50%", "5'10\\"", "10K"."""

import re

from app.text.number_words import cardinal, number
from app.text.patterns import NUMBER

# Sign -> singular, plural. Those of one letter are only taken where a number stands before.
_PLAIN = {
    "mm": "millimeter", "cm": "centimeter", "m": "meter", "km": "kilometer", "nm": "nanometer",
    "μm": "micrometer", "mi": "mile", "yd": "yard", "yds": "yard",
    "mg": "milligram", "g": "gram", "kg": "kilogram", "kgs": "kilogram", "μg": "microgram", "mcg": "microgram",
    "lb": "pound", "lbs": "pound", "oz": "ounce",
    "ml": "milliliter", "mL": "milliliter", "cl": "centiliter", "dl": "deciliter", "l": "liter", "L": "liter",
    "gal": "gallon", "tsp": "teaspoon", "tbsp": "tablespoon",
    "ns": "nanosecond", "μs": "microsecond", "ms": "millisecond", "s": "second", "sec": "second",
    "secs": "second", "min": "minute", "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour",
    "yr": "year", "yrs": "year", "wk": "week", "wks": "week", "mo": "month",
    "bit": "bit", "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte",
    "TB": "terabyte", "PB": "petabyte", "KiB": "kibibyte", "MiB": "mebibyte", "GiB": "gibibyte",
    "TiB": "tebibyte", "kb": "kilobit", "Mb": "megabit", "Gb": "gigabit",
    "W": "watt", "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "V": "volt", "kV": "kilovolt",
    "mV": "millivolt", "mA": "milliamp", "Ω": "ohm", "kΩ": "kilohm", "cal": "calorie", "kcal": "kilocalorie",
    "kJ": "kilojoule", "Pa": "pascal", "hPa": "hectopascal", "kPa": "kilopascal", "px": "pixel",
    "ha": "hectare", "mol": "mole", "dB": "decibel", "mAh": "milliamp hour", "Wh": "watt hour",
    "kWh": "kilowatt hour", "MWh": "megawatt hour", "MP": "megapixel",
}  # fmt: skip
_IRREGULAR = {
    "ft": ("foot", "feet"), "Hz": ("hertz", "hertz"), "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"), "GHz": ("gigahertz", "gigahertz"), "mph": ("mile per hour", "miles per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"), "kmh": ("kilometer per hour", "kilometers per hour"),
    "bps": ("bit per second", "bits per second"), "kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"), "Gbps": ("gigabit per second", "gigabits per second"),
    "fps": ("frame per second", "frames per second"), "rpm": ("revolution per minute", "revolutions per minute"),
    "bpm": ("beat per minute", "beats per minute"), "psi": ("pound per square inch", "pounds per square inch"),
    "dpi": ("dot per inch", "dots per inch"), "sq ft": ("square foot", "square feet"),
    "sq mi": ("square mile", "square miles"), "sq m": ("square meter", "square meters"),
    "fl oz": ("fluid ounce", "fluid ounces"), "°": ("degree", "degrees"),
    "°C": ("degree Celsius", "degrees Celsius"), "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
}  # fmt: skip
UNITS = {sign: (word, f"{word}s") for sign, word in _PLAIN.items()} | _IRREGULAR
# Without a space only, since "in" is a word.
_ATTACHED = {"in": ("inch", "inches"), "t": ("ton", "tons")}
_SCALES = {"k": "thousand", "K": "thousand", "M": "million", "mn": "million", "B": "billion", "bn": "billion"}

UNIT_SIGN = "|".join(re.escape(sign) for sign in sorted(UNITS, key=len, reverse=True))
_LENGTH = "mm|cm|km|m|mi|ft|in|yd"
# A lookahead: after it, a number is a measure.
UNIT_FOLLOWS = rf"(?=[ -]?(?:{UNIT_SIGN})(?!\w))"
_POWERS = {"2": "square", "3": "cubic"}
_MEASURE = re.compile(
    rf"(?:(?P<article>(?<!\w)[Aa]n? )|(?<![\w.,/^]))(?P<number>{NUMBER})"
    rf"(?:(?P<gap>[ -]?)(?:(?P<length>{_LENGTH})\^?(?P<power>[23])|(?P<unit>{UNIT_SIGN}))|(?P<attached>in|t))"
    rf"(?: ?/ ?(?P<per>{UNIT_SIGN})(?:\^2|(?P<squared>2))?)?(?!\w)(?:\.(?=\s[a-z0-9]))?(?P<noun>(?=\s[a-z]))?"
    rf"(?P<race>(?= (?:run|race|sprint|dash|walk|swim|hurdles|radius|stretch|freestyle)\b))?"
)
_PERCENT = re.compile(rf"(?<![\w.,])({NUMBER}) ?%(?!\w)")
_SCALED = re.compile(rf"(?<![\w.,])(?P<number>{NUMBER})(?P<scale>k|K|mn|M|bn|B)(?![\w])")
_RESOLUTION = re.compile(r"(?<![\w.,])([48])K(?!\w)")
_HEIGHT = re.compile(r"(?<![\w'.,])([0-9]{1,2}) ?['′] ?([0-9]|1[01])(?: ?(?:\"|′′|'')|(?![\w.,'′]))")
_FEET_AND_INCHES = re.compile(r"(?<![\w.,])([0-9]{1,3}) ?ft\.?,? ([0-9]{1,2}) ?in(?!\w)(?:\.(?= [a-z]))?")
_EXTENT = re.compile(
    rf"(?<![\w.,])({NUMBER})(?P<mark>′′|''|\"|['′])(?= (?:tall|long|wide|high|deep|thick|screen|laptop|monitor|display|TV)\b)"
)


def read_units(text: str) -> str:
    """Units in words, in the number that their amount asks for. The amount itself becomes words too."""
    text = _HEIGHT.sub(_height, text)
    text = _FEET_AND_INCHES.sub(_feet_and_inches, text)
    text = _EXTENT.sub(_extent, text)
    text = _PERCENT.sub(lambda match: f"{number(match[1])} percent", text)
    text = _RESOLUTION.sub(r"\1 K", text)
    text = _SCALED.sub(lambda match: f"{number(match['number'])} {_SCALES[match['scale']]}", text)
    return _MEASURE.sub(_measure, text)


def unit_words(sign: str, singular: bool) -> str:
    """What `sign` stands for."""
    return (UNITS | _ATTACHED)[sign][0 if singular else 1]


def _measure(match: re.Match[str]) -> str:
    sign = match["unit"] or match["length"] or match["attached"]
    # "a 10 km run", "a 5-gallon bucket": in front of a noun the unit stands in the singular.
    before_noun = match["noun"] is not None and (
        match["article"] is not None or match["race"] is not None or match["gap"] == "-"
    )
    singular = match["number"] == "1" or before_noun
    words = [number(match["number"])]
    if match["power"]:
        words.append(_POWERS[match["power"]])
    words.append(unit_words(sign, singular))
    if match["per"]:
        words += ["per", unit_words(match["per"], singular=True)]
        if "^2" in match[0] or match["squared"]:
            words.append("squared")
    return (match["article"] or "") + " ".join(words)


def _height(match: re.Match[str]) -> str:
    return f"{cardinal(int(match[1]))} foot {cardinal(int(match[2]))}"


def _feet_and_inches(match: re.Match[str]) -> str:
    feet, inches = unit_words("ft", match[1] == "1"), unit_words("in", match[2] == "1")
    return f"{number(match[1])} {feet} {number(match[2])} {inches}"


def _extent(match: re.Match[str]) -> str:
    is_feet = match["mark"] in ("'", "′")
    return f"{number(match[1])} {unit_words('ft' if is_feet else 'in', match[1] == '1')}"

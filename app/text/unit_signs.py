"""Signs of units, and what they stand for."""

import re

# The plural adds an s.
_REGULAR = {
    "mm": "millimeter", "cm": "centimeter", "m": "meter", "km": "kilometer", "nm": "nanometer",
    "μm": "micrometer", "mi": "mile", "yd": "yard", "yds": "yard",
    "mg": "milligram", "g": "gram", "kg": "kilogram", "kgs": "kilogram", "μg": "microgram",
    "mcg": "microgram", "lb": "pound", "lbs": "pound", "oz": "ounce", "fl oz": "fluid ounce",
    "ml": "milliliter", "mL": "milliliter", "cl": "centiliter", "dl": "deciliter", "l": "liter",
    "L": "liter", "gal": "gallon", "tsp": "teaspoon", "tbsp": "tablespoon",
    "ns": "nanosecond", "μs": "microsecond", "ms": "millisecond", "s": "second", "sec": "second",
    "secs": "second", "min": "minute", "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour",
    "yr": "year", "yrs": "year", "wk": "week", "wks": "week", "mo": "month",
    "bit": "bit", "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte",
    "TB": "terabyte", "PB": "petabyte", "KiB": "kibibyte", "MiB": "mebibyte", "GiB": "gibibyte",
    "TiB": "tebibyte", "kb": "kilobit", "Mb": "megabit", "Gb": "gigabit", "px": "pixel", "MP": "megapixel",
    "W": "watt", "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "V": "volt", "kV": "kilovolt",
    "mV": "millivolt", "mA": "milliamp", "Ω": "ohm", "kΩ": "kilohm", "mAh": "milliamp hour",
    "Wh": "watt hour", "kWh": "kilowatt hour", "MWh": "megawatt hour", "cal": "calorie",
    "kcal": "kilocalorie", "kJ": "kilojoule", "Pa": "pascal", "hPa": "hectopascal", "kPa": "kilopascal",
    "ha": "hectare", "mol": "mole", "dB": "decibel", "sq m": "square meter", "sq mi": "square mile",
}  # fmt: skip
_RATES = {
    "mph": ("mile", "hour"), "kph": ("kilometer", "hour"), "kmh": ("kilometer", "hour"),
    "bps": ("bit", "second"), "kbps": ("kilobit", "second"), "Mbps": ("megabit", "second"),
    "Gbps": ("gigabit", "second"), "fps": ("frame", "second"), "rpm": ("revolution", "minute"),
    "bpm": ("beat", "minute"), "psi": ("pound", "square inch"), "dpi": ("dot", "inch"),
}  # fmt: skip
_IRREGULAR = {
    "ft": ("foot", "feet"), "sq ft": ("square foot", "square feet"), "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"), "MHz": ("megahertz", "megahertz"), "GHz": ("gigahertz", "gigahertz"),
    "°": ("degree", "degrees"), "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
}  # fmt: skip
_SPACED = {
    **{sign: (word, f"{word}s") for sign, word in _REGULAR.items()},
    **{sign: (f"{word} per {per}", f"{word}s per {per}") for sign, (word, per) in _RATES.items()},
    **_IRREGULAR,
}
# After a number without a space only, since "in" is a word.
_ATTACHED = {"in": ("inch", "inches"), "t": ("ton", "tons")}
_NAMES = {**_SPACED, **_ATTACHED}

# Patterns: signs with or without a space before, without, and those that may be squared.
UNIT_SIGN = "|".join(re.escape(sign) for sign in sorted(_SPACED, key=len, reverse=True))
ATTACHED_SIGN = "|".join(_ATTACHED)
LENGTH_SIGN = "mm|cm|km|m|mi|ft|in|yd"
# A lookahead: before it, a number is a measure.
UNIT_FOLLOWS = rf"(?=[ -]?(?:{UNIT_SIGN})(?!\w))"


def unit_words(sign: str, singular: bool) -> str:
    """What `sign` stands for."""
    return _NAMES[sign][0 if singular else 1]

"""Words that several stages know: months, days, how sentences start, what a count is followed by."""


def words(text: str) -> frozenset[str]:
    """The words of a text, for tables."""
    return frozenset(text.split())


MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
MONTH_OF_ABBREVIATION = {month[:3]: month for month in MONTHS if month != "May"} | {"Sept": "September"}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEEKDAY_OF_ABBREVIATION = {day[:3]: day for day in WEEKDAYS} | {
    "Tues": "Tuesday", "Thur": "Thursday", "Thurs": "Thursday",
}  # fmt: skip

_DAYS = "|".join(sorted(WEEKDAY_OF_ABBREVIATION, key=len, reverse=True))
# "Sat" and "Sun" are days only where a date or an hour follows.
WEEKDAY_BEFORE_DATE = (
    rf"(?<!\w)({_DAYS})\.?"
    rf"(?=,? (?:{'|'.join([*MONTHS, *MONTH_OF_ABBREVIATION])})\b|,? at [0-9]|(?:,|(?<=\.)) [0-9])"
)

# Capitalised, these begin a sentence far more often than they continue one as a name.
SENTENCE_STARTERS = words("""
    A After All Also Although An And Any Are As At Because Before Both But By Can Could Did Do Does Each
    Even Every For From Has Have He Her Here His How However I If In Instead Is It Its Just Let Many
    Maybe Meanwhile Most My Next No Not Nothing Now Of On Once One Only Or Others Our People Please
    Several She Should Since So Some Soon Such That The Their Then There Therefore These They This Those
    Though Thus To Today Unlike Until Was We Were What When Where Whether Which While Who Why Will With
    Would Yes Yet You Your
""")

# A single letter and a number follow these as a numeral: "Part I", "Chapter 4".
NUMBERED = (
    "Act|Appendix|Article|Book|Category|Chapter|Class|Division|Episode|Figure|Grade|Group|Level|Part|Phase|"
    "Scene|Section|Stage|Step|Table|Title|Type|Unit|Volume|War"
)

# Lower-case words in -s that are no plural nouns, so that a number before them may be a year.
_NO_PLURALS = (
    "across|always|as|does|had|has|his|its|is|less|perhaps|plus|this|thus|towards|was|us|versus|"
    "afterwards|besides|sometimes|election|elections"
)
# A lookahead: before it, a number counts something ("1984 people"). Longer words are no nouns.
COUNTS_FOLLOW = (
    rf"(?=\s(?!(?:{_NO_PLURALS})\b)"
    r"(?:people|men|women|children|million|billion|trillion|percent|%|feet|[a-z]{2,20}s)\b)"
)

_STARTER = "|".join(sorted(SENTENCE_STARTERS, key=len, reverse=True))
# A lookahead: a full stop before it ends its sentence, even after an abbreviation.
ENDS_HERE = rf"(?=[\"')\]]{{0,3}}(?:\Z|\n|\s[\"'(]?(?:{_STARTER})\b(?!\.[\sA-Z])))"
# The same for what no name follows ("etc.", "p.m."): any capital but that of a day, a month or a time zone.
ENDS_BEFORE_CAPITAL = (
    r"(?=[\"')\]]{0,3}(?:\Z|\n|\s[\"'(]?"
    rf"(?!(?:{'|'.join([*MONTHS, *WEEKDAYS])})\b|[A-Z]{{2,4}}\b)[A-Z]))"
)

"""Sentences in many scripts, and pieces that do not depend on how their text arrived."""

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from app.text.normalise import normalise
from app.text.segment import Segmenter, SegmentOptions, sentences

# The sentences of one text each, as a reader parts them; in the text a space stands between.
SPACED = [
    ["Hello there.", "How are you?", "I am fine!"],
    ["Dr. Smith paid $3.14.", "He left."],
    ["Mr. and Mrs. Lee met Prof. Kim.", "They ate."],
    ["J. R. R. Tolkien wrote it.", "I read it."],
    ["He lives on Oak Dr.", "She does not."],
    ["We saw St. Paul's.", "It is big."],
    ["Wait... what?", "No..."],
    ["Well…", "That is all."],
    ["He paused… and left.", "Then it rained."],
    ['"Stop!" he said.', '"Go."', "She left."],
    ["(It was late.)", "We slept."],
    ["He said “No.”", "I agreed."],
    ["See https://a.example/c?d=1.2.", "Then go."],
    ["Use e.g. pears, i.e. fruit, etc.", "But no nuts."],
    ["The U.S. economy grew.", "Yes."],
    ["He lives in the U.S.", "She does too."],
    ["At 9 a.m. we go.", "At 9 p.m.", "John came."],
    ["At 9 p.m. Monday we met."],
    ["No. 5 is alive.", "No.", "I am not."],
    ["See Fig. 3 and pp. 5 to 7.", "Done."],
    ["Apple Inc. reported sales.", "They rose."],
    ["v2.3.1 is out.", "Try example.com now."],
    ["It is 3.14, not 3.", "Or so."],
    ["What?!", "Really?!", "Yes!!!"],
    ["hi!", "how are you?", "i am fine."],
    ["First line\nsecond line.", "Next."],
    ["안녕하세요.", "반갑습니다."],
    ["مرحبا بك.", "كيف حالك؟", "أنا بخير۔"],
    ["واحد؛", "اثنان."],
    ["मैं ठीक हूँ।", "तुम कैसे हो॥", "अच्छा।"],
    ["Il a dit « Oui. »", "Puis non."],
    ["Привет.", "Как дела?"],
    ["... and so it went.", "End."],
    ["It cost $5.", "5 people paid."],
    ["The C. elegans worm.", "It moves."],
    ["Roe v. Wade was decided in Jan. 1973.", "It stood."],
    ["Martin Luther King Jr. spoke.", "We listened."],
    ["She has a Ph.D. in law.", "He has none."],
    ["He met the F B I.", "Agents came at nine A M.", "Nobody knew."],
    ["J. A. Smith and Dr. I. Lee came.", "Then A. Kay."],
    ["One — two, three; four: five.", "Six."],
]
UNSPACED = [
    ["你好。", "我很好！", "你呢？"],
    ["“是的。”", "他说。"],
    ["第一；", "第二。"],
    ["价格是3.14元。", "好，走吧！"],
    ["真的？！", "对……", "好。"],
    ["こんにちは。", "「元気？」", "はい！"],
]
LINES = [
    ["# Title", "Text follows.", "- item one", "- item two"],
    ["Do this:", "1. Wash it.", "2. Dry it."],
    ["* eggs", "* milk"],
]
PARAGRAPHS = [["A heading", "Some text without a stop", "An end"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(between.join(expected), expected, id=expected[0])
        for between, table in ((" ", SPACED), ("", UNSPACED), ("\n", LINES), ("\n\n", PARAGRAPHS))
        for expected in table
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_sentences_of_nothing() -> None:
    assert sentences("") == []
    assert sentences(" \n\n ") == []
    assert sentences("...") == ["..."]


def all_of(segmenter: Segmenter, *texts: str) -> list[str]:
    return [piece for text in texts for piece in segmenter.push(text)] + segmenter.flush()


QUICK = SegmentOptions(min_chars=20, first_min_chars=5, max_chars=80)
CLAUSE_FIRST = SegmentOptions(min_chars=20, first_min_chars=5, max_chars=80, first_clause=True)
SMALL = SegmentOptions(min_chars=4, first_min_chars=2, max_chars=12)


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        pytest.param(
            QUICK,
            "Hello! Yes. No. And then we went home. Bye.",
            ["Hello!", "Yes. No. And then we went home.", "Bye."],
            id="short sentences join the next",
        ),
        pytest.param(
            QUICK,
            "Hi. I am here. Good.",
            ["Hi. I am here.", "Good."],
            id="the first is joined below its own least",
        ),
        pytest.param(
            CLAUSE_FIRST,
            "Well, as I said, we go. It is late, so hurry up now.",
            ["Well,", "as I said, we go. It is late, so hurry up now."],
            id="only the first may be a clause",
        ),
        pytest.param(
            CLAUSE_FIRST,
            "It costs 1,000 dollars, at least. Yes.",
            ["It costs 1,000 dollars,", "at least. Yes."],
            id="a comma within a number is no clause",
        ),
        pytest.param(
            SegmentOptions(min_chars=5, first_min_chars=5, max_chars=30),
            "We came to the house, which was old; and slept.",
            ["We came to the house,", "which was old; and slept."],
            id="a long sentence is cut at a clause",
        ),
        pytest.param(
            SegmentOptions(min_chars=5, first_min_chars=5, max_chars=16),
            "We came to the old house and slept there.",
            ["We came to the", "old house and", "slept there."],
            id="without a clause, at a space",
        ),
        pytest.param(
            SegmentOptions(min_chars=2, first_min_chars=2, max_chars=5),
            "我们今天去北京看朋友",
            ["我们今天去", "北京看朋友"],
            id="without a space, anywhere",
        ),
        pytest.param(
            SegmentOptions(min_chars=2, first_min_chars=2, max_chars=8),
            "我们今天，去北京看朋友",
            ["我们今天，", "去北京看朋友"],
            id="a Chinese comma is a clause",
        ),
        pytest.param(
            SegmentOptions(min_chars=1, first_min_chars=1, max_chars=4),
            "abce\u0301fg",
            ["abc", "e\u0301fg"],
            id="never between a letter and its accent",
        ),
        pytest.param(
            SegmentOptions(min_chars=1, first_min_chars=1, max_chars=6),
            "ab👨\u200d👩\u200d👧cd",
            ["ab", "👨\u200d👩\u200d👧c", "d"],
            id="never within a family",
        ),
    ],
)
def test_pieces(options: SegmentOptions, text: str, expected: list[str]) -> None:
    assert all_of(Segmenter(options), text) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["It is 3.", "14 now. So"], [[], ["It is 3.14 now."]]),
        (["I met Dr.", " Smith. He"], [[], ["I met Dr. Smith."]]),
        (["It was fine.", " ", "Next"], [[], [], ["It was fine."]]),
        (['He said "go.', '" Then'], [[], ['He said "go."']]),
        (["很好很好。", "”", "我"], [[], [], ["很好很好。”"]]),
        (["We saw the U.S.", " Th", "ere w"], [[], [], ["We saw the U.S."]]),
        (["A heading\n", "\nText"], [[], ["A heading"]]),
        (["Do this:\n", "1", ". Wash"], [[], [], ["Do this:"]]),
    ],
)
def test_a_piece_waits_until_it_is_certain(texts: list[str], expected: list[list[str]]) -> None:
    segmenter = Segmenter(SegmentOptions(min_chars=5, first_min_chars=5, max_chars=80))
    assert [segmenter.push(text) for text in texts] == expected


def test_what_waits_can_be_flushed() -> None:
    segmenter = Segmenter(QUICK)
    assert not segmenter.waiting
    assert segmenter.push("Hello there") == []
    assert segmenter.waiting
    assert segmenter.pending == "Hello there"
    assert segmenter.flush() == ["Hello there"]
    assert not segmenter.waiting
    assert segmenter.flush() == []
    assert all_of(segmenter, "Again. And then more text.") == ["Again.", "And then more text."]


def test_a_stream_without_an_end_is_given_in_pieces() -> None:
    segmenter = Segmenter(QUICK)
    for letter in "x" * 1000:
        segmenter.push(letter)
        assert len(segmenter.pending) <= QUICK.max_chars


def test_markup_may_be_parted() -> None:
    written = "# News\n\n**It is late. We go** at 9 p.m. by [bus](https://example.com/a). Bring $5."
    pieces = all_of(Segmenter(QUICK), *written)
    assert [normalise(piece) for piece in pieces] == [
        "News.",
        "It is late. We go at nine P M by bus.",
        "Bring five dollars.",
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"min_chars": 0},
        {"first_min_chars": 0},
        {"min_chars": 20, "max_chars": 10},
        {"min_chars": 5, "first_min_chars": 20, "max_chars": 10},
    ],
)
def test_lengths_are_checked(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"give at least 1|raise it"):
        SegmentOptions(**options)


PIECES_TEXT = (
    'Dr. | Mr. Lee |J. R. |e.g. |U.S. |3.|14|. |, |; |? |! |...|… |\n|\n\n| |  |"|”|)|« |»| »|The |'
    "she |a|Go|。|，|；|好|我们|؟ |। |नि|मैं |é|e\u0301|\u0301|👨\u200d👩\u200d👧|🇺🇸|— |—|- |# |1. |no. |Jan. |"
    "p.m. |Monday|x,y"
)
PIECES = st.sampled_from(PIECES_TEXT.split("|"))
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60)
OPTIONS = st.sampled_from([QUICK, CLAUSE_FIRST, SMALL, SegmentOptions(1, 1, 5, True), SegmentOptions()])


@given(TEXTS, OPTIONS, st.data())
def test_pieces_do_not_depend_on_how_the_text_arrived(
    text: str, options: SegmentOptions, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = all_of(Segmenter(options), text)
    assert all_of(Segmenter(options), *parts) == whole
    assert all_of(Segmenter(options), *text) == whole


@given(TEXTS, OPTIONS)
def test_nothing_is_lost_and_no_piece_is_long(text: str, options: SegmentOptions) -> None:
    pieces = all_of(Segmenter(options), text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < len(piece) <= options.max_chars and piece == piece.rstrip() for piece in pieces)


@given(TEXTS)
@example("a. \u0301b. c")
def test_sentences_lose_nothing(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@given(
    st.lists(
        st.sampled_from(["e\u0301", "👨\u200d👩\u200d👧", "🇺🇸", "नि", "a", "好", "\u1100\u1161", " ", "。"]),
        max_size=60,
    )
)
def test_no_character_is_cut(characters: list[str]) -> None:
    text = "".join(characters)
    pieces = all_of(Segmenter(SegmentOptions(1, 1, 8)), text)
    found = [
        character for piece in pieces for character in regex.findall(r"\X", piece) if not character.isspace()
    ]
    assert found == [character for character in regex.findall(r"\X", text) if not character.isspace()]

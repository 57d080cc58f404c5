"""Text to ids: the fixture's tokenizer, and small ones with the tokens that must be taken apart."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from models.checkpoint import CheckpointError
from models.voxcpm2.tokenizer import TextTokenizer
from tests.support.golden import CHECKPOINT, INDEX

VOCABULARY = {
    "<unk>": 0,
    "你": 1,
    "好": 2,
    "你好": 3,
    "▁你好": 4,
    "你a": 5,
    "▁hello": 6,
    "世界": 7,
    "世": 8,
    "一二三": 9,
    "一": 10,
    "二": 11,
    "三": 12,
    "▁好": 13,
    "hello": 14,
    "▁好世": 15,
    "你。": 16,
}


@pytest.fixture
def tokenize() -> TextTokenizer:
    """One whose tokens are the words between spaces."""
    tokenizer = Tokenizer(WordLevel(VOCABULARY, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return TextTokenizer(tokenizer)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("你好", [1, 2]),
        ("▁你好", [1, 2]),  # the mark goes with the word
        ("一二三", [10, 11, 12]),
        ("你", [1]),
        ("▁好", [13]),  # one character is left alone, mark and all
        ("你a", [5]),  # mixed
        ("你。", [16]),  # punctuation is not in the range
        ("▁hello", [6]),
        ("世界", [8, 0]),  # 界 has no token of its own
        ("▁好世", [15]),  # 好世 is no token of the vocabulary, so this one is none of several characters
        ("你好 hello 世界", [1, 2, 14, 8, 0]),
        ("nothing", [0]),
        ("", []),
    ],
)
def test_tokens_of_several_cjk_characters_are_split(
    text: str, ids: list[int], tokenize: TextTokenizer
) -> None:
    assert tokenize(text) == ids


def test_special_tokens_are_not_added() -> None:
    tokenize = TextTokenizer.from_checkpoint(CHECKPOINT)
    assert not {1, 2} & set(tokenize("Hello world."))


@pytest.mark.parametrize("name", [name for name in INDEX if not INDEX[name]["target_text"].startswith(" ")])
def test_golden_counts(name: str) -> None:
    tokenize = TextTokenizer.from_checkpoint(CHECKPOINT)
    assert len(tokenize(INDEX[name]["target_text"])) == INDEX[name]["text_tokens"]


def test_a_leading_space_is_a_token() -> None:
    """So says `tokenizer.json`; the Llama classes of transformers 5 put their own normaliser in its place."""
    tokenize = TextTokenizer.from_checkpoint(CHECKPOINT)
    assert tokenize(" And") == [tokenize(" ")[0], *tokenize("And")]


def test_a_vocabulary_without_unk() -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "世界": 1}, unk_token="a"))
    assert TextTokenizer(tokenizer)("世界") == [0, 0]


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json does not exist: download"):
        TextTokenizer.from_checkpoint(tmp_path)


@pytest.mark.parametrize("content", ["", "{", '{"version": "1.0"}', "<html>"])
def test_a_damaged_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not a usable tokenizer"):
        TextTokenizer.from_checkpoint(tmp_path)

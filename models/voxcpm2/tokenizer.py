"""Text to ids with the checkpoint's `tokenizer.json`, one id for each CJK character. Free of torch."""

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from models.checkpoint import CheckpointError

TOKENIZER_FILE = "tokenizer.json"
WORD_START = "▁"  # SentencePiece's mark; a split token loses it, as in the reference
CJK_FIRST, CJK_LAST = "\u4e00", "\u9fff"


class TextTokenizer:
    """The released tokenizer, with tokens of several CJK characters taken apart.

    The model was trained to read Chinese by characters: a token of two would be out of its experience.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocabulary: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        self._unknown = self._vocabulary.get("<unk>", 0)

    @classmethod
    def from_checkpoint(cls, checkpoint: Path) -> "TextTokenizer":
        """Read `tokenizer.json` of a checkpoint directory, or raise `CheckpointError`."""
        path = checkpoint / TOKENIZER_FILE
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist: download the checkpoint again")
        try:
            return cls(Tokenizer.from_file(str(path)))
        except Exception as error:
            raise CheckpointError(f"{path} is not a usable tokenizer ({error})") from error

    def __call__(self, text: str) -> list[int]:
        """Ids of `text`, without special tokens."""
        tokens = self._tokenizer.encode(text, add_special_tokens=False).tokens
        return [
            self._vocabulary.get(piece, self._unknown) for token in tokens for piece in self._pieces(token)
        ]

    def _pieces(self, token: str) -> Iterator[str]:
        bare = token.replace(WORD_START, "")
        if len(bare) > 1 and bare in self._vocabulary and _is_cjk(bare):
            yield from bare
        else:
            yield token


def _is_cjk(text: str) -> bool:
    return all(CJK_FIRST <= character <= CJK_LAST for character in text)

"""The tokenizer of the tiny random checkpoint: byte-pair encoding as released, from a table.

| ids | tokens |
|---|---|
| 0 to 2 | unknown, begin, end |
| 3 to 109 | reserved; 101 to 104 are the marks of `prompt` |
| 110 to 365 | bytes: whatever has no token of its own is spelt with them |
| 366 to 460 | the start of a word and printable ASCII |
| 461 to 511 | CJK characters, alone and as pairs, which are taken apart; merged pairs |
"""

import string

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from models.voxcpm2.prompt import AUDIO_END, AUDIO_START, REFERENCE_END, REFERENCE_START
from models.voxcpm2.tokenizer import WORD_START

VOCAB_SIZE = 512
RESERVED = 110
MARKS = {
    0: "<unk>",
    1: "<s>",
    2: "</s>",
    AUDIO_START: "<|audio_start|>",
    AUDIO_END: "<|audio_end|>",
    REFERENCE_START: "<|reference_start|>",
    REFERENCE_END: "<|reference_end|>",
}
CHARACTERS = (WORD_START, *string.digits, *string.ascii_letters, *string.punctuation)
CJK_CHARACTERS = "你好世界"
# Each pair becomes one token; earlier pairs first, so a pair may hold the result of an earlier one.
MERGES: tuple[tuple[str, str], ...] = tuple(
    (first, second)
    for first, second in map(str.split, (
        "t h", "h e", "▁ t", "▁t he", "i n", "e r", "a n", "o n", "r e", "e d", "n d", "o r", "e n", "i s",
        "i t", "a t", "o u", "l l", "in g", "▁ a", "▁ s", "▁ w", "▁ o", "▁ f", "▁ b", "▁ i", "▁ c", "▁ h",
        "▁ m", "▁ p", "▁ d", "▁a nd", "▁t o", "▁o f", "▁i n", "▁i s", "▁h e", "▁w or", "▁wor l", "▁worl d",
        "▁he ll", "▁hell o", "你 好", "世 界",
    ))
)  # fmt: skip


def make_tokenizer() -> Tokenizer:
    """Build it; the same every time."""
    marks = [MARKS.get(i, f"<|reserved_{i}|>") for i in range(RESERVED)]
    tokens = [*marks, *(f"<0x{byte:02X}>" for byte in range(256)), *CHARACTERS, *CJK_CHARACTERS]
    tokens += ["".join(pair) for pair in MERGES]
    tokens += [f"<|unused_{i}|>" for i in range(len(tokens), VOCAB_SIZE)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    assert len(vocabulary) == VOCAB_SIZE
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=list(MERGES), unk_token=marks[0], fuse_unk=True, byte_fallback=True
        )
    )
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(WORD_START), normalizers.Replace(" ", WORD_START)]
    )
    strip = decoders.Strip(" ", 1, 0)  # the word start that the normalizer puts before a text
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(WORD_START, " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    )
    return tokenizer

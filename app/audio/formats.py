"""The formats that OpenAI's speech route has, and the sample rates that each can carry."""

from dataclasses import dataclass
from typing import Literal

from app.errors import InvalidRequest

FormatName = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]

ANY_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)  # RFC 6716
OPENAI_PCM_RATE = 24000  # raw samples do not say their rate, so clients assume it


@dataclass(frozen=True)
class AudioFormat:
    """One format.

    Attributes:
        name: in requests.
        media_type: its content type.
        streams: whether answers are streamed where the request does not say. Those do not whose header gives
            the length.
        codec: libav's encoder; empty: samples as they are.
        muxer: libav's name of the container.
        rates: in Hz, that it can carry.
        default_rate: where the request names none; None: the model's own, or the nearest.
        bit_rate: of a mono voice, in bits a second; None: lossless.
    """

    name: FormatName
    media_type: str
    streams: bool
    codec: str = ""
    muxer: str = ""
    rates: tuple[int, ...] = ANY_RATES
    default_rate: int | None = None
    bit_rate: int | None = None


FORMATS: dict[FormatName, AudioFormat] = {
    made.name: made
    for made in (
        AudioFormat("mp3", "audio/mpeg", True, "libmp3lame", "mp3", bit_rate=96_000),
        AudioFormat("opus", "audio/ogg", True, "libopus", "ogg", OPUS_RATES, bit_rate=64_000),
        AudioFormat("aac", "audio/aac", True, "aac", "adts", bit_rate=96_000),
        AudioFormat("flac", "audio/flac", False, "flac", "flac"),
        AudioFormat("wav", "audio/wav", False),
        AudioFormat("pcm", "audio/pcm", True, default_rate=OPENAI_PCM_RATE),
    )
}


@dataclass(frozen=True)
class Output:
    """A format at a sample rate in Hz."""

    format: AudioFormat
    rate: int


def choose_output(name: FormatName, source_rate: int, asked: int | None) -> Output:
    """The format, at the rate asked for or else the one that fits best.

    Raises:
        InvalidRequest: the format does not have the rate asked for.
    """
    chosen = FORMATS[name]
    if asked is not None and asked not in chosen.rates:
        rates = ", ".join(map(str, chosen.rates))
        raise InvalidRequest(f"{name} has no sample rate of {asked}: use one of {rates}", "sample_rate")
    return Output(chosen, asked or chosen.default_rate or _nearest(chosen.rates, source_rate))


def _nearest(rates: tuple[int, ...], rate: int) -> int:
    """The rate itself, else the lowest that keeps all of the sound, else the highest."""
    return next((candidate for candidate in sorted(rates) if candidate >= rate), max(rates))

"""Recordings made for tests: a voice-like sound in every container, by PyAV and libsndfile."""

import io

import av
import numpy as np
import numpy.typing as npt
import soundfile

Floats = npt.NDArray[np.float32]
# Name -> container and codec, as PyAV calls them.
CONTAINERS = {
    "wav": ("wav", "pcm_s16le"),
    "flac": ("flac", "flac"),
    "mp3": ("mp3", "libmp3lame"),
    "ogg": ("ogg", "libopus"),
    "m4a": ("ipod", "aac"),
    "webm": ("webm", "libopus"),
    "aac": ("adts", "aac"),
    "mka": ("matroska", "pcm_s16le"),
    "alac": ("ipod", "alac"),
}


def voice(seconds: float = 1.5, rate: int = 48000, pitch: float = 150.0, peak: float = 0.4) -> Floats:
    """Harmonics of `pitch` Hz, swelling twice a second, whose largest value is `peak`."""
    time = np.arange(round(seconds * rate)) / rate
    tone = sum(np.sin(2 * np.pi * pitch * n * time) / n for n in range(1, 6))
    sound = tone * (0.6 + 0.4 * np.sin(2 * np.pi * 2 * time))
    return (peak * sound / np.abs(sound).max()).astype(np.float32)


def wav(samples: npt.NDArray[np.floating], rate: int = 48000, subtype: str = "PCM_16") -> bytes:
    """A WAV file of samples `[frames]` or `[frames, channels]`."""
    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, subtype, format="WAV")
    return stream.getvalue()


def encoded(name: str, samples: Floats, rate: int = 48000, layout: str | None = None) -> bytes:
    """Samples `[frames]` or `[frames, channels]` in one of the `CONTAINERS`."""
    container_name, codec = CONTAINERS[name]
    stream = io.BytesIO()
    with av.open(stream, "w", format=container_name) as container:
        track = container.add_stream(codec, rate=rate)
        track.layout = layout or {1: "mono", 2: "stereo"}[samples.reshape(len(samples), -1).shape[1]]
        _mux(container, track, samples)
    return stream.getvalue()


def video(sound: Floats | None = None, rate: int = 48000) -> bytes:
    """An MP4 of a few grey pictures, with or without mono sound."""
    stream = io.BytesIO()
    with av.open(stream, "w", format="mp4") as container:
        pictures = container.add_stream("mpeg4", rate=25)
        pictures.width, pictures.height, pictures.pix_fmt = 64, 64, "yuv420p"
        if sound is not None:
            track = container.add_stream("aac", rate=rate)
            track.layout = "mono"
        for _ in range(10):
            picture = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 128, np.uint8), format="rgb24")
            container.mux(pictures.encode(picture))
        container.mux(pictures.encode(None))
        if sound is not None:
            _mux(container, track, sound)
    return stream.getvalue()


def image() -> bytes:
    """A PNG."""
    pictures = av.CodecContext.create("png", "w")
    pictures.width, pictures.height, pictures.pix_fmt = 64, 64, "rgb24"
    pictures.time_base = 1
    frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 128, np.uint8), format="rgb24")
    return b"".join(bytes(packet) for packet in [*pictures.encode(frame), *pictures.encode(None)])


def _mux(
    container: av.container.OutputContainer, track: av.audio.stream.AudioStream, samples: Floats
) -> None:
    container.start_encoding()
    codec = track.codec_context
    resampler = av.AudioResampler(codec.format.name, codec.layout, codec.rate, codec.frame_size or 1024)
    frame = av.AudioFrame.from_ndarray(
        np.ascontiguousarray(samples).reshape(1, -1), format="flt", layout=codec.layout.name
    )
    frame.sample_rate = codec.rate
    for piece in [*resampler.resample(frame), *resampler.resample(None)]:
        container.mux(track.encode(piece))
    container.mux(track.encode(None))

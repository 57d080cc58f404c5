"""An utterance of a session: written by the client, spoken by a task of its own, heard through the outbox."""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from app.errors import GenerationFailed, InvalidRequest, VoxserveError, wire_of
from app.schemas import ErrorDetail
from app.sessions.messages import AudioDelta, AudioEnd, AudioStart, ErrorMessage, SessionDone, SessionStart
from app.sessions.outbox import Outbox
from app.speaking import Manner, Speaker
from app.text.long_text import Part
from app.text.segment import Segmenter

UNEXPECTED = "unexpected error: the server's log says more"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """What the utterances of a context have in common.

    Attributes:
        context_id: the client's name for the context, if it gave one.
        options: as the client gave them.
        manner: what they came to.
    """

    context_id: str | None
    options: SessionStart
    manner: Manner

    @property
    def streams(self) -> bool:
        """Whether audio is sent as it is made."""
        given = self.options.stream_audio
        return self.options.type == "session.start" if given is None else given


class WrittenUtterance:
    """One utterance.

    Args:
        index: its number within the context.
        opened: the context.
        speaker: turns parts of text into encoded audio.
        outbox: of the socket.
        turn: done when the utterances before it have ended; None: there are none.
        ended: called when it has.
    """

    def __init__(
        self,
        index: int,
        opened: Opened,
        speaker: Speaker,
        outbox: Outbox,
        turn: "asyncio.Task[None] | None",
        ended: "Callable[[WrittenUtterance], None]",
    ) -> None:
        self.complete = False
        self._index = index
        self._opened = opened
        self._speaker = speaker
        self._outbox = outbox
        self._turn = turn
        self._ended = ended
        self._segmenter = Segmenter()
        self._parts: asyncio.Queue[Part | None] = asyncio.Queue()
        self._waiting_chars = 0
        self._sentences = 0
        self._bytes = 0
        self._first_s = 0.0
        self._pause: asyncio.TimerHandle | None = None
        self._began = time.monotonic()
        self.task = asyncio.create_task(self._speak())

    @property
    def context_id(self) -> str | None:
        """Of its context."""
        return self._opened.context_id

    def write(self, text: str) -> None:
        """Take the next piece of the text.

        Raises:
            InvalidRequest: too much of the text waits to be spoken.
        """
        limit = self._speaker.max_input_chars
        if self._waiting_chars + len(self._segmenter.pending) + len(text) > limit:
            raise InvalidRequest(
                f"more than {limit} characters wait to be spoken: send the text later", "text"
            )
        self._take(self._segmenter.push(text))
        self._stop_pause()
        delay_ms = self._opened.options.max_buffer_delay_ms
        if delay_ms and self._segmenter.pending.strip():
            self._pause = asyncio.get_running_loop().call_later(delay_ms / 1000, self.flush)

    def flush(self) -> None:
        """Take what was written as a whole sentence."""
        self._stop_pause()
        self._take(self._segmenter.flush())

    def finish(self) -> None:
        """Take what was written as all there is."""
        self.flush()
        self.complete = True
        self._parts.put_nowait(None)

    def stop(self) -> "asyncio.Task[None]":
        """Be silent from now on. Gives the task, which is ending."""
        self._stop_pause()
        self.complete = True
        self.task.cancel()
        self._outbox.take_back(self)
        return self.task

    def _take(self, sentences: list[str]) -> None:
        for sentence in filter(_is_speakable, sentences):
            self._waiting_chars += len(sentence)
            self._sentences += 1
            self._parts.put_nowait(Part(sentence, "sentence"))

    def _stop_pause(self) -> None:
        if self._pause:
            self._pause.cancel()
            self._pause = None

    async def _written(self) -> AsyncGenerator[Part, None]:
        while (part := await self._parts.get()) is not None:
            self._waiting_chars -= len(part.text)
            yield part

    async def _speak(self) -> None:
        try:
            if self._turn:
                await asyncio.wait([self._turn])
            with self._speaker.request():
                await self._speak_in_turn()
        except VoxserveError as error:
            self._fail(error)
        except Exception:
            logger.exception("unexpected error in a session")
            self._fail(GenerationFailed(UNEXPECTED))
        finally:
            self._stop_pause()
            self.complete = True
            self._ended(self)

    async def _speak_in_turn(self) -> None:
        spoken = self._speaker.speak(self._opened.manner, self._written())
        whole = bytearray()
        async with aclosing(spoken.audio) as chunks:
            async for chunk in chunks:
                if not self._bytes:
                    self._begin_audio()
                self._bytes += len(chunk)
                if self._opened.streams:
                    await self._send(chunk)
                else:
                    whole += chunk
        if whole:
            await self._send(bytes(whole))
        self._end(spoken.utterance.seconds / self._opened.manner.speed, error=False)

    def _begin_audio(self) -> None:
        manner = self._opened.manner
        self._first_s = time.monotonic() - self._began
        self._outbox.put(
            AudioStart(
                context_id=self.context_id,
                utterance_index=self._index,
                format=manner.output.format.name,
                sample_rate=manner.output.rate,
                seed=manner.request.generation.seed,
            ),
            self,
        )

    async def _send(self, audio: bytes) -> None:
        frame: bytes | AudioDelta = audio
        if self._opened.options.audio == "base64":
            encoded = base64.b64encode(audio).decode()
            frame = AudioDelta(context_id=self.context_id, utterance_index=self._index, audio=encoded)
        await self._outbox.put_audio(frame, len(audio), self)

    def _end(self, seconds: float, error: bool) -> None:
        if self._bytes:
            own_name = self._opened.options.type == "session.start"
            self._outbox.put(
                AudioEnd(
                    type="audio.end" if own_name else "audio.done",
                    context_id=self.context_id,
                    utterance_index=self._index,
                    total_bytes=self._bytes,
                    error=error,
                    audio_duration_s=round(seconds, 3),
                    first_audio_s=round(self._first_s, 3),
                    elapsed_s=round(time.monotonic() - self._began, 3),
                ),
                self,
            )
        self._outbox.put(
            SessionDone(
                context_id=self.context_id, utterance_index=self._index, total_sentences=self._sentences
            ),
            self,
        )

    def _fail(self, error: VoxserveError) -> None:
        wire = wire_of(error)
        detail = ErrorDetail(message=str(error), type=wire.type, param=error.param, code=wire.code)
        self._outbox.put(ErrorMessage(context_id=self.context_id, message=str(error), error=detail), self)
        self._end(0.0, error=True)


def _is_speakable(sentence: str) -> bool:
    """More than marks."""
    return any(map(str.isalnum, sentence))

"""One context of a session: its options, and its utterances, which are spoken one after the other.

All methods return at once; what takes time happens in the task of an utterance, so that a cancel is heard
whatever is being spoken.
"""

import asyncio
from collections import deque

from app.errors import InvalidRequest
from app.sessions.messages import InputCancelled
from app.sessions.outbox import Outbox
from app.sessions.written import Opened, WrittenUtterance
from app.speaking import Speaker

MAX_UTTERANCES = 8  # that may wait for their turn in one context


class SpeechContext:
    """Utterances of one `context_id`.

    Args:
        opened: how they are spoken; may be replaced between two of them.
        speaker: turns text into encoded audio.
        outbox: of the socket.
    """

    def __init__(self, opened: Opened, speaker: Speaker, outbox: Outbox) -> None:
        self.opened = opened
        self._speaker = speaker
        self._outbox = outbox
        self._utterances: deque[WrittenUtterance] = deque()  # the last may still be written
        self._index = 0

    @property
    def active(self) -> bool:
        """Whether something is being written or spoken."""
        return bool(self._utterances)

    @property
    def writing(self) -> bool:
        """Whether an utterance is being written."""
        return bool(self._utterances) and not self._utterances[-1].complete

    def write(self, text: str) -> None:
        """Take the next piece of the text.

        Raises:
            InvalidRequest: too much of the text, or too many utterances wait to be spoken.
        """
        self._current().write(text)

    def flush(self) -> None:
        """Speak what was written."""
        if self.writing:
            self._utterances[-1].flush()

    def finish(self) -> None:
        """The utterance is written. Where none is, an empty one is done in its turn.

        Raises:
            InvalidRequest: too many utterances wait to be spoken.
        """
        self._current().finish()

    def cancel(self) -> None:
        """Be silent at once, and say so."""
        self.stop()
        self._outbox.put(InputCancelled(context_id=self.opened.context_id))

    def stop(self) -> list[asyncio.Task[None]]:
        """Be silent at once. Gives the tasks, which are ending."""
        tasks = [utterance.stop() for utterance in self._utterances]
        self._utterances.clear()
        return tasks

    def _current(self) -> WrittenUtterance:
        """The utterance that is being written."""
        if self.writing:
            return self._utterances[-1]
        if len(self._utterances) >= MAX_UTTERANCES:
            raise InvalidRequest(f"{MAX_UTTERANCES} utterances wait already: wait for `session.done`", "type")
        turn = self._utterances[-1].task if self._utterances else None
        utterance = WrittenUtterance(
            self._index, self.opened, self._speaker, self._outbox, turn, self._forget
        )
        self._index += 1
        self._utterances.append(utterance)
        return utterance

    def _forget(self, utterance: WrittenUtterance) -> None:
        if utterance in self._utterances:
            self._utterances.remove(utterance)

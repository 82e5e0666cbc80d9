"""What is counted while a film or a sound is read."""

import time
from fractions import Fraction
from typing import Final

from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.packet import Packet
from av.stream import Stream
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from gpu_runners.probing.limits import MaterialLimits
from gpu_runners.probing.verdicts import RefusedError
from schema.refusals import MaterialRefusal

_RATE_UNKNOWN: Final = Fraction(25)
_RATE_APART_MAX: Final = 0.02
_DENOMINATOR_MAX: Final = 1001
_TIMESTAMP_SECONDS_MAX: Final = 1e9
_LOOK_SECONDS: Final = 1.0


class Sound:
    """One sound stream."""

    def __init__(self, stream: AudioStream) -> None:
        self.codec = stream.codec.canonical_name
        self.packets = 0
        self.damaged = 0
        self.samples = 0
        self.seconds = 0.0

    def take(self, frames: list[VideoFrame | AudioFrame], damaged: bool) -> None:  # noqa: FBT001
        """A packet, decoded."""
        self.packets += 1
        self.damaged += damaged
        for frame in frames:
            if isinstance(frame, AudioFrame) and frame.sample_rate:
                self.samples += frame.samples
                self.seconds += frame.samples / frame.sample_rate


class Film:
    """The moving picture of a file."""

    def __init__(self, stream: VideoStream, limits: MaterialLimits) -> None:
        self.stream = stream
        self.stream_index = stream.index
        self.container = stream.container.format.name.partition(",")[0]
        self.size = (0, 0)
        self.rotation = 0
        self.packets = 0
        self.damaged = 0
        self._limits = limits
        self.tried = 0
        """Packets that were decoded, or should have been."""
        self._sparse = False
        self._looked = -1.0
        self._decoded = 0
        self._passed = 0
        self._pixels = 0
        self._first: float | None = None
        self._last = 0.0
        self._end = 0.0

    @property
    def frames(self) -> int:
        """Decoded, and beyond what is decoded whole, one a packet."""
        return self._decoded + self._passed

    @property
    def seconds(self) -> float:
        """From the first picture to the end of the last."""
        return max(0.0, self._end - (self._first or 0.0))

    @property
    def rate(self) -> Fraction:
        """Pictures a second: as claimed if that is about what was counted, else as counted."""
        claimed = self.stream.average_rate or self.stream.guessed_rate
        shown = self._last - (self._first or 0.0)
        if self.frames > 1 and shown > 0:
            counted = (self.frames - 1) / shown
            if not claimed or abs(float(claimed) / counted - 1) > _RATE_APART_MAX:
                return Fraction(counted).limit_denominator(_DENOMINATOR_MAX)
        return claimed or _RATE_UNKNOWN

    def wants(self, packet: "Packet[Stream]") -> bool:
        """Whether a packet is to be decoded: all are, until it has been much."""
        if not self._sparse:
            limits = self._limits
            self._sparse = (
                self._pixels > limits.decoded_pixels_max
                or time.process_time() > limits.decoded_seconds_max
            )
        if not self._sparse or not packet.size:
            return True
        at = 0.0 if packet.pts is None else float(packet.pts * packet.time_base)
        if not packet.is_keyframe or 0 <= at - self._looked < _LOOK_SECONDS:
            return False
        self._looked = at
        return True

    def take(
        self,
        packet: "Packet[Stream]",
        frames: list[VideoFrame | AudioFrame] | None,
        damaged: bool,  # noqa: FBT001
    ) -> None:
        """A packet, and what came of it if it was decoded. Raises RefusedError once it is clear."""
        if packet.size:
            self.packets += 1
            self.tried += frames is not None
            self.damaged += damaged
            if self._sparse and not packet.is_discard:
                self._passed += 1
                if packet.pts is not None:
                    at = float(packet.pts * packet.time_base)
                    self._show(at, self._step(packet.duration))
        for frame in frames or ():
            if isinstance(frame, VideoFrame):
                self._see(frame)
        self._refuse()

    def _see(self, frame: VideoFrame) -> None:
        size = (frame.width, frame.height)
        if self.size == (0, 0):
            self.size = size
            self.rotation = round(-frame.rotation / 90) * 90 % 360
        elif size != self.size:
            raise RefusedError(
                MaterialRefusal.CODEC_UNSUPPORTED,
                f"The picture size changes inside the film, from {self.size} to {size}.",
            )
        self._pixels += frame.width * frame.height
        if self._sparse and frame.time <= self._end:
            return  # counted as the packet that it came of
        self._decoded += 1
        self._show(frame.time if frame.pts is not None else self._end, self._step(frame.duration))

    def _step(self, duration: int | None) -> float:
        if duration and self.stream.time_base is not None:
            return float(duration * self.stream.time_base)
        rate = self.stream.average_rate or self.stream.guessed_rate or _RATE_UNKNOWN
        return float(1 / rate)

    def _show(self, at: float, seconds: float) -> None:
        if abs(at) > _TIMESTAMP_SECONDS_MAX:
            raise RefusedError(MaterialRefusal.DAMAGED, "The film's clock is damaged.")
        self._first = at if self._first is None else min(self._first, at)
        self._last = max(self._last, at)
        self._end = max(self._end, at + seconds)

    def _refuse(self) -> None:
        limits = self._limits
        if self.seconds > limits.seconds_max:
            raise RefusedError(
                MaterialRefusal.MATERIAL_TOO_LONG,
                f"The film is longer than {limits.seconds_max:.0f} s, which is the most.",
            )
        if self.frames > limits.frames_max:
            raise RefusedError(
                MaterialRefusal.FRAMES_TOO_MANY,
                f"The film has more than {limits.frames_max} pictures, which is the most.",
            )

    def refuse_damage(self, damaged_max: float) -> None:
        """At the end. Raises RefusedError."""
        if self.frames == 0:
            raise RefusedError(
                MaterialRefusal.DAMAGED, "The film is damaged: no picture of it can be decoded."
            )
        if self.damaged > self.tried * damaged_max:
            raise RefusedError(
                MaterialRefusal.DAMAGED,
                f"The film is damaged: {self.damaged} of {self.tried} packets can't be decoded.",
            )
        if self.frames == 1:
            raise RefusedError(MaterialRefusal.TOO_SHORT, "The film is a single picture.")
        if self.rate > self._limits.frame_rate_max:
            raise RefusedError(
                MaterialRefusal.FRAMES_TOO_MANY,
                f"The film shows {float(self.rate):.0f} pictures a second; "
                f"at most {self._limits.frame_rate_max:.0f} are taken.",
            )

"""A timeline as a Perfetto trace, by Perfetto's own builder."""

from __future__ import annotations

from typing import BinaryIO

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from kvlife.replay.exporting.tracks import Args, Track

_NONE: Args = {}
# Who writes; all packets are of one sequence, and none relies on another.
_SEQUENCE = 1


class PerfettoSink:
    """Each track has its descriptor; numbers of tracks are their uuids."""

    def __init__(self, file: BinaryIO) -> None:
        self._builder = StreamingTraceProtoBuilder(file)
        self._first = True

    def declare(self, track: Track) -> None:
        """A descriptor of its own."""
        packet = self._builder.create_packet()
        descriptor = packet.track_descriptor
        descriptor.uuid = track.number
        descriptor.name = track.name
        if track.parent is not None:
            descriptor.parent_uuid = track.parent.number
        if track.counts:
            descriptor.counter.SetInParent()
        self._put(packet)

    def begin(self, track: Track, at: int, name: str, args: Args = _NONE) -> None:
        """A slice begins."""
        self._put(self._event(track, at, TrackEvent.TYPE_SLICE_BEGIN, name, args))

    def end(self, track: Track, at: int) -> None:
        """The innermost slice ends."""
        self._put(self._event(track, at, TrackEvent.TYPE_SLICE_END, "", _NONE))

    def instant(
        self,
        track: Track,
        at: int,
        name: str,
        args: Args = _NONE,
        *,
        flow: int | None = None,
        ends_flow: int | None = None,
    ) -> None:
        """An instant, with the flows that pass it."""
        packet = self._event(track, at, TrackEvent.TYPE_INSTANT, name, args)
        if flow is not None:
            packet.track_event.flow_ids.append(flow)
        if ends_flow is not None:
            packet.track_event.terminating_flow_ids.append(ends_flow)
        self._put(packet)

    def count(self, track: Track, at: int, value: int) -> None:
        """A value on a counter's track."""
        packet = self._event(track, at, TrackEvent.TYPE_COUNTER, "", _NONE)
        packet.track_event.counter_value = value
        self._put(packet)

    def finish(self) -> None:
        """Every packet is written already."""

    def _event(
        self, track: Track, at: int, kind: TrackEvent.Type, name: str, args: Args
    ) -> TracePacket:
        packet = self._builder.create_packet()
        packet.timestamp = at
        event = packet.track_event
        event.track_uuid = track.number
        event.type = kind
        if name:
            event.name = name
        for key, value in args.items():
            note = event.debug_annotations.add()
            note.name = key
            if isinstance(value, str):
                note.string_value = value
            else:
                note.int_value = value
        return packet

    def _put(self, packet: TracePacket) -> None:
        packet.trusted_packet_sequence_id = _SEQUENCE
        if self._first:
            packet.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
            self._first = False
        self._builder.write_packet(packet)

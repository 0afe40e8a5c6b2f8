"""Timelines read back from either format into the same plain shape."""

import json
from collections import defaultdict

import attrs


@attrs.define
class Timeline:
    """What stands on each track, in order; a track is named `group/name`, times are in ns.

    A slice or instant is (time, "begin" | "end" | "instant", name, args); a counter's value is
    (time, value). A flow is its two ends: (track, time), None where it has no end.
    """

    told: dict = attrs.Factory(lambda: defaultdict(list))
    counts: dict = attrs.Factory(lambda: defaultdict(list))
    flows: dict = attrs.Factory(dict)

    def names(self, track):
        return [name for _, what, name, _ in self.told[track] if what != "end"]

    def depths(self, track):
        """How many slices are open behind each begin and end."""
        depth, found = 0, []
        for _, what, _, _ in self.told[track]:
            depth += {"begin": 1, "end": -1, "instant": 0}[what]
            found.append(depth)
        return found


def of_chrome(path):
    groups, names, timeline = {}, {}, Timeline()
    kinds = {"B": "begin", "E": "end", "i": "instant", "X": "instant"}
    for entry in json.loads(path.read_bytes())["traceEvents"]:
        kind, at = entry["ph"], round(entry["ts"] * 1000)
        if entry["name" if kind == "M" else "ph"] == "process_name":
            groups[entry["pid"]] = entry["args"]["name"]
        elif kind == "M":
            if entry["name"] == "thread_name":
                names[entry["tid"]] = f"{groups[entry['pid']]}/{entry['args']['name']}"
        elif kind == "C":
            track = f"{groups[entry['pid']]}/{entry['name']}"
            timeline.counts[track].append((at, entry["args"]["value"]))
        elif kind == "s":
            assert entry["id"] not in timeline.flows
            timeline.flows[entry["id"]] = ((names[entry["tid"]], at), None)
        elif kind == "f":
            begun, ended = timeline.flows[entry["id"]]
            assert ended is None
            timeline.flows[entry["id"]] = (begun, (names[entry["tid"]], at))
        else:
            told = (at, kinds[kind], entry.get("name", ""), entry.get("args", {}))
            timeline.told[names[entry["tid"]]].append(told)
    return timeline


def of_perfetto(path):
    from perfetto.protos.perfetto.trace import (  # an extra
        perfetto_trace_pb2 as pb,
    )

    trace = pb.Trace()
    trace.ParseFromString(path.read_bytes())
    kinds = {
        pb.TrackEvent.TYPE_SLICE_BEGIN: "begin",
        pb.TrackEvent.TYPE_SLICE_END: "end",
        pb.TrackEvent.TYPE_INSTANT: "instant",
    }
    tracks, timeline = {}, Timeline()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            above = tracks[track.parent_uuid] + "/" if track.parent_uuid else ""
            tracks[track.uuid] = above + track.name
            continue
        event, at = packet.track_event, packet.timestamp
        name = tracks[event.track_uuid]
        if event.type == pb.TrackEvent.TYPE_COUNTER:
            timeline.counts[name].append((at, event.counter_value))
            continue
        args = {
            note.name: note.string_value if note.HasField("string_value") else note.int_value
            for note in event.debug_annotations
        }
        timeline.told[name].append((at, kinds[event.type], event.name, args))
        for flow in event.flow_ids:
            assert flow not in timeline.flows
            timeline.flows[flow] = ((name, at), None)
        for flow in event.terminating_flow_ids:
            begun, ended = timeline.flows[flow]
            assert ended is None
            timeline.flows[flow] = (begun, (name, at))
    return timeline

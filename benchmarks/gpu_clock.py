"""Time on a device: calls one by one and under graph replay; and the time that is left."""

import statistics
import time

import torch

ROUNDS = 5


class Budget:
    """Seconds until work must stop, counted from when the process began to work."""

    def __init__(self, seconds, begun):
        self._end = begun + seconds

    @property
    def left_s(self):
        return self._end - time.monotonic()

    @property
    def is_over(self):
        return self.left_s <= 0


class DeviceClock:
    """Seconds per call on a GPU, the median of a few rounds over all the calls.

    `reset` is called before each round, and is not counted; nor is a first round, which compiles.
    """

    counts = True

    def eager(self, calls, reset):
        """As Python issues the calls: whichever of host and device is slower."""
        seconds = []
        for _ in range(ROUNDS + 1):
            reset()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for call in calls:
                call()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
        return statistics.median(seconds[1:]) / len(calls)

    def replayed(self, calls, reset):
        """As a graph of all the calls replays them: the device alone."""
        graph = self._captured(calls, reset)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        seconds = []
        for _ in range(ROUNDS + 1):
            reset()
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
        return statistics.median(seconds[1:]) / len(calls)

    def _captured(self, calls, reset):
        """A graph of the calls, each of which has run before: nothing is compiled in a capture."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            reset()
            calls[0]()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        return graph


class Rehearsal:
    """Runs every call as a clock would, once, and claims no time."""

    counts = False

    def eager(self, calls, reset):
        reset()
        for call in calls:
            call()

    replayed = eager

"""CUDA graphs of a decode step: captured once for a size of batch, replayed with other inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch

Launch = Callable[[], None]
# Records what a launch puts on the stream, without running it; the answer runs it.
Capture = Callable[[Launch], Launch]


def capture_graph(device: torch.device, launch: Launch) -> Launch:
    """Capture a launch on a device into a CUDA (or HIP) graph; waits for the device once."""
    graph = torch.cuda.CUDAGraph()
    # The stream that torch would take lies on the device that was current at the first capture.
    stream = torch.cuda.Stream(device)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        launch()
    replay: Launch = graph.replay
    return replay


class GraphedLaunch:
    """A launch on buffers that stay where they are: run once as it is, then captured and replayed.

    The first run compiles and loads the kernel, which a capture must not do.
    """

    def __init__(self, launch: Launch, capture: Capture) -> None:
        """Nothing runs yet."""
        self._launch = launch
        self._capture = capture
        self._warm = False
        self._replay: Launch | None = None

    def run(self) -> None:
        """Put the launch on the current stream."""
        if self._replay is not None:
            self._replay()
        elif self._warm:
            self._replay = self._capture(self._launch)
            self._replay()
        else:
            self._launch()
            self._warm = True

"""The queue: first come, first served, and a retracted request keeps its place."""

from kvlife.simulation.request import Place, Request
from kvlife.simulation.waiting import WaitingQueue


def request(idx):
    return Request(idx=idx, rid=f"r{idx}", prompt_len=1, stop_at=1)


def test_a_retracted_request_comes_before_those_that_came_later():
    """The first of three comes back behind nobody."""
    queue, requests = WaitingQueue(), [request(idx) for idx in range(3)]
    for each in requests:
        queue.join(each)
    first = queue.pop()
    assert first is requests[0]
    first.place = Place.PREFILL
    assert queue.head() is requests[1]
    queue.rejoin(first)
    assert [queue.pop().idx for _ in range(3)] == [0, 1, 2]


def test_an_aborted_request_is_passed_over():
    """The head is the first that still waits; of an empty queue there is none."""
    queue, requests = WaitingQueue(), [request(idx) for idx in range(2)]
    for each in requests:
        queue.join(each)
    requests[0].place = Place.GONE
    assert queue.head() is requests[1]
    requests[1].place = Place.GONE
    assert queue.head() is None

"""Speeds as ratios: work and baseline measured in turns, in the same run."""

import statistics
from time import perf_counter


def ratio(work, baseline, pairs=9, repeat=1):
    """Median and quartiles of work / baseline over interleaved pairs, each the mean of `repeat`."""
    ratios = [_seconds(work, repeat) / _seconds(baseline, repeat) for _ in range(pairs)]
    quarters = statistics.quantiles(ratios, n=4)
    return statistics.median(ratios), quarters[0], quarters[2]


def _seconds(call, repeat):
    begun = perf_counter()
    for _ in range(repeat):
        call()
    return (perf_counter() - begun) / repeat


def report(name, measured, bar):
    """Print one figure with its spread and its bar; say whether it is met."""
    median, low, high = measured
    verdict = "met" if median <= bar else f"NOT met, {median / bar:.2f} times the bar"
    print(
        f"{name:58s} {median:7.3f}  [{low:.3f}, {high:.3f}]  at most {bar}: {verdict}", flush=True
    )
    return median <= bar

"""Hypothesis, or an error that says which extra brings it."""

try:
    import hypothesis
    from hypothesis import stateful, strategies
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "fuzzing needs Hypothesis, which is not installed: pip install 'kvlife[testing]'",
        name="hypothesis",
    ) from error

__all__ = ["hypothesis", "stateful", "strategies"]

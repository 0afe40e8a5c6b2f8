"""What `find` draws must not hang on which modules other tests have loaded."""

import pytest
from hypothesis.internal.conjecture import providers


@pytest.fixture(autouse=True)
def no_constants_of_loaded_modules(monkeypatch):
    """Hypothesis mixes numbers from the source of loaded modules into what it draws."""
    monkeypatch.setattr(providers, "_get_local_constants", providers.Constants)
    providers.CONSTANTS_CACHE.cache.clear()
    yield
    providers.CONSTANTS_CACHE.cache.clear()

"""A key on two pages, found by the guard at the event that gives it to the second one."""

import random

import numpy as np
import pytest
from short_events import (
    NO_LINKS,
    Bench,
    admit,
    allocate,
    commit,
    evict,
    full,
    protect,
    release,
    windowed,
)

from kvlife.events import Protected
from kvlife.invariants import Checker
from kvlife.ledger import Ledger, derive

# r1 has published pages 1 and 2 under keys 11 and 12, and r2 has computed page 3.
PUBLISHED = (
    admit("r1", 1, prompt=8),
    allocate(1, 8, [1, 2]),
    commit(1, 8),
    protect(1, 8, [11, 12]),
    admit("r2", 2),
    allocate(2, 4, [3]),
    commit(2, 4),
)


def first(bench, *events):
    found = bench.do(*events)
    return None if found is None else (found.id, found.evidence.get("pages"))


def test_a_key_of_the_cache_is_not_given_again():
    """The page that has the key is named; a key that no page has is fine."""
    assert first(Bench(full()), *PUBLISHED, protect(2, 4, [12])) == ("index-agrees", [2])
    assert first(Bench(full()), *PUBLISHED, protect(2, 4, [13])) is None


def test_a_duplicate_is_rebound():
    """The row that is rebound to the page of the key gives that key to no other page."""
    link = np.array([[0, 0, 3, 1]], np.int32)
    assert first(Bench(full()), *PUBLISHED, protect(2, 4, [11], link)) is None


def test_a_key_whose_page_was_evicted_is_free_again():
    """What was evicted has no key, and its content may be published again."""
    gone = (release("r1", 1, [1, 2]), evict([2]))
    assert first(Bench(full()), *PUBLISHED, *gone, protect(2, 4, [12])) is None
    assert first(Bench(full()), *PUBLISHED, *gone, protect(2, 4, [11])) == ("index-agrees", [1])


def test_where_duplicates_are_allowed_none_is_found():
    """A header that allows duplicates allows them at the event too."""
    assert first(Bench(full(duplicates=True)), *PUBLISHED, protect(2, 4, [11])) is None


def test_each_group_has_keys_of_its_own():
    """The pages of one position have the same key in every group."""
    assert (
        first(
            Bench(windowed()),
            admit("r1", 1, pages=([], []), cursors=(0,)),
            allocate(1, 4, ([1], [1])),
            commit(1, 4),
            protect(1, 4, [[11], [11]]),
        )
        is None
    )


@pytest.mark.parametrize("sample_every", [1, 3])
def test_a_checker_that_comes_late_knows_the_keys(sample_every):
    """Events that a checker passes over, or that were folded in before it came, count as well."""
    ledger, last = Ledger(full()), protect(2, 4, [12])
    for seq, event in enumerate(PUBLISHED):
        ledger.apply(event, seq)
    late = Checker(level="sample", sample_every=sample_every, policy="collect")
    assert late.guard(ledger, last, derive(ledger, last), 0).id == "index-agrees"
    ledger, early = Ledger(full()), Checker(level="sample", sample_every=7, policy="collect")
    for seq, event in enumerate(PUBLISHED):
        assert early.guard(ledger, event, derive(ledger, event), seq) is None
        ledger.apply(event, seq)
    assert early.guard(ledger, last, derive(ledger, last), 7).id == "index-agrees"


def test_keys_against_a_plain_model(seed):
    """However keys come and go, those that some page has are found, and no others."""
    rng = random.Random(seed)
    ledger, checker = Ledger(full(num_pages=63)), Checker(policy="collect")
    model, seq = {}, 0

    def fold(event):
        nonlocal seq
        found = checker.guard(ledger, event, derive(ledger, event), seq)
        ledger.apply(event, seq)
        seq += 1
        return found

    for turn in range(200):
        num = rng.randrange(1, 5)
        free = [page for page in range(1, 64) if page not in model]
        if len(free) < 8:
            gone = rng.sample(sorted(model), 40)
            assert fold(evict(gone)) is None
            free += gone
            for page in gone:
                del model[page]
        pages = rng.sample(free, num)
        keys = [rng.randrange(1, 200) for _ in pages]
        twice = len(set(keys)) < num or set(keys) & set(model.values())
        for event in (admit(f"r{turn}", 1, prompt=0), allocate(1, 4 * num, pages)):
            assert fold(event) is None
        fold(commit(1, 4 * num))
        event = Protected(1, 4 * num, (np.array(keys, np.uint64),), NO_LINKS)
        found = checker.guard(ledger, event, derive(ledger, event), seq)
        assert (found is not None and found.id == "index-agrees") == bool(twice)
        if twice:
            # Not published: the request gives its pages back.
            fold(release(f"r{turn}", 1, pages, "aborted"))
        else:
            ledger.apply(event, seq)
            seq += 1
            model |= dict(zip(pages, keys, strict=True))
            fold(release(f"r{turn}", 1, pages))

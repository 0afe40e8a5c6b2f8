"""Release by two code paths: C01, C03."""

from scenes import (
    admitted,
    allocated,
    broken_by,
    committed,
    ends_clean,
    in_state,
    ladder,
    prefill,
    refused,
    released,
    row_pages,
    run_engine,
    tell,
    watch,
)

from kvlife.errors import UnknownRequest


def decoding_with_overlap():
    """R1 after the overlap step of C01: pages 11-16, ladder 0/5/6."""
    observer = watch(1, 20)
    tell(
        observer,
        admitted("r1", 1, 4),
        allocated({1: 4}, [11, 12, 13, 14]),
        committed({1: 4}),
        allocated({1: 5}, [15]),
        allocated({1: 6}, [16]),
        committed({1: 5}),
    )
    return observer


def test_c01_overlap_branch_frees_the_last_slot_again():
    """C01: two branches of one finish both name page 15, and neither names page 16.

    A finish is one event here, so both branches stand in it. Page 15 stands once too often, which
    the catalogue calls page-double-free; the row that names it has let it go by then, so that
    page-freed-by-stranger, the case's own name, is broken too, and refs-balance for page 16.
    """
    found = broken_by(
        decoding_with_overlap(), released("r1", 1, "finished", [11, 12, 13, 14, 15, 15])
    )
    assert found.id == "page-double-free"
    assert found.evidence["pages"] == [15]
    assert found.also["page-freed-by-stranger"]["pages"] == [15]
    assert found.also["refs-balance"]["pages"] == [16]


def test_c01_overlap_slot_with_a_holder_of_its_own():
    """C01: where the overlap slot has a holder of its own, the second release is named."""
    observer = watch(1, 20)
    tell(
        observer,
        admitted("r1", 1, 4),
        allocated({1: 4}, [11, 12, 13, 14]),
        committed({1: 4}),
        allocated({1: 5}, [15]),
        admitted("r1, overlap slot", 2, 1),
        allocated({2: 1}, [16]),
        committed({1: 5}),
        released("r1", 1, "finished", [11, 12, 13, 14, 15]),
    )
    found = broken_by(observer, released("r1, overlap slot", 2, "aborted", [15]))
    assert found.id == "page-double-free"
    assert found.evidence["pages"] == [15]
    assert found.evidence["states"] == ["FREE"]
    assert found.also["page-freed-by-stranger"]["pages"] == [15]
    assert found.also["refs-balance"]["pages"] == [16]


def test_c01_first_branch_alone_is_seen_already():
    """C01: a finish that frees the recomputed length alone leaves page 16 without owner."""
    found = broken_by(decoding_with_overlap(), released("r1", 1, "finished", [11, 12, 13, 14, 15]))
    assert found.id == "refs-balance"
    assert found.evidence["pages"] == [16]


def test_c01_finish_frees_the_recorded_ladder_once():
    """C01: finish frees [protected, allocated) of the record once, overlap slot included."""
    engine = run_engine(1, 20)
    prefill(engine, "r1", [1, 2, 3, 4])
    batch = engine.batch(["r1"])
    engine.decode(batch)
    engine.dispatch(1, batch)
    engine.decode(batch)
    engine.dispatch(2, batch)
    engine.settle(1)
    engine.commit(batch)
    assert ladder(engine, "r1") == (0, 5, 6)
    assert row_pages(engine, "r1") == [1, 2, 3, 4, 5, 6]
    assert engine.finish("r1", [1, 2, 3, 4, 5, 6], keep_len=0) == 0
    assert in_state(engine, "PRIVATE") == {1, 2, 3, 4, 5, 6}  # Step 2 still writes page 6.
    engine.settle(2)
    assert in_state(engine, "FREE") == set(range(1, 21))
    with refused(engine, UnknownRequest, "no live request 'r1'"):
        engine.finish("r1", [1, 2, 3, 4, 5, 6])
    ends_clean(engine)


def test_c03_two_hooks_release_the_committed_range():
    """C03: a connector's finish hook takes the committed range, the base hook takes it again."""
    observer, pages = watch(1, 20), range(1, 16)
    tell(
        observer,
        admitted("r1", 1, 10),
        allocated({1: 15}, pages),
        committed({1: 15}),
        released("r1", 1, "finished", pages),
    )
    found = broken_by(observer, released("r1", 1, "finished", pages))
    assert found.id == "release-once"
    assert found.also["page-double-free"]["pages"] == list(pages)


def test_c03_the_second_finish_is_refused():
    """C03: one finish consumes the range, and a second one is refused and changes nothing."""
    engine, tokens = run_engine(1, 20), list(range(15))
    prefill(engine, "r1", tokens)
    assert ladder(engine, "r1") == (0, 15, 15)
    assert engine.finish("r1", tokens) == 15
    assert len(in_state(engine, "CACHED")) == 15
    with refused(engine, UnknownRequest, "no live request 'r1'"):
        engine.finish("r1", tokens)
    ends_clean(engine)

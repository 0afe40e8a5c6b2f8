"""Sound allocators of several makings raise no alarm, and what is done to them is seen."""

from collections import Counter

import hypothesis
import hypothesis.stateful
import pytest
import sound_allocators as sound

from kvlife.events import Marked
from kvlife.testing import BlockAllocatorAdapter, EngineAdapter, fuzz
from kvlife.testing.adapter import VERBS
from kvlife.testing.hunt import hunt, machine_of
from kvlife.testing.program import Call

SOUND = [
    sound.ListAllocator,
    sound.AheadAllocator,
    sound.QueueBlocks,
    sound.LiveSharing,
    sound.EagerAdapter,
    BlockAllocatorAdapter,
    EngineAdapter,
]


@pytest.mark.soak
@pytest.mark.parametrize("adapter_type", SOUND)
def test_a_sound_allocator_raises_no_alarm(adapter_type, seed):
    """Random lives of requests through it break no invariant, and a refusal changes nothing."""
    soak = hypothesis.settings.get_current_profile_name() == "soak"
    settings = hypothesis.settings(
        max_examples=2000 if soak else 40,
        stateful_step_count=30,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
    )
    found = hunt(hypothesis.seed(seed)(machine_of(adapter_type)), settings)
    assert found is None, f"{found.error}\n{found.program}"


@pytest.mark.parametrize("adapter_type", SOUND)
def test_every_verb_of_an_adapter_is_used_and_seen(adapter_type):
    """Each verb that it has is called and goes through, and events come of it."""
    machine = machine_of(adapter_type)
    done, events = Counter(), Counter()

    class Counting(machine):
        def _tell(self, verb, *args, **options):
            super()._tell(verb, *args, **options)
            done[verb] += 1

        def teardown(self):
            super().teardown()
            events.update(type(event).__name__ for event in self.log.events())

    settings = hypothesis.settings(
        max_examples=120,
        stateful_step_count=30,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[hypothesis.Phase.generate],
    )
    hypothesis.stateful.run_state_machine_as_test(Counting, settings=settings)
    verbs = {
        name
        for protocol in VERBS
        for name in vars(protocol)
        if not name.startswith("_") and hasattr(adapter_type, name)
    }
    assert verbs == set(done)
    assert events["Admitted"] > 30
    assert {"Allocated", "Committed", "Released", Marked.__name__} <= set(events)
    if hasattr(adapter_type, "published") or hasattr(adapter_type, "observer"):
        assert {"Protected", "Evicted"} <= set(events)


def test_what_was_mistaken_for_a_fault_is_none():
    """A page is found again at once: while it is pinned, and by a request that grows."""
    programs = [
        [
            Call("begin", {"page_size": 1, "num_pages": 3}),
            Call("admit", {"rid": "r1", "tokens": [0]}),
            Call("pin", {"pin_id": "p1", "rid": "r1"}),
            Call("free", {"rid": "r1"}),
            Call("admit", {"rid": "r2", "tokens": [0]}),
        ],
        [
            Call("begin", {"page_size": 2, "num_pages": 3}),
            Call("admit", {"rid": "r1", "tokens": [0, 0]}),
            Call("free", {"rid": "r1"}),
            Call("admit", {"rid": "r2", "tokens": [0]}),
            Call("extend", {"rid": "r2", "tokens": [0]}),
        ],
    ]
    for program in programs:
        run, error = machine_of(sound.EagerAdapter).run(tuple(program))
        assert error is None
        assert run.calls == program


def test_a_case_of_a_sound_allocator_passes():
    """`fuzz` makes a test case that runs under unittest and pytest alike."""
    settings = hypothesis.settings(max_examples=5, database=None)
    case = fuzz(sound.ListAllocator, settings=settings)
    assert case().run().wasSuccessful()

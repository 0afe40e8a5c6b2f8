"""The commands of an engine as rules: what a scheduler does, and at times what it must not."""

from engine_driver import NAMESPACES, PICK, PINS, RIDS, SESSIONS, EngineDriver, rare
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from model import Batch

# (function, what it needs of the machine or None, the strategies of its arguments)
ACTIONS = []


def has_requests(machine):
    """Rules that need a live request; the few unknown ids that they name come on top."""
    return bool(machine.model.requests)


def has_several(machine):
    """Rules that end requests leave one alone, or little would ever happen."""
    return len(machine.model.requests) > 1


def has_cache(machine):
    """Rules about what is cached, or held."""
    return bool(machine.model.rows) or any(machine.model.published)


def has_sessions(machine):
    return bool(machine.model.sessions)


def has_steps(machine):
    return bool(machine.model.steps)


def has_pins(machine):
    return bool(machine.model.pins)


def action(*, needs=None, **strategies):
    """A rule that a plain walk can take as well: `ACTIONS` holds what each needs and draws."""

    def mark(function):
        ACTIONS.append((function, needs, strategies))
        made = rule(**strategies)(function)
        return made if needs is None else precondition(needs)(made)

    return mark


class EngineMachine(EngineDriver):
    """The rules; each takes numbers and turns them into choices."""

    # -- rules: requests -------------------------------------------------------------------

    @action(pick=PICK, content=PICK, length=PICK, floor=PICK)
    def admit_another(self, pick, content, length, floor):
        """Twice in the list of rules, as nothing happens without requests."""
        self.admit_one(pick, content, length, floor)

    @action(pick=PICK, content=PICK, length=PICK, floor=PICK)
    def admit(self, pick, content, length, floor):
        self.admit_one(pick, content, length, floor)

    def admit_one(self, pick, content, length, floor):
        model, free = self.model, [rid for rid in RIDS if rid not in self.model.requests]
        rid = RIDS[pick // 16 % 7] if rare(pick, 16) or not free else free[pick % len(free)]
        tokens = self.tokens(content % 8, max(0, self.length(1, model.capacity - 2, length)))
        namespace = NAMESPACES[pick // 128 % 4]
        floor = 0 if not rare(floor, 4) else self.length(0, 3 * self.page_size, floor // 4)
        if model.waiting and pick // 16 % 3 == 1:
            rid = next(iter(model.waiting))
        kept = self.contents.get(rid)
        self.run("match", tokens, namespace=namespace, evict_floor=max(0, floor))
        if rid in model.waiting and not rare(pick, 8):
            tokens = self.tokens(kept, max(1, len(tokens)))
            got = self.run("resume", rid, tokens, evict_floor=floor)
        else:
            got = self.run("admit", rid, tokens, namespace=namespace, evict_floor=floor)
            if got is not None:
                self.contents[rid] = content % 8
        if got is not None and not rare(pick, 3):
            self.run("allocate", [rid], [len(tokens)])
            if not rare(pick // 3, 3):
                self.run("commit", [rid])

    @action(needs=has_requests, which=PICK, pick=PICK, starts=PICK)
    def allocate(self, which, pick, starts):
        rids = self.some_rids(which)
        rows = [self.model.requests.get(rid) for rid in rids]
        ends = [0 if row is None else row.allocated for row in rows]
        lens = [self.length(end, min(self.model.capacity, end + 70), pick) for end in ends]
        options = {}
        if rare(starts, 6):
            options["window_start_lens"] = [self.length(0, new, starts // 6) for new in lens]
        self.run("allocate", rids, lens[: len(lens) - rare(pick, 50)], **options)

    @action(needs=has_requests, which=PICK, keep=PICK)
    def step_of_a_batch(self, which, keep):
        """Decode and commit as a scheduler does, now and then with a batch made earlier."""
        if self.batches and rare(keep, 4):
            batch = self.batches[keep // 4 % len(self.batches)]
        else:
            rids = self.some_rids(which)
            engine_batch = self.run("batch", rids)
            if engine_batch is None:
                return
            batch = Batch(engine_batch, [self.model.requests[rid] for rid in rids])
            self.batches = [*self.batches[-3:], batch]
        self.run("tokens_required_next_decode", batch, keep // 16 % 9)
        self.run("decode", batch)
        if not rare(keep, 3):
            self.run("commit", batch)

    @action(needs=has_requests, which=PICK, pick=PICK, exact=st.booleans())
    def commit(self, which, pick, exact):
        rids = self.some_rids(which)
        rows = [self.model.requests.get(rid) for rid in rids]
        ladder = [(0, 0) if row is None else (row.committed, row.allocated) for row in rows]
        lens = [self.length(low, high, pick) for low, high in ladder]
        self.run("commit", rids, *([lens] if exact else []))

    @action(needs=has_requests, which=PICK, pick=PICK, ends=PICK)
    def roll_back(self, which, pick, ends):
        rids = self.some_rids(which)
        rows = [self.model.requests.get(rid) for rid in rids]
        ladder = [(0, 0) if row is None else (row.protected, row.allocated) for row in rows]
        lens = [self.length(low, high, pick) for low, high in ladder]
        options = {}
        if rare(ends, 3):
            options["allocated_lens"] = [
                self.length(low, high, ends // 3)
                for low, (_, high) in zip(lens, ladder, strict=True)
            ]
        self.run("roll_back", rids, lens, **options)

    @action(needs=has_requests, pick=PICK, length=PICK, content=PICK)
    def protect(self, pick, length, content):
        rid = self.some(RIDS, self.model.requests, pick)
        self.run("protect", rid, self.published_tokens(rid, length, content))

    def published_tokens(self, rid, length, content):
        row = self.model.requests.get(rid)
        high = 0 if row is None else row.committed
        length = high if not rare(length, 4) else max(0, self.length(0, high, length // 4))
        if rare(content, 8):
            return self.tokens(content // 8 % 8, length)
        return self.own_tokens(rid, length)

    @action(needs=has_several, pick=PICK, length=PICK, content=PICK, keep=PICK)
    def finish(self, pick, length, content, keep):
        rid = self.some(RIDS, self.model.requests, pick)
        row = self.model.requests.get(rid)
        if row is not None and row.committed < row.prompt_len and not rare(pick, 4):
            self.run("allocate", [rid], [max(row.prompt_len, row.allocated)])
            self.run("commit", [rid])
        tokens = self.published_tokens(rid, length, content)
        options = {} if not rare(keep, 4) else {"keep_len": self.length(0, len(tokens), keep // 4)}
        self.run("finish", rid, tokens, **options)

    @action(needs=has_several, pick=PICK)
    def abort(self, pick):
        # An id that is aborted before its time is lost to this run, so that is seldom.
        names = RIDS if rare(pick, 64) else [*self.model.requests, *self.model.waiting]
        if names:
            self.run("abort", names[pick // 64 % len(names)])

    @action(needs=has_several, pick=PICK)
    def retract(self, pick):
        self.run("retract", self.some(RIDS, self.model.requests, pick))

    @action(needs=has_several, pick=PICK)
    def retract_with_backup(self, pick):
        self.run("retract_with_backup", self.some(RIDS, self.model.requests, pick))

    # -- rules: sessions, flights, cache ---------------------------------------------------

    @action(needs=has_several, pick=PICK, session=PICK, length=PICK)
    def session_save(self, pick, session, length):
        rid = self.some(RIDS, self.model.requests, pick)
        row = self.model.requests.get(rid)
        low, high = (0, 0) if row is None else (row.protected, row.committed)
        name = SESSIONS[session % 2]
        if row is not None and row.session and not rare(session, 8):
            name = row.session
        content = self.contents.get(rid, 0)
        if self.run("session_save", name, rid, self.length(low, high, length)) is None:
            self.contents.setdefault(name, content)
        if name in self.model.sessions and self.model.sessions[name].row is row:
            self.contents[name] = content

    @action(needs=has_sessions, pick=PICK, session=PICK, length=PICK, prompt=PICK)
    def session_restore(self, pick, session, length, prompt):
        name = self.some(SESSIONS, self.model.sessions, session)
        rid = RIDS[pick % 7]
        held = self.model.sessions.get(name)
        high = 0 if held is None else held.row.committed
        kept = self.length(0, high, length)
        options = {}
        if prompt % 2:
            options["prompt_len"] = self.length(kept, self.model.capacity, prompt // 2)
        if self.run("session_restore", name, rid, kept, **options) is not None:
            self.contents[rid] = self.contents.get(name, 0)

    @action(needs=has_sessions, pick=PICK)
    def session_close(self, pick):
        self.run("session_close", self.some(SESSIONS, self.model.sessions, pick))

    @action(needs=has_requests, which=PICK, pick=PICK)
    def dispatch(self, which, pick):
        step = (self.model.last_step or 0) + 1
        if rare(pick, 8):
            step -= 1 + pick // 8 % 2
        self.run("dispatch", step, self.some_rids(which))

    @action(needs=has_steps, pick=PICK)
    def settle(self, pick):
        steps = list(self.model.steps)
        self.run("settle", steps[0] if not rare(pick, 8) else steps[-1] + pick // 8 % 2)

    @action(needs=has_cache, pick=PICK, pages=PICK, group=PICK, writes=st.booleans())
    def pin(self, pick, pages, group, writes):
        g = group % len(self.model.groups)
        name, space = self.model.groups[g].name, self.model.groups[g].space
        mine = {p for row in self.model.rows.values() for p in row.tables[g].values()}
        held = sorted(mine | set(self.model.published[g].values()))
        chosen = held[pages % 5 :: 1 + pages // 5 % 3]
        # A page of no one; where groups share a space, one of the other group will not do.
        if rare(pages, 16) and self.model.groups_of(space) == [g]:
            chosen = [pages // 16 % 24]
        owner = None if not rare(pick, 3) else self.some(RIDS, self.model.requests, pick // 3)
        self.run("pin", PINS[pick % 3], chosen[:4], "copy", writes=writes, owner=owner, group=name)

    @action(needs=has_pins, pick=PICK, posted=st.booleans())
    def unpin(self, pick, posted):
        pin_id = self.some(PINS, self.model.pins, pick)
        if posted:
            self.engine.post_unpin(pin_id)
            self.model.posted.append(pin_id)
        else:
            self.run("unpin", pin_id)

    @action(needs=has_requests, which=PICK)
    def evict_window(self, which):
        self.run("evict_window", self.some_rids(which))

    @action(needs=has_cache, pick=PICK, group=PICK)
    def evict(self, pick, group):
        name = self.model.groups[group % len(self.model.groups)].name
        self.run("evict", pick % 8 - 9 * rare(pick, 64), name)

    @action(needs=has_cache, pick=PICK)
    def mark_or_wind_down(self, pick):
        """A note; at times all that is held is let go first, and the cache is flushed after."""
        if rare(pick, 16):
            self.run("flush")
        if rare(pick, 4):
            for rid in [*self.model.requests, *self.model.waiting]:
                self.run("abort", rid)
            for session in list(self.model.sessions):
                self.run("session_close", session)
            for step in list(self.model.steps):
                self.run("settle", step)
            for pin_id in list(self.model.pins):
                self.engine.post_unpin(pin_id)
                self.model.posted.append(pin_id)
        # A mark is a command: what was posted before it is done.
        self.model.end_posted()
        idle = self.model.is_idle()
        self.engine.mark("quiet", idle=idle)
        self.compare()
        if idle:
            self.run("flush")

    @action(needs=has_cache, pick=PICK, space=PICK)
    def resize(self, pick, space):
        name = list(self.model.num_pages)[space % len(self.model.num_pages)]
        now = self.model.num_pages[name]
        self.run("resize", pick // 32 % 3 if rare(pick, 32) else max(0, now + pick % 9 - 4), name)

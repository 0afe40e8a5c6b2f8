"""A model of the engine in dicts and sets, written from the design and not from the code.

Each command is a generator. It yields the names of the errors that would be right now (none: the
command must succeed), is sent the engine's result, holds it against its own, and changes the
model. Two choices are the engine's, and the model only judges them: which FREE pages a row gets,
and which of the pages that may be evicted go. `look` shows it what was chosen.
"""

from model_ladder import Batch, LadderModel
from model_state import NO_ERRORS, Group, Pin, Session, Step, Waiting


class EngineModel(LadderModel):
    """All commands; publishing, ends, sessions, flights and eviction stand here."""

    # -- publishing and ends ---------------------------------------------------------------

    def publish_len(self, row, tokens, keep_len=None):
        limit = row.committed if keep_len is None else min(row.committed, keep_len)
        upto = min(len(tokens), limit) // self.align * self.align
        session = self.sessions.get(row.session)
        if session is not None and session.num_turns:
            upto = 0
        return max(upto, row.protected)

    def bad_tokens(self, row, tokens):
        """Tokens that contradict what the row has published, as far as its pages can tell."""
        if len(tokens) < row.protected:
            return {"BadTokens"}
        for g, group in enumerate(self.groups):
            for k, page in row.tables[g].items():
                if k < row.protected // group.size:
                    key = self.key(row.namespace, tokens, g, k)
                    if self.published[g].get(key) != page:
                        return {"BadTokens"}
        return NO_ERRORS

    def bad_publish(self, row, tokens, keep_len=None):
        errors = self.bad_tokens(row, tokens)
        if not errors and self.written(row, row.protected, self.publish_len(row, tokens, keep_len)):
            errors = {"PinRefused"}
        return errors

    def publish(self, row, tokens, upto):
        for g, group in enumerate(self.groups):
            for k in range(row.protected // group.size, upto // group.size):
                own = row.tables[g].get(k)
                key = self.key(row.namespace, tokens, g, k)
                canonical = self.published[g].get(key)
                if own is None:
                    continue
                if canonical is None:
                    self.published[g][key] = own
                elif canonical != own:
                    row.tables[g][k] = canonical
                    self.leave(row, g, own)
        row.protected = upto

    def protect(self, rid, tokens):
        errors, row = self.row_of(rid)
        got = yield errors or self.bad_publish(row, tokens)
        self.publish(row, tokens, self.publish_len(row, tokens))
        assert got == row.protected

    def finish(self, rid, tokens, keep_len=None):
        errors, row = self.row_of(rid)
        if errors:
            yield errors
            return
        errors = set(self.bad_publish(row, tokens, keep_len))
        if row.session is not None:
            errors.add("SessionBusy")
        if row.committed < row.prompt_len or (keep_len is not None and keep_len < 0):
            errors.add("BadLength")
        got = yield errors
        self.publish(row, tokens, self.publish_len(row, tokens, keep_len))
        assert got == row.protected
        self.release(rid)

    def release(self, rid):
        """Unbind a request; its pins end, and its session's KV goes with it."""
        row = self.requests.pop(rid)
        self.sessions.pop(row.session, None)
        self.end_pins(rid)
        self.vacate(row)

    def vacate(self, row):
        """Nobody holds the row: it goes now, or once its last step settles."""
        row.hands += 1
        row.rid = row.session = None
        if not row.steps:
            del self.rows[row.number]

    def end_pins(self, rid):
        self.pins = {name: pin for name, pin in self.pins.items() if pin.owner != rid}

    def abort(self, rid):
        yield NO_ERRORS
        if rid in self.requests:
            self.release(rid)
        elif rid in self.waiting:
            del self.waiting[rid]
            self.end_pins(rid)
        else:
            self.aborted.add(rid)

    def retract(self, rid):
        errors, row = self.row_of(rid)
        yield errors
        self.release(rid)
        self.waiting[rid] = Waiting(row.namespace, row.committed, {})

    def retract_with_backup(self, rid):
        errors, row = self.row_of(rid)
        got = yield errors
        kept = [
            (g, k)
            for g in range(len(self.groups))
            for k in self.row_entries(row, g, row.protected, row.committed)
        ]
        free = {page for page, name in enumerate(self.host_states()) if name == "FREE"}
        written = any(
            pin.writes and row.tables[g][k] in pin.pages and pin.group == g
            for g, k in kept
            for pin in self.pins.values()
        )
        backup = {}
        if not kept or len(kept) > len(free) or written:
            assert got.backup is None
            assert got.why_not
        else:
            assert (got.backup.kept_len, got.why_not) == (row.committed, None)
            backup = dict(zip(kept, got.backup.host_pages, strict=True))
            assert len(set(backup.values())) == len(kept)
            assert set(backup.values()) <= free
        self.release(rid)
        self.waiting[rid] = Waiting(row.namespace, row.committed, backup)

    # -- sessions --------------------------------------------------------------------------

    def session_save(self, session_id, rid, kv_len):
        errors, row = self.row_of(rid)
        if errors:
            yield errors
            return
        errors = set()
        if row.session not in (None, session_id):
            errors.add("SessionBusy")
        if row.session is None and session_id in self.sessions:
            errors.add("SessionBusy")
        if not row.protected <= kv_len <= row.committed or not self.keeps_window(
            row, kv_len, kv_len
        ):
            errors.add("BadLength")
        yield errors
        self.cut(row, kv_len, kv_len)
        self.end_pins(rid)
        del self.requests[rid]
        row.rid, row.session = None, session_id
        row.hands += 1
        session = self.sessions.setdefault(session_id, Session(row, 0))
        session.num_turns += 1

    def session_restore(self, session_id, rid, prefix_len, prompt_len=None):
        errors = set()
        if not rid:
            errors.add("BadArgument")
        if rid in self.requests or rid in self.waiting or rid in self.aborted:
            errors.add("DuplicateRequest")
        session = self.sessions.get(session_id)
        if session is None:
            yield errors | {"UnknownSession"}
            return
        row = session.row
        if row.rid is not None:
            errors.add("SessionBusy")
        elif not 0 <= prefix_len <= row.committed:
            errors.add("BadLength")
        if prompt_len is not None and not prefix_len <= prompt_len <= self.capacity:
            errors.add("BadLength")
        got = yield errors
        kept = self.rewind_len(row, prefix_len)
        assert (got.rid, got.row) == (rid, row.number)
        assert (got.asked_len, got.kept_len) == (prefix_len, kept)
        self.cut(row, kept, kept)
        row.protected = min(row.protected, kept)
        row.rid, row.prompt_len = rid, kept if prompt_len is None else prompt_len
        row.hands += 1
        self.requests[rid] = row

    def rewind_len(self, row, wanted):
        """What a turn can keep; else the longest published prefix that still has its window."""
        if wanted >= row.protected and self.keeps_window(row, wanted, wanted):
            return wanted
        most = min(wanted, row.protected) // self.align * self.align
        lengths = range(most, 0, -self.align)
        return next((n for n in lengths if self.keeps_window(row, n, n)), 0)

    def session_close(self, session_id):
        yield NO_ERRORS if session_id in self.sessions else {"UnknownSession"}
        row = self.sessions.pop(session_id).row
        if row.rid is None:
            self.vacate(row)
        else:
            row.session = None

    # -- what is in flight -----------------------------------------------------------------

    def dispatch(self, step, which):
        errors, rows = self.rows_of(which)
        errors = set(errors)
        if step < 0:
            errors.add("BadLength")
        if self.last_step is not None and step <= self.last_step:
            errors.add("StepOrder")
        if not errors and any(self.written(row, 0, row.allocated) for row in rows):
            errors.add("PinRefused")
        yield errors
        noted = {row.number: row.allocated for row in rows}
        self.steps[step] = Step(list(rows), noted)
        self.last_step = step
        for row in rows:
            row.steps.append(step)
            if row.settled is None:
                row.settled = row.committed

    def settle(self, step):
        oldest = next(iter(self.steps), None)
        yield {"StepOrder"} if step != oldest else NO_ERRORS
        done = self.steps.pop(step)
        for row in done.rows:
            row.steps.remove(step)
            row.settled = max(row.settled, done.noted[row.number])
            if row.rid is None and row.session is None and not row.steps:
                row.hands += 1
                del self.rows[row.number]

    def pin(self, pin_id, pages, kind, writes=False, owner=None, group=None):
        errors = set()
        if not pin_id or not kind:
            errors.add("BadArgument")
        names = [item.name for item in self.groups]
        g = self.base if group is None else names.index(group)
        states = self.states(self.groups[g].space)
        held = [0 < page < len(states) and states[page] != "FREE" for page in pages]
        if pin_id in self.pins or not pages or not all(held):
            errors.add("PinRefused")
        if owner is not None and owner not in self.requests and owner not in self.waiting:
            errors.add("UnknownRequest")
        yield errors
        self.pins[pin_id] = Pin(g, tuple(sorted(set(pages))), writes, owner)

    def unpin(self, pin_id):
        yield NO_ERRORS if pin_id in self.pins else {"PinRefused"}
        del self.pins[pin_id]

    def end_posted(self):
        """What other threads posted happens before the next command."""
        for pin_id in self.posted:
            self.pins.pop(pin_id, None)
        self.posted.clear()

    # -- giving cache back -----------------------------------------------------------------

    def evict(self, num_pages, group=None):
        names = [item.name for item in self.groups]
        g = self.base if group is None else names.index(group)
        got = yield {"BadLength"} if num_pages < 0 else NO_ERRORS
        per_unit = 1 if self.groups[g].window is not None else self.align // self.groups[g].size
        most = min(-(-num_pages // per_unit) * per_unit, len(self.evictable(g)))
        victims = self.look.victims(self)
        assert got == len(victims[g]) == most
        if self.groups[g].window is not None:
            assert sum(len(keys) for keys in victims) == got
        self.forget(victims)

    def flush(self):
        busy = self.requests or self.sessions or self.pins or self.steps
        got = yield {"CommandRefused"} if busy else NO_ERRORS
        assert got == sum(len(pages) for pages in self.published)
        self.published = [{} for _ in self.groups]

    def resize(self, num_pages, space=None):
        if space is None:
            space = next(iter(self.num_pages))
        if space not in self.num_pages:
            yield {"BadArgument"}
            return
        above = self.states(space)[max(num_pages, 0) :]
        errors = {"BadLength"} if num_pages < 2 else NO_ERRORS
        if not errors and any(name != "FREE" for name in above):
            errors = {"CommandRefused"}
        yield errors
        self.num_pages[space] = num_pages

    def is_idle(self):
        return not (self.rows or self.sessions or self.pins or self.steps)


__all__ = ["NO_ERRORS", "Batch", "EngineModel", "Group"]

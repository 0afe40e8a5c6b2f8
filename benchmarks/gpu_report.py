"""What gpu.py found: printed as it comes, and written as JSON after each part."""

import json


class Report:
    """Everything found so far."""

    def __init__(self, machine, seed, path):
        self.machine = machine
        self.seed = seed
        self.path = path
        self.checked = None
        self.properties = []
        self.launches = []
        self.bandwidth = []
        self.errors = []
        self.say("; ".join(f"{name} {value}" for name, value in machine.items()))

    def say(self, line):
        print(line, flush=True)

    def head(self, title):
        self.say(f"\n== {title}")

    def broke(self, error):
        """Note an error that ended a part."""
        self.errors.append(f"{type(error).__name__}: {error}")
        self.say(f"this part ended with {self.errors[-1]}")

    def show_checks(self):
        """A line for each operation."""
        for name, tally in sorted(self.checked.tallies.items()):
            verdict = "equal" if tally.num_agreed and not tally.differences else "NOT equal"
            if not tally.num_agreed and not tally.differences:
                verdict = "NOT checked"
            wrong = len(tally.differences)
            self.say(f"{name:20s} {tally.num_agreed:4d} calls equal, {wrong:3d} not: {verdict}")
        if not self.checked.complete:
            self.say("there was no time for all of the cases")

    @property
    def passed(self):
        """Whether every kernel was checked, and nothing was wrong."""
        wrong = any("wrong" in record for record in self.properties)
        return self.checked is not None and self.checked.passed and not wrong

    def write(self, seconds):
        """Write what there is; the file is complete JSON each time."""
        if self.path is None:
            return
        tallies = self.checked.tallies if self.checked else {}
        content = {
            "machine": self.machine,
            "seed": self.seed,
            "seconds": round(seconds, 1),
            "passed": self.passed,
            "checks": {
                "complete": bool(self.checked and self.checked.complete),
                "operations": {
                    name: {"equal": tally.num_agreed, "differences": tally.differences}
                    for name, tally in sorted(tallies.items())
                },
            },
            "errors": self.errors,
            "properties": self.properties,
            "launches": self.launches,
            "bandwidth": self.bandwidth,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def conclude(self, *, rehearsed):
        """Say what came of it; the exit status."""
        measured = [record for record in (*self.launches, *self.bandwidth) if "met" in record]
        missed = [record["what"] for record in measured if not record["met"]]
        left_out = [
            r for r in (*self.launches, *self.bandwidth, *self.properties) if "skipped" in r
        ]
        failed = [r for r in (*self.launches, *self.bandwidth) if "failed" in r]
        self.say(f"\nkernels: {'right' if self.passed else 'NOT right'}")
        if rehearsed:
            self.say("a rehearsal on the CPU: nothing was measured")
        else:
            self.say(f"aims: {len(measured) - len(missed)} of {len(measured)} met")
        if missed:
            self.say("missed: " + "; ".join(sorted(set(missed))))
        if left_out or failed:
            self.say(f"left out: {len(left_out)}; failed: {len(failed)}")
        if self.path is not None:
            self.say(f"written to {self.path}")
        return 0 if self.passed and not failed and not self.errors else 1

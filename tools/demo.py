"""`make demo`: a small pool under pressure, simulated, checked, logged, and replayed.

The run must show what it is a demonstration of: evictions, retractions and sessions. Where one of
them is missing, or the replay differs, the demo fails.
"""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

LOG = Path("demo-run") / "log"
SIMULATE = "simulate --synthetic 2000 --seed 1 --session-rate 0.1 --abort-rate 0.02"
MUST_SHOW = ("evicted_pages", "retractions", "sessions")


def kvlife(arguments: str) -> dict[str, object]:
    """Run one command of kvlife and return the object it prints; the demo ends where it fails."""
    print(f"$ kvlife {arguments} --json", flush=True)
    command = [sys.executable, "-m", "kvlife.replay", *shlex.split(arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}demo failed: `kvlife {arguments}` ended with {done.returncode}")
    summary: dict[str, object] = json.loads(done.stdout)
    return summary


def show(simulated: dict[str, object], replayed: dict[str, object]) -> None:
    """Print what happened, in a few lines."""
    print(f"""
simulated {simulated["requests"]:,} requests: {simulated["events"]:,} events, each one checked
          {simulated["evicted_pages"]:,} pages evicted, {simulated["retractions"]:,} retractions,\
 {simulated["sessions"]:,} sessions
          no violation; state {simulated["digest"]}
replayed  {replayed["events"]:,} events from the log, each one checked again
          no violation; state {replayed["digest"]}: the same

next      kvlife report {LOG} -o demo-run/report.html
          kvlife top {LOG} --once
          kvlife inspect {LOG} --at 20000""")


def shortcomings(simulated: dict[str, object], replayed: dict[str, object]) -> list[str]:
    """Name what the run should have shown and did not."""
    missing = [f"the run showed no {name}" for name in MUST_SHOW if not simulated.get(name)]
    for title, summary in (("simulation", simulated), ("replay", replayed)):
        if summary["violations"]:
            missing.append(f"the {title} found violations")
        if not summary["checked"]:
            missing.append(f"the {title} checked nothing")
    if not replayed["digest_ok"] or simulated["digest"] != replayed["digest"]:
        missing.append("the replay ended in another state than the simulation")
    return missing


def main() -> int:
    """Run the demo; 0 when it showed all it should."""
    shutil.rmtree(LOG.parent, ignore_errors=True)
    LOG.parent.mkdir()
    simulated = kvlife(f"{SIMULATE} --log {LOG}")
    replayed = kvlife(f"replay {LOG}")
    missing = shortcomings(simulated, replayed)
    for line in missing:
        print(f"demo failed: {line}", file=sys.stderr)
    if missing:
        return 1
    show(simulated, replayed)
    return 0


if __name__ == "__main__":
    sys.exit(main())

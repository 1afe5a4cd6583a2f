"""Which tests come past which function, and how long each takes: asked of every test once, alone, without a mutant."""

import json
import tempfile
import threading
from pathlib import Path

from mutation.paths import WORK
from mutation.running import listed_tests, run

FILE = WORK / "reach.json"
# More than any test takes.
LIMIT = 100


class Reach:
    def __init__(self, executables, not_asked):
        self.executables = executables
        self.known = json.loads(FILE.read_text()) if FILE.exists() else {}
        self.lock = threading.Lock()
        self.asked = 0
        left_out = tuple(f"it {part}::" for part in not_asked)
        present = {f"{kind} {test}" for kind in executables for test in listed_tests(executables[kind])}
        self.present = {test for test in present if not test.startswith(left_out)}

    def survey(self, pool):
        """Tests that fail even now, twice, are of no use.

        Unit tests take no time, and are asked every time. The others are not asked about functions that came later: to
        have them asked again, remove the file."""
        new = sorted(test for test in self.present if test not in self.known or test.startswith("unit "))
        print(f"{len(self.present)} tests, of which {len(new)} are asked what they come past", flush=True)
        list(pool.map(self.ask, new))
        self.save()
        useless = [test for test in sorted(self.present) if not self.known[test]["passes"]]
        print(f"left out, since they fail without a mutant: {' '.join(useless) or 'none'}", flush=True)

    def ask(self, test):
        kind, name = test.split()
        with tempfile.NamedTemporaryFile() as seen:
            for _ in range(2):
                found = run(self.executables[kind], [name], LIMIT, MUTANTS_SEEN=seen.name)
                if found.outcome == "passed":
                    break
            places = sorted(set(Path(seen.name).read_text().splitlines()))
        with self.lock:
            self.known[test] = {"passes": found.outcome == "passed", "seconds": found.seconds, "places": places}
            self.asked += 1
            if self.asked % 20 == 0:
                self.save()

    def save(self):
        FILE.write_text(json.dumps(self.known, indent=1, sort_keys=True))

    def tests(self, place):
        """Those that come past it, and how many seconds each takes."""
        return {
            test: self.known[test]["seconds"]
            for test in self.present
            if self.known[test]["passes"] and place in self.known[test]["places"]
        }

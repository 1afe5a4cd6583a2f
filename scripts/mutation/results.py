"""What was found, kept after every mutant."""

import collections
import json
import threading

from mutation.paths import WORK

FILE = WORK / "results.json"


class Results:
    def __init__(self):
        self.all = json.loads(FILE.read_text()) if FILE.exists() else {}
        self.lock = threading.Lock()

    def outcome(self, mutant):
        return self.all.get(mutant["id"], {}).get("outcome")

    def asked(self, mutant):
        """The tests that have missed it."""
        by = self.all.get(mutant["id"], {}).get("by")
        return by if isinstance(by, list) else []

    def note(self, mutant, outcome, by=""):
        with self.lock:
            self.all[mutant["id"]] = {"file": mutant["file"], "name": mutant["name"], "outcome": outcome, "by": by}
            FILE.write_text(json.dumps(self.all, indent=1, sort_keys=True))

    def table(self, mutants):
        """One line for each file, as docs/mutants.md has it."""
        by_file = collections.defaultdict(collections.Counter)
        for mutant in mutants:
            by_file[mutant["file"]][self.outcome(mutant) or "open"] += 1
        columns = ["caught", "hung", "missed", "unviable", "apart", "open"]
        row = lambda name, counts: f"| {name} | " + " | ".join(str(counts[column]) for column in columns) + " |"
        total = sum(by_file.values(), collections.Counter())
        rows = [row(f"`{file}`", counts) for file, counts in sorted(by_file.items())]
        return "\n".join([f"| file | {' | '.join(columns)} |", "|---" * 7 + "|", *rows, row("all", total)])

"""Runs the tests that may notice one mutant, the cheapest and the likeliest first."""

import collections
import os

from mutation.listing import fits
from mutation.running import run

# For one mutant, in seconds of tests one after the other: those that concern its file, and a quarter of that for others.
# A function that all tests come past is not worth them all.
BUDGET = float(os.environ.get("BUDGET") or 80)
# How much is run in one process: at first little, since most mutants are noticed at once.
PORTIONS = [3, 10]
PORTION = 30


class Judge:
    def __init__(self, plan, reach):
        self.plan, self.reach = plan, reach
        # How many mutants of a file a test has caught.
        self.caught = collections.Counter()
        # How often a test has failed once, and then not again.
        self.moody = collections.Counter()

    def outcome(self, mutant, asked=()):
        """What became of it, and by which test; or all that have been asked, besides those that were before."""
        tests = self.reach.tests(mutant["place"])
        left = {test: seconds for test, seconds in tests.items() if test not in asked}
        asked = list(asked)
        for kind in ("unit", "it"):
            for portion in portions(self.chosen(kind, mutant["file"], left), left):
                outcome, test = self.ask(kind, mutant, portion, left)
                if outcome != "missed":
                    self.caught[mutant["file"], test] += 1
                    return outcome, test
                asked += portion
        return "missed", sorted(asked)

    def chosen(self, kind, file, tests):
        """As many as the budgets allow, in the order in which they are worth asking."""
        parts = next(parts for path, parts in self.plan.items() if fits(file, path))
        of_kind = [test for test in tests if test.startswith(kind + " ")]
        concerned = {test for test in of_kind if any(part in test for part in parts)}

        def price(test):
            likely = 1 + 4 * min(self.caught[file, test], 5) + 8 * (test in concerned)
            return tests[test] * (1 + self.moody[test]) / likely

        chosen, left = [], {True: BUDGET, False: BUDGET / 4}
        for test in sorted(of_kind, key=price):
            if tests[test] <= left[test in concerned]:
                left[test in concerned] -= tests[test]
                chosen.append(test)
        return chosen

    def ask(self, kind, mutant, portion, tests):
        """Until one fails, and fails again: under load a test may fail for no reason, but hardly twice."""
        portion = list(portion)
        while portion:
            found = self.run(kind, mutant, portion, tests)
            if found.outcome == "passed":
                break
            failed = f"{kind} {found.test}" if found.test else ""
            if kind == "unit" or not failed:
                return {"hung": "hung"}.get(found.outcome, "caught"), failed or portion[0]
            again = self.run(kind, mutant, [failed], tests)
            if again.outcome != "passed":
                return "caught", failed
            self.moody[failed] += 1
            portion.remove(failed)
        return "missed", ""

    def run(self, kind, mutant, portion, tests):
        limit = 15 + 2 * sum(tests[test] for test in portion)
        names = [test.split()[1] for test in portion]
        return run(self.reach.executables[kind], names, limit, mutant["number"])


def portions(chosen, tests):
    """Cuts a list of tests into ever larger parts."""
    sizes = iter(PORTIONS)
    portion, size = [], next(sizes)
    for test in chosen:
        portion.append(test)
        if sum(tests[test] for test in portion) >= size:
            yield portion
            portion, size = [], next(sizes, PORTION)
    if portion:
        yield portion

"""Where things are, and what every command finds around it."""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent.parent
WORK = HERE / "target" / "mutants"
TREE = WORK / "tree"

# What stands before a command, where machines are shared.
COMPILE = os.environ.get("MUTANTS_COMPILE", "").split()
PREFIX = os.environ.get("MUTANTS_PREFIX", "").split()


def environment(mutant=0, **more):
    return os.environ | more | {
        "CARGO_TARGET_DIR": str(WORK / "build"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_INCREMENTAL": "1",
        "PROPTEST_CASES": "64",
        # It is enough to know that one fails.
        "PROPTEST_MAX_SHRINK_ITERS": "0",
        "RUST_BACKTRACE": "0",
        # A function with many mutants needs more of it.
        "RUST_MIN_STACK": str(64 << 20),
        "MUTANT": str(mutant),
    }

"""What there is to break, as cargo-mutants sees it."""

import collections
import hashlib
import json
import re
import subprocess

from mutation.paths import HERE
from mutation.text import Text


def listed(plan):
    """Every mutant in the files that the plan names, numbered."""
    command = ["cargo", "mutants", "--list", "--json", "--no-config"]
    for path in plan:
        command += ["--file", path]
    found = json.loads(subprocess.run(command, cwd=HERE, check=True, capture_output=True).stdout)
    sources = {name: Text((HERE / name).read_text()) for name in {mutant["file"] for mutant in found}}
    seen = collections.Counter()
    for number, mutant in enumerate(found, 1):
        mutant["number"] = number
        mutant["id"] = identity(mutant, sources[mutant["file"]], seen)
    return found


def identity(mutant, source, seen):
    """What a mutant is known by for as long as its function stays the same, wherever that moves to."""
    what = re.sub(r":\d+:\d+:", ":", mutant["name"], count=1)
    start, end = source.span((mutant["function"] or mutant)["span"])
    known = f"{what} [{hashlib.sha256(source.text[start:end].encode()).hexdigest()[:8]}]"
    seen[known] += 1
    return f"{known} {seen[known]}"


def fits(file, path):
    return file == path or (path.endswith("/**") and file.startswith(path.removesuffix("**")))

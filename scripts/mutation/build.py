"""One build of everything. What does not compile is left out, as cargo-mutants does."""

import json
import subprocess
import sys

from mutation.paths import COMPILE, TREE, environment
from mutation.weave import weave


def build(mutants, results):
    """The mutants that compile, and the executables with the tests."""
    while True:
        lines = weave(mutants)
        ok, messages, errors = cargo("check", "--locked", "--lib")
        if ok:
            break
        wrong = broken(messages, lines)
        if not wrong:
            sys.exit(f"the woven source does not compile:\n{errors}\n{json.dumps(messages[-3:], indent=1)}")
        print(f"{len(wrong)} do not compile", flush=True)
        for mutant in mutants:
            if mutant["number"] in wrong:
                results.note(mutant, "unviable")
        mutants = [mutant for mutant in mutants if mutant["number"] not in wrong]
    ok, messages, errors = cargo("test", "--locked", "--no-run", "--lib", "--test", "it")
    if not ok:
        sys.exit(f"the tests do not compile:\n{errors}")
    made = {m["target"]["kind"][0]: m["executable"] for m in messages if m.get("executable") and m["profile"]["test"]}
    return mutants, {"unit": made["lib"], "it": made["test"]}


def cargo(*arguments):
    """What cargo has to say, message by message."""
    command = [*COMPILE, "cargo", *arguments, "--message-format=json"]
    output = subprocess.run(command, cwd=TREE, env=environment(), capture_output=True, text=True)
    messages = [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]
    return output.returncode == 0, messages, output.stderr


def broken(messages, lines):
    """The mutants in whose lines the compiler has found an error; not those that it only points to."""
    found = set()
    for message in messages:
        if message.get("reason") != "compiler-message" or message["message"]["level"] != "error":
            continue
        for span in message["message"]["spans"]:
            counts = span["is_primary"]
            # What a macro has made stands where the macro is called.
            while span["expansion"]:
                span = span["expansion"]["span"]
            at, of_this = span["line_start"], lines.get(span["file_name"], {})
            if counts:
                found |= {number for number, (first, last) in of_this.items() if first <= at <= last}
    return found

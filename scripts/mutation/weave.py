"""All mutants in one copy of the source: a function that has some becomes a choice between them, made at run time."""

import re
import subprocess

from mutation.paths import HERE, TREE
from mutation.text import Text

CHOSEN = """
/// Which of the woven-in mutants is alive. Where MUTANTS_SEEN names a file, every place that asks is noted in it once.
pub(crate) fn mutant(place: &'static str) -> u32 {
    use std::{collections::HashSet, env, fs::File, io::Write, sync::{LazyLock, Mutex, PoisonError}};
    static CHOSEN: LazyLock<u32> =
        LazyLock::new(|| env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0));
    static SEEN: LazyLock<Option<Mutex<(HashSet<&str>, File)>>> = LazyLock::new(|| {
        let file = File::options().append(true).create(true).open(env::var_os("MUTANTS_SEEN")?).ok()?;
        Some(Mutex::new((HashSet::new(), file)))
    });
    if let Some(seen) = &*SEEN {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0.insert(place) {
            let _ = seen.1.write_all(format!("{place}\\n").as_bytes());
        }
    }
    *CHOSEN
}
"""

ALLOWED = "#![allow(unused, unreachable_code, unfulfilled_lint_expectations, clippy::all)]\n"

# A test that waits in vain has noticed, and need not wait as long as on a machine that has every right to be slow.
PATIENCE = ("Duration = Duration::from_secs(30);", "Duration = Duration::from_secs(7);")


def woven(source, mutants):
    """The source with a choice in every function that has mutants, and the lines of each of them.

    Notes in each mutant the place where it is chosen."""
    text = Text(source)
    bodies = {text.body(mutant["function"]): mutant["function"] for mutant in mutants}
    # A function inside another is copied with it.
    outermost = sorted(
        body for body in bodies if not any(o != body and o[0] <= body[0] and body[1] <= o[1] for o in bodies)
    )
    result, lines, copied = "", {}, 0
    for start, end in outermost:
        place = f"{mutants[0]['file']} {bodies[start, end]['function_name']}"
        arm = an_arm(text.signature(bodies[start, end]))
        result += source[copied:start] + f' match crate::mutant("{place}") {{\n'
        for mutant in mutants:
            first, last = text.span(mutant["span"])
            if start <= first and last <= end:
                mutant["place"] = place
                changed = source[start:first] + " " + mutant["replacement"] + " " + source[last:end]
                before = result.count("\n") + 1
                result += arm(mutant["number"], changed)
                lines[mutant["number"]] = (before, result.count("\n"))
        result += arm("_", source[start:end]) + "} "
        copied = end
    return result + source[copied:], lines


def an_arm(signature):
    """How an arm of a choice is written. What returns some iterator returns one of several, so they come in boxes."""
    opaque = re.search(r"-> impl (.*)$", signature.strip(), re.DOTALL)
    if opaque is None:
        return lambda pattern, body: f"{pattern} => {{ {body}\n}}\n"
    return lambda pattern, body: f"{pattern} => {{ Box::new({{ {body}\n}}) as Box<dyn {opaque[1]} + Send + '_> }}\n"


def can_be_woven(source, mutant):
    """A choice is made at run time."""
    return mutant["function"] is not None and "const fn" not in Text(source).signature(mutant["function"])


def weave(mutants):
    """Copies the tree, and returns the lines that each mutant has in its file."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(listing, cwd=HERE, check=True, capture_output=True, text=True)
    contents = {name: (HERE / name).read_bytes() for name in tracked.stdout.splitlines()}
    lines = {}
    for name in {mutant["file"] for mutant in mutants}:
        of_this = [mutant for mutant in mutants if mutant["file"] == name]
        text, lines[name] = woven(contents[name].decode(), of_this)
        contents[name] = text.encode()
    library = contents["src/lib.rs"].decode()
    contents["src/lib.rs"] = (library.replace("\npub mod server;", ALLOWED + "\npub mod server;", 1) + CHOSEN).encode()
    harness = contents["tests/it/harness.rs"].decode()
    contents["tests/it/harness.rs"] = harness.replace(*PATIENCE).encode()
    for name, content in contents.items():
        write(TREE / name, content)
    return lines


def write(path, content):
    """A file that stays as it was is not compiled again."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if path.parent.name == "scripts":
            path.chmod(0o755)

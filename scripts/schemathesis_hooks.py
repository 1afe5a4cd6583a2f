"""What the contract says and an OpenAPI document cannot: mended in requests that are meant to be valid."""

from urllib.parse import unquote_to_bytes

import schemathesis
from schemathesis.generation import GenerationMode


@schemathesis.hook
def map_case(context, case):
    if case.meta.generation.mode == GenerationMode.POSITIVE:
        mend_preconditions(case.headers)
        mend_scope(case.method, case.headers)
        mend_batch(case)
        mend_lock(case)
    return case


@schemathesis.hook
def before_add_examples(context, examples):
    """An example cannot know which version is stored."""
    for case in examples:
        case.headers.pop("If-Match", None)
        case.headers.pop("If-None-Match", None)


def mend_preconditions(headers):
    """A write has one of them at most."""
    # Schemathesis cannot always put a quote into a header, and then sends a number in its stead.
    if not str(headers.get("If-Match", "")).startswith('"'):
        headers.pop("If-Match", None)
    if "If-Match" in headers:
        headers.pop("If-None-Match", None)


def mend_scope(method, headers):
    """A scope is a key, and a read without a token has none."""
    unguarded = method in ("GET", "HEAD") and "X-Fencing-Token" not in headers
    if unguarded or not is_key(headers.get("X-Fencing-Scope", "")):
        headers.pop("X-Fencing-Scope", None)


def is_key(encoded):
    """Escapes stand for bytes, and not all bytes are UTF-8."""
    try:
        key = unquote_to_bytes(encoded.strip(" \t")).decode()
    except UnicodeDecodeError:
        return False
    return key != "" and "\0" not in key and len(key.encode()) <= 1024


def mend_batch(case):
    """Each key at most once, and numbers in plain digits: to a schema, `5.0` is an integer."""
    if case.path != "/v1/batch":
        return
    for write in case.body["writes"]:
        for name in ("token", "seq", "if_match"):
            if isinstance(write.get(name), float):
                write[name] = int(write[name])
        # It comes back in a header as it was sent, and there Schemathesis wants a media type.
        if "/" not in (write.get("content_type") or "/"):
            write["content_type"] = "text/plain"
    by_key = {write["key"]: write for write in case.body["writes"]}
    case.body["writes"] = list(by_key.values())


def mend_lock(case):
    """Milliseconds in plain digits, and nobody waits for a lock that another request has left held."""
    if case.path != "/v1/locks/{name}" or not isinstance(case.body, dict):
        return
    for name in ("ttl_ms", "wait_ms"):
        if isinstance(case.body.get(name), float):
            case.body[name] = int(case.body[name])
    if case.body.get("wait_ms"):
        case.body["wait_ms"] = min(case.body["wait_ms"], 20)
    # The bound is in bytes, which a schema cannot say.
    if isinstance(case.body.get("owner"), str):
        case.body["owner"] = case.body["owner"].encode("utf-8", "ignore")[:256].decode("utf-8", "ignore")

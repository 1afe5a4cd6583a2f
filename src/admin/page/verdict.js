// The one sentence for somebody who has no time: is all well, and if not, what is it?

const SIGNS = { ok: "✓", warn: "!", bad: "✗", wait: "…" };

// A burst, as the alert rules have it.
const BURST_PER_MINUTE = 600;
const BURST_SHARE = 0.2;

function judge(state, totals) {
  const failing = Object.fromEntries(state.checks.filter((check) => !check.ok).map((check) => [check.name, check.detail]));
  const lastMinute = (numbers) => numbers.slice(-60).reduce((a, b) => a + b, 0);
  const refused = lastMinute(state.history.rejected);
  const accepted = lastMinute(state.history.accepted);
  const failed = lastMinute(state.history.failed);

  if ("started" in failing) return ["bad", "Not started yet", `Waiting for the store: ${failing.store ?? failing.started}.`];
  if ("store" in failing) return ["bad", "The store is away. Nothing can be written", `${failing.store}. What was answered before is safe. See docs/runbooks/store-down.md.`];
  if ("serving" in failing) return ["warn", "This fencepost is shutting down", "It goes on serving until it is quiet."];
  if ("authority" in failing) return ["bad", "The lock service is away. No lock is granted", "Writes under tokens that are known go on. See docs/runbooks/authority-down.md."];
  const refusedFile = ["tokens", "policy", "tls", "jwks"].find((file) => file in failing);
  if (refusedFile) return ["warn", `The newest version of “${refusedFile}” is refused`, "An older one is in force, until a restart. See docs/runbooks/file-refused.md."];
  if (state.queue.depth > state.queue.limit / 2) return ["warn", "Requests pile up in front of the store", `${count(state.queue.depth)} wait. See docs/runbooks/queue-saturated.md.`];
  if (failed) return ["warn", `${plural(failed, "write", "writes")} without a verdict in the last minute`, "Neither accepted nor refused. See docs/runbooks/writes-fail.md."];
  if (refused) {
    const burst = refused > BURST_PER_MINUTE && refused > BURST_SHARE * (refused + accepted);
    const most = state.top.keys[0];
    const where = most ? `Most often “${visible(most.key).slice(0, 120)}”. ` : "";
    return [burst ? "bad" : "warn", `${plural(refused, "write", "writes")} refused in the last minute`, `${where}Nothing was lost by it: open one below to see who, and why.`];
  }
  if (totals.rejected) return ["ok", "All is well now", `${plural(totals.rejected, "write was", "writes were")} refused in the last 5 minutes, none in the last one.`];
  return ["ok", "All is well", totals.accepted ? `${plural(totals.accepted, "write", "writes")} accepted in the last 5 minutes, none refused.` : "Nothing was written in the last 5 minutes, and nothing refused."];
}

function showVerdict([level, line, why]) {
  at("verdict").dataset.level = level;
  say("verdict-sign", SIGNS[level]);
  say("verdict-line", line);
  say("verdict-why", why);
  document.title = level === "ok" ? "Fencepost" : `${SIGNS[level]} ${line} · Fencepost`;
}

// What a refusal means, in plain words: what happened, and what to do about it.

const EPOCH = 1n << 48n;

const lagOf = (r) =>
  r.token !== null && r.mark !== null && BigInt(r.mark) > BigInt(r.token) ? BigInt(r.mark) - BigInt(r.token) : null;

const said = (r) => (r.client ? `“${visible(r.client)}”` : "A client that gave no name");
// What was proved comes first; what a client says of itself anybody can say.
const who = (r) => (r.identity ? `${visible(r.identity)} (${r.client ? said(r) : "no name given"})` : said(r));

const what = (r) => (r.key === null ? "something" : `“${visible(r.key)}”`);

const guard = (r) => (r.scope !== null && r.scope !== r.key ? `its scope, “${visible(r.scope)}”` : "that key");

function howFar(lag) {
  if (lag === null) return "";
  if (lag >= EPOCH) return "Its token is from an earlier epoch: the lock service has lost its memory since, and all locks of that time are lost.";
  if (lag <= 3n) return "It is close behind, so it was overtaken a short while ago: typically by a pause that was longer than its lease.";
  return `It is ${count(lag)} behind, so much has been granted since: it has not noticed for a long time.`;
}

const BELOW_THE_FLOOR = (r) => ({
  title: "A token below the floor",
  happened: [
    `${who(r)} wrote ${what(r)} with token ${r.token}, which is below the floor ${r.mark}. Every token below the floor is stale for every key. The write was refused, and nothing was changed.`,
    "The floor rises when old marks are collected, when another database server takes over, and when an operator raises it.",
  ],
  todo: [
    "The client must stop, and acquire the lock again before it writes. The same token will never be good again.",
    "If locks that were held are concerned, see docs/runbooks/fenced-off-holder.md; `fencepost floor` shows the floor and the lowest token that is held.",
  ],
});

const EXPLANATIONS = {
  "stale-token": (r) => r.floor ? BELOW_THE_FLOOR(r) : ({
    title: "A holder that has lost its lock tried to write",
    happened: [
      lagOf(r) === null
        ? `${who(r)} wrote ${what(r)} with token ${r.token}, which has already been used for a write. Under the rule “above” each token is good for one.`
        : `${who(r)} wrote ${what(r)} with token ${r.token}. But a newer holder, with token ${r.mark}, has been seen on ${guard(r)}. The write was refused, and nothing was changed.`,
      howFar(lagOf(r)),
      lagOf(r) === null ? "" : r.overtaken_by
        ? `It was overtaken by “${visible(r.overtaken_by)}”, who was granted token ${r.mark}.`
        : "Who overtook it is not known yet, or no longer: that lock was granted by another fencepost, and may have been given up since.",
    ],
    todo: [
      "The client must stop, and acquire the lock again before it writes. The same token will never be good again.",
      "Once is the fence at work. If the same client is here again and again, it does not heed the 409: restart it, and see docs/runbooks/fenced-off-holder.md.",
    ],
  }),
  "out-of-order": (r) => ({
    title: "An earlier write of the same holder came too late",
    happened: [`${who(r)} holds the lock, but has already written something later to ${what(r)}: ${r.seq === null ? "this write has no seq, and others had" : `seq ${r.seq} has been passed`}. It was refused, so that the old does not overwrite the new.`],
    todo: ["Usually nothing: a delayed copy of a write has been kept out. If it happens all the time, the client numbers its writes wrongly, or two processes share one token."],
  }),
  "seq-reused": (r) => ({
    title: "One seq was used for two different writes",
    happened: [`${who(r)} has used seq ${r.seq} on ${what(r)} before, with another body. That can not be a repetition, so it was refused.`],
    todo: ["This is a bug in the client: every new write needs a new seq, and a repetition needs the same body. Perhaps two processes share one token."],
  }),
  "version-mismatch": (r) => ({
    title: "The value was not the one it was meant for",
    happened: [`The fence let ${who(r)} pass, but ${what(r)} has been changed meanwhile: its If-Match or If-None-Match did not hold.`],
    todo: ["The client should read again, and decide again. In small numbers this is ordinary."],
  }),
  "unissued-token": (r) => ({
    title: "A token that nobody was given",
    happened: [`${who(r)} wrote ${what(r)} with token ${r.token}. The lock service cannot have granted that, or not for this lock. Had it been accepted, no lower token would ever be accepted there again.`],
    todo: [
      "Find out where this client has its tokens from: it makes them up, or takes its locks from another lock service. One store has one.",
      "See docs/runbooks/forged-token.md.",
    ],
  }),
  "token-required": (r) => ({
    title: "A write without a token",
    happened: [`${who(r)} tried to write ${what(r)} without X-Fencing-Token, so there was nothing to judge it by.`],
    todo: ["Have the client send the token of the lock that it holds. “fencepost run” has it in FENCEPOST_TOKEN."],
  }),
};

const MALFORMED = {
  "invalid-token": "its token is not a whole number from 1 to 9223372036854775807, or was sent twice",
  "invalid-seq": "its seq is not a whole number from 1 to 9223372036854775807",
  "invalid-key": "its key is empty, too long, or not valid UTF-8",
  "invalid-request": "a header, the query or the body was not as it should be",
  "too-large": "its body is larger than --max-body",
  "request-timeout": "its body did not arrive in time",
  "unsupported-media-type": "its body is not of a type that is understood there",
};

function explain(r) {
  const known = EXPLANATIONS[r.reason];
  if (known) return known(r);
  const why = MALFORMED[r.reason] ?? "it was not as it should be";
  return {
    title: "A write that was not well-formed",
    happened: [`${who(r)} sent a write${r.key === null ? "" : ` of ${what(r)}`}, but ${why}. It was refused before anybody looked at a mark.`],
    todo: ["Mend the client: as it is, this request will never pass. The answer it got says what is wrong."],
  };
}

const JUDGES = { cache: "a mark in memory", store: "the store", input: "the parser" };

function explanation(r) {
  const { happened, todo } = explain(r);
  const parts = [];
  if (r.token !== null && r.mark !== null) {
    const side = (cls, label, value) =>
      element("div", {}, element("div", { class: `n ${cls}` }, value), element("div", { class: "l" }, label));
    const lag = lagOf(r);
    parts.push(element("div", { class: "versus" },
      side("presented", "presented token", r.token),
      side("", "mark", r.mark),
      ...(lag === null ? [] : [side("", "behind by", count(lag))])));
  }
  const section = (title, texts) => {
    parts.push(element("h3", {}, title));
    for (const text of texts.filter(Boolean)) parts.push(element("p", {}, text));
  };
  section("What happened", happened);
  section("What to do", todo);
  const facts = [
    ["time", r.at], ["reason", r.reason], ["key", r.key], ["scope", r.scope], ["token", r.token], ["mark", r.mark],
    ["seq", r.seq], ["identity", r.identity], ["client", r.client], ["peer", r.peer], ["trace", r.trace], ["overtaken by", r.overtaken_by],
    ["refused by", JUDGES[r.decided_by] ?? r.decided_by],
  ];
  const list = element("dl", { class: "facts" });
  for (const [name, value] of facts) {
    if (value === null || value === undefined) continue;
    list.append(element("dt", {}, name), element("dd", {}, visible(String(value))));
  }
  parts.push(list);
  return parts;
}

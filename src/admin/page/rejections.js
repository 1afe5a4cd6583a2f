// The refused writes, newest first. A flood must not stop the page: what comes is gathered and shown once per
// frame, and there are never more rows than somebody could read.

const MOST_ROWS = 200;
const MOST_KEPT = 1000;

const kept = []; // Newest first.
const known = new Set();
let arrived = []; // Oldest first; not shown yet.
let missed = 0;
let frame = 0;
let paused = false;
let unannounced = 0;
let asked = false; // Until then nobody knows what was refused before.

const filter = { key: "", reason: "" };
const passes = (r) =>
  (!filter.reason || r.reason === filter.reason) &&
  (!filter.key || (r.key ?? "").toLowerCase().includes(filter.key));

function receive(r) {
  if (known.has(r.id)) return;
  known.add(r.id);
  arrived.push(r);
  if (arrived.length > MOST_KEPT) {
    known.delete(arrived.shift().id);
    missed += 1;
  }
  unannounced += 1;
  soon();
}

function soon() {
  // A page in the background draws no frames; what it has missed is shown when it is looked at.
  if (!frame && !paused) frame = requestAnimationFrame(show);
}

function show() {
  frame = 0;
  const news = arrived;
  arrived = [];
  kept.unshift(...news.toReversed());
  for (const r of kept.splice(MOST_KEPT)) known.delete(r.id);
  const rows = at("rows");
  const fresh = news.filter(passes).reverse().slice(0, MOST_ROWS);
  rows.prepend(...fresh.map((r) => row(r, true)));
  while (rows.children.length > MOST_ROWS) rows.lastElementChild.remove();
  settle();
}

// Those from before we listened: they belong in between.
function takeIn(rejections) {
  asked = true;
  const number = (r) => Number(r.id.split("-")[1]);
  kept.push(...rejections.filter((r) => !known.has(r.id)));
  for (const r of kept) known.add(r.id);
  kept.sort((a, b) => b.at.localeCompare(a.at) || number(b) - number(a));
  for (const r of kept.splice(MOST_KEPT)) known.delete(r.id);
  showAgain();
}

function showAgain() {
  at("rows").replaceChildren(...kept.filter(passes).slice(0, MOST_ROWS).map((r) => row(r, false)));
  settle();
}

function settle() {
  const rows = at("rows");
  const any = rows.children.length > 0;
  at("rows-empty").hidden = any;
  if (asked) say("rows-empty", kept.length ? "None of those that are remembered passes the filter." : "Nothing has been refused.");
  // One stop for the Tab key; arrows go on from there.
  if (any && !rows.querySelector('[tabindex="0"]')) rows.querySelector("button").tabIndex = 0;
  note();
}

function note() {
  const parts = [];
  if (paused) parts.push(`paused; ${plural(arrived.length, "new one waits", "new ones wait")}`);
  if (missed) parts.push(`${count(missed)} more went by too fast to show`);
  say("refused-note", parts.join("; ") || "newest first; open one to see why");
}

const KINDS = { "unissued-token": "forged", "seq-reused": "forged" };

function relation({ token, mark }) {
  const ahead = BigInt(token) - BigInt(mark);
  return ahead < 0n ? "<" : ahead > 0n ? ">" : "=";
}

function row(r, isNew) {
  const lag = lagOf(r);
  const against = element("span", { class: "against" });
  if (r.token === null) against.append("–");
  else if (r.mark === null) against.append(element("b", {}, r.token));
  else against.append(element("b", {}, r.token), element("i", {}, ` ${relation(r)} `), r.mark);
  if (lag !== null) against.append(element("span", { class: "behind" }, ` ${count(lag)} behind`));
  const key = r.key === null ? "–" : visible(r.key);
  const date = new Date(r.at);
  const button = element("button", { type: "button", class: isNew ? "row new" : "row", tabIndex: -1 },
    element("span", { class: "at" }, clock(date)),
    element("span", { class: "reason", "data-kind": r.decided_by === "input" ? "input" : KINDS[r.reason] ?? "fence" }, r.reason),
    element("span", { class: "key", dir: "auto" }, key),
    against,
    element("span", { class: "client", dir: "auto" }, visible(r.identity ?? r.client ?? r.peer ?? "–")));
  button.setAttribute("aria-haspopup", "dialog");
  button.rejection = r;
  return element("li", {}, button);
}

let opener = null;
function open(button) {
  opener = button;
  const r = button.rejection;
  say("explanation-title", explain(r).title);
  at("explanation-body").replaceChildren(...explanation(r));
  at("explanation").showModal();
}

at("rows").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) open(button);
});

at("rows").addEventListener("keydown", (event) => {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const ends = { Home: "firstElementChild", End: "lastElementChild" }[event.key];
  const item = event.target.closest("li");
  const target = step ? item?.[step] : ends ? at("rows")[ends] : null;
  if (!target) return;
  event.preventDefault();
  target.firstElementChild.focus();
});

at("rows").addEventListener("focusin", (event) => {
  for (const other of at("rows").querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  event.target.tabIndex = 0;
});

at("explanation-close").addEventListener("click", () => at("explanation").close());
at("explanation").addEventListener("click", (event) => {
  if (event.target === at("explanation")) at("explanation").close();
});
at("explanation").addEventListener("close", () => {
  if (opener?.isConnected) opener.focus();
  else at("refused").focus();
});

document.querySelector(".filter").addEventListener("submit", (event) => event.preventDefault());
at("filter-key").addEventListener("input", (event) => {
  filter.key = event.target.value.toLowerCase();
  showAgain();
});
at("filter-reason").addEventListener("change", (event) => {
  filter.reason = event.target.value;
  showAgain();
});
for (const reason of [...Object.keys(EXPLANATIONS), ...Object.keys(MALFORMED)]) {
  at("filter-reason").append(element("option", { value: reason }, reason));
}

at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", paused);
  say("pause", paused ? "Go on" : "Pause");
  soon();
  note();
});

// To a screen reader a flood is one sentence every few seconds.
setInterval(() => {
  if (paused) note();
  if (!unannounced) return;
  const newest = kept[0];
  say("said", `${plural(unannounced, "write", "writes")} refused${newest?.key ? `, the last one of ${visible(newest.key)}` : ""}.`);
  unannounced = 0;
}, 5000);

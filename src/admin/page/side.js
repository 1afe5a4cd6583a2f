// What stands beside: health, the most refused keys, locks, and where the time goes.

// Whether it has started and serves is worth a word only if it does not.
const WORTH_A_WORD = ["store", "authority"];
const CHECKS = { started: "Started", serving: "Serving", store: "Store", authority: "Lock service",
  tokens: "Tokens file", policy: "Policy file", tls: "Certificate", jwks: "Keys of JWTs" };

function showHealth(state) {
  const shown = state.checks.filter((check) => !check.ok || WORTH_A_WORD.includes(check.name));
  at("checks").replaceChildren(...shown.map((check) =>
    element("li", { "data-ok": check.ok },
      element("span", { class: "tick", "aria-hidden": "true" }, check.ok ? "✓" : "✗"),
      element("span", {}, CHECKS[check.name] ?? check.name),
      element("span", { class: "detail" }, check.ok ? "ok" : check.detail))));
  const facts = [
    ["store", state.store], ["lock service", state.authority], ["trust", state.trust],
    ...(state.epoch === null ? [] : [["epoch", state.epoch]]),
    ["queue", `${count(state.queue.depth)} of ${count(state.queue.limit)}`],
    ["version", state.version],
  ];
  at("facts").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value))]));
  say("about", `${state.version} · ${location.host}`);
}

function showTop(top) {
  at("top-empty").hidden = top.keys.length > 0;
  say("top-empty", "None.");
  say("top-note", top.of ? `of the last ${count(top.of)}` : "");
  const most = top.keys[0]?.count ?? 1;
  // What has the focus stays where it is, or a keyboard would lose its place with every look.
  if (at("top").contains(document.activeElement)) return;
  at("top").replaceChildren(...top.keys.map(({ key, count: n }) => {
    const fill = element("span", { class: "fill", "aria-hidden": "true" });
    fill.style.width = `${(100 * n) / most}%`;
    const button = element("button", { type: "button" }, fill,
      element("span", { class: "key", dir: "auto" }, visible(key)), element("span", { class: "count" }, count(n), element("span", { class: "unseen" }, " refused; show only those")));
    button.addEventListener("click", () => {
      at("filter-key").value = key;
      at("filter-key").dispatchEvent(new Event("input"));
    });
    return element("li", {}, button);
  }));
}

let locks = { seen: 0, held: [] };

function showLocks(held) {
  if (!held) {
    locks.held = [];
    at("locks").replaceChildren();
    at("locks-empty").hidden = false;
    return say("locks-empty", "This fencepost grants none (--authority none).");
  }
  locks = { seen: performance.now(), held: held.held };
  say("locks-note", held.more ? `the first ${count(held.held.length)}` : held.held.length ? count(held.held.length) : "");
  at("locks-empty").hidden = held.held.length > 0;
  say("locks-empty", held.problem ? `Not known: ${held.problem}.` : "None.");
  at("locks").replaceChildren(...held.held.map((lock) =>
    element("li", {},
      element("span", { class: "key", dir: "auto" }, visible(lock.name)), element("span", { class: "left" }),
      element("span", { class: "owner", dir: "auto" }, `${lock.owner ? visible(lock.owner) : "unnamed"} · token ${lock.token}`),
      element("span", { class: "waiters" }, lock.waiters ? `${count(lock.waiters)} waiting` : ""))));
  countDown();
}

// Between two looks the time goes on.
function countDown() {
  const gone = performance.now() - locks.seen;
  [...at("locks").children].forEach((item, i) => {
    const left = locks.held[i].ttl_ms - gone;
    const place = item.querySelector(".left");
    place.textContent = `${timeLeft(left)} left`;
    place.dataset.short = left < 5000;
  });
}
setInterval(countDown, 1000);

// The histograms, from the same text that Prometheus reads.
function parseMetrics(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) continue;
    const end = line.lastIndexOf(" ");
    if (end > 0) samples.set(line.slice(0, end), Number(line.slice(end + 1)));
  }
  return samples;
}

const looks = []; // Those of the last minute, and one from before.

function showTimes(samples) {
  looks.push({ when: performance.now(), samples });
  while (looks.length > 2 && looks[1].when < performance.now() - 60000) looks.shift();
  const first = looks[0].samples;
  const since = (name) => (samples.get(name) ?? 0) - (first === samples ? 0 : first.get(name) ?? 0);
  const writes = since('fencepost_write_duration_seconds_count{outcome="accepted"}');
  const recent = writes > 0 && first !== samples;
  const value = (name) => (recent ? since(name) : samples.get(name) ?? 0);
  const mean = (name, labels = "") => {
    const n = value(`${name}_count${labels}`);
    return n > 0 ? value(`${name}_sum${labels}`) / n : null;
  };
  const total = mean("fencepost_write_duration_seconds", '{outcome="accepted"}');
  const bar = at("time-bar");
  if (total === null) {
    say("time-note", "");
    bar.replaceChildren();
    return at("times").replaceChildren(element("dt", {}, "No write has been accepted yet."), element("dd", {}));
  }
  const store = Math.min(total, mean("fencepost_store_duration_seconds") ?? 0);
  const queue = total - store;
  say("time-note", recent ? "accepted writes, last minute" : "accepted writes, since the start");
  const part = (cls, share) => {
    const made = element("span", { class: cls });
    made.style.flex = `${share} 0 0`;
    return made;
  };
  // Of the whole: shares that come to less than one would leave the rest of the bar empty.
  bar.replaceChildren(part("queue", queue / total), part("store", store / total));
  bar.setAttribute("aria-label", `Of ${milliseconds(total)} on average, ${milliseconds(queue)} in the queue and ${milliseconds(store)} in the store`);
  const rows = [
    [element("span", {}, element("span", { class: "swatch queue" }), "queue and judging"), milliseconds(queue)],
    [element("span", {}, element("span", { class: "swatch store" }), "statement and commit"), milliseconds(store)],
    ["mean", milliseconds(total)],
    ["99 of 100 within", quantile("fencepost_write_duration_seconds", 'outcome="accepted"', 0.99, value, samples)],
    ["writes per batch", (mean("fencepost_batch_writes") ?? 0).toFixed(1)],
  ];
  at("times").replaceChildren(...rows.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
}

function quantile(name, label, share, value, samples) {
  const buckets = [];
  for (const series of samples.keys()) {
    if (!series.startsWith(`${name}_bucket{`) || !series.includes(label)) continue;
    const le = series.match(/le="([^"]+)"/)[1];
    buckets.push([le === "+Inf" ? Infinity : Number(le), value(series)]);
  }
  buckets.sort((a, b) => a[0] - b[0]);
  const all = buckets.at(-1)?.[1] ?? 0;
  const found = buckets.find(([, n]) => n >= all * share);
  return !found || !all ? "–" : found[0] === Infinity ? "more than 15 s" : milliseconds(found[0]);
}

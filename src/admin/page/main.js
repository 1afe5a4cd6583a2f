// Asks, listens, and says so when nobody answers.

const BETWEEN_LOOKS = 1500;
const BETWEEN_METRICS = 5000;
const PATIENCE = 6000;
const LISTED = 200;

let lostSince = null;
let events = null;
let caughtUp = false;

// A token has up to 63 bits, which a JavaScript number does not hold. Inside a string a quote is escaped,
// so this finds members only.
const exact = (text) => JSON.parse(text.replace(/"(token|mark|seq)":(\d+)/g, '"$1":"$2"'));

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE), cache: "no-store", headers: { Accept: "application/json, text/plain;q=0.5" } });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.text();
}

function connected() {
  lostSince = null;
  at("link").dataset.state = "live";
  say("link-text", "live");
}

function lost() {
  lostSince ??= new Date();
  caughtUp = false;
  at("link").dataset.state = "lost";
  say("link-text", `connection lost since ${clock(lostSince)}`);
  showVerdict(["bad", `No connection to Fencepost since ${clock(lostSince)}`, "What you see below is from then. Trying again."]);
}

async function look() {
  try {
    const state = exact(await ask("page/state"));
    connected();
    const totals = drawChart(state.history);
    showVerdict(judge(state, totals));
    showHealth(state);
    showTop(state.top);
    showLocks(state.locks);
    if (!caughtUp) await catchUp();
  } catch {
    lost();
  }
  setTimeout(look, BETWEEN_LOOKS);
}

async function measure() {
  try {
    showTimes(parseMetrics(await ask("metrics")));
  } catch {
    // The look says that nobody answers.
  }
  setTimeout(measure, BETWEEN_METRICS);
}

// What was refused before we listened, or while we could not.
async function catchUp() {
  const { rejections } = exact(await ask(`v1/rejections?limit=${LISTED}`));
  caughtUp = true;
  takeIn(rejections);
}

function listen() {
  events = new EventSource("v1/rejections");
  events.addEventListener("rejection", (event) => receive(exact(event.data)));
  events.addEventListener("dropped", (event) => {
    missed += Number(JSON.parse(event.data).count);
    note();
  });
  // Only now is nothing missed any more; what was, is asked for.
  events.addEventListener("open", () => (caughtUp = false));
  events.addEventListener("error", () => {
    caughtUp = false;
    // It tries again by itself, unless the answer was none that it understands.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
}

listen();
look();
measure();

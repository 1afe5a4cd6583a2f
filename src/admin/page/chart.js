// Two strips over one axis of time, each with a scale of its own: few refusals among many writes must
// not vanish.

const WIDTH = 600, UPPER = 108, GAP = 10, LOWER = 50;
const SVG = "http://www.w3.org/2000/svg";

let drawn = null;

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A scale that does not jump with every sample.
function ceiling(highest) {
  if (highest <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(highest));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((limit) => limit >= highest);
}

function drawChart(history) {
  const { accepted, rejected, failed } = history;
  const slots = history.slots;
  const start = slots - accepted.length;
  const x = (i) => ((start + i) * WIDTH) / (slots - 1);
  const high = ceiling(Math.max(0, ...accepted));
  const low = ceiling(Math.max(0, ...rejected.map((n, i) => n + failed[i])));
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${UPPER + GAP + LOWER}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const y = (n) => UPPER - (n / high) * (UPPER - 16);
  const points = accepted.map((n, i) => `${x(i).toFixed(1)},${y(n).toFixed(1)}`);
  if (points.length > 1) {
    svg.append(shape("polygon", { class: "area", points: `${x(0)},${UPPER} ${points.join(" ")} ${WIDTH},${UPPER}` }));
    svg.append(shape("polyline", { class: "line", points: points.join(" ") }));
  }
  const bottom = UPPER + GAP + LOWER;
  for (const base of [UPPER, bottom]) svg.append(shape("line", { class: "base", x1: 0, x2: WIDTH, y1: base, y2: base }));
  const width = Math.max(1.4, (WIDTH / slots) * 0.8);
  rejected.forEach((n, i) => {
    let top = bottom;
    for (const [value, cls] of [[n, "bar"], [failed[i], "bar failed"]]) {
      if (!value) continue;
      const height = Math.max(2, (value / low) * LOWER);
      top -= height;
      svg.append(shape("rect", { class: cls, x: (x(i) - width / 2).toFixed(1), y: top.toFixed(1), width: width.toFixed(1), height: height.toFixed(1) }));
    }
  });
  const cursor = shape("line", { class: "cursor", y1: 0, y2: bottom });
  svg.append(cursor);
  drawn = { history, start, cursor };

  const figure = at("chart");
  figure.replaceChildren(
    svg,
    element("span", { class: "scale upper" }, `${count(high)}/s accepted`),
    element("span", { class: "scale lower" }, `${count(low)}/s refused`),
    element("div", { class: "axis", "aria-hidden": "true" }, element("span", {}, `${Math.round(slots / 60)} min ago`), element("span", {}, "now")),
  );
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const totals = { accepted: sum(accepted), rejected: sum(rejected), failed: sum(failed) };
  figure.setAttribute("aria-label",
    `Over the last 5 minutes: ${count(totals.accepted)} accepted, ${count(totals.rejected)} refused, ${count(totals.failed)} without a verdict.`);
  for (const [name, total] of Object.entries(totals)) say(`sum-${name}`, count(total));
  return totals;
}

function readChart(event) {
  if (!drawn) return;
  const box = at("chart").getBoundingClientRect();
  const { history, start, cursor } = drawn;
  const slot = Math.round(((event.clientX - box.left) / box.width) * (history.slots - 1));
  const i = slot - start;
  if (i < 0 || i >= history.accepted.length) return forgetReading();
  const place = (slot * WIDTH) / (history.slots - 1);
  cursor.setAttribute("x1", place);
  cursor.setAttribute("x2", place);
  const ago = history.accepted.length - 1 - i;
  say("chart-reading", `${ago} s ago: ${count(history.accepted[i])} accepted, ${count(history.rejected[i])} refused` +
    (history.failed[i] ? `, ${count(history.failed[i])} without a verdict` : ""));
}

function forgetReading() {
  say("chart-reading", "");
  drawn?.cursor.removeAttribute("x1");
}

at("chart").addEventListener("pointermove", readChart);
at("chart").addEventListener("pointerleave", forgetReading);

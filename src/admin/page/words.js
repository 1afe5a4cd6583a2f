// How numbers, times and names are written, for people.

const NUMBER = new Intl.NumberFormat("en");

const count = (n) => NUMBER.format(n);

const plural = (n, one, many) => `${count(n)} ${n === 1 || n === 1n ? one : many}`;

const clock = (date) => date.toTimeString().slice(0, 8);

// Nobody is to be fooled by what cannot be seen: control characters, and those that turn text around.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const visible = (text) =>
  text.replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

function milliseconds(seconds) {
  const ms = seconds * 1000;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 10) return `${ms.toFixed(0)} ms`;
  return `${ms.toFixed(2)} ms`;
}

function timeLeft(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  return s < 120 ? `${s} s` : `${Math.floor(s / 60)} min`;
}

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("data-") || key.startsWith("aria-") || key === "role") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

const at = (id) => document.getElementById(id);

// Only what differs is touched: a screen reader is told of every change.
function say(id, text) {
  const place = at(id);
  if (place.textContent !== text) place.textContent = text;
}

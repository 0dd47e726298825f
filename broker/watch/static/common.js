// What all pages share: the stream of events, the line that says what is old, and words for ages.

const QUIET_MS = 5000; // an event comes every 2 s at the least

let last = 0; // when the last event came, by performance.now()
let open = false;
let ahead = 0; // the watch program's clock less this machine's, ms
let broker = null;
let asOf = null; // when what is shown was true

export const byId = (id) => document.getElementById(id);

export function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

export function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const now = () => (Date.now() + ahead) / 1000;

export function ago(at) {
  const s = Math.max(0, Math.round(now() - at));
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} days ago`;
}

// A moment with the day if it is not today's, in UTC as everything that devices say.
export function clock(at) {
  const [day, time] = new Date(at * 1000).toISOString().split("T");
  const today = new Date(now() * 1000).toISOString().slice(0, 10);
  return `${day === today ? "" : `${day} `}${time.slice(0, 8)} UTC`;
}

export function facts(list, pairs) {
  list.replaceChildren(
    ...pairs.map(([name, value]) => {
      const pair = element("div");
      pair.append(element("dt", name), element("dd", value));
      return pair;
    }),
  );
}

function stale() {
  const quiet = performance.now() - last > QUIET_MS;
  let line = "";
  if (!open || quiet) line = `The watch program does not answer. What is shown is old: of ${asOf ? clock(asOf) : "before"}.`;
  else if (broker && !broker.connected)
    line = `The broker is away since ${clock(broker.since)}: ${broker.why}. What is shown is old, as it was then.`;
  const note = byId("old");
  if (note.textContent !== line) note.textContent = line;
  note.hidden = !line;
  document.body.classList.toggle("stale", Boolean(line));
}

function sayBroker(said) {
  broker = said;
  const line = byId("broker");
  if (!line) return;
  const parts = [`${said.connected ? "Connected to" : "Away:"} ${said.url}`];
  if (said.connected) parts.push(`since ${clock(said.since)}`);
  if (said.refused.length) parts.push(`· it refuses us ${said.refused.join(", ")}`);
  if (said.unreadable) parts.push(`· unreadable messages: ${said.unreadable}`);
  if (said.strangers.length) parts.push(`· somebody publishes as ${said.strangers.join(", ")}: no name of a node`);
  line.textContent = parts.join(" ");
  line.classList.toggle("away", !said.connected);
  line.classList.toggle("odd", Boolean(said.unreadable || said.refused.length));
}

export function listen(path, show) {
  const source = new EventSource(path);
  source.onmessage = (event) => {
    const view = JSON.parse(event.data);
    last = performance.now();
    open = true;
    ahead = view.now * 1000 - Date.now();
    if (view.broker) sayBroker(view.broker);
    if (!broker || broker.connected) asOf = view.now;
    show(view);
    stale();
  };
  source.onerror = () => {
    open = false;
    stale();
  };
  setInterval(stale, 500);
}

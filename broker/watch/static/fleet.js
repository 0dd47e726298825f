// The page of a fleet: a row a node, kept up to date; filters; the last 50 runs.

import { ago, byId, colour, element, listen } from "./common.js";

const nodes = new Map(); // name: {view, row, cells}
const body = byId("nodes").tBodies[0];
const columns = [...byId("nodes").tHead.rows[0].cells].map((cell) => cell.className);
const buttons = [...document.querySelectorAll("#tiles button")];
const find = byId("find");
const order = new Intl.Collator("en", { numeric: true });
const OUTCOMES = {
  answer: "good", done: "good", held: "warn", refused: "bad", missed: "bad", stopped: "apart", owed: "warn", running: "agreed",
  joined: "agreed",
};
const LETTERS = { d: "good", o: "warn", s: "apart", r: "bad", j: "agreed", ".": "line" };
const KEY = [["good", "answered"], ["warn", "held"], ["apart", "stopped"], ["bad", "refused or missed"], ["agreed", "under way"]];
let filter = "";

function bar(share) {
  const outer = element("span", undefined, "bar");
  const inner = element("i", undefined, share < 0.2 ? "low" : "fair");
  inner.style.width = `${100 * share}%`;
  outer.append(inner);
  return outer;
}

function strip(canvas, letters) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = 100 * scale;
  canvas.height = 14 * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  [...letters].forEach((letter, i) => {
    pen.fillStyle = colour(LETTERS[letter] || "line");
    pen.fillRect(100 - 2 * (letters.length - i), letter === "." ? 6 : 1, 1.5, letter === "." ? 2 : 12);
  });
}

function made(name) {
  const row = element("tr");
  const cells = {};
  for (const column of columns) {
    cells[column] = element(column === "node" ? "th" : "td", undefined, column);
    row.append(cells[column]);
  }
  cells.node.scope = "row";
  cells.canvas = element("canvas");
  cells.strip.append(cells.canvas);
  return { row, cells, name };
}

function show(node, view) {
  const { row, cells } = node;
  node.view = view;
  row.className = view.flags.join(" ");
  for (const [column, text] of Object.entries(view.cells)) {
    if (cells[column].textContent !== text) cells[column].textContent = text;
  }
  if (view.share !== null) cells.budget.append(bar(view.share));
  if (view.life !== null) cells.life.append(bar(view.life));
  if (node.letters !== view.strip) strip(cells.canvas, (node.letters = view.strip));
  cells.now.title = view.cells.now;
}

function place(node) {
  const next = [...nodes.values()].find((other) => other.row.isConnected && order.compare(other.name, node.name) > 0);
  body.insertBefore(node.row, next ? next.row : null);
}

function ordered() {
  const sorted = [...nodes.entries()].sort(([a], [b]) => order.compare(a, b));
  nodes.clear();
  for (const [name, node] of sorted) nodes.set(name, node);
}

function fresh() {
  const views = [...nodes.values()].map((node) => node.view);
  for (const button of buttons) {
    const kind = button.dataset.filter;
    const count = kind ? views.filter((view) => view.flags.includes(kind)).length : views.length;
    button.firstElementChild.textContent = count;
    button.classList.toggle("some", Boolean(kind) && count > 0);
  }
  chosen();
}

function chosen() {
  const part = find.value.trim().toLowerCase();
  let visible = 0;
  for (const { row, view, name } of nodes.values()) {
    const fits = (!filter || view.flags.includes(filter)) && name.includes(part);
    row.hidden = !fits;
    visible += fits;
  }
  byId("count").textContent = visible === nodes.size ? `${visible} nodes` : `${visible} of ${nodes.size} nodes`;
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.filter === filter));
}

function past(runs) {
  const cells = runs.map((run) => {
    const cell = element("i", undefined, `run ${OUTCOMES[run.outcome] || "line"}`);
    const name = run.number === null ? `run ${run.run}` : `interval ${run.number}`;
    const counts = Object.entries(run.counts).filter(([, count]) => count).map(([word, count]) => `${count} ${word}`);
    const why = run.cause ? ` (${run.cause})` : "";
    cell.title = `${name}, ${run.at.slice(0, 16).replace("T", " ")}: ${run.outcome || "?"}${why}; ${counts.join(", ") || "no node has said more"}`;
    return cell;
  });
  byId("past").replaceChildren(...(cells.length ? cells : [element("p", "None yet.")]));
  byId("key").replaceChildren(
    ...KEY.map(([kind, text]) => {
      const entry = element("span");
      entry.append(element("i", undefined, kind), text);
      return entry;
    }),
  );
}

function ages() {
  for (const { cells, view } of nodes.values()) {
    const text = view.spoke ? ago(view.spoke) : "";
    if (cells.spoke.textContent !== text) cells.spoke.textContent = text;
  }
}

listen("/events/fleet", (view) => {
  if (view.whole) {
    nodes.clear();
    body.replaceChildren();
  }
  const added = [];
  for (const row of view.rows) {
    let node = nodes.get(row.node);
    if (!node) {
      nodes.set(row.node, (node = made(row.node)));
      added.push(node);
    }
    show(node, row);
  }
  for (const name of view.removed) {
    nodes.get(name)?.row.remove();
    nodes.delete(name);
  }
  if (added.length) ordered();
  if (view.whole) body.append(...[...nodes.values()].map((node) => node.row));
  else added.forEach(place);
  if (view.runs) past(view.runs);
  if (view.rows.length || view.removed.length) fresh();
  ages();
});

for (const button of buttons) {
  button.addEventListener("click", () => {
    filter = button.dataset.filter === filter ? "" : button.dataset.filter;
    chosen();
  });
}
find.hidden = false;
find.addEventListener("input", chosen);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const { cells, letters } of nodes.values()) strip(cells.canvas, letters);
});

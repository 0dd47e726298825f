// The page of a run: its residual as it falls, its graph with the token or the flows, and the last answer.

import { byId, colour, drawn, element, facts, listen } from "./common.js";

let run = null;
let answer = null;
let graph = null;
let gone = new Set();
let points = [];
let residual = null;
let prices = null;

const short = (value) => (value === null || value === undefined ? "" : Number(value.toPrecision(4)).toString());

function axes(labels) {
  return labels.map((label) => ({
    label,
    labelSize: 22,
    font: "12px sans-serif",
    labelFont: "12px sans-serif",
    stroke: colour("soft"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1 },
  }));
}

function chart(place, labels, series, scales, data, old, name) {
  old?.destroy();
  const width = Math.max(280, Math.min(place.clientWidth || 480, 900));
  const [x, y] = axes(labels);
  y.size = 62;
  x.size = 34;
  if (!labels[1]) y.labelSize = 0;
  if (name) x.values = (_, splits) => splits.map((split) => name(split));
  const few = (_, splits) => splits.map((value) => (Math.abs(Math.log10(value) % 1) < 1e-9 ? value : null));
  if (scales.y?.distr === 3) [y.filter, y.grid.filter] = [few, few];
  const options = { width, height: 270, scales, axes: [x, y], series, cursor: { drag: { x: false, y: false } } };
  return new uPlot(options, data, place);
}

function drawResidual() {
  const shown = points.filter(([, value]) => value > 0);
  byId("residual-note").textContent = shown.length > 1
    ? "On a logarithmic scale. It falls as the nodes come to agree."
    : "Fewer than two residuals have been seen: this pattern's coordinator sees none, the run was short, or none is under way.";
  byId("residual").hidden = shown.length < 2;
  if (shown.length < 2) return;
  const data = [shown.map(([round]) => round), shown.map(([, value]) => value)];
  if (residual) residual.setData(data);
  else {
    const line = { label: "residual", stroke: colour("agreed"), width: 2, points: { show: shown.length < 40, size: 5 }, value: (_, v) => short(v) };
    residual = chart(byId("residual"), ["round", ""], [{ label: "round" }, line], { x: { time: false }, y: { distr: 3 } }, data);
  }
}

function drawPrices() {
  const entries = Object.entries(answer?.prices || {}).map(([bus, price]) => [Number(bus), price]);
  byId("prices-figure").hidden = !entries.length;
  if (!entries.length) return;
  entries.sort(([a], [b]) => a - b);
  const values = entries.map(([, price]) => price);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const cut = answer.cut.prices ? ` Cut: of ${answer.cut.prices} buses.` : "";
  byId("prices-note").textContent =
    `$/MWh of one more MW of load at ${entries.length} buses: least ${short(Math.min(...values))}, ` +
    `mean ${short(mean)}, most ${short(Math.max(...values))}.${cut}`;
  const dots = { label: "price", stroke: colour("noise"), width: 1, paths: () => null, points: { show: true, size: 6, fill: colour("noise") }, value: (_, v) => short(v) };
  const name = (no) => (no === null ? "" : String(entries[no]?.[0] ?? ""));
  const data = [entries.map((_, i) => i), values];
  prices = chart(byId("prices"), ["bus", ""], [{ label: "bus", value: (_, no) => name(no) }, dots], { x: { time: false } }, data, prices, name);
}

function drawTable() {
  const place = byId("table");
  if (!answer?.table?.length) return place.replaceChildren();
  const table = element("table");
  const head = table.createTHead().insertRow();
  for (const name of answer.columns) head.append(element("th", name === null ? "" : String(name)));
  const body = table.createTBody();
  for (const row of answer.table) {
    const line = body.insertRow();
    for (const cell of row) line.append(element("td", typeof cell === "number" ? short(cell) : (cell ?? "")));
  }
  const title = element("h3", "The sum's table");
  place.replaceChildren(title, table);
}

function flow(a, b) {
  const flows = answer?.tie_flows || {};
  if (`${a}-${b}` in flows) return flows[`${a}-${b}`];
  return `${b}-${a}` in flows ? -flows[`${b}-${a}`] : null;
}

function edge(a, b, from, to, largest) {
  const mw = flow(a, b);
  const group = drawn("g", { class: mw === null ? "edge" : "edge tie" });
  const line = { x1: from[0], y1: from[1], x2: to[0], y2: to[1] };
  const width = mw === null ? 1.5 : 2 + (5 * Math.abs(mw)) / (largest || 1);
  group.append(drawn("line", { ...line, "stroke-width": width.toFixed(1) }));
  if (mw === null) return group;
  const [tail, tip] = mw < 0 ? [to, from] : [from, to];
  const length = Math.hypot(tip[0] - tail[0], tip[1] - tail[1]) || 1;
  const [ux, uy] = [(tip[0] - tail[0]) / length, (tip[1] - tail[1]) / length];
  const [mx, my] = [(tail[0] + tip[0]) / 2, (tail[1] + tip[1]) / 2];
  const size = 6 + width;
  const corner = (along, across) => `${(mx + ux * along - uy * across).toFixed(1)},${(my + uy * along + ux * across).toFixed(1)}`;
  if (mw) group.append(drawn("polygon", { points: [corner(size, 0), corner(-size, size * 0.8), corner(-size, -size * 0.8)].join(" ") }));
  const side = ux < 0 || (ux === 0 && uy > 0) ? -1 : 1;
  const text = { x: mx + uy * 34 * side, y: my - ux * 26 * side, "text-anchor": "middle", dy: "0.35em" };
  group.append(drawn("text", text, `${short(Math.abs(mw))} MW`));
  return group;
}

function drawGraph() {
  const place = byId("graph");
  const note = byId("graph-note");
  if (!graph || graph.many !== undefined) {
    place.replaceChildren();
    note.textContent = graph?.many ? `The graph is not drawn: it has ${graph.many} nodes.` : "No graph has been seen.";
    return;
  }
  const label = "The graph of the run";
  const picture = drawn("svg", { viewBox: `0 0 ${graph.width} ${graph.height}`, role: "img", "aria-label": label });
  const flows = Object.values(answer?.tie_flows || {}).map(Math.abs);
  for (const [a, b] of graph.edges) picture.append(edge(a, b, graph.nodes[a], graph.nodes[b], Math.max(...flows, 0)));
  const asked = new Set(run?.asked || []);
  const lost = new Set(run?.lost || []);
  const few = Object.keys(graph.nodes).length <= 40;
  for (const [name, [x, y]] of Object.entries(graph.nodes)) {
    const kind = name === run?.holder ? "holder" : lost.has(name) ? "lost" : gone.has(name) ? "gone" : asked.has(name) ? "asked" : "";
    const group = drawn("g", { class: `node ${kind}` });
    if (kind === "holder") group.append(drawn("circle", { class: "halo", cx: x, cy: y, r: graph.radius * 1.7 }));
    group.append(drawn("circle", { cx: x, cy: y, r: graph.radius }));
    group.append(drawn("title", {}, kind ? `${name}: ${kind}` : name));
    if (few) group.append(drawn("text", { x, y: y + graph.radius + 14, "text-anchor": "middle" }, name));
    picture.append(group);
  }
  place.replaceChildren(picture);
  byId("graph-title").textContent = flows.length ? "Flows between zones" : run?.pattern === "token" ? "The token on its graph" : "Graph";
  const words = [];
  if (run?.holder) words.push(`The token is at ${run.holder}.`);
  if (flows.length) words.push("Arrows show where power flows by the last answer.");
  if (asked.size && !run?.holder) words.push("Ringed nodes must send something now.");
  if ([...gone].some((name) => name in graph.nodes)) words.push("Hollow nodes are gone.");
  note.textContent = words.join(" ");
}

function all() {
  drawResidual();
  drawGraph();
  drawPrices();
  drawTable();
}

listen("/events/run", (view) => {
  const before = [...gone].join();
  gone = new Set(view.gone);
  if ("run" in view) {
    if (view.run?.run !== run?.run) {
      residual?.destroy();
      residual = null;
    }
    run = view.run;
    points = [...new Map(view.begun ? view.points : [...points, ...view.points])]; // of a round the last
    facts(byId("run"), view.facts);
    drawResidual();
  }
  if ("answer" in view) {
    answer = view.answer;
    facts(byId("answer"), view.answer_facts);
    drawPrices();
    drawTable();
  }
  if (view.graph) graph = view.graph;
  if ("run" in view || "answer" in view || [...gone].join() !== before) drawGraph();
});

function again() {
  residual?.destroy();
  residual = null;
  all();
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) again();
  width = window.innerWidth;
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

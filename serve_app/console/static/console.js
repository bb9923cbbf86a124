"use strict";
// Asks for the fleet once a second and puts it on the page, as text: nothing that comes is markup.
const PERIOD_MS = 1000;
const ANSWER_MS = 10000; // after which an answer is not waited for
const KEPT_S = 300; // of each plot
const HERE = location.pathname.endsWith("/") ? "" : `${location.pathname.split("/").pop()}/`;
const at = (id) => document.getElementById(id);
const put = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};
const number = (value, digits = 0) =>
  value === null || value === undefined
    ? "-"
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const few = (value) => number(value, value !== 0 && Math.abs(value) < 10 ? 1 : 0);
const whole = (value) => number(Math.round(value));
const percent = (share) => (share === null || share === undefined ? "-" : `${number(share * 100)}%`);
const ms = (value) =>
  value === null || value === undefined ? "-" : value < 10000 ? `${few(value)} ms` : `${number(value / 1000, 1)} s`;
const rate = (value) => (value === null || value === undefined ? "-" : `${few(value)}/s`);
const clock = (unixS) => new Date(unixS * 1000).toTimeString().slice(0, 8);
const place = (group, replica) =>
  `#${new URLSearchParams(replica ? { group, replica } : { group })}`;

// Children of a node by key: nodes that stay keep their place, their focus and their state.
function children(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  items.forEach((item, index) => {
    const name = key(item);
    let node = known.get(name);
    known.delete(name);
    if (!node) {
      node = make(item);
      node.dataset.key = name;
    }
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] || null);
    update(node, item);
  });
  known.forEach((node) => node.remove());
}

function element(kind, name, ...inner) {
  const node = document.createElement(kind);
  if (name) node.className = name;
  node.append(...inner);
  return node;
}

function lines(parent, texts) {
  children(parent, texts.map((text, index) => ({ text, index })), (one) => String(one.index),
    () => element("li"), (node, one) => put(node, one.text));
  parent.hidden = !texts.length;
}

function attained(name, share, limitMs, wanted) {
  if (limitMs === null || limitMs === undefined) return null;
  const met = share === null ? "" : share * 100 >= wanted ? "good" : "bad";
  const text = share === null ? "none came" : `${number(share * 100, 2)}%`;
  return [`${name} within ${ms(limitMs)} (${number(wanted)}% wanted)`, text, met];
}

function facts(model) {
  if (model.group === null) return [["replicas", `none reports; ${model.running} of ${model.wanted} run`, ""]];
  const { sla } = model;
  const wanted = model.wanted === null ? "" : ` of ${model.wanted} wanted`;
  const short = model.wanted !== null && model.replicas < model.wanted;
  const over = model.capacity_per_s !== null && model.demand_per_s > model.capacity_per_s;
  return [
    attained("time between tokens", model.attained.itl, sla.itl_ms, sla.percentile),
    model.stalls ? [`stalls, gaps above ${ms(1000 * model.stall_s)}`, number(model.stalls), "bad"] : null,
    attained("first token", model.attained.ttft, sla.ttft_ms, sla.percentile),
    ["arrivals / capacity", `${rate(model.demand_per_s)} / ${rate(model.capacity_per_s)}`, over ? "bad" : ""],
    ["replicas", `${model.replicas}${wanted}`, short ? "bad" : ""],
    ["running, waiting", `${number(model.running)}, ${number(model.waiting)}`, ""],
    model.out_of_reach ? ["replicas whose SLA is out of reach", number(model.out_of_reach), "bad"] : null,
  ].filter(Boolean);
}

function makeCard(model) {
  const title = model.group === null ? element("span") : element("a");
  if (model.group !== null) title.href = place(model.group);
  return element("article", "card", element("h3", "", title), element("p", "where"), element("dl"), element("meter"));
}

function updateCard(card, model) {
  put(card.querySelector("h3").firstChild, model.model);
  const badges = [
    model.emulated ? "emulated accelerator" : "",
    model.on === false ? "control off" : "",
  ].filter(Boolean);
  const text = [model.application, model.policy && `policy ${model.policy}`, model.status !== "HEALTHY" && model.status && model.status.toLowerCase()];
  const where = card.querySelector(".where");
  children(where, [...badges.map((name) => ["badge", name]), ["", text.filter(Boolean).join(" · ")]],
    (one) => one.join("|"), ([name]) => element("span", name), (node, one) => put(node, one[1]));
  const found = facts(model).flatMap(([name, value, mark]) => [["dt", name, ""], ["dd", value, mark, name]]);
  children(card.querySelector("dl"), found, (one) => `${one[0]}|${one[3] || one[1]}`,
    (one) => element(one[0]), (node, one) => { put(node, one[1]); node.className = one[2]; });
  const meter = card.querySelector("meter");
  const known = model.group !== null && model.capacity_per_s > 0;
  meter.hidden = !known;
  if (known) {
    const load = model.demand_per_s / model.capacity_per_s;
    Object.assign(meter, { min: 0, max: 1, low: 0.85, high: 0.99, optimum: 0, value: Math.min(load, 1) });
    meter.setAttribute("aria-label", `arrivals are ${percent(load)} of capacity`);
    meter.title = `${percent(load)} of capacity`;
  }
}

const CELLS = ["name", "name wide", "wide", "n", "wide", "n wide", "n", "n", "n", "n wide", "n", "n wide", "n wide"];

function makeRow(one) {
  const link = element("a");
  link.href = place(one.group, one.replica);
  const cells = CELLS.map((name, index) => element(index ? "td" : "th", name, index ? "" : link));
  cells[0].scope = "row";
  return element("tr", "", ...cells);
}

function updateRow(row, one, model) {
  const values = [
    one.replica, model + (one.emulated ? " (emulated)" : ""), (one.late ? "late" : one.control) + (one.role ? `, ${one.role}` : ""),
    number(one.max_running), one.sla_out_of_reach ? "SLA out of reach" : one.set_by,
    number(one.chunk_tokens), number(one.running), number(one.waiting), percent(one.kv_frac),
    ms(one.itl_p50_ms), ms(one.itl_p99_ms), ms(one.ttft_p50_ms), ms(one.ttft_p99_ms),
  ];
  values.forEach((value, index) => put(index ? row.children[index] : row.children[0].firstChild, value));
  row.children[0].title = one.replica;
  row.children[1].title = values[1];
  row.children[2].className = one.late || one.control !== "on" ? "bad" : "wide";
  const { group, replica } = chosen();
  if (one.group === group && one.replica === replica) row.setAttribute("aria-current", "true");
  else row.removeAttribute("aria-current");
}

let fleet = null;
let plots = [];
let shown = null; // what the plots are of: {key, series}
const chosen = () => {
  const asked = new URLSearchParams(location.hash.slice(1));
  const group = asked.get("group");
  if (group) return { group, replica: asked.get("replica") };
  const first = fleet && fleet.replicas ? fleet.replicas[0] : null;
  return first ? { group: first.group, replica: first.replica } : { group: null, replica: null };
};

function showFleet(now) {
  fleet = now;
  at("problem").hidden = !now.error;
  put(at("problem"), now.error || "");
  if (!now.models) {
    put(at("empty"), "Nothing is known of the fleet yet.");
    return;
  }
  put(at("about"), `batch controller ${now.version}, seen ${clock(now.read_unix_s)}`);
  lines(at("notes"), [now.switched_off, ...now.refused].filter(Boolean));
  at("empty").hidden = now.models.length > 0;
  put(at("empty"), "No replica has reported yet.");
  children(at("models"), now.models, (one) => one.group || `${one.application}|${one.model}`, makeCard, updateCard);
  const names = new Map(now.models.map((one) => [one.group, one.model]));
  children(at("rows"), now.replicas, (one) => `${one.group}|${one.replica}`, makeRow,
    (row, one) => updateRow(row, one, names.get(one.group)));
  at("no-log").hidden = now.log.length > 0;
  const said = new Map();
  children(at("log"), now.log, (one) => {
    const text = `${one.unix_s}|${one.group}|${one.replica}|${one.text}`;
    said.set(text, (said.get(text) || 0) + 1);
    return `${text}|${said.get(text)}`;
  }, () => element("li", "", element("time"), element("b"), element("span")), (node, one) => {
    put(node.children[0], clock(one.unix_s));
    put(node.children[1], one.replica || one.group);
    put(node.children[2], one.text);
  });
}

const line = (name, ink, column, dash = false) => ({ name, ink, column, dash });
const REPLICA = [
  ["Running", [line("now", "--one", "running"), line("cap", "--cap", "cap", true)], whole],
  ["Waiting", [line("now", "--two", "waiting")], whole],
  ["Chunk, tokens", [line("left for prompts", "--one", "chunk_tokens")], whole],
  ["KV memory and engine", [line("KV in use", "--one", "kv_frac"), line("engine busy", "--two", "busy_frac")], percent, 1],
  ["Time between tokens", [line("p50", "--one", "itl_p50_ms"), line("p99", "--two", "itl_p99_ms"), line("SLA", "--limit", "itl_ms", true)], ms],
  ["Time to first token", [line("p50", "--one", "ttft_p50_ms"), line("p99", "--two", "ttft_p99_ms"), line("SLA", "--limit", "ttft_ms", true)], ms],
];
const MODEL = [
  ["Requests per second", [line("arrivals", "--two", "demand_per_s"), line("capacity", "--one", "capacity_per_s", true)], rate],
  ["Replicas", [line("reporting", "--one", "replicas"), line("wanted", "--cap", "wanted", true)], whole],
  ["Inside the SLA", [line("between tokens", "--one", "itl"), line("first token", "--two", "ttft")], percent, 1],
];

function clearPlots() {
  plots.forEach((plot) => plot.remove());
  plots = [];
}

function showDetail(key, replica, now) {
  at("detail").hidden = false;
  const model = (fleet.models.find((one) => one.group === now.group) || {}).model || now.group;
  put(at("detail-title"), replica ? `Replica ${replica} of ${model}` : `All replicas of ${model}`);
  lines(at("why"), now.facts || []);
  lines(at("advice"), now.advice || []);
  if (!shown || shown.key !== key) {
    clearPlots();
    shown = { key, series: null };
  }
  if (shown.series === null) shown.series = now.series;
  else Object.keys(now.series).forEach((name) => shown.series[name].push(...now.series[name]));
  const { series } = shown;
  const first = series.unix_s.findIndex((unixS) => unixS > series.unix_s.at(-1) - KEPT_S);
  if (first > 0) Object.values(series).forEach((column) => column.splice(0, first));
  const columns = { ...series };
  if (now.sla) {
    ["itl_ms", "ttft_ms"].forEach((name) => { columns[name] = series.unix_s.map(() => now.sla[name]); });
  }
  if (!series.unix_s.length) return;
  if (!plots.length) {
    const kinds = (replica ? REPLICA : MODEL).map(([title, all, text, top]) =>
      [title, all.filter((one) => columns[one.column].some((v) => v !== null) || !["itl_ms", "ttft_ms"].includes(one.column)), text, top]);
    plots = kinds.map(([title, all, text, top]) => new Draw.Plot(at("plots"), title, all, text, top));
  }
  plots.forEach((plot) => plot.show(columns));
}

async function ask(path) {
  const signal = AbortSignal.timeout(ANSWER_MS);
  const answer = await fetch(HERE + path, { cache: "no-store", signal });
  if (answer.status === 401) location.reload(); // the browser asks for a key
  if (!answer.ok && answer.status !== 503) return null;
  return answer.json();
}

async function detail() {
  const { group, replica } = chosen();
  if (!group) {
    at("detail").hidden = true;
    return;
  }
  const key = place(group, replica);
  const known = shown && shown.key === key && shown.series ? shown.series.unix_s.at(-1) || 0 : 0;
  const query = new URLSearchParams({ group, after: String(known), ...(replica ? { replica } : {}) });
  const now = await ask(`api/series?${query}`);
  const still = chosen();
  if (place(still.group, still.replica) !== key) return;
  if (now) showDetail(key, replica, now);
  else at("detail").hidden = true;
  Batch.round(now && replica, ask);
}

async function round() {
  try {
    const now = await ask("api/fleet");
    if (now) {
      showFleet(now);
      await detail();
    }
  } catch (error) {
    at("problem").hidden = false;
    put(at("problem"), `The console does not answer, and is asked again. (${error.message})`);
  }
}

let timer = null;
let busy = false;
let again = false;
let scroll = false;

// One round at a time, a second apart; none while the page is hidden.
async function loop() {
  clearTimeout(timer);
  again = busy;
  if (busy || document.hidden) return;
  busy = true;
  do {
    again = false;
    await round();
  } while (again);
  busy = false;
  if (scroll) at("detail").scrollIntoView();
  scroll = false;
  timer = setTimeout(loop, PERIOD_MS);
}

Batch.opened(loop);
addEventListener("hashchange", () => {
  scroll = new URLSearchParams(location.hash.slice(1)).has("group");
  loop();
});
document.addEventListener("visibilitychange", loop);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  clearPlots();
  loop();
});
loop();

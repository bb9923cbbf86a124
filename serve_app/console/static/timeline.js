"use strict";
// The batch of one replica in the last minute: a row for each slot, a bar for each request in it.
// Asked for only while it is open on the page.
const Batch = (() => {
  const LAST_S = 60;
  const LEFT = 58;
  const BOTTOM = 18;
  const HEIGHT = 380; // of all rows together, at most
  const ROW = [2, 14];
  const GAP = 10; // between slots and waiting requests
  const INKS = ["--one", "--two", "--three", "--four", "--five", "--six"];
  const FULL = { decode: 1, prefill: 0.55, waiting: 0.3, preempted: 0.3 };
  const at = (id) => document.getElementById(id);
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  let busy = false;
  let shown = null; // the last answer, and where its bars are: {now, boxes}

  function rows(bars, sign) {
    return bars.reduce((most, bar) => Math.max(most, sign > 0 ? bar[3] + 1 : -bar[3]), 0);
  }

  function legend(now) {
    const names = now.classes.map((name, index) => {
      const one = document.createElement("span");
      one.style.setProperty("--ink", `var(${INKS[index % INKS.length]})`);
      one.textContent = name;
      return one;
    });
    at("batch-legend").replaceChildren(...names);
  }

  function said(now) {
    const open = now.bars.filter((bar) => bar[5] === null);
    const count = (...states) => open.filter((bar) => states.includes(now.states[bar[2]])).length;
    const waiting = count("waiting") + now.unseen;
    const parts = [
      `${count("decode")} decode`, `${count("prefill")} in prefill`, `${waiting} wait`,
      `${count("preempted")} preempted`,
    ];
    const since = now.recorded_s < LAST_S ? `; recorded for ${Math.round(now.recorded_s)} s` : "";
    return `Now ${parts.join(", ")}${since}.`;
  }

  function draw(now) {
    const canvas = at("batch-bars");
    const width = Math.max(canvas.parentElement.clientWidth - 18, 200);
    const slots = Math.max(rows(now.bars, 1), 1);
    const waits = rows(now.bars, -1);
    const row = Math.min(Math.max(Math.floor(HEIGHT / (slots + waits)), ROW[0]), ROW[1]);
    const height = (slots + waits) * row + GAP + BOTTOM;
    const scale = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: width * scale, height: height * scale });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const x = (agoS) => LEFT + (1 - Math.min(agoS, LAST_S) / LAST_S) * (width - LEFT);
    const y = (place) => (place >= 0 ? place * row : (slots - 1 - place) * row + GAP);
    axes(pen, { width, height, slots, waits, row, x, y });
    const inks = INKS.map(ink);
    const bad = ink("--bad");
    const boxes = now.bars.map(([id, kind, state, place, fromS, untilS]) => {
      const [left, right] = [x(fromS), x(untilS === null ? 0 : untilS)];
      const name = now.states[state];
      const gap = right - left > 3 ? 1 : 0; // to tell a request from the one before it
      const box = [left + gap, y(place), Math.max(right - left - gap, 1), Math.max(row - (row > 3 ? 1 : 0), 1)];
      pen.globalAlpha = FULL[name];
      pen.fillStyle = inks[kind % inks.length];
      pen.fillRect(...box);
      pen.globalAlpha = 1;
      if (name === "preempted") {
        pen.fillStyle = bad;
        pen.fillRect(box[0], box[1], box[2], Math.max(Math.ceil(row / 4), 1));
      }
      const lastS = fromS - (untilS === null ? 0 : untilS);
      return { box, text: `${id}, ${now.classes[kind]}: ${name} for ${lastS.toFixed(1)} s` };
    });
    canvas.setAttribute("aria-label", said(now));
    shown = { now, boxes };
  }

  function axes(pen, { width, height, slots, waits, row, x, y }) {
    pen.fillStyle = ink("--soft");
    pen.strokeStyle = ink("--line");
    pen.textAlign = "right";
    pen.fillText("slot 1", LEFT - 6, Math.max(y(0) + row / 2, 7));
    if (slots * row > 30) pen.fillText(String(slots), LEFT - 6, y(slots - 1) + row / 2);
    if (waits) pen.fillText("waiting", LEFT - 6, Math.max(y(-1) + row / 2, y(-1) + 3));
    pen.textAlign = "center";
    const step = width < 500 ? 20 : 10;
    for (let agoS = LAST_S; agoS >= 0; agoS -= step) {
      pen.beginPath();
      pen.moveTo(x(agoS), 0);
      pen.lineTo(x(agoS), height - BOTTOM);
      pen.stroke();
      if (agoS === 0) pen.textAlign = "right";
      if (agoS === LAST_S) pen.textAlign = "left";
      pen.fillText(agoS ? `-${agoS} s` : "now", x(agoS), height - BOTTOM / 2);
      pen.textAlign = "center";
    }
  }

  // The bar under the mouse, in words.
  function point(event) {
    const inside = ([left, top, wide, high]) =>
      event.offsetX >= left && event.offsetX <= left + wide && event.offsetY >= top && event.offsetY <= top + high;
    const found = shown ? shown.boxes.find((one) => inside(one.box)) : null;
    at("batch-bars").title = found ? found.text : "";
  }

  // Called once a second with what is chosen; `ask` fetches a path. It need not be awaited.
  async function round(replica, ask) {
    at("batch").hidden = !replica;
    if (!replica || !at("batch").open || busy) return;
    busy = true;
    try {
      const now = await ask(`api/timeline?${new URLSearchParams({ replica })}`);
      if (!now || now.error) throw new Error(now ? now.error : "nothing is recorded here");
      at("batch-said").textContent = said(now);
      legend(now);
      draw(now);
      performance.mark("batch");
    } catch (error) {
      at("batch-said").textContent = `No timeline: ${error.message}.`;
    }
    busy = false;
  }

  at("batch-bars").addEventListener("mousemove", point);
  addEventListener("resize", () => shown && at("batch").open && draw(shown.now));
  return { round, opened: (listener) => at("batch").addEventListener("toggle", listener) };
})();

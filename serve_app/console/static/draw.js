"use strict";
// Plots by uPlot: each has a caption with the last value of every line, and follows the page's width.
const Draw = (() => {
  const HEIGHT = 150;
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const clock = (unixS) => new Date(unixS * 1000).toTimeString().slice(0, 8);

  class Plot {
    // lines: [{name, ink, column, dash?}]; shown: turns a number into the text that people read.
    constructor(parent, title, lines, shown, top) {
      Object.assign(this, { parent, lines, shown, top });
      this.figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      const name = document.createElement("b");
      name.textContent = title;
      this.values = lines.map((line) => {
        const value = document.createElement("span");
        value.style.setProperty("--ink", `var(${line.ink})`);
        return value;
      });
      caption.append(name, ...this.values);
      this.figure.append(caption);
      parent.append(this.figure);
      this.watcher = new ResizeObserver(() => this.resize());
      this.watcher.observe(this.figure);
    }

    width() {
      return Math.max(this.figure.clientWidth - 18, 120);
    }

    resize() {
      if (this.plot && this.plot.width !== this.width()) {
        this.plot.setSize({ width: this.width(), height: HEIGHT });
      }
    }

    show(columns) {
      const data = [columns.unix_s, ...this.lines.map((line) => columns[line.column])];
      this.lines.forEach((line, index) => {
        const last = data[index + 1].at(-1);
        const text = last === null || last === undefined ? "-" : this.shown(last);
        this.values[index].textContent = `${line.name} ${text}`;
      });
      if (this.plot) {
        this.plot.setData(data);
      } else {
        this.plot = new uPlot(this.options(), data, this.figure);
        performance.mark("plot");
      }
    }

    options() {
      const axis = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { show: false } };
      const top = this.top;
      return {
        width: this.width(),
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { show: false } },
        scales: { y: { range: (_, low, high) => [0, top || Math.max(high || 0, 1e-9) * 1.08] } },
        axes: [
          { ...axis, space: 80, size: 32, values: (_, ticks) => ticks.map(clock) },
          { ...axis, size: 62, space: 28, values: (_, ticks) => ticks.map(this.shown) },
        ],
        series: [
          {},
          ...this.lines.map((line) => ({
            stroke: ink(line.ink),
            width: 1.75,
            dash: line.dash ? [6, 4] : undefined,
            points: { show: false },
            spanGaps: true,
          })),
        ],
      };
    }

    remove() {
      this.watcher.disconnect();
      if (this.plot) this.plot.destroy();
      this.figure.remove();
    }
  }

  return { Plot };
})();

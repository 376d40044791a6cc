"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const D = JSON.parse($("data").textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const color = (phase) => (phase in D.colors ? css("--c" + D.colors[phase]) : css("--other"));
/* steps: the ranges of the steps' filter; null where it leaves all */
const filter = { phase: "", rank: "", step: "", steps: null };

function duration(ns) {
  if (ns === null || ns === undefined) return "-";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
    if (Math.abs(ns) >= size) {
      const value = ns / size;
      return (Math.abs(value) < 1000 ? String(Number(value.toPrecision(3))) : Math.round(value).toLocaleString("en-US")) + " " + unit;
    }
  return Math.round(ns) + " ns";
}
function element(tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}
/* the ranges of a list of steps (4, 4-9, 6,9); null where a part is none */
function ranges(text) {
  const found = String(text).split(",").filter((part) => part.trim()).map((part) => part.match(/^\s*(\d+)\s*(?:-\s*(\d+))?\s*$/));
  return found.length && found.every(Boolean) ? found.map(([, low, high]) => [+low, +(high ?? low)]) : null;
}
/* whether a step's text (4, 4-9, 4,6) meets the filter's */
function stepMeets(text) {
  if (!filter.steps) return true;
  const mine = ranges(text);
  return !!mine && mine.some(([low, high]) => filter.steps.some((one) => low <= one[1] && high >= one[0]));
}
/* the next place from one on in a direction whose step is left; the place itself where there is none */
function next(from, by, steps) {
  for (let at = from + by; at >= 0 && at < steps.length; at += by) if (stepMeets(steps[at])) return at;
  return from;
}
const rankMeets = (name) => !filter.rank || name.toLowerCase().includes(filter.rank.toLowerCase());

/* --- a plot: one canvas whose x axis can be zoomed and moved, by pointer and keyboard ------------------------------ */
const plots = [];
class Plot {
  constructor(id) {
    this.section = $(id);
    this.canvas = this.section.querySelector("canvas");
    this.read = this.section.querySelector(".read");
    this.view = [0, 1];
    this.chosen = null;
    this.left = 56;
    this.section.hidden = false;
    this.listen();
    plots.push(this);
  }
  /* to be overridden: domain() -> [low, high], height() -> px, paint(context, width, height), at(x, y) -> item,
     text(item), move(dx, dy) -> item */
  get width() { return this.canvas.clientWidth || this.section.clientWidth - 40; }
  x(value) { return this.left + (value - this.view[0]) / (this.view[1] - this.view[0]) * (this.width - this.left - 8); }
  value(x) { return this.view[0] + (x - this.left) / (this.width - this.left - 8) * (this.view[1] - this.view[0]); }
  /* whether the middle of a column is in view: its label is drawn outside the clip, so that the first is whole */
  seen(at) { return at + 0.5 >= this.view[0] && at + 0.5 <= this.view[1]; }
  reset() { this.view = this.domain(); this.draw(); }
  draw() {
    const scale = window.devicePixelRatio || 1, width = this.width, height = this.height();
    this.canvas.style.height = height + "px";
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "11.5px system-ui,sans-serif";
    this.ink = css("--ink"); this.soft = css("--soft"); this.line = css("--line");
    this.paint(context, width, height);
  }
  clip(context, height) { context.save(); context.beginPath(); context.rect(this.left, 0, this.width - this.left - 8, height); context.clip(); }
  zoom(factor, around) {
    const [low, high] = this.domain(), least = this.least();
    const span = Math.min(Math.max((this.view[1] - this.view[0]) * factor, least), high - low);
    const part = (around - this.view[0]) / (this.view[1] - this.view[0]);
    this.place(around - part * span, span);
  }
  pan(by) { this.place(this.view[0] + by, this.view[1] - this.view[0]); }
  place(start, span) {
    const [low, high] = this.domain();
    const from = Math.min(Math.max(start, low), Math.max(high - span, low));
    this.view = [from, from + span];
    this.draw();
  }
  least() { return (this.domain()[1] - this.domain()[0]) / 1e6; }
  choose(item, tip, x, y) {
    this.chosen = item;
    this.read.textContent = item ? this.text(item).replaceAll("\n", " · ") : "";
    const box = $("tip");
    box.hidden = !(item && tip);
    if (!box.hidden) {
      box.textContent = this.text(item);
      box.style.left = Math.max(Math.min(x + 14, innerWidth - box.offsetWidth - 8), 4) + "px";
      box.style.top = Math.max(Math.min(y + 16, innerHeight - box.offsetHeight - 8), 4) + "px";
    }
    this.draw();
  }
  listen() {
    const canvas = this.canvas;
    let held = null;
    const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && document.activeElement !== canvas) return;
      event.preventDefault();
      const [x] = place(event);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((this.view[1] - this.view[0]) * event.deltaX / this.width);
      else this.zoom(Math.exp(event.deltaY / 400), this.value(x));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { held = [event.clientX, this.view[0]]; canvas.setPointerCapture(event.pointerId); canvas.focus({ preventScroll: true }); });
    canvas.addEventListener("pointerup", () => { held = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (held) {
        const per = (this.view[1] - this.view[0]) / (this.width - this.left - 8);
        this.place(held[1] - (event.clientX - held[0]) * per, this.view[1] - this.view[0]);
      } else this.choose(this.at(...place(event)), true, event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", () => { if (!held) { $("tip").hidden = true; } });
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("keydown", (event) => {
      const span = this.view[1] - this.view[0], middle = this.view[0] + span / 2;
      const keys = {
        "+": () => this.zoom(0.6, middle), "=": () => this.zoom(0.6, middle), "-": () => this.zoom(1 / 0.6, middle),
        "0": () => this.reset(), ArrowLeft: () => this.side(-1), ArrowRight: () => this.side(1),
        ArrowUp: () => this.choose(this.move(0, -1)), ArrowDown: () => this.choose(this.move(0, 1)),
        Escape: () => this.choose(null),
      };
      if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
    });
    canvas.addEventListener("blur", () => { $("tip").hidden = true; });
  }
  /* left and right move what is chosen, or the view where nothing is */
  side(by) {
    if (this.chosen) this.choose(this.move(by, 0));
    else this.pan(by * (this.view[1] - this.view[0]) / 5);
  }
  time_axis(context, height) {
    const span = this.view[1] - this.view[0], rough = span / Math.max((this.width - this.left) / 110, 2);
    const power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    context.textAlign = "center";
    for (let at = Math.ceil(this.view[0] / step) * step; at <= this.view[1]; at += step) {
      context.fillStyle = this.line; context.fillRect(this.x(at), 0, 1, height - 18);
      context.fillStyle = this.soft; context.fillText(at === 0 ? "0" : duration(at), this.x(at), height - 4);
    }
    context.textAlign = "left";
  }
}

/* --- steps over time ---------------------------------------------------------------------------------------------- */
class Steps extends Plot {
  values() { return (filter.phase && D.steps.phases[filter.phase]) || (D.steps.wall.some((v) => v !== null) ? D.steps.wall : this.sum()); }
  sum() {
    const all = Object.values(D.steps.phases);
    return D.steps.step.map((_, at) => all.reduce((most, values) => Math.max(most, values[at] ?? 0), 0) || null);
  }
  domain() { return [0, D.steps.step.length]; }
  least() { return 2; }
  height() { return 190; }
  paint(context, width, height) {
    const values = this.values(), most = Math.max(...values.map((v, at) => (stepMeets(D.steps.step[at]) ? v ?? 0 : 0)), 1), base = height - 20;
    this.most = most;
    context.textAlign = "right"; context.fillStyle = this.soft;
    for (const part of [0, 0.5, 1]) {
      const y = base - part * (base - 14);
      context.fillStyle = this.soft; context.fillText(duration(part * most), this.left - 5, y + 4);
      context.fillStyle = this.line; context.fillRect(this.left, y, width - this.left - 8, 1);
    }
    this.clip(context, height);
    const one = this.x(1) - this.x(0), accent = filter.phase in D.steps.phases ? color(filter.phase) : css("--accent");
    values.forEach((value, at) => {
      if (value === null || !stepMeets(D.steps.step[at])) return;
      const x = this.x(at), tall = Math.max(value / most * (base - 14), 1);
      context.globalAlpha = D.steps.window[at] === 1 ? 1 : 0.45;
      context.fillStyle = accent;
      context.fillRect(x, base - tall, Math.max(one - (one > 4 ? 1 : 0), 0.7), tall);
      if (this.chosen && this.chosen.at === at) { context.globalAlpha = 1; context.strokeStyle = this.ink; context.strokeRect(x, base - tall, Math.max(one, 1), tall); }
    });
    context.restore();
    context.globalAlpha = 1; context.fillStyle = this.soft; context.textAlign = "center";
    const every = Math.max(Math.ceil(46 / one), 1);
    D.steps.step.forEach((step, at) => { if (at % every === 0 && this.seen(at)) context.fillText(String(step), this.x(at + 0.5), height - 5); });
  }
  at(x) { const at = Math.floor(this.value(x)); return at >= 0 && at < D.steps.step.length && stepMeets(D.steps.step[at]) ? { at } : null; }
  move(by) { const at = next(this.chosen?.at ?? -1, by || 1, D.steps.step); return at < 0 ? null : { at }; }
  over() { return filter.phase in D.steps.phases ? ["rank"] : ["phase", "rank"]; }
  text({ at }) {
    const lines = [`step ${D.steps.step[at]}: ${duration(this.values()[at])}${["", " (window)", " (windows were opened or closed)"][D.steps.window[at]]}`];
    const found = Object.entries(D.steps.phases).map(([phase, values]) => [phase, values[at]]).filter((row) => row[1]);
    return lines.concat(found.sort((a, b) => b[1] - a[1]).slice(0, 6).map(([phase, ns]) => `${phase} ${duration(ns)}`)).join("\n");
  }
}

/* --- the whole second --------------------------------------------------------------------------------------------- */
/* the bars, of the steps that are left where the page has each step's parts */
function seconds() {
  const { parts, steps } = D.seconds, legend = $("parts"), box = $("bars");
  $("seconds").hidden = false;
  legend.replaceChildren();
  box.replaceChildren();
  box.dataset.over = steps.length ? "phase" : "phase step";
  const left = filter.steps && steps.length ? steps.map((step, at) => (stepMeets(step) ? at : -1)).filter((at) => at >= 0) : null;
  const rows = !left ? D.seconds.rows : D.seconds.rows.map((row) => {
    const ns = parts.map((_, part) => left.reduce((sum, at) => sum + row.by[at][part], 0));
    return { ...row, ns, window: ns.reduce((sum, one) => sum + one, 0) };
  }).filter((row) => row.window);
  const used = parts.map((_, at) => rows.some((row) => row.ns[at]));
  parts.forEach((name, at) => { if (used[at]) { const item = element("span"); item.append(element("span", { class: "dot p" + at }), name); legend.append(item); } });
  for (const row of rows) {
    const line = element("div", { class: "bar", "data-rank": row.name }), stack = element("div", { class: "stack", role: "img", tabindex: "0" });
    const name = element("span", { title: row.name });
    name.append(element("span", {}, row.name.slice(0, -16)), element("span", {}, row.name.slice(-16)));
    line.append(name, stack, element("span", { "data-window": row.window }, duration(row.window)));
    const said = [];
    row.ns.forEach((ns, at) => {
      if (!ns) return;
      const share = row.window ? ns / row.window : 0;
      said.push(`${parts[at]}: ${duration(ns)} (${(100 * share).toFixed(1)} %)`);
      stack.append(element("i", { class: "p" + at, style: `width:${100 * share}%`, title: said[said.length - 1], "data-part": parts[at], "data-ns": ns }));
    });
    stack.setAttribute("aria-label", `${row.name}: ${said.join(", ")}`);
    box.append(line);
  }
}

/* --- rank by step ------------------------------------------------------------------------------------------------- */
class Heat extends Plot {
  constructor(id) {
    super(id);
    this.left = 10 + Math.min(Math.max(...D.heat.ranks.map((name) => name.length), 4) * 7, innerWidth < 640 ? 76 : 180);
    this.layers = new Map();
    this.top = 0;
  }
  layer() {
    const wanted = D.heat.maps.find((map) => map.phase === filter.phase) ?? D.heat.maps[0];
    if (!this.layers.has(wanted.phase)) {
      const bytes = atob(wanted.cells), cells = new Uint16Array(bytes.length / 2);
      let least = 65535;
      for (let at = 0; at < cells.length; at += 1) {
        cells[at] = bytes.charCodeAt(2 * at) | (bytes.charCodeAt(2 * at + 1) << 8);
        if (cells[at] && cells[at] < least) least = cells[at];
      }
      this.layers.set(wanted.phase, { ...wanted, cells, least });
    }
    return this.layers.get(wanted.phase);
  }
  get names() { return D.heat.ranks; }
  rows() { return (this.kept ??= D.heat.ranks.map((name, at) => [name, at]).filter(([name]) => rankMeets(name))); }
  domain() { return [0, D.heat.steps.length]; }
  least() { return 1; }
  height() { return Math.min(Math.max(this.rows().length * 16, 30), 420) + 20; }
  ns(rank, step) { const map = this.layer(); return map.cells[rank * D.heat.steps.length + step] / 65535 * map.max; }
  paint(context, width, height) {
    const rows = this.rows(), map = this.layer(), tall = (height - 20) / Math.max(rows.length, 1), one = this.x(1) - this.x(0);
    const dark = matchMedia("(prefers-color-scheme:dark)").matches && !matchMedia("print").matches, count = D.heat.steps.length;
    this.tall = tall;
    this.clip(context, height);
    /* an image of one pixel a cell, enlarged: a million cells take some ms */
    const first = Math.max(Math.floor(this.view[0]), 0), last = Math.min(Math.ceil(this.view[1]), count), wide = last - first;
    if (rows.length && wide > 0) {
      const image = new ImageData(wide, rows.length);
      rows.forEach(([, rank], y) => {
        for (let x = 0; x < wide; x += 1) {
          const value = stepMeets.quick && !stepMeets.quick[first + x] ? 0 : map.cells[rank * count + first + x], at = 4 * (y * wide + x);
          const heat = map.least < 65535 ? 0.06 + 0.94 * (value - map.least) / (65535 - map.least) : 1;
          image.data[at] = dark ? 28 + 220 * heat : 255 - 25 * heat; image.data[at + 1] = dark ? 30 + 110 * heat ** 1.5 : 250 - 180 * heat;
          image.data[at + 2] = dark ? 40 + 20 * heat : 240 - 215 * heat; image.data[at + 3] = value ? 255 : 0;
        }
      });
      const small = document.createElement("canvas");
      small.width = wide; small.height = rows.length;
      small.getContext("2d").putImageData(image, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, this.x(first), 0, this.x(last) - this.x(first), height - 20);
    }
    if (this.chosen) { context.strokeStyle = this.ink; context.lineWidth = 1.5; context.strokeRect(this.x(this.chosen.step), this.chosen.row * tall, Math.max(one, 2), Math.max(tall, 2)); }
    context.restore();
    context.fillStyle = this.soft; context.textAlign = "center";
    const every = Math.max(Math.ceil(46 / one), 1);
    for (let at = first - first % every; at < last; at += every) if (this.seen(at)) context.fillText(D.heat.steps[at], this.x(at + 0.5), height - 5);
    context.textAlign = "right"; context.fillStyle = this.ink;
    const skip = Math.max(Math.ceil(13 / tall), 1);
    this.labels ??= apart(context, D.heat.ranks, this.left - 8);
    rows.forEach(([name], row) => { if (row % skip === 0) context.fillText(this.labels.get(name), this.left - 5, row * tall + Math.min(tall, 16) / 2 + 4); });
    context.textAlign = "left";
    $("heat-note").textContent = `${rows.length} ranks, ${map.phase}: ${duration(map.least / 65535 * map.max)} is pale, ${duration(map.max)} strong.`;
  }
  at(x, y) {
    const step = Math.floor(this.value(x)), row = Math.floor(y / this.tall);
    return step >= 0 && step < D.heat.steps.length && stepMeets(D.heat.steps[step]) && x >= this.left && this.rows()[row] ? { step, row } : null;
  }
  move(dx, dy) {
    const now = this.chosen ?? { step: next(-1, 1, D.heat.steps), row: dy < 0 ? 0 : -dy };
    if (now.step < 0 || !this.rows().length) return null;
    return { step: dx ? next(now.step, dx, D.heat.steps) : now.step, row: Math.min(Math.max(now.row + dy, 0), this.rows().length - 1) };
  }
  over() { return D.heat.maps.some((map) => map.phase === filter.phase) ? [] : ["phase"]; }
  text({ step, row }) { const [name, rank] = this.rows()[row]; return `${name}, step ${D.heat.steps[step]}: ${duration(this.ns(rank, step))} in ${this.layer().phase}`; }
}
function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let keep = text.length - 1;
  while (keep > 2 && context.measureText(text.slice(0, Math.ceil(keep / 2)) + "…" + text.slice(-Math.floor(keep / 2))).width > room) keep -= 1;
  return text.slice(0, Math.ceil(keep / 2)) + "…" + text.slice(-Math.floor(keep / 2));
}

/* the same of several names; of those that would look alike what they differ in is kept */
function apart(context, names, room) {
  const shown = new Map(names.map((name) => [name, shortened(context, name, room)])), alike = new Map();
  for (const [name, short] of shown) alike.set(short, [...(alike.get(short) ?? []), name]);
  for (const group of alike.values()) {
    if (group.length < 2) continue;
    const same = (at) => group.every((name) => name.at(at) !== undefined && name.at(at) === group[0].at(at));
    const least = Math.min(...group.map((name) => name.length));
    let front = 0, back = 0;
    while (front < least && same(front)) front += 1;
    while (back < least - front && same(-1 - back)) back += 1;
    for (const name of group) {
      const own = name.slice(front, name.length - back), left = Math.max(room - context.measureText(own).width, 0) / 2;
      shown.set(name, shortened(context, name.slice(0, front), left) + own + shortened(context, name.slice(name.length - back), left));
    }
  }
  return shown;
}

/* --- lanes and the critical path ---------------------------------------------------------------------------------- */
class Lanes extends Plot {
  constructor(id) {
    super(id);
    const most = D.lanes.map((panel) => Math.max(...panel.lanes.map((lane) => lane.name.length)));
    this.left = 10 + Math.min(Math.max(...most, 4) * 7, innerWidth < 640 ? 76 : 180);
    D.lanes.forEach((panel, at) => $("panel").append(element("option", { value: at }, panel.steps)));
    $("panel").value = D.open;
    $("panel").addEventListener("change", () => this.show());
    for (const phase of Object.keys(D.colors)) {
      const item = element("span");
      item.append(element("span", { class: "dot c" + D.colors[phase] }), phase);
      $("phases-legend").append(item);
    }
    if (D.lanes.some((panel) => panel.lanes.some((lane) => lane.calls.some((call) => !(call[0] in D.colors))))) {
      const item = element("span");
      item.append(element("span", { class: "dot other" }), "other phases");
      $("phases-legend").append(item);
    }
    $("path-title").hidden = !D.lanes.some((panel) => panel.path.length);
  }
  get panel() { return this.none ? { steps: "", lanes: [], path: [], hidden: 0, cut: 0 } : D.lanes[+$("panel").value || 0]; }
  /* of the steps that are left: the one that is shown, otherwise the first; of all again the one that it opened at */
  choice() {
    const before = `${this.none} ${$("panel").value}`, left = D.lanes.map((panel) => stepMeets(panel.steps));
    [...$("panel").options].forEach((option, at) => { option.hidden = option.disabled = !left[at]; });
    this.none = !left.includes(true);
    if (!this.none && !left[+$("panel").value || 0]) { $("panel").value = left.indexOf(true); this.moved = true; }
    else if (!filter.steps && this.moved) { $("panel").value = D.open; this.moved = false; }
    if (before !== `${this.none} ${$("panel").value}`) this.show();
  }
  show() {
    const { hidden, cut } = this.panel, notes = [];
    if (this.none) notes.push(`No window of step ${filter.step} is drawn here.`);
    if (this.panel.path.length) notes.push("The red line is the critical path: what decides the step's end." + (this.panel.unseen ? " Part of it may be waiting of which nothing was recorded: see the notices." : ""));
    if (hidden) notes.push(`${hidden} faster ranks are not drawn.`);
    if (cut) notes.push(`${cut.toLocaleString("en-US")} short calls are not drawn; the timeline has them.`);
    $("lanes-note").textContent = notes.join(" ");
    this.chosen = null;
    this.layout();
    this.reset();
  }
  get names() { return D.lanes.flatMap((panel) => panel.lanes.map((lane) => lane.name)); }
  layout() {
    this.lanes = [];
    let y = 6;
    for (const lane of this.panel.lanes) {
      if (!rankMeets(lane.name)) continue;
      const depth = lane.calls.reduce((most, call) => Math.max(most, call[3]), 0) + 1;
      this.lanes.push({ ...lane, y, tall: 15 * depth });
      y += 15 * depth + 8;
    }
    this.bottom = y;
  }
  domain() {
    const ends = this.panel.lanes.flatMap((lane) => lane.windows.map((window) => window[1]));
    const path = this.panel.path.length ? this.panel.path[this.panel.path.length - 1][3] : 0;
    return [0, Math.max(...ends, path, 1)];
  }
  height() { return (this.bottom ?? 40) + 22; }
  paint(context, width, height) {
    this.time_axis(context, height);
    this.clip(context, height);
    for (const lane of this.lanes) {
      context.fillStyle = css("--track");
      for (const [start, end] of lane.windows) context.fillRect(this.x(start), lane.y - 1, this.x(end) - this.x(start), lane.tall + 1);
      for (const [phase, start, end, depth, cut] of lane.calls) {
        const x = this.x(start), wide = Math.max(this.x(end) - x, 0.6);
        if (x > width || x + wide < this.left) continue;
        context.globalAlpha = filter.phase && filter.phase !== phase ? 0.18 : cut ? 0.6 : 1;
        context.fillStyle = color(phase);
        context.fillRect(x, lane.y + 15 * depth, wide, 14);
        if (wide > 40) { context.fillStyle = css("--bar-ink"); context.fillText(shortened(context, phase, wide - 8), Math.max(x, this.left) + 4, lane.y + 15 * depth + 11); }
        context.globalAlpha = 1;
      }
    }
    const y_of = new Map(this.lanes.map((lane) => [lane.name, lane.y + lane.tall + 1]));
    let last = null;
    context.strokeStyle = css("--bad"); context.lineWidth = 3;
    for (const [worker, , start, end] of this.panel.path) {
      const y = y_of.get(worker);
      if (y === undefined) { last = null; continue; }
      context.beginPath();
      if (last !== null && last !== y) { context.moveTo(this.x(start), last); context.lineTo(this.x(start), y); }
      context.moveTo(this.x(start), y); context.lineTo(this.x(end), y); context.stroke();
      last = y;
    }
    if (this.chosen) {
      const { lane, call } = this.chosen, [, start, end, depth] = this.lanes[lane].calls[call];
      context.strokeStyle = this.ink; context.lineWidth = 1.5;
      context.strokeRect(this.x(start), this.lanes[lane].y + 15 * depth, Math.max(this.x(end) - this.x(start), 2), 14);
    }
    context.restore();
    context.fillStyle = this.ink; context.textAlign = "right";
    const labels = apart(context, this.lanes.map((lane) => lane.name), this.left - 8);
    for (const lane of this.lanes) context.fillText(labels.get(lane.name), this.left - 5, lane.y + 12);
    context.textAlign = "left";
  }
  at(x, y) {
    const time = this.value(x), slack = (this.view[1] - this.view[0]) / this.width;
    const lane = this.lanes.findIndex((one) => y >= one.y && y < one.y + one.tall);
    if (lane < 0) return null;
    const depth = Math.floor((y - this.lanes[lane].y) / 15);
    const call = this.lanes[lane].calls.findIndex((row) => row[3] === depth && row[1] - slack <= time && time <= row[2] + slack);
    return call < 0 ? null : { lane, call };
  }
  move(dx, dy) {
    if (!this.lanes.length) return null;
    const now = this.chosen ?? { lane: 0, call: -1 };
    const lane = Math.min(Math.max(now.lane + (this.chosen ? dy : 0), 0), this.lanes.length - 1), calls = this.lanes[lane].calls;
    if (!calls.length) return null;
    if (lane !== now.lane) {
      const at = this.lanes[now.lane].calls[now.call]?.[1] ?? 0;
      const nearest = calls.reduce((best, call, index) => (Math.abs(call[1] - at) < Math.abs(calls[best][1] - at) ? index : best), 0);
      return { lane, call: nearest };
    }
    return { lane, call: Math.min(Math.max(now.call + (dx || (this.chosen ? 0 : 1)), 0), calls.length - 1) };
  }
  text({ lane, call }) {
    const [phase, start, end, , cut] = this.lanes[lane].calls[call];
    return `${phase}\n${this.lanes[lane].name}: ${duration(end - start)} from ${duration(start)}${cut ? "\ncut by the window" : ""}`;
  }
}

/* --- filters, tables, screens, paper ------------------------------------------------------------------------------ */
function apply() {
  const text = filter.step.trim(), wrong = text && !ranges(text);
  filter.steps = wrong || !text ? null : ranges(text).map(([low, high]) => [Math.min(low, high), Math.max(low, high)]);
  $("by-step").setAttribute("aria-invalid", !!wrong);
  stepMeets.quick = filter.steps ? D.heat.steps.map(stepMeets) : null;
  if (D.seconds.rows.length) seconds();
  waits();
  let met = plots.some((plot) => plot.names && plot.names.some(rankMeets));
  for (const row of document.querySelectorAll("table[data-filter] tbody tr, #every-step tbody tr, #bars .bar, section[data-rank], p[data-rank]")) {
    const { phase, also, rank, step } = row.dataset;
    met ||= rank !== undefined && rankMeets(rank);
    /* a row that names nothing is the sum of others, which a filter does not take apart */
    const rest = row.tagName === "TR" && !row.classList.contains("group") && phase === undefined && rank === undefined && row.dataset.measure === undefined;
    row.hidden = !!((rest && (filter.phase || filter.rank || filter.steps)) || (filter.phase && phase !== undefined && phase !== filter.phase && also !== filter.phase)
      || (rank !== undefined && !rankMeets(rank)) || (step !== undefined && step !== "" && !stepMeets(step)));
    if (row.classList.contains("bar")) row.style.display = row.hidden ? "none" : "";
  }
  for (const head of document.querySelectorAll("#every-step th[data-step]"))
    for (const row of head.closest("table").rows) row.cells[head.cellIndex].hidden = !stepMeets(head.dataset.step);
  const known = [...D.steps.step, ...D.heat.steps, ...D.seconds.steps, ...D.lanes.map((panel) => panel.steps)];
  $("filter-note").textContent = [
    wrong ? `“${text}” is no step: 4, 4-9 and 6,9 are; all are shown` : filter.steps && known.length && !known.some(stepMeets) ? `no step ${text} here` : "",
    filter.rank && !met ? `no rank has “${filter.rank}” in its name` : "",
  ].filter(Boolean).join("; ");
  over();
  for (const plot of plots) {
    plot.kept = null;
    plot.chosen = null;
    plot.read.textContent = "";
    if (plot.choice) plot.choice();
    if (plot.layout) plot.layout();
    plot.draw();
  }
}
/* the waits of the steps that are left, in each row of their table */
function waits() {
  const table = $("waits");
  if (!table) return;
  if (!D.waits.length) { table.dataset.over = "step"; return; }
  for (const row of table.querySelectorAll("tr[data-at]")) {
    const left = D.waits[row.dataset.at].filter(([step]) => stepMeets(step));
    if (!left.length) continue;
    const sum = (at) => left.reduce((all, one) => all + one[at], 0), most = left.reduce((best, one) => (one[5] > best[5] ? one : best));
    const waited = sum(2), transfer = left.some((one) => one[6] === null) ? null : sum(6), [, , , times, all, alone, longest, step, moved] = row.cells;
    times.textContent = sum(1).toLocaleString("en-US");
    all.textContent = duration(waited); all.dataset.ns = waited;
    if (sum(4) - sum(3) > Math.floor(waited / 20)) all.append(" ", element("span", { class: "soft" }, `(${duration(sum(3))} – ${duration(sum(4))})`));
    alone.textContent = duration(sum(7)); alone.dataset.ns = sum(7);
    longest.textContent = duration(most[5]); longest.dataset.ns = most[5];
    step.textContent = most[0];
    moved.textContent = duration(transfer); moved.dataset.ns = transfer ?? 0;
  }
}
/* above each drawing and table: what of the filter it is not cut by, because its figures are over all of them */
function over() {
  const active = { phase: filter.phase, rank: filter.rank, step: filter.steps };
  const say = (place, names) => {
    const left = names.filter((name) => active[name]).map((name) => name + "s");
    let note = place.previousElementSibling;
    if (!note?.classList.contains("over")) { if (!left.length) return; note = element("p", { class: "soft over" }); place.before(note); }
    note.hidden = !left.length;
    note.textContent = left.length ? `Over all ${left.join(" and ")}, whatever is chosen.` : "";
  };
  for (const part of document.querySelectorAll("[data-over]")) say(part.closest(".scroll") ?? part, part.dataset.over.split(" "));
  for (const plot of plots) if (plot.over) say(plot.canvas, plot.over());
}
function filters() {
  const phases = [...new Set([...Object.keys(D.colors), ...[...document.querySelectorAll("#phases tr[data-phase]")].map((row) => row.dataset.phase)])];
  for (const phase of phases) $("by-phase").append(element("option", { value: phase }, phase));
  $("filters").hidden = !plots.length && !phases.length;
  for (const name of ["phase", "rank", "step"]) $("by-" + name).addEventListener("input", (event) => { filter[name] = event.target.value; apply(); });
  $("filters").addEventListener("reset", () => setTimeout(() => { Object.assign(filter, { phase: "", rank: "", step: "" }); apply(); }));
  $("filters").addEventListener("submit", (event) => event.preventDefault());
}
/* a click on a head sorts by it: numbers as they are in the data, the rest as text */
function sorting() {
  for (const head of document.querySelectorAll("table[data-filter] thead th")) {
    head.tabIndex = 0; head.style.cursor = "pointer";
    const sort = () => {
      const body = head.closest("table").tBodies[0], at = head.cellIndex, rows = [...body.rows].filter((row) => row.cells.length > at && !row.classList.contains("group"));
      const key = (row) => { const cell = row.cells[at]; return cell.dataset.ns !== undefined ? +cell.dataset.ns : measure(cell.textContent); };
      const sign = head.dataset.down ? 1 : -1;
      head.dataset.down = head.dataset.down ? "" : "1";
      rows.map((row) => [key(row), row]).sort(([a], [b]) => (typeof a === "number" && typeof b === "number" ? sign * (a - b) : sign * String(a).localeCompare(String(b), "en", { numeric: true }))).forEach(([, row]) => body.append(row));
      for (const row of body.querySelectorAll("tr.group")) row.remove();
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
  }
}
function measure(text) {
  const found = text.trim().match(/^([+-]?[\d,.]+)\s*(s|ms|µs|ns|%|x)?/);
  return found ? parseFloat(found[1].replaceAll(",", "")) * ({ s: 1e9, ms: 1e6, "µs": 1e3 }[found[2]] ?? 1) : text === "-" ? -1 : text;
}

if (D.steps.step.length > 1) new Steps("steps");
if (D.seconds.rows.length) seconds();
if (D.heat.ranks.length > 1 || D.heat.steps.length > 1) new Heat("heat");
if (D.lanes.length) { const lanes = new Lanes("lanes"); lanes.show(); }
filters();
sorting();
for (const plot of plots) plot.reset();
const redraw = () => plots.forEach((plot) => plot.draw());
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme:dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; redraw(); });
addEventListener("afterprint", redraw);
window.accelprofReport = { apart };
document.documentElement.dataset.ready = "1";
})();

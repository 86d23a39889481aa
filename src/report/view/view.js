"use strict";
const UNITS = [[1e12, "s"], [1e9, "ms"], [1e6, "µs"], [1e3, "ns"], [1, "ps"]];
const time = (ps, digits = 3) => {
  const size = Math.abs(ps);
  const [unit, name] = UNITS.find(([unit]) => size >= unit) ?? UNITS[3];
  return `${Number((ps / unit).toPrecision(digits))} ${name}`;
};

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const [box, tip, range] = ["lanes", "tip", "range"].map(byId);
  const ROW = 17;
  const AXIS = 22;
  const FONT = "11px system-ui, sans-serif";
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // what is shown, in picoseconds
  let [from, to] = [data.first, data.last];
  const LEAST = 100;
  let waiting = 0;

  const element = (name, className, text) => {
    const made = document.createElement(name);
    made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const axis = element("canvas", "axis");
  axis.setAttribute("aria-hidden", "true");
  box.append(axis);
  let process;
  const lanes = data.lanes.map((lane) => {
    if (lane.process !== process) box.append(element("div", "process", lane.process));
    process = lane.process;
    const canvas = element("canvas", "");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${lane.thread}: ${lane.events.length / 4} events`);
    canvas.style.height = `${lane.rows * ROW + 4}px`;
    const left = lane.shorter > 0 ? ` (${lane.shorter} shorter events left out)` : "";
    box.append(element("div", "thread", lane.thread + left), canvas);
    return { ...lane, canvas };
  });
  const laneOf = new Map(lanes.map((lane) => [lane.canvas, lane]));
  const hues = data.names.map((name) => {
    let hash = 7;
    for (const c of name.replace(/[.\d]+$/, "")) hash = (hash * 31 + c.codePointAt(0)) % 3600;
    return hash / 10;
  });

  const prepared = (canvas) => {
    const { width, height } = canvas.getBoundingClientRect();
    const scale = devicePixelRatio || 1;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = "middle";
    return { context, width };
  };
  const ticks = (width) => {
    const rough = ((to - from) / width) * 110;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
    const first = Math.ceil(from / step) * step;
    return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, n) => first + n * step);
  };

  const drawAxis = () => {
    axis.style.height = `${AXIS}px`;
    const { context, width } = prepared(axis);
    const style = getComputedStyle(document.documentElement);
    context.fillStyle = style.getPropertyValue("--soft");
    for (const tick of ticks(width)) {
      const x = ((tick - from) / (to - from)) * width;
      context.fillRect(x, AXIS - 5, 1, 5);
      // so many digits that neighbours differ
      const digits = Math.max(3, Math.min(15, Math.ceil(Math.log10(Math.max(1, Math.abs(tick)) / (to - from))) + 3));
      const text = tick === 0 ? "0" : time(tick, digits);
      if (x + 3 + context.measureText(text).width < width) context.fillText(text, x + 3, 9);
    }
  };

  // of each name whether it is searched for; the events of such names by start, and the one that was gone to
  let wanted;
  let hits = [];
  let hit = -1;

  const drawLane = ({ canvas, events }) => {
    const { context, width } = prepared(canvas);
    const scale = width / (to - from);
    const [level, ink] = dark.matches ? ["26%", "#f1f4f7"] : ["80%", "#1a1f27"];
    let drawn = 0;
    // what is searched for is drawn over the rest, which is pale
    for (const pass of wanted ? [false, true] : [undefined]) {
      context.globalAlpha = pass === false ? 0.2 : 1;
      const last = [];
      for (let at = 0; at < events.length; at += 4) {
        const [name, start, duration, row] = [events[at], events[at + 1], events[at + 2], events[at + 3]];
        if (start > to) break;
        if (start + duration < from || (wanted && wanted[name] !== pass)) continue;
        const left = Math.max(-2, (start - from) * scale);
        const right = Math.min(width + 2, Math.max((start + duration - from) * scale, left + 1));
        // what falls on a pixel that is drawn already would not be seen
        if (right <= last[row]) continue;
        last[row] = right;
        drawn += 1;
        const y = row * ROW + 2;
        context.fillStyle = `hsl(${hues[name]} 58% ${level})`;
        context.fillRect(left, y, Math.max(1, right - left - (right - left > 3 ? 0.75 : 0)), ROW - 2);
        if (right - left > 30) {
          const visible = Math.max(left, 0);
          const letters = Math.floor((Math.min(right, width) - visible - 6) / 5.6);
          const text = data.names[name];
          if (letters > 2) {
            context.save();
            context.beginPath();
            context.rect(visible, y, Math.min(right, width) - visible - 2, ROW);
            context.clip();
            context.fillStyle = ink;
            context.fillText(text.length > letters + 2 ? `${text.slice(0, letters)}…` : text, visible + 3, y + 8);
            context.restore();
          }
        }
        if (hits[hit]?.lane.canvas === canvas && hits[hit].at === at) {
          context.strokeStyle = ink;
          context.lineWidth = 2;
          context.strokeRect(left + 1, y + 1, Math.max(2, right - left - 2), ROW - 4);
        }
      }
    }
    canvas.dataset.drawn = drawn;
  };

  const draw = () => {
    waiting = 0;
    drawAxis();
    const shown = box.getBoundingClientRect();
    for (const lane of lanes) {
      const { top, bottom } = lane.canvas.getBoundingClientRect();
      if (bottom >= shown.top - 200 && top <= shown.bottom + 200) drawLane(lane);
      // its pixels take memory, of which many lanes need much
      else lane.canvas.width = 0;
    }
    range.textContent = `${time(to - from)} of ${time(data.span)}, from ${time(from)}`;
    box.dataset.from = from;
    box.dataset.to = to;
  };
  const soon = () => {
    waiting ||= requestAnimationFrame(draw);
  };
  const show = (start, end) => {
    const length = Math.min(data.span, Math.max(LEAST, end - start));
    from = Math.min(Math.max(0, start), data.span - length);
    to = from + length;
    tip.hidden = true;
    soon();
  };
  const zoom = (factor, part = 0.5) => {
    const length = Math.min(data.span, Math.max(LEAST, (to - from) * factor));
    const held = from + (to - from) * part;
    show(held - length * part, held + length * (1 - part));
  };
  const move = (part) => {
    const way = (to - from) * part;
    show(from + way, to + way);
  };
  const partOf = (event) => {
    const { left, width } = axis.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / width));
  };

  const found = (event) => {
    const lane = laneOf.get(event.target);
    if (!lane) return undefined;
    const { top, width } = lane.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - top - 2) / ROW);
    const near = (to - from) / width;
    const at = from + partOf(event) * (to - from);
    let best;
    for (let place = 0; place < lane.events.length; place += 4) {
      const [start, duration, ofRow] = [lane.events[place + 1], lane.events[place + 2], lane.events[place + 3]];
      if (start > at + near) break;
      if (ofRow !== row || start + duration < at - near) continue;
      const away = Math.max(0, start - at, at - start - duration);
      if (!best || away < best.away || (away === best.away && duration > best.duration)) {
        best = { lane, name: data.names[lane.events[place]], start, duration, away };
      }
    }
    return best;
  };
  const tell = (event) => {
    const hit = found(event);
    tip.hidden = !hit;
    if (!hit) return;
    tip.replaceChildren(
      element("p", "", hit.name),
      element("p", "", `${time(hit.duration, 5)}, from ${time(hit.start, 7)}`),
      element("p", "", `${hit.lane.process}, ${hit.lane.thread}`),
    );
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, innerWidth - width - 8))}px`;
    const below = event.clientY + 16;
    tip.style.top = `${below + height > innerHeight ? event.clientY - height - 8 : below}px`;
  };

  const search = byId("search");
  const find = () => {
    const text = search.value.trim().toLowerCase();
    wanted = text ? data.names.map((name) => name.toLowerCase().includes(text)) : undefined;
    [hits, hit] = [[], -1];
    let sum = 0;
    for (const lane of wanted ? lanes : []) {
      for (let at = 0; at < lane.events.length; at += 4) {
        if (!wanted[lane.events[at]]) continue;
        hits.push({ lane, at, start: lane.events[at + 1] });
        sum += lane.events[at + 2];
      }
    }
    hits.sort((one, other) => one.start - other.start);
    const found = hits.length === 1 ? `1 event, ${time(sum)}` : `${hits.length} events, ${time(sum)} together`;
    byId("hits").textContent = !wanted ? "" : hits.length > 0 ? found : "no event on this page matches";
    for (const id of ["before", "next"]) byId(id).disabled = hits.length === 0;
    soon();
  };
  const goOn = (step) => {
    if (hits.length === 0) return;
    hit = hit < 0 ? (step > 0 ? 0 : hits.length - 1) : (hit + step + hits.length) % hits.length;
    const { lane, at, start } = hits[hit];
    const [name, duration] = [data.names[lane.events[at]], lane.events[at + 2]];
    show(start - duration * 2, start + duration * 3);
    lane.canvas.scrollIntoView({ block: "nearest" });
    byId("hits").textContent = `${hit + 1} of ${hits.length}: ${name}, ${time(duration, 5)}, from ${time(start, 7)}; ${lane.process}, ${lane.thread}`;
  };
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") goOn(event.shiftKey ? -1 : 1);
    if (event.key !== "Escape") return;
    search.value = "";
    find();
    box.focus();
  });
  byId("before").addEventListener("click", () => goOn(-1));
  byId("next").addEventListener("click", () => goOn(1));

  let drag;
  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.tagName !== "CANVAS") return;
    drag = { x: event.clientX, from, to };
    event.target.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointermove", (event) => {
    if (!drag) return tell(event);
    const way = ((event.clientX - drag.x) / axis.getBoundingClientRect().width) * (drag.to - drag.from);
    if (Math.abs(event.clientX - drag.x) > 3) show(drag.from - way, drag.to - way);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    box.addEventListener(end, () => {
      drag = undefined;
    });
  }
  box.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  box.addEventListener("dblclick", (event) => {
    const hit = found(event);
    if (hit) show(hit.start - hit.duration * 0.1, hit.start + hit.duration * 1.1);
  });
  box.addEventListener(
    "wheel",
    (event) => {
      // without the focus the wheel scrolls the page
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== box) return;
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return move(Math.sign(event.deltaX || event.deltaY) * 0.1);
      zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * 0.004), partOf(event));
    },
    { passive: false },
  );
  const keys = new Map([
    ["+", () => zoom(0.6)],
    ["=", () => zoom(0.6)],
    ["-", () => zoom(1 / 0.6)],
    ["ArrowLeft", () => move(-0.15)],
    ["ArrowRight", () => move(0.15)],
    ["0", () => show(0, data.span)],
    ["/", () => search.focus()],
    ["Escape", () => box.blur()],
  ]);
  box.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys.get(event.key);
    if (act) event.preventDefault();
    act?.();
  });
  byId("nearer").addEventListener("click", () => zoom(0.5));
  byId("farther").addEventListener("click", () => zoom(2));
  byId("whole").addEventListener("click", () => show(0, data.span));
  box.addEventListener("scroll", soon);
  dark.addEventListener("change", soon);
  if (lanes.length > 0) {
    for (const id of ["tools", "lanes", "help"]) byId(id).hidden = false;
    new ResizeObserver(soon).observe(box);
    draw();
  }
})();

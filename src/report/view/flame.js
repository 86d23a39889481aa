// flame graphs: frames keep their places as parts of the width. For a reader of the screen each is a tree, whose items are told
// by name, part and time; one frame of a graph takes part in the order of Tab, the one that was reached last.
for (const svg of document.querySelectorAll("svg.flame")) {
  const keepsEnds = svg.classList.contains("ends");
  const told = svg.nextElementSibling;
  const frames = [...svg.querySelectorAll("g > g")].map((group) => {
    const [title, rect, text] = group.children;
    const [x, width] = ["x", "width"].map((name) => parseFloat(rect.getAttribute(name)));
    const [, name, ns, part, change] =
      title.textContent.match(/^(.*) \(([\d,]+) ns, ([\d.]+)%(?:; ([-+]?[\d.]+)%)?\)$/s) ?? [, title.textContent, "0", "0"];
    const differs = Number(change ?? 0) === 0 ? "" : `, itself ${change} % of all against A`;
    const label = `${name}, ${part} %, ${time(Number(ns.replaceAll(",", "")) * 1e3)}${differs}`;
    return { group, rect, text, x, width, y: Number(rect.getAttribute("y")), name, label, above: [] };
  });
  // the lowest row first
  frames.sort((a, b) => b.y - a.y || a.x - b.x);
  const rows = [];
  for (const frame of frames) {
    if (rows.at(-1)?.[0].y !== frame.y) rows.push([]);
    frame.level = rows.length;
    rows.at(-1).push(frame);
    const below = rows.at(-2) ?? [];
    // the last one that begins no later
    let [low, high] = [0, below.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (below[middle].x <= frame.x + 1e-6) low = middle + 1;
      else high = middle;
    }
    frame.below = below[low - 1];
    frame.place = frame.below?.above.push(frame) ?? 1;
  }
  const items = new Map(frames.map((frame) => [frame.group, frame]));
  for (const frame of frames) {
    const siblings = frame.below?.above.length ?? 1;
    const aria = { level: frame.level, setsize: siblings, posinset: frame.place, label: frame.label };
    frame.group.setAttribute("role", "treeitem");
    frame.group.setAttribute("tabindex", "-1");
    for (const [name, value] of Object.entries(aria)) frame.group.setAttribute(`aria-${name}`, value);
  }
  svg.setAttribute("role", "tree");
  // what only moves the frames must not stand between the tree and its items
  frames[0]?.group.parentElement.setAttribute("role", "none");
  let current = frames[0];
  current?.group.setAttribute("tabindex", "0");

  const lay = (left, width, focus) => {
    const pixels = svg.getBoundingClientRect().width / 100;
    for (const frame of frames) {
      const holds = frame.x <= left + 1e-3 && frame.x + frame.width >= left + width - 1e-3 && (!focus || frame.y >= focus.y);
      const inside = frame.x >= left - 1e-3 && frame.x + frame.width <= left + width + 1e-3 && (!focus || frame.y <= focus.y);
      frame.shown = holds || inside;
      const [x, wide] = holds ? [0, 100] : [((frame.x - left) / width) * 100, (frame.width / width) * 100];
      // thousands of frames that nobody can see would make each zoom slow
      const hidden = !frame.shown || (wide * pixels < 0.25 && frame !== current);
      if (frame.group.hasAttribute("data-hidden") !== hidden) frame.group.toggleAttribute("data-hidden", hidden);
      if (hidden) continue;
      frame.rect.setAttribute("x", `${x}%`);
      frame.rect.setAttribute("width", `${wide}%`);
      const letters = Math.floor((wide * pixels - 6) / 7.3);
      const { name } = frame;
      const cut = keepsEnds && !name.startsWith("[") ? `…${name.slice(1 - letters)}` : `${name.slice(0, letters - 1)}…`;
      const shown = letters < 3 ? "" : name.length <= letters ? name : cut;
      if (shown) frame.text.setAttribute("x", `${x + 3 / pixels}%`);
      if (frame.text.textContent !== shown) frame.text.textContent = shown;
    }
    svg.dataset.zoom = width;
  };
  let zoomed = [0, 100, undefined];
  const zoom = (frame) => {
    zoomed = frame ? [frame.x, Math.max(frame.width, 1e-4), frame] : [0, 100, undefined];
    lay(...zoomed);
  };
  const go = (frame) => {
    if (!frame) return;
    current.group.setAttribute("tabindex", "-1");
    current = frame;
    current.group.setAttribute("tabindex", "0");
    // one that was too narrow to be drawn is drawn where it has the focus
    if (frame.group.hasAttribute("data-hidden")) lay(...zoomed);
    current.group.focus();
  };
  const beside = (step) => {
    const row = rows[current.level - 1];
    let at = row.indexOf(current) + step;
    while (row[at] && !row[at].shown) at += step;
    return row[at];
  };
  const keys = new Map([
    ["ArrowUp", () => go(current.above.find((frame) => frame.shown))],
    ["ArrowDown", () => go(current.below)],
    ["ArrowLeft", () => go(beside(-1))],
    ["ArrowRight", () => go(beside(1))],
    ["Home", () => go(frames[0])],
    ["Enter", () => zoom(current)],
    [" ", () => zoom(current)],
    ["0", () => zoom()],
    ["Escape", () => zoom()],
  ]);
  svg.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys.get(event.key);
    if (act) event.preventDefault();
    act?.();
  });
  // on the figure: an SVG that listens for it would take a place in the order itself
  const figure = svg.parentElement;
  figure.addEventListener("focusin", () => {
    told.textContent = current.label;
  });
  figure.addEventListener("focusout", () => {
    told.textContent = "";
  });
  svg.addEventListener("click", (event) => {
    const frame = items.get(event.target.closest("g"));
    if (!frame) return;
    zoom(frame);
    go(frame);
  });
  new ResizeObserver(() => lay(...zoomed)).observe(svg);
}

// the roofline: one circle takes part in the order of Tab, the one that was reached last
for (const svg of document.querySelectorAll("svg.roofline")) {
  const told = svg.closest("figure").querySelector(".told");
  const points = [...svg.querySelectorAll("g.point")];
  let current = 0;
  const go = (to) => {
    if (!points[to]) return;
    points[current].setAttribute("tabindex", "-1");
    current = to;
    points[current].setAttribute("tabindex", "0");
    points[current].focus();
  };
  points.forEach((point, at) => {
    point.setAttribute("tabindex", at === 0 ? "0" : "-1");
    point.addEventListener("click", () => go(at));
    point.addEventListener("focus", () => {
      told.textContent = point.getAttribute("aria-label");
    });
    point.addEventListener("blur", () => {
      told.textContent = "";
    });
  });
  const keys = new Map([
    ["ArrowRight", () => go(current + 1)],
    ["ArrowDown", () => go(current + 1)],
    ["ArrowLeft", () => go(current - 1)],
    ["ArrowUp", () => go(current - 1)],
    ["Home", () => go(0)],
    ["End", () => go(points.length - 1)],
  ]);
  svg.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys.get(event.key);
    if (act) event.preventDefault();
    act?.();
  });
}

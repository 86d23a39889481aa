
"use strict";
(() => {
  const controls = document.getElementById("controls");
  const filter = document.getElementById("filter");
  const status = document.getElementById("status");
  const shown = document.getElementById("shown");
  const tables = [...document.querySelectorAll("table.overview")];
  const sectionOf = (row) => document.getElementById(row.dataset.section ?? "");
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
  // what is looked for: the row and its whole section, so that a config or a reason is found too
  const texts = new Map(rows.map((row) => [row, `${row.textContent} ${sectionOf(row)?.textContent ?? ""}`.toLowerCase()]));

  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const fits = words.every((word) => texts.get(row).includes(word)) && (!status.value || row.dataset.status === status.value);
      count += fits;
      for (const element of [row, sectionOf(row)]) {
        element?.toggleAttribute("data-hidden", !fits);
      }
    }
    shown.textContent = `${count} of ${rows.length} shown`;
  };

  const sort = (table, heading) => {
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    const isNumber = heading.dataset.kind === "number";
    const place = [...heading.parentNode.children].indexOf(heading);
    const keyed = [...table.tBodies[0].rows].map((row) => {
      const value = row.children[place].dataset.value;
      return [value === undefined ? undefined : isNumber ? Number(value) : value, row];
    });
    keyed.sort(([a], [b]) => {
      // what has no value comes last either way
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
      const order = isNumber ? a - b : a.localeCompare(b, "en");
      return ascending ? order : -order;
    });
    for (const other of table.tHead.rows[0].children) {
      other.removeAttribute("aria-sort");
    }
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    table.tBodies[0].append(...keyed.map(([, row]) => row));
    // the sections follow their rows
    const sections = keyed.map(([, row]) => sectionOf(row)).filter(Boolean);
    table.after(...sections);
  };

  for (const table of tables) {
    for (const heading of table.tHead.querySelectorAll("[data-column]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading));
      heading.append(button);
    }
  }
  if (rows.length > 0) {
    controls.hidden = false;
    controls.addEventListener("submit", (event) => event.preventDefault());
    filter.addEventListener("input", apply);
    status.addEventListener("change", apply);
    apply();
  }
})();

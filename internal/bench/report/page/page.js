"use strict";
// The page is complete without this script, which filters and sorts its rows.
const filters = document.querySelector("#filters");
const tagged = document.querySelectorAll("[data-transport]");

function applyFilters() {
  const wanted = [...new FormData(filters)].filter(([, value]) => value);
  let shown = 0;
  for (const el of tagged) {
    el.hidden = wanted.some(([key, value]) => el.dataset[key] !== value);
    if (!el.hidden && el.tagName === "TR") shown++;
  }
  for (const bar of document.querySelectorAll(".bar")) bar.hidden = !bar.querySelector(".value:not([hidden])");
  filters.querySelector("output").textContent = wanted.length ? shown + " rows" : "";
}

if (filters) {
  filters.hidden = false;
  filters.addEventListener("change", applyFilters);
}

// sortKey returns the value by which a cell is sorted: its number, or its text.
function sortKey(row, column) {
  const cell = row.cells[column];
  const number = parseFloat(cell.dataset.value ?? cell.textContent);
  return column === 0 || Number.isNaN(number) ? cell.textContent : number;
}

function compare(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? 1 : -1; // a value that was not measured is the smallest
}

function sortBy(head) {
  const down = head.ariaSort !== "descending";
  for (const other of head.parentNode.cells) other.ariaSort = null;
  head.ariaSort = down ? "descending" : "ascending";
  const body = head.closest("table").tBodies[0];
  const rows = [...body.rows].sort((a, b) => compare(sortKey(a, head.cellIndex), sortKey(b, head.cellIndex)) * (down ? -1 : 1));
  body.append(...rows);
}

for (const head of document.querySelectorAll("table.sort th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  button.addEventListener("click", () => sortBy(head));
  head.replaceChildren(button);
}

const theme = document.querySelector("#theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
for (const card of document.querySelectorAll("#sync details")) card.open = true;

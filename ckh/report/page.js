"use strict";
// Makes tables of data sortable by their headings and adds a filter of rows; without it, they are as they are.
for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = Number(text.replaceAll(",", "").replace(/%$/, ""));
    return text === "" || Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) =>
    typeof a === typeof b ? (typeof a === "number" ? a - b : a.localeCompare(b)) : typeof a === "number" ? -1 : 1;
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const sorted = rows.map((row) => [value(row, column), row]).sort((a, b) => sign * compare(a[0], b[0]));
      body.append(...sorted.map((pair) => pair[1]));
    });
  });
  if (rows.length <= 12) {
    continue;
  }
  const label = document.createElement("label"), field = document.createElement("input");
  const shown = document.createElement("output");
  field.type = "search";
  field.placeholder = "filter rows by words";
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  field.addEventListener("input", filter);
  label.append("Filter ", field, " ", shown);
  table.closest(".scroll").before(label);
  filter();
}

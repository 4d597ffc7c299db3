// Search and sort tables, and look at one group. Put into each page: it needs no server.
"use strict";
const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
const whole = new Intl.NumberFormat("en-US"); // one is made once: this is slow
const tenths = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const shownAs = (value) => {
  if (value === null) return "";
  if (value === true || value === false) return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  return (Number.isInteger(value) ? whole : tenths).format(value);
};
const cell = (data, row, n) => {
  let text = escaped(shownAs(row[n]));
  const to = data.links[data.names[n]];
  if (to !== undefined && text) text = `<a href="${to}#${encodeURIComponent(row[n])}">${text}</a>`;
  return `<td class="${data.kinds[n]}" data-name="${escaped(data.names[n])}">${text}</td>`;
};
const order = (one, other) => {
  if (one === null || other === null) return (one === null) - (other === null);
  return typeof one === "number" ? one - other : String(one).localeCompare(String(other));
};
function enliven(table, data) {
  const step = 12;
  const state = { text: "", by: -1, up: false, count: step };
  const heads = [...table.querySelectorAll("th")];
  const tools = document.createElement("div");
  tools.className = "tools";
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "search";
  search.setAttribute("aria-label", "search the table");
  const more = document.createElement("button");
  const said = document.createElement("span");
  said.className = "faint";
  said.style.margin = "0";
  tools.append(search, said);
  table.parentElement.before(tools);
  table.parentElement.after(more);
  let words = null; // 10,000 rows take a moment, so only if somebody searches
  const draw = () => {
    let numbers = data.rows.map((_, n) => n);
    if (state.text && words === null)
      words = data.rows.map((row) => row.map(shownAs).join(" ").toLowerCase());
    if (state.text) numbers = numbers.filter((n) => words[n].includes(state.text));
    if (state.by >= 0) {
      const sign = state.up ? 1 : -1;
      const at = state.by;
      numbers.sort((a, b) => {
        const [x, y] = [data.rows[a][at], data.rows[b][at]];
        return (x === null || y === null ? 1 : sign) * order(x, y);
      });
    }
    const rows = numbers.slice(0, state.count).map((n) => data.rows[n]);
    const html = (row) => `<tr>${row.map((_, n) => cell(data, row, n)).join("")}</tr>`;
    table.tBodies[0].innerHTML = rows.map(html).join("");
    table.classList.toggle("all", state.count > step || state.text !== "");
    const total = data.rows.length.toLocaleString("en-US");
    const found = `${numbers.length.toLocaleString("en-US")} of ${total} rows match`;
    said.textContent = state.text ? found : `${total} rows`;
    const rest = numbers.length - rows.length;
    const few = getComputedStyle(table).display === "block" && !table.classList.contains("all");
    more.hidden = rest <= 0 && !(few && rows.length > 3);
    more.textContent = "more rows";
    heads.forEach((head, n) => {
      if (n !== state.by) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", state.up ? "ascending" : "descending");
    });
  };
  search.addEventListener("input", () => {
    Object.assign(state, { text: search.value.trim().toLowerCase(), count: 3 * step });
    if (!state.text) state.count = step;
    draw();
  });
  more.addEventListener("click", () => { state.count += 4 * step; draw(); });
  heads.forEach((head, n) => {
    head.classList.add("sorts");
    head.tabIndex = 0;
    const sort = () => {
      const isNumber = data.kinds[n] === "n";
      const up = state.by === n ? !state.up : !isNumber;
      Object.assign(state, { by: n, up });
      draw();
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (key) => { if (key.key === "Enter") sort(); });
  });
  draw();
}
for (const held of document.querySelectorAll("script.rows")) {
  const data = JSON.parse(held.textContent);
  if (data.rows.length > 3) enliven(held.parentElement.querySelector("table"), data);
}
const short = (value) => {
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (value >= limit) return `${+(value / limit).toPrecision(4)}${unit}`;
  return String(+value.toPrecision(4));
};
const ceiling = (value) => {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((m) => m * power).find((top) => top >= value * 0.999999999);
};
function small(series, most, unit, colour, edges) {
  const width = innerWidth <= 640 ? 340 : 560; // scaled text is hard to read
  const [height, left, top, low] = [190, 46, 22, 166];
  const [full, digits] = [ceiling(most), "0123456789abcdefghijklmnopqrstuvwxyz"];
  const x = (n) => left + (n / series.length) * (width - left - 10);
  const y = (value) => low - (value / full) * (low - top);
  let [path, open] = ["", false];
  [...series].forEach((sign, n) => {
    const place = digits.indexOf(sign);
    if (place < 0) { open = false; return; }
    const at = y((place / 35) * most).toFixed(1);
    path += `${open ? "V" : `M${x(n).toFixed(1)} `}${at}H${x(n + 1).toFixed(1)}`;
    open = true;
  });
  const grid = [0, 0.5, 1].map((share) => {
    const at = y(full * share);
    const line = `<line class="${share ? "grid" : "axis"}" x1="${left}" x2="${width - 10}"`;
    const says = `<text x="${left - 6}" y="${at + 4}" text-anchor="end">${short(full * share)}</text>`;
    return `${line} y1="${at}" y2="${at}"/>${says}`;
  });
  const times = [["start", left, edges[0]], ["end", width - 10, edges[1]]].map(
    ([anchor, at, says]) => `<text x="${at}" y="${height - 6}" text-anchor="${anchor}">${says}</text>`);
  return `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(unit)} over time">` +
    `<text class="unit" x="0" y="11">${escaped(unit)}</text>${grid.join("")}${times.join("")}` +
    `<g class="line ${colour}"><path d="${path}"/></g></svg>`;
}
const panel = document.getElementById("one-group");
if (panel) {
  const rows = JSON.parse(document.querySelector("script.rows").textContent);
  const details = JSON.parse(document.querySelector("script.details").textContent);
  const look = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const n = rows.rows.findIndex((row) => row[0] === name);
    panel.hidden = !name;
    if (!name) return;
    panel.querySelector("h2").textContent = name;
    const place = panel.querySelector("div");
    if (n < 0) { place.textContent = "There is no such group on these days."; return; }
    const [lagMost, lag, rateMost, rate] = details.groups[n];
    const facts = rows.names.slice(1).map((fact, at) =>
      `<dt>${escaped(fact)}</dt><dd>${escaped(shownAs(rows.rows[n][at + 1])) || "unknown"}</dd>`);
    const quoted = name.replace(/'/g, `'\\''`);
    place.innerHTML = `<div class="pair">${small(lag, lagMost, "messages behind", "s1", details.edges)}` +
      `${small(rate, rateMost, "messages a minute", "s3", details.edges)}</div><dl>${facts.join("")}</dl>` +
      `<p class="faint">More: <code>groupkeeper pipeline report --group '${escaped(quoted)}'</code></p>`;
    panel.scrollIntoView({ block: "nearest" });
  };
  addEventListener("hashchange", look);
  look();
}

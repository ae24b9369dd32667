// A chart of lines over the last hour, with a legend and a table of the same values.

import { fill, h, number, plain, table, when } from "./page.js";

const HOUR_MS = 3600000;
const WIDTH = 600; // of the drawing, which is as wide as its place
const HEIGHT = 120;
const LINES_MAX = 6; // more could not be told apart; the table has them all
const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Return {element, show(samples)} of a chart. *samples* are {ms, values}, oldest first, with numbers
// by name; a name without a value at a time has a gap there. *unit* follows the numbers.
export function lineChart(id, title, unit) {
  const picture = svg("svg", { id, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  const top = h("span", { class: "soft" });
  const legend = h("ul", { class: "legend" });
  const values = h("details", {}, h("summary", {}, "As a table"));
  const element = h("figure", { class: "chart" },
    h("figcaption", {}, h("h3", { id: `${id}-title` }, title), top),
    picture,
    h("p", { class: "axis soft" }, h("span", {}, "an hour ago"), h("span", {}, "now")),
    legend, values);

  function show(samples, nowMs = Date.now()) {
    const names = namesOf(samples);
    const most = Math.max(1, ...samples.flatMap((sample) => Object.values(sample.values)));
    const drawn = names.slice(0, LINES_MAX);
    top.textContent = `up to ${number(most)} ${unit}`;
    picture.setAttribute("aria-label", summary(title, samples, names, unit));
    picture.replaceChildren(...drawn.map((name, at) => svg("path", { class: `line line${at + 1}`, d: path(samples, name, most, nowMs) })));
    legend.replaceChildren(...drawn.map((name, at) => h("li", {},
      svg("svg", { viewBox: "0 0 24 8", width: "24", height: "8", "aria-hidden": "true" }, svg("path", { class: `line line${at + 1}`, d: "M0 4H24" })),
      ` ${plain(name)}: ${number(samples.at(-1)?.values[name])} ${unit}`)));
    if (names.length > LINES_MAX) legend.append(h("li", { class: "soft" }, `and ${names.length - LINES_MAX} more in the table`));
    showTable(samples, names);
  }

  function showTable(samples, names) {
    const key = JSON.stringify(names);
    if (values.dataset.names !== key) {
      values.dataset.names = key;
      values.querySelector(".scroll")?.remove();
      values.append(table(`${id}-rows`, `${id}-title`, ["Time", ...names.map(plain)]));
    }
    fill(values.querySelector("tbody"), [...samples].reverse(), ({ ms }) => String(ms), (each) => [
      when(each.ms),
      ...names.map((name) => (each.values[name] ?? "")),
    ]);
  }

  return { element, show };
}

// The names of all lines, those with the largest values first.
function namesOf(samples) {
  const largest = new Map();
  for (const { values } of samples) {
    for (const [name, value] of Object.entries(values)) largest.set(name, Math.max(value, largest.get(name) ?? 0));
  }
  return [...largest].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).map(([name]) => name);
}

function path(samples, name, most, nowMs) {
  let isDrawing = false;
  return samples.map(({ ms, values }) => {
    const value = values[name];
    if (value === undefined || ms < nowMs - HOUR_MS) {
      isDrawing = false;
      return "";
    }
    const x = WIDTH * (1 - (nowMs - ms) / HOUR_MS);
    const y = HEIGHT - 2 - (value / most) * (HEIGHT - 4);
    const step = `${isDrawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    isDrawing = true;
    return step;
  }).join("");
}

function summary(title, samples, names, unit) {
  const last = samples.at(-1)?.values ?? {};
  const now = names.map((name) => `${plain(name)} ${number(last[name])}`).join(", ");
  return `${title} over the last hour. Now: ${now || "no values"} ${unit}. The table below has all values.`;
}

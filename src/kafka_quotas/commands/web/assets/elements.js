// What the pages share: elements made of text that is never markup, and polling.

const SVG = "http://www.w3.org/2000/svg";

// Makes an element. Children are elements or texts; a text becomes a text node, so a client-id of "<script>" is shown as it is.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function fill(id, ...children) {
  document.getElementById(id).replaceChildren(...children.flat(Infinity).filter(Boolean));
}

// Makes a table of columns {title, cell(row), kind?} and rows, or a sentence where there are none.
export function table(columns, rows, { empty, caption }) {
  if (!rows.length) return el("p", { class: "empty" }, empty);
  const head = columns.map((column) => el("th", { scope: "col", class: column.kind }, column.title));
  const body = rows.map((row) =>
    el("tr", {}, columns.map((column) => {
      const cell = el("div", {}, column.cell(row));
      return el("td", { class: column.kind, "data-column": column.title }, cell.hasChildNodes() ? cell : null);
    })),
  );
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { class: "cards" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

export function figure(label, value, note = "", mood = "") {
  const mark = { bad: "\u2717 ", good: "\u2713 ", watch: "! " }[mood] ?? "";
  return el("div", { class: `figure ${mood}` }, el("dt", {}, label), el("dd", { class: "value" }, mark + value), el("dd", { class: "note" }, note));
}

export function notice(error, hint, kind = "") {
  return el("div", { class: `notice ${kind}` }, el("p", {}, error), hint ? el("p", { class: "hint" }, `hint: ${hint}`) : null);
}

export function time(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function moment(ms) {
  return new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

// Asks for a document. A failure becomes an Error with the server's own message and hint.
export async function ask(path, fields = {}) {
  const query = new URLSearchParams(fields).toString();
  let answer;
  try {
    answer = await fetch(query ? `${path}?${query}` : path, { cache: "no-store" });
  } catch {
    throw Object.assign(new Error("the program behind this page does not answer"), { hint: "is it still running?" });
  }
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error), { hint: found.hint });
  return found;
}

// Calls `show` with the document every few seconds, `fail` with an error. It rests while the page is hidden or paused.
export function poll(path, seconds, show, fail, isPaused = () => false) {
  const again = async () => {
    if (!document.hidden && !isPaused()) {
      try {
        show(await ask(path));
      } catch (error) {
        fail(error);
      }
    }
    setTimeout(again, seconds * 1000);
  };
  again();
}
export const SECONDS = 2;

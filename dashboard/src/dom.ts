// Elements without a framework: text is always text, never markup.

type Child = Node | string | number | null | undefined | false;

export function h(
  tag: string,
  attributes: Record<string, string | boolean | ((event: never) => void)> = {},
  ...children: Child[]
): HTMLElement {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, value);
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(typeof child === "number" ? String(child) : child);
  }
  return element;
}

/**
 * Puts children in place of those there are, unless they look the same: a button keeps its focus
 * and a field what was typed while nothing changes.
 */
export function replace(element: Element, ...children: Child[]): void {
  const nodes = children.filter((child) => child !== null && child !== undefined && child !== false);
  const next = document.createElement("div");
  next.append(...(nodes as (Node | string)[]));
  if (next.innerHTML === drawn.get(element)) return;
  drawn.set(element, next.innerHTML);
  const focused = element.contains(document.activeElement) ? (document.activeElement?.id ?? "") : "";
  element.replaceChildren(...next.childNodes);
  if (focused !== "") document.getElementById(focused)?.focus();
}

/** What each element was last filled with. */
const drawn = new WeakMap<Element, string>();

/**
 * A table whose first column is text and whose others are figures. One of more than four columns
 * becomes cards on a narrow screen.
 */
export function table(id: string, heads: string[], rows: Child[][], classes: string[] = []): HTMLElement {
  const head = h("tr", {}, ...heads.map((text) => h("th", {}, text)));
  const body = rows.map((cells, index) =>
    h(
      "tr",
      { class: classes[index] ?? "" },
      ...cells.map((cell, column) => h("td", { "data-head": heads[column] ?? "" }, cell === "" ? "–" : cell)),
    ),
  );
  return h("div", { class: "scroll" }, h("table", { id, class: heads.length > 4 ? "cards" : "" }, h("thead", {}, head), h("tbody", {}, ...body)));
}

export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return value < 9.95 ? value.toFixed(1) : value.toFixed(0);
}

export function ms(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 9.95) return `${seconds.toFixed(0)} s`;
  return seconds < 0.00995 ? `${(seconds * 1e3).toFixed(1)} ms` : `${(seconds * 1e3).toFixed(0)} ms`;
}

/** The time of day in UTC as the log has it, with the date when it is not today's. */
export function clock(time: string): string {
  const text = new Date(time).toISOString();
  const today = text.slice(0, 10) === new Date().toISOString().slice(0, 10);
  return today ? text.slice(11, 19) : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

/** A text with what stands between backticks as code. */
export function code(text: string): (string | HTMLElement)[] {
  return text.split("`").map((part, index) => (index % 2 === 0 ? part : h("code", {}, part)));
}

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

export function replace(element: Element, ...children: Child[]): void {
  const nodes = children.filter((child) => child !== null && child !== undefined && child !== false);
  element.replaceChildren(...(nodes as (Node | string)[]));
}

/** A table whose first column is text and whose others are figures. */
export function table(id: string, heads: string[], rows: Child[][], classes: string[] = []): HTMLElement {
  const head = h("tr", {}, ...heads.map((text) => h("th", {}, text)));
  const body = rows.map((cells, index) =>
    h(
      "tr",
      { class: classes[index] ?? "" },
      ...cells.map((cell, column) => h("td", { "data-head": heads[column] ?? "" }, cell)),
    ),
  );
  return h("div", { class: "scroll" }, h("table", { id }, h("thead", {}, head), h("tbody", {}, ...body)));
}

export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return value < 9.95 ? value.toFixed(1) : value.toFixed(0);
}

export function ms(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  return seconds < 0.00995 ? `${(seconds * 1e3).toFixed(1)} ms` : `${(seconds * 1e3).toFixed(0)} ms`;
}

/** The local time of day, with the date when it is not today's. */
export function clock(time: string): string {
  const at = new Date(time);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}

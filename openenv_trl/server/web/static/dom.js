// Elements, made without a string of HTML: what comes from an environment or a person is text and stays text.

/** Make an element. Props that begin with "on" are listeners, others attributes; false and null leave them out. */
export function make(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function show(element, visible) {
  element.hidden = !visible;
}

/** JSON text that a person can read: short lists on one line, long ones cut where a limit is given. */
export function pretty(value, most = Infinity, indent = "") {
  if (Array.isArray(value)) {
    const flat = value.every((each) => each === null || typeof each !== "object");
    const kept = value.length > most ? value.slice(0, most) : value;
    const parts = kept.map((each) => pretty(each, most, flat ? indent : indent + "  "));
    if (kept.length < value.length) parts.push(`… ${value.length - kept.length} more`);
    if (flat) return `[${parts.join(", ")}]`;
    return parts.length ? `[\n${parts.map((part) => `${indent}  ${part}`).join(",\n")}\n${indent}]` : "[]";
  }
  if (value !== null && typeof value === "object") {
    const lines = Object.entries(value).map(
      ([name, each]) => `${indent}  ${JSON.stringify(name)}: ${pretty(each, most, indent + "  ")}`,
    );
    return lines.length ? `{\n${lines.join(",\n")}\n${indent}}` : "{}";
  }
  return JSON.stringify(value) ?? "null";
}

export function seconds(value) {
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1000).toPrecision(3).replace(/\.0+$/, "")} ms`;
  return `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

export function number(value) {
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
}

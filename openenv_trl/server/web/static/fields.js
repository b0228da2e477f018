// An observation's fields, each as what it is: text, numbers, short lists on a line, long ones folded.

import { make, number, pretty } from "./dom.js";

const LONG = 120; // characters on a line
const FEW_LINES = 30;
const MOST = 200; // values of a list that are written out

export function fieldsOf(observation, pictures) {
  if (observation === null || typeof observation !== "object" || Array.isArray(observation)) return valueOf(observation);
  const list = make("dl", { class: "values" });
  for (const [name, value] of Object.entries(observation)) {
    if (name === "metadata" && value && !Object.keys(value).length) continue;
    list.append(make("dt", {}, name), make("dd", {}, pictures.has(name) ? summary(value) : valueOf(value)));
  }
  return list.children.length ? list : make("p", { class: "empty" }, "The observation has no fields.");
}

export function valueOf(value) {
  if (value === null || value === undefined) return make("span", { class: "null" }, "none");
  if (typeof value === "boolean") return make("span", { class: "literal" }, value ? "true" : "false");
  if (typeof value === "number") return make("span", { class: "literal" }, number(value));
  if (typeof value === "string") return textOf(value);
  const text = pretty(value, MOST);
  if (text.length <= LONG) return make("span", { class: "literal" }, text);
  if (text.length < FEW_LINES * LONG && text.split("\n").length <= FEW_LINES) return make("pre", {}, text);
  return make("details", { class: "fold" }, make("summary", {}, summary(value)), make("pre", {}, text));
}

function textOf(value) {
  if (value === "") return make("span", { class: "null" }, "empty text");
  const lines = value.split("\n").length;
  if (lines === 1 && value.length < 2000) return make("span", { class: "text" }, value);
  const shown = value.length > 20000 ? `${value.slice(0, 20000)}… ${value.length - 20000} more characters` : value;
  return make("pre", { class: "text" }, shown);
}

function summary(value) {
  if (typeof value === "string") return `${value.length} characters`;
  if (!Array.isArray(value)) return `${Object.keys(value).length} fields`;
  const shape = [];
  for (let each = value; Array.isArray(each); each = each[0]) shape.push(each.length);
  return shape.length > 1 ? shape.join(" × ") : `${value.length} values`;
}

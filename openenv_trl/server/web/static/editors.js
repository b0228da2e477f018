// One editor for each kind of field: {node, read(), write(value), locate(path)}. `read` throws a FieldError.

import { make } from "./dom.js";
import { fieldOf, nameOf, same } from "./schema.js";

let unique = 0;

export class FieldError extends Error {
  constructor(message, input) {
    super(message);
    this.input = input;
  }
}

const MOST_AT_ONCE = 6; // fields of a form; further optional ones are folded
const LONG_TEXT = /code|script|text|content|body|sql|prompt|query|source/i;

/** An editor for a schema. `optional` fields may be left empty: they then read as undefined. */
export function editorFor(schema, root, name, optional = false, depth = 0) {
  const field = fieldOf(schema, root, depth);
  const build = { boolean, integer: numeric, number: numeric, string, enum: select, array, tuple, object, union, const: constant }[field.kind] ?? json;
  return build({ field, root, name, optional, depth });
}

function labelled(name, field, input, required) {
  input.id = `field-${++unique}`;
  const hint = field.schema.description;
  const parts = [make("label", { for: input.id }, name, required ? "" : make("span", { class: "optional" }, " optional"))];
  if (hint) {
    input.setAttribute("aria-describedby", `${input.id}-hint`);
    parts.push(make("span", { class: "hint", id: `${input.id}-hint` }, hint));
  }
  return make("div", { class: "field" }, ...parts, input);
}

function leaf(node, input, read, write) {
  return { node, read, write, locate: () => input };
}

function constant({ field }) {
  // Sent although it is a default: it tells one variant of a union from another.
  return { node: make("span", { hidden: true }), read: () => field.value, write: () => {}, locate: () => null, isConstant: true };
}

function boolean({ field, name, optional }) {
  const input = make("input", { type: "checkbox", id: `field-${++unique}` });
  input.checked = field.schema.default === true;
  const node = make("div", { class: "field check" }, input, make("label", { for: input.id }, name));
  if (field.schema.description) node.append(make("span", { class: "hint" }, field.schema.description));
  const empty = optional && field.schema.default === undefined;
  return leaf(node, input, () => (empty && !input.checked ? undefined : input.checked), (value) => (input.checked = value === true));
}

function numeric({ field, name, optional }) {
  const { schema } = field;
  const whole = field.kind === "integer";
  const input = make("input", { type: "text", inputmode: whole ? "numeric" : "decimal", autocomplete: "off", placeholder: range(schema) });
  if (schema.default !== undefined && schema.default !== null) input.value = String(schema.default);
  const read = () => {
    const text = input.value.trim();
    if (!text) return empty(optional, field, input, name);
    const value = Number(text);
    if (!Number.isFinite(value)) throw new FieldError(`${name}: "${text}" is no number.`, input);
    if (whole && !Number.isInteger(value)) throw new FieldError(`${name}: a whole number is needed.`, input);
    if (whole && !Number.isSafeInteger(value)) throw new FieldError(`${name}: too large for this form.`, input);
    return value;
  };
  return leaf(labelled(name, field, input, !optional), input, read, (value) => (input.value = value ?? ""));
}

function range(schema) {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`;
  const low = minimum !== undefined ? `from ${minimum}` : exclusiveMinimum !== undefined ? `above ${exclusiveMinimum}` : "";
  const high = maximum !== undefined ? `up to ${maximum}` : exclusiveMaximum !== undefined ? `below ${exclusiveMaximum}` : "";
  return [low, high].filter(Boolean).join(", ") || null;
}

function string({ field, name, optional }) {
  const { schema } = field;
  const long = LONG_TEXT.test(name) || schema.format === "multiline";
  const input = long ? make("textarea", { rows: 3, spellcheck: "false" }) : make("input", { type: "text", autocomplete: "off" });
  if (typeof schema.default === "string") input.value = schema.default;
  const read = () => {
    if (input.value === "" && (optional || field.nullable)) return empty(optional, field, input, name);
    return input.value;
  };
  return leaf(labelled(name, field, input, !optional), input, read, (value) => (input.value = value ?? ""));
}

function empty(optional, field, input, name) {
  if (optional) return undefined;
  if (field.nullable) return null;
  throw new FieldError(`${name} is missing.`, input);
}

function select({ field, name, optional }) {
  const input = make("select");
  const given = field.schema.default;
  if (optional && given === undefined) input.append(make("option", { value: "" }, "—"));
  for (const value of field.values) {
    const text = { null: "none", true: "yes", false: "no" }[value] ?? (typeof value === "string" ? value : JSON.stringify(value));
    input.append(make("option", { value: JSON.stringify(value) }, text));
  }
  if (given !== undefined) input.value = JSON.stringify(given);
  const read = () => (input.value === "" ? undefined : JSON.parse(input.value));
  return leaf(labelled(name, field, input, !optional), input, read, (value) => (input.value = value === undefined ? "" : JSON.stringify(value)));
}

function json({ field, name, optional }) {
  const input = make("textarea", { rows: 3, class: "code", spellcheck: "false" });
  if (field.schema.default !== undefined) input.value = JSON.stringify(field.schema.default);
  const read = () => {
    if (!input.value.trim()) {
      if (optional) return undefined;
      if (field.schema.type === "object") return {};
      throw new FieldError(`${name} is missing.`, input);
    }
    return parsed(input.value, name, input);
  };
  const write = (value) => (input.value = value === undefined ? "" : JSON.stringify(value, null, 2));
  return leaf(labelled(`${name} (JSON)`, field, input, !optional), input, read, write);
}

export function parsed(text, name, input) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FieldError(`${name}: this is not JSON (${error.message}).`, input);
  }
}

function object({ field, root, name, depth }) {
  const { schema } = field;
  const required = new Set(schema.required ?? []);
  const editors = new Map();
  for (const [each, inner] of Object.entries(schema.properties)) {
    editors.set(each, editorFor(inner, root, each, !required.has(each), depth + 1));
  }
  const nodes = depth ? [...editors.values()].map((editor) => editor.node) : folded(editors, required);
  if (!depth) nodes.unshift(...(schema.description ? [make("p", { class: "hint" }, schema.description)] : []));
  const node = depth ? make("fieldset", {}, make("legend", {}, name), ...nodes) : make("div", { class: "fields" }, ...nodes);
  const read = () => {
    const value = {};
    for (const [each, editor] of editors) {
      const found = editor.read();
      const isDefault = !required.has(each) && !editor.isConstant && same(found, schema.properties[each].default);
      if (found !== undefined && !isDefault) value[each] = found;
    }
    return value;
  };
  const write = (value) => editors.forEach((editor, each) => editor.write(value?.[each] ?? schema.properties[each].default));
  return { node, read, write, locate: ([first, ...rest]) => editors.get(first)?.locate(rest) ?? null };
}

/** A form's fields: the required ones and the first few others at once, the rest behind a fold. */
function folded(editors, required) {
  const at = [...editors].map(([name, { node }], index) => ({ node, plain: required.has(name) || index < MOST_AT_ONCE - 1 }));
  if (at.length <= MOST_AT_ONCE || at.filter((each) => !each.plain).length < 2) return at.map((each) => each.node);
  const rest = at.filter((each) => !each.plain).map((each) => each.node);
  const more = make("details", {}, make("summary", {}, `${rest.length} more options`), make("div", { class: "fields" }, ...rest));
  return [...at.filter((each) => each.plain).map((each) => each.node), more];
}

function tuple({ field, root, name, depth }) {
  const editors = field.items.map((item, index) => editorFor(item, root, `${name} ${index + 1}`, false, depth + 1));
  const node = make("fieldset", {}, make("legend", {}, name), ...editors.map((editor) => editor.node));
  return {
    node,
    read: () => editors.map((editor) => editor.read()),
    write: (value) => editors.forEach((editor, index) => editor.write(value?.[index])),
    locate: ([first, ...rest]) => editors[first]?.locate(rest) ?? null,
  };
}

function array({ field, root, name, optional, depth }) {
  const { schema } = field;
  const rows = [];
  const list = make("div", { class: "rows" });
  const add = (value) => {
    const editor = editorFor(schema.items, root, `${name} ${rows.length + 1}`, false, depth + 1);
    const remove = make("button", { type: "button", class: "quiet", "aria-label": `Remove ${name} ${rows.length + 1}` }, "Remove");
    const row = { editor, node: make("div", { class: "row" }, editor.node, remove) };
    remove.addEventListener("click", () => {
      rows.splice(rows.indexOf(row), 1);
      row.node.remove();
    });
    if (value !== undefined) editor.write(value);
    rows.push(row);
    list.append(row.node);
    return editor;
  };
  const more = make("button", { type: "button", class: "quiet", onclick: () => add().locate([])?.focus() }, `Add to ${name}`);
  const node = make("fieldset", {}, make("legend", {}, name), list, more);
  const write = (value) => {
    rows.splice(0).forEach((row) => row.node.remove());
    (Array.isArray(value) ? value : []).forEach(add);
  };
  write(schema.default);
  const read = () => (optional && !rows.length ? schema.default === undefined ? undefined : [] : rows.map((row) => row.editor.read()));
  return { node, read, write, locate: ([first, ...rest]) => rows[first]?.editor.locate(rest) ?? more };
}

function union({ field, root, name, optional, depth }) {
  const { schema, variants } = field;
  const input = make("select");
  variants.forEach((variant, index) => input.append(make("option", { value: index }, nameOf(variant, root))));
  const place = make("div");
  let editor = null;
  const choose = () => {
    const variant = variants[input.value];
    editor = variant.type === "null" ? null : editorFor(variant, root, name, false, depth + 1);
    place.replaceChildren(...(editor ? [editor.node] : []));
  };
  input.addEventListener("change", choose);
  const write = (value) => {
    const index = variants.findIndex((variant) => fits(value, variant));
    input.value = String(index < 0 ? 0 : index);
    choose();
    if (value !== undefined && value !== null) editor?.write(value);
  };
  const mayBeNone = variants.some((each) => each.type === "null");
  write("default" in schema ? schema.default : optional && mayBeNone ? null : undefined);
  return {
    node: make("div", { class: "union" }, labelled(`Kind of ${name}`, { schema }, input, !optional), place),
    read: () => (editor ? editor.read() : null),
    write,
    locate: (path) => editor?.locate(path) ?? editor?.locate(path.slice(1)) ?? input,
  };
}

function fits(value, variant) {
  if (value === undefined) return true;
  if (value === null) return variant.type === "null";
  if (Array.isArray(value)) return variant.type === "array";
  if (typeof value === "object") {
    const constants = Object.entries(variant.properties ?? {}).filter(([, each]) => "const" in each);
    return (variant.type === "object" || !!variant.properties) && constants.every(([name, each]) => same(value[name], each.const));
  }
  if (typeof value === "number") return variant.type === "number" || (variant.type === "integer" && Number.isInteger(value));
  return variant.type === typeof value;
}

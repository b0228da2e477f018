// JSON Schemas as pydantic writes them, reduced to what a form needs to know.

const MOST_DEEP = 6; // of nested objects; what is deeper is edited as JSON

/** What kind of field a schema asks for: {kind, schema, nullable, ...}. */
export function fieldOf(given, root, depth = 0) {
  const schema = resolved(given, root);
  if (depth > MOST_DEEP) return { kind: "json", schema };
  if ("const" in schema) return { kind: "const", schema, value: schema.const };
  if (Array.isArray(schema.enum)) return choice(schema, schema.enum);
  const variants = schema.anyOf ?? schema.oneOf ?? ofTypes(schema);
  if (variants) return union(schema, variants, root, depth);
  switch (schema.type) {
    case "boolean":
    case "integer":
    case "number":
    case "string":
      return { kind: schema.type, schema };
    case "array":
      return array(schema);
    case "object":
      return object(schema);
    default:
      return schema.properties ? object(schema) : { kind: "json", schema };
  }
}

/** Follow references; the words beside a reference win over those behind it. */
export function resolved(schema, root) {
  let found = schema === true || schema === undefined ? {} : schema;
  for (let hop = 0; hop < 10; hop++) {
    const only = found.allOf?.length === 1 ? found.allOf[0] : null;
    const target = only ?? (found.$ref ? behind(found.$ref, root) : null);
    if (!target) return found;
    const { $ref, allOf, ...beside } = found;
    found = { ...target, ...beside };
  }
  return found;
}

export function nameOf(schema, root) {
  const found = resolved(schema, root);
  if (found.type === "null") return "none";
  if ("const" in found) return JSON.stringify(found.const);
  return found.title ?? { string: "text", integer: "whole number", boolean: "yes or no", array: "list" }[found.type] ?? found.type ?? "JSON";
}

function behind(reference, root) {
  let found = root;
  for (const part of reference.replace(/^#\//, "").split("/")) {
    found = found?.[part.replaceAll("~1", "/").replaceAll("~0", "~")];
  }
  return found ?? {};
}

function ofTypes(schema) {
  return Array.isArray(schema.type) ? schema.type.map((type) => ({ ...schema, type, title: undefined, default: undefined })) : null;
}

function choice(schema, values) {
  return { kind: "enum", schema, values };
}

function union(schema, variants, root, depth) {
  const found = variants.map((each) => resolved(each, root));
  const rest = found.filter((each) => each.type !== "null");
  const nullable = rest.length < found.length;
  if (rest.every((each) => "const" in each)) {
    const values = rest.map((each) => each.const);
    return choice(schema, nullable ? [...values, null] : values);
  }
  if (rest.length === 1) {
    const { anyOf, oneOf, type, ...words } = schema;
    const inner = fieldOf({ ...rest[0], ...words }, root, depth);
    if (inner.kind === "enum" && nullable) return { ...inner, values: [...inner.values, null] };
    if (inner.kind === "boolean" && nullable) return choice(inner.schema, [true, false, null]);
    if (["string", "integer", "number"].includes(inner.kind)) return { ...inner, nullable };
    if (!nullable) return inner;
  }
  return { kind: "union", schema, variants: found };
}

function array(schema) {
  if (Array.isArray(schema.prefixItems)) return { kind: "tuple", schema, items: schema.prefixItems };
  return schema.items && schema.items !== true ? { kind: "array", schema } : { kind: "json", schema };
}

function object(schema) {
  const names = Object.keys(schema.properties ?? {});
  return names.length ? { kind: "object", schema } : { kind: "json", schema };
}

export function same(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

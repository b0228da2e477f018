// A form for an object's schema, with the same value as raw JSON beside it.

import { make } from "./dom.js";
import { editorFor, FieldError, parsed } from "./editors.js";

/** Build a form. `submit(value)` is called with what it holds; `fail(message)` with what is wrong with it. */
export function buildForm({ schema, label, submit, fail, secondary }) {
  const editor = editorFor(schema, schema, label);
  const raw = make("textarea", { rows: 8, class: "code", spellcheck: "false", "aria-label": `${label} as JSON`, hidden: true });
  const toggle = make("button", { type: "button", class: "quiet", "aria-pressed": "false" }, "JSON");
  const send = make("button", { type: "submit", class: secondary ? "" : "primary" }, label);
  const more = schema.additionalProperties === true ? moreFields() : null;
  const place = make("div", {}, editor.node, more?.node);
  const form = make("form", { novalidate: true, "aria-label": label }, place, raw, make("div", { class: "buttons" }, send, toggle));
  const value = () => {
    if (!raw.hidden) {
      const found = parsed(raw.value, label, raw);
      if (found === null || typeof found !== "object" || Array.isArray(found)) throw new FieldError("A JSON object is needed.", raw);
      return found;
    }
    return { ...editor.read(), ...more?.read() };
  };
  const clear = () => form.querySelectorAll("[aria-invalid]").forEach((input) => input.removeAttribute("aria-invalid"));
  const blame = (input) => {
    for (let fold = input?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    input?.setAttribute("aria-invalid", "true");
    input?.focus();
  };
  const guarded = (act) => {
    clear();
    try {
      act();
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
      blame(error.input);
      fail(error.message);
    }
  };
  toggle.addEventListener("click", () =>
    guarded(() => {
      const found = value();
      const toRaw = raw.hidden;
      if (toRaw) raw.value = JSON.stringify(found, null, 2);
      else {
        editor.write(found);
        place.querySelectorAll(":scope > .fields > details").forEach((fold) => (fold.open = true)); // all that was written
        more?.write(Object.fromEntries(Object.entries(found).filter(([name]) => !(name in (schema.properties ?? {})))));
      }
      raw.hidden = !toRaw;
      place.hidden = toRaw;
      toggle.setAttribute("aria-pressed", String(toRaw));
    }),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (send.getAttribute("aria-disabled") !== "true") guarded(() => submit(value()));
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return {
    node: form,
    /** Point at the fields that the server names. */
    blame: (paths) => {
      clear();
      const inputs = paths.map((path) => editor.locate(path.map(String))).filter(Boolean);
      inputs.forEach(blame);
      inputs[0]?.focus();
    },
    // Not by `disabled`, which would take the focus from it.
    disable: (disabled) => send.setAttribute("aria-disabled", disabled),
    focus: () => send.focus({ preventScroll: true }),
  };
}

function moreFields() {
  const schema = { type: "object", description: "Whatever else the environment takes, as a JSON object." };
  const editor = editorFor(schema, schema, "More", true);
  const node = make("details", {}, make("summary", {}, "More arguments"), editor.node);
  return {
    node,
    read: () => {
      const found = editor.read() ?? {};
      if (typeof found !== "object" || Array.isArray(found)) throw new FieldError("More: a JSON object is needed.", editor.locate([]));
      return found;
    },
    write: (value) => editor.write(Object.keys(value).length ? value : undefined),
  };
}

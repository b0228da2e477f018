// The debug page: one visitor, one session, one episode at a time.

import { chartOf } from "./chart.js";
import { Connection } from "./connection.js";
import { byId, make, number, pretty, seconds, show } from "./dom.js";
import { fieldsOf, valueOf } from "./fields.js";
import { buildForm } from "./form.js";
import { addToLog, downloadLog } from "./log.js";
import { markdown } from "./markdown.js";
import { picturesOf } from "./pictures.js";
import { showRendered } from "./rendered.js";
import { fieldOf } from "./schema.js";

const MOST_BUTTONS = 12;
const MOST_TABS = 8; // more ways to act are a list to choose from

let about = null;
let tools = null;
let toolForms = "";
let resetForm = null;
let actionForms = [];
let rewards = [];
let busy = false;
let begun = false;
let over = false;

const connection = new Connection({
  opened: () => {
    show(byId("door"), false);
    show(byId("notice"), false);
  },
  closed: (wasOpen) => {
    ended();
    if (wasOpen && about) notice("The connection to the server broke, and your session ended with it. Connecting again…");
  },
  tokenNeeded: (reason) => {
    byId("door-reason").textContent = reason;
    show(byId("door"), true);
    byId("token").focus();
  },
  refused: (reason) => notice(reason),
  told: (message) => {
    if (message.type === "about") introduce(message);
    else if (message.type === "server") showServer(message);
    else if (message.type === "waiting") showWaiting(message);
    else if (message.type === "ended") {
      ended();
      showError(message.message);
    } else if (message.type === "error") showError(message.message);
  },
});

function notice(text) {
  byId("notice").textContent = text;
  show(byId("notice"), true);
}

// ---------------------------------------------------------------- what the environment is

function introduce(message) {
  if (about) return; // connected again: the page is there already
  about = message;
  const { metadata } = about;
  document.title = about.title;
  byId("title").textContent = about.title;
  byId("description").textContent = metadata.description ?? "";
  byId("version").textContent = metadata.version ?? "";
  show(byId("version"), !!metadata.version);
  show(byId("mode"), about.mode === "production");
  for (const [name, value] of Object.entries(metadata)) {
    if (name !== "readme_content") byId("metadata").append(make("dt", {}, name), make("dd", {}, valueOf(value)));
  }
  byId("readme").append(...markdown(metadata.readme_content ?? ""));
  show(byId("readme-card"), !!metadata.readme_content);
  show(byId("more"), true);
  if (about.problem) notice(about.problem);
  if (about.mode === "production") {
    notice("This server is in production mode: it shows how it is doing, and no episode is played from here.");
    for (const id of ["state-card", "raw-card", "snippet-card"]) show(byId(id), false);
    return;
  }
  show(byId("columns"), true);
  const schema = { ...about.reset_schema };
  resetForm = buildForm({ schema, label: "Reset", submit: reset, fail: showError });
  byId("reset-form").append(resetForm.node);
  offerActions(about.tools);
}

function offerActions(offered) {
  const text = JSON.stringify(offered);
  if (offered === null || text === toolForms) return;
  toolForms = text;
  tools = offered;
  const forms = [];
  if (about.action_schema) forms.push({ name: about.action_schema.title ?? "Action", schema: about.action_schema, wrap: (value) => value });
  for (const tool of tools) {
    const wrap = (value) => ({ type: "call_tool", tool_name: tool.name, arguments: value });
    forms.push({ name: tool.name, description: tool.description, schema: { type: "object", properties: {}, ...tool.input_schema }, wrap });
  }
  actionForms = forms.map(makeActionForm);
  byId("action-form").replaceChildren(...actionForms.map((each) => each.node));
  byId("action-title").textContent = about.action_schema ? "Action" : "Tools";
  choices(forms);
  enable();
  show(byId("action-card"), forms.length > 0);
}

function makeActionForm({ name, description, schema, wrap }) {
  const form = buildForm({ schema, label: about.action_schema && wrap({}).type !== "call_tool" ? "Step" : `Call ${name}`, submit: (value) => step(wrap(value), form), fail: showError });
  const words = description ? make("p", { class: "hint" }, description) : null;
  return { ...form, node: make("div", { role: "group", "aria-label": name }, words, form.node) };
}

function choices(forms) {
  const place = byId("action-choice");
  place.replaceChildren();
  if (forms.length < 2) return;
  if (forms.length > MOST_TABS) {
    const list = make("select", { id: "way", onchange: () => only(list.selectedIndex) }, ...forms.map((form) => make("option", {}, form.name)));
    place.append(make("div", { class: "field ways" }, make("label", { for: "way" }, "Way to act"), list));
    only(0);
    return;
  }
  actionForms.forEach((form) => form.node.setAttribute("role", "tabpanel"));
  const tabs = forms.map((form, index) => make("button", { type: "button", role: "tab", onclick: () => choose(index) }, form.name));
  const choose = (index) => {
    tabs.forEach((tab, each) => {
      tab.setAttribute("aria-selected", String(each === index));
      tab.tabIndex = each === index ? 0 : -1;
    });
    only(index);
  };
  const list = make("div", { role: "tablist", "aria-label": "Ways to act", class: "tabs" }, ...tabs);
  list.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const to = (tabs.indexOf(document.activeElement) + by + tabs.length) % tabs.length;
    choose(to);
    tabs[to].focus();
  });
  place.append(list);
  choose(0);
}

function only(index) {
  actionForms.forEach((form, each) => show(form.node, each === index));
}

// ---------------------------------------------------------------- what the visitor does

const reset = (value) => carryOut("reset", { arguments: value }, value, resetForm);
const step = (action, form) => carryOut("step", { action }, action, form);

async function carryOut(call, fields, input, form) {
  if (busy) return;
  busy = true;
  enable();
  show(byId("error"), false);
  try {
    const reply = await connection.ask(call, fields);
    showReply(call, input, reply);
  } catch (error) {
    if (!error.reply) throw error;
    showRefusal(call, input, error.reply, form);
  } finally {
    busy = false;
    show(byId("wait"), false);
    enable();
  }
}

function enable() {
  resetForm?.disable(busy);
  actionForms.forEach((form) => form.disable(busy || !begun));
  byId("buttons").querySelectorAll("button").forEach((button) => button.setAttribute("aria-disabled", busy || over));
}

function showReply(call, input, reply) {
  const { observation, reward, done, metadata } = reply.data;
  const truncated = metadata?.truncated === true;
  begun = true;
  over = done;
  if (call === "reset") rewards = [];
  else rewards.push(typeof reward === "boolean" ? Number(reward) : reward);
  offerActions(reply.tools);
  const pictures = picturesOf(observation);
  showRendered(reply.html);
  showPictures(pictures, !!reply.html);
  byId("fields").replaceChildren(fieldsOf(observation, pictures));
  showButtons(reply.buttons ?? ownButtons());
  showOutcome(call, reply, reward, done, truncated);
  show(byId("reward-card"), rewards.some((each) => each !== null));
  drawChart();
  byId("state").textContent = reply.state === null ? "" : pretty(reply.state);
  byId("raw").textContent = pretty(reply.data, 400);
  show(byId("log-card"), true);
  addToLog({ call, step: reply.step_count, input, observation, reward, done, truncated, seconds: reply.seconds });
  show(byId("session"), true);
  const notes = [...reply.problems];
  if (reply.dropped?.length) notes.push(`The environment does not take ${reply.dropped.join(", ")}: dropped.`);
  if (notes.length) showError(notes.join(" "));
  if (byId("snippet-card").open) showSnippet();
  if (call === "reset") byId("buttons").querySelector("button")?.focus({ preventScroll: true });
  if (!byId("buttons").contains(document.activeElement) || call === "reset") bringIntoSight();
}

// On a phone the forms are longer than the screen. After a press of a button nothing moves under the finger.
function bringIntoSight() {
  const { top } = byId("outcome").getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.8) byId("result-card").scrollIntoView({ block: "start" });
}

function showPictures(pictures, folded) {
  const figures = [...pictures].map(([name, node]) => make("figure", {}, node, make("figcaption", {}, name)));
  const place = byId("pictures");
  const fold = place.querySelector("details");
  if (!folded || !figures.length) place.replaceChildren(...figures);
  else if (fold) fold.lastElementChild.replaceChildren(...figures); // as open as it was
  else place.replaceChildren(make("details", {}, make("summary", {}, "Pictures in the observation"), make("div", {}, ...figures)));
}

function drawChart() {
  const width = byId("chart").clientWidth;
  if (width) byId("chart").replaceChildren(chartOf(rewards, width));
}

function showOutcome(call, reply, reward, done, truncated) {
  const parts = [make("span", { class: "part" }, call === "reset" ? "Reset" : `Step ${reply.step_count}`)];
  if (reward !== null) parts.push(make("span", { class: `part reward ${reward > 0 ? "good" : reward < 0 ? "bad" : ""}` }, `Reward ${number(reward)}`));
  if (truncated) parts.push(make("span", { class: "part chip warn" }, "truncated"));
  if (done) parts.push(make("span", { class: "part chip" }, "done"));
  parts.push(make("span", { class: "part took" }, seconds(reply.seconds)));
  byId("outcome").replaceChildren(...parts);
}

function showRefusal(call, input, reply, form) {
  const details = (reply.errors ?? []).map((each) => `${(each.loc ?? []).join(".") || call}: ${each.msg}`);
  const stands = reply.session_stands ? " Your session stands as before." : "";
  showError([reply.message, ...details].join("\n") + stands);
  form?.blame((reply.errors ?? []).map((each) => (each.loc ?? []).filter((part) => part !== "arguments")));
  if (!reply.session_stands) ended();
  show(byId("log-card"), true);
  addToLog({ call, input, error: [reply.message, ...details].join(" ") });
}

function showError(text) {
  byId("error").textContent = text;
  show(byId("error"), true);
}

// An action that is nothing but one choice needs no form, and a tool without arguments none. Where an action has other
// fields beside the choice, which of them it needs may depend on it: that takes the form.
function ownButtons() {
  const schema = about.action_schema;
  const names = Object.keys(schema?.properties ?? {});
  if (names.length === 1) {
    const [name] = names;
    const field = fieldOf(schema.properties[name], schema);
    if (field.kind === "enum" && field.values.length <= MOST_BUTTONS) {
      return field.values.map((value) => ({ label: typeof value === "string" ? value : JSON.stringify(value), action: { [name]: value } }));
    }
  }
  const plain = (tools ?? []).filter((tool) => !Object.keys(tool.input_schema.properties ?? {}).length);
  return plain.slice(0, MOST_BUTTONS).map((tool) => ({ label: tool.name, action: { type: "call_tool", tool_name: tool.name, arguments: {} } }));
}

function showButtons(offered) {
  const place = byId("buttons");
  const focused = [...place.children].indexOf(document.activeElement);
  const buttons = over ? [] : offered;
  show(place, buttons.length > 0);
  const labels = [...place.children].map((each) => each.dataset.label);
  if (labels.join("\n") !== buttons.map((each) => each.label).join("\n")) {
    place.replaceChildren(...buttons.map(({ label }, index) => {
      const button = make("button", { type: "button", "data-label": label, onclick: () => busy || over || step(button.action, null) }, label);
      if (index < 9) button.append(make("kbd", { "aria-hidden": "true" }, String(index + 1)));
      return button;
    }));
  }
  [...place.children].forEach((button, index) => (button.action = buttons[index].action)); // in place: the focus stays
  // Other buttons, or none since the episode is over: the keyboard goes on from the next thing to press.
  if (focused >= 0 && !place.contains(document.activeElement)) {
    if (buttons.length) place.children[Math.min(focused, buttons.length - 1)].focus();
    else resetForm.focus();
  }
}

function ended() {
  begun = false;
  over = true;
  show(byId("session"), false);
  showButtons([]);
  enable();
}

async function showSnippet() {
  try {
    const { text } = await connection.ask("snippet", { address: new URL("..", location.href).href.replace(/\/$/, "") });
    byId("snippet").textContent = text;
  } catch (error) {
    byId("snippet").textContent = error.message;
  }
}

// ---------------------------------------------------------------- the server

function showServer(numbers) {
  show(byId("server"), true);
  byId("sessions").textContent = `${numbers.active_sessions} / ${numbers.max_sessions}`;
  byId("sessions-meter").value = numbers.active_sessions / numbers.max_sessions;
  byId("waiting").textContent = numbers.draining ? "draining" : String(numbers.waiting);
  const { step: steps, tool } = numbers.calls;
  byId("steps").textContent = String(steps.count);
  byId("mean-step").textContent = steps.count ? seconds(steps.seconds / steps.count) : "–";
  byId("lag").textContent = seconds(numbers.lag_max_s);
  byId("server").title = `${numbers.opened} sessions opened, ${tool.count} other calls, ${numbers.failed_calls} calls failed, ${numbers.workers} worker processes`;
  if (!byId("wait").hidden) waitText(numbers);
}

function showWaiting(numbers) {
  show(byId("wait"), true);
  waitText(numbers);
}

function waitText({ active_sessions: active, max_sessions: most, waiting }) {
  const others = Math.max(0, waiting - 1);
  const before = others ? ` ${others} other${others > 1 ? "s" : ""} wait${others > 1 ? "" : "s"}, too.` : "";
  byId("wait-text").textContent = `Waiting for a session: all ${active} of ${most} are in use.${before}`;
}

byId("door").addEventListener("submit", (event) => {
  event.preventDefault();
  connection.useToken(byId("token").value.trim());
});
byId("stop").addEventListener("click", () => connection.stop());
byId("close").addEventListener("click", async () => {
  await connection.ask("close");
  ended();
});
byId("download").addEventListener("click", () => downloadLog(about));
byId("snippet-card").addEventListener("toggle", (event) => event.target.open && showSnippet());
byId("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(byId("snippet").textContent);
    byId("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId("snippet"));
  }
});
byId("buttons").addEventListener("keydown", (event) => {
  const button = byId("buttons").children[Number(event.key) - 1];
  if (button && !event.ctrlKey && !event.metaKey && !event.altKey) button.click();
});

new ResizeObserver(drawChart).observe(byId("chart"));

connection.open();

// The log of the visitor's calls: the last thousand, newest first, and all of them as a file.

import { byId, make, number, seconds } from "./dom.js";

const MOST = 1000;
const MOST_CHARACTERS = 32 * 1024 * 1024; // of observations that are kept for the file

const entries = [];
let kept = 0;

/** Add a call. Entry: {call, step, input, observation, reward, done, truncated, seconds, error}. */
export function addToLog(entry) {
  entry.at = new Date().toISOString();
  entry.size = JSON.stringify(entry.observation ?? null).length;
  entries.push(entry);
  kept += entry.size;
  byId("log").prepend(row(entry));
  while (entries.length > MOST) forgetFirst();
  for (const each of entries) {
    if (kept <= MOST_CHARACTERS) break;
    kept -= each.size;
    each.size = 0;
    if (each.observation !== undefined) each.observation = "not kept: the log is too long";
  }
}

function forgetFirst() {
  kept -= entries.shift().size;
  byId("log").lastElementChild.remove();
}

function row(entry) {
  const called = entry.call === "reset" ? `reset ${words(entry.input)}`.trim() : words(entry.input);
  const end = entry.error ? make("span", { class: "bad" }, "error") : entry.truncated ? "truncated" : entry.done ? "done" : "";
  return make(
    "tr",
    { class: entry.call === "reset" ? "begins" : null },
    make("td", {}, entry.error ? "" : String(entry.step)),
    make("td", { class: "call", title: entry.error ?? JSON.stringify(entry.input) }, called),
    make("td", { class: "figure-cell" }, entry.reward === null || entry.reward === undefined ? "" : number(entry.reward)),
    make("td", {}, end),
    make("td", { class: "figure-cell" }, entry.seconds === undefined ? "" : seconds(entry.seconds)),
    make("td", {}, make("time", { datetime: entry.at }, new Date(entry.at).toLocaleTimeString())),
  );
}

function words(input) {
  if (!input) return "";
  if (input.type === "call_tool") return `${input.tool_name}(${words(input.arguments)})`;
  return Object.entries(input).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ");
}

export function downloadLog(about) {
  const calls = entries.map(({ size, ...entry }) => entry);
  const file = new Blob([JSON.stringify({ environment: about.env_name, calls }, null, 1)], { type: "application/json" });
  const url = URL.createObjectURL(file);
  make("a", { href: url, download: `${about.env_name.replace(/[^\w-]/g, "_")}-log.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

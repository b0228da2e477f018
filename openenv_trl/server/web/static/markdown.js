// A README's Markdown as elements: headings, paragraphs, lists, tables, code, emphasis, links. HTML in it stays text.

import { make } from "./dom.js";

const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|(?<![\w*])\*(?!\s)(.+?)\*(?!\w)|!?\[([^\]]*)\]\(([^)\s]+)[^)]*\)/;
const BEGINS = /^(#{1,6}\s|```|~~~|\s*[-*+]\s|\s*\d+[.)]\s|>|\|)/;

export function markdown(text) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const blocks = [];
  while (lines.length) {
    const line = lines[0];
    if (!line.trim()) lines.shift();
    else blocks.push(block(lines, line));
  }
  return blocks;
}

function block(lines, line) {
  const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
  if (heading) {
    lines.shift();
    return make(`h${Math.min(heading[1].length + 2, 6)}`, {}, ...inline(heading[2]));
  }
  const fence = /^\s*(```+|~~~+)/.exec(line);
  if (fence) return fenced(lines, fence[1]);
  if (/^ {4}\S/.test(line)) return make("pre", {}, take(lines, (each) => /^ {4}/.test(each) || !each.trim()).map((each) => each.slice(4)).join("\n").trimEnd());
  if (/^(-{3,}|\*{3,})\s*$/.test(line)) {
    lines.shift();
    return make("hr");
  }
  if (line.startsWith("|")) return table(take(lines, (each) => each.startsWith("|")));
  if (line.startsWith(">")) return make("blockquote", {}, ...markdown(take(lines, (each) => each.startsWith(">")).map((each) => each.replace(/^>\s?/, "")).join("\n")));
  const item = /^\s*([-*+]|\d+[.)])\s+/.exec(line);
  if (item) return list(lines, /\d/.test(item[1]) ? "ol" : "ul");
  const text = [lines.shift(), ...take(lines, (each) => each.trim() && !BEGINS.test(each))];
  return make("p", {}, ...inline(text.join(" ")));
}

function take(lines, fits) {
  const taken = [];
  while (lines.length && fits(lines[0])) taken.push(lines.shift());
  return taken;
}

function fenced(lines, fence) {
  lines.shift();
  const code = take(lines, (each) => !each.trim().startsWith(fence));
  lines.shift();
  return make("pre", {}, code.join("\n"));
}

function list(lines, tag) {
  const element = make(tag);
  while (lines.length && /^\s*([-*+]|\d+[.)])\s+/.test(lines[0])) {
    const first = lines.shift().replace(/^\s*([-*+]|\d+[.)])\s+/, "");
    const rest = take(lines, (each) => /^\s+\S/.test(each) && !/^\s*([-*+]|\d+[.)])\s/.test(each));
    element.append(make("li", {}, ...inline([first, ...rest.map((each) => each.trim())].join(" "))));
  }
  return element;
}

function table(rows) {
  const cells = rows.map((row) => row.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|")));
  const ruled = cells.length > 1 && cells[1].every((cell) => /^:?-+:?$/.test(cell));
  const body = ruled ? cells.slice(2) : cells;
  const line = (row, tag) => make("tr", {}, ...row.map((cell) => make(tag, {}, ...inline(cell))));
  const element = make("table", {}, make("tbody", {}, ...body.map((row) => line(row, "td"))));
  if (ruled) element.prepend(make("thead", {}, line(cells[0], "th")));
  return make("div", { class: "scrolls" }, element);
}

function inline(text) {
  const parts = [];
  let rest = text;
  for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
    if (found.index) parts.push(rest.slice(0, found.index));
    const [whole, , code, strong, emphasis, words, address] = found;
    if (code !== undefined) parts.push(make("code", {}, code.trim()));
    else if (strong !== undefined) parts.push(make("strong", {}, ...inline(strong)));
    else if (emphasis !== undefined) parts.push(make("em", {}, ...inline(emphasis)));
    else parts.push(link(words || address, address));
    rest = rest.slice(found.index + whole.length);
  }
  return rest ? [...parts, rest] : parts;
}

function link(words, address) {
  if (!/^https?:\/\//i.test(address)) return make("span", {}, words); // files of a repository that is not here
  return make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, words);
}

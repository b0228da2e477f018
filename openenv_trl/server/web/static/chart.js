// Reward over steps: a bar for each step, a line for their sum.

import { number } from "./dom.js";

const HEIGHT = 140;
const LEFT = 44;
const EDGE = 10;
const MOST_BARS = 300; // the last steps; more would be thinner than a pixel

export function chartOf(rewards, width) {
  const start = Math.max(0, rewards.length - MOST_BARS);
  let sum = rewards.slice(0, start).reduce((total, each) => total + (each ?? 0), 0);
  const shown = rewards.slice(start);
  const sums = shown.map((each) => (sum += each ?? 0));
  const values = [0, ...sums, ...shown.filter((each) => each !== null)];
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (low === high) [low, high] = [low - 1, high + 1];
  const y = (value) => EDGE + ((high - value) / (high - low)) * (HEIGHT - 2 * EDGE);
  const slot = (width - LEFT - EDGE) / Math.max(shown.length, 10);
  const x = (index) => LEFT + slot * (index + 0.5);
  const words = `Reward over ${rewards.length} steps; the last ${number(shown.at(-1) ?? 0)}, the sum ${number(sum)}.`;
  const chart = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": words, class: "chart" });
  for (const value of new Set([low, 0, high])) {
    if (value < low || value > high) continue;
    chart.append(draw("line", { class: value ? "grid" : "axis", x1: LEFT, x2: width - EDGE, y1: y(value), y2: y(value) }));
    chart.append(draw("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  shown.forEach((value, index) => {
    if (value === null) return;
    const thick = Math.max(1, Math.min(slot * 0.7, 18));
    const height = Math.max(Math.abs(y(value) - y(0)), 1.5);
    const bar = draw("rect", { class: value < 0 ? "loss" : "gain", x: x(index) - thick / 2, y: Math.min(y(value), y(0)), width: thick, height, rx: Math.min(2, thick / 2) });
    bar.append(draw("title", {}, `Step ${start + index + 1}: ${number(value)}`));
    chart.append(bar);
  });
  const points = sums.map((value, index) => `${x(index)},${y(value)}`).join(" ");
  if (sums.length > 1) chart.append(draw("polyline", { class: "sum", points }));
  else if (sums.length) chart.append(draw("circle", { class: "sum", cx: x(0), cy: y(sums[0]), r: 3 }));
  return chart;
}

function draw(tag, props, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

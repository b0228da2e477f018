// The HTML that an environment renders, in a frame of its own in which no script runs.

import { byId, make, show } from "./dom.js";

const EMPTY = '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><style>body{margin:0;font:14px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}img{max-width:100%}</style><body>';
const HIGHEST = 720;

let frame = null;

/** Show the HTML; null shows nothing. */
export function showRendered(html) {
  const place = byId("rendered");
  show(place, html !== null && html !== undefined);
  if (place.hidden) return;
  if (frame) {
    fill(html);
    return;
  }
  // "allow-same-origin" lets this page write into the frame, without a flicker at each step, and read its height.
  // Never add "allow-scripts": with both, what is shown could reach out of the frame.
  frame = make("iframe", { sandbox: "allow-same-origin", title: "The observation as the environment shows it", srcdoc: EMPTY });
  frame.addEventListener("load", () => fill(frame.html));
  frame.html = html;
  place.replaceChildren(frame);
}

function fill(html) {
  frame.html = html;
  const inside = frame.contentDocument;
  if (!inside?.body || inside.URL !== "about:srcdoc") return;
  inside.body.innerHTML = html; // of the frame's own document, where scripts and handlers are dead
  fit(inside);
  for (const image of inside.images) if (!image.complete) image.addEventListener("load", () => fit(inside));
}

function fit(inside) {
  frame.style.height = `${Math.min(Math.max(inside.body.scrollHeight, 24), HIGHEST)}px`;
}

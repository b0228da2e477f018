// Which fields of an observation are pictures, and how they are shown: data URLs, base64, and arrays of pixels.

import { make } from "./dom.js";

const PICTURE_URL = /^data:image\/(png|jpeg|gif|webp|bmp);base64,[A-Za-z0-9+/=\s]+$/;
const BYTES_URL = "data:application/octet-stream;base64,"; // how this server writes bytes that are no text
const KINDS = [["iVBORw0KGgo", "png"], ["/9j/", "jpeg"], ["R0lGOD", "gif"], ["UklGR", "webp"]];
const LEAST_SIDE = 8; // of a grid of numbers without colours that is taken for a picture, and not for a board
const WIDEST = 480; // of one alone; several share the room
const WIDEST_OF_SEVERAL = 240;

/** The pictures of an observation: a Map from the field's name to an element. */
export function picturesOf(observation) {
  const found = new Map();
  if (observation === null || typeof observation !== "object") return found;
  for (const [name, value] of Object.entries(observation)) {
    const picture = pictureOf(name, value, observation[`${name}_shape`] ?? observation.shape);
    if (picture) found.set(name, picture);
  }
  const widest = found.size > 1 ? WIDEST_OF_SEVERAL : WIDEST;
  for (const picture of found.values()) {
    if (picture.tagName === "CANVAS") scale(picture, picture.width, picture.height, widest);
    else picture.addEventListener("load", () => scale(picture, picture.naturalWidth, picture.naturalHeight, widest));
  }
  return found;
}

/** Small pictures are shown larger, each pixel as a square. */
function scale(picture, width, height, widest) {
  const times = Math.max(1, Math.min(Math.floor(widest / width), Math.floor(widest / height)));
  picture.style.width = `${width * times}px`;
}

function pictureOf(name, value, shape) {
  if (typeof value === "string") {
    const url = urlOf(value);
    return url ? make("img", { src: url, alt: `${name}: a picture`, class: "picture" }) : null;
  }
  if (!Array.isArray(value) || !value.length) return null;
  const size = Array.isArray(value[0]) ? sizeOf(value) : sizeOfFlat(value, shape);
  if (!size) return null;
  const pixels = value.flat(Infinity);
  if (pixels.length !== size.height * size.width * size.channels) return null;
  if (!pixels.every((each) => Number.isInteger(each) && each >= 0 && each <= 255)) return null;
  return canvasOf(name, pixels, size);
}

function urlOf(text) {
  if (PICTURE_URL.test(text)) return text;
  const data = text.startsWith(BYTES_URL) ? text.slice(BYTES_URL.length) : text;
  const kind = KINDS.find(([start]) => data.startsWith(start));
  if (!kind || !/^[A-Za-z0-9+/=\s]{24,}$/.test(data)) return null;
  return `data:image/${kind[1]};base64,${data}`;
}

function sizeOf(rows) {
  const height = rows.length;
  const width = rows[0].length;
  if (!width || !rows.every((row) => Array.isArray(row) && row.length === width)) return null;
  if (Array.isArray(rows[0][0])) {
    const channels = rows[0][0].length;
    return [1, 3, 4].includes(channels) ? { height, width, channels } : null;
  }
  return height >= LEAST_SIDE * 2 && width >= LEAST_SIDE * 2 ? { height, width, channels: 1 } : null;
}

function sizeOfFlat(value, shape) {
  if (!Array.isArray(shape) || !shape.every((each) => Number.isInteger(each) && each > 0)) return null;
  const [height, width, channels = 1] = shape;
  const isPicture = (shape.length === 3 && [1, 3, 4].includes(channels)) || (shape.length === 2 && width >= LEAST_SIDE);
  return isPicture && value.length === height * width * channels ? { height, width, channels } : null;
}

function canvasOf(name, pixels, { height, width, channels }) {
  const canvas = make("canvas", { class: "picture", role: "img", "aria-label": `${name}: a picture of ${width} by ${height} pixels` });
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  for (let at = 0, to = 0; at < pixels.length; at += channels, to += 4) {
    image.data[to] = pixels[at];
    image.data[to + 1] = pixels[channels > 1 ? at + 1 : at];
    image.data[to + 2] = pixels[channels > 1 ? at + 2 : at];
    image.data[to + 3] = channels === 4 ? pixels[at + 3] : 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// How far a running item is, as its handler reports it: a bar and a message.

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { since, visible } from "./format.js";

const AGAIN = 10000; // how often an open item is looked at, in ms: handlers report with the extensions of leases
const SHORT = 30; // the most characters of a message in a row

const bar = (percent) => percent != null && h("progress", { max: 100, value: percent, "aria-label": "Progress" });
const percentage = (percent) => percent != null && `${percent}%`;

// In a row of a list.
export function progressInRow({ progress }) {
  if (!progress) return null;
  const { percent, message = "" } = progress;
  const line = message.split("\n", 1)[0];
  const words = visible(line.length > SHORT ? `${line.slice(0, SHORT)}…` : line);
  return h("span", { class: "progress" }, bar(percent), [percentage(percent), words].filter(Boolean).join(" "));
}

function whole({ percent, message, at }) {
  return h("div", { class: "progress", role: "group", "aria-label": "Progress" }, bar(percent),
    h("span", null, [percentage(percent), message && visible(message)].filter(Boolean).join(" · ")),
    h("span", { class: "muted" }, `reported ${since(at)} ago`));
}

// Of an item that is open. It follows the item as long as it is shown.
export function followed(queue, item) {
  const box = h("div");
  const draw = ({ state, outcome, progress }) => {
    const over = state !== "running";
    const said = over && h("p", { class: "notice" }, `This item is not running any more: it is ${outcome ?? state}.`);
    box.replaceChildren(...[said, !over && progress && whole(progress)].filter(Boolean));
    return over;
  };
  const look = async () => {
    if (!box.isConnected) return;
    // A look that fails is repeated. Without a history, an item that has ended is not found.
    const gone = (error) => (error.status === 404 ? { state: "finished" } : null);
    const now = document.hidden ? null : await get(path(queue, "items", item.id)).catch(gone);
    if (!now || !draw(now)) setTimeout(look, AGAIN);
  };
  draw(item);
  setTimeout(look, AGAIN);
  return box;
}

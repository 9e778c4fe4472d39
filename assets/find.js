// The search for one item of a queue, by its id or its unique key, whatever its state.

import { get, path } from "./api.js";
import { openedLetter } from "./dead.js";
import { h } from "./dom.js";
import { endedItem } from "./ended.js";
import { opened } from "./items.js";

// `reload` reads the list that is shown as well, after a change of the item.
export function find(queue, server, reload) {
  const label = "Item id or unique key";
  const input = h("input", { type: "search", placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: "false" });
  const box = h("div", { class: "panel found", hidden: true });
  const search = async () => {
    const wanted = input.value.trim();
    box.hidden = wanted === "";
    if (box.hidden) return;
    try {
      const item = await look(queue, wanted);
      const again = () => Promise.all([reload(), search()]);
      const said = item.state === "finished" ? "This item has ended." : `This item is ${item.state}.`;
      box.replaceChildren(h("div", { class: "detail" }, h("p", null, said), await view(queue, item, server, again)));
    } catch (error) {
      box.replaceChildren(h("p", { class: "notice bad" }, `${error.message}. ${error.fix ?? ""}`));
    }
  };
  const form = h("form", { class: "bar", role: "search", onsubmit: (event) => (event.preventDefault(), search()) },
    input, h("button", { type: "submit" }, "Find"));
  return h("div", { class: "find" }, form, box);
}

// An id is tried first. The error is the one about the id, if no item has the text as its unique key either.
async function look(queue, wanted) {
  try {
    return await get(path(queue, "items", wanted));
  } catch (error) {
    if (error.status !== 400 && error.status !== 404) throw error;
    const [item] = (await get(`${path(queue, "items")}?${new URLSearchParams({ unique: wanted })}`)).items;
    if (item) return item;
    throw error.status === 404 ? error : new Error("No item has this id or unique key");
  }
}

function view(queue, item, server, reload) {
  if (item.state === "finished") return endedItem(queue, item);
  return item.state === "dead" ? openedLetter(queue, item, server, reload) : opened(queue, item, server, reload);
}

// Elements, made by calls: text is text, wherever it comes from.

const SVG = "http://www.w3.org/2000/svg";

// h("a", { class: "x", href: "#/", onclick: f, hidden: false }, "text", node, [more], null)
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((it) => it != null && it !== false));
  return node;
}

// Sets a text only if it differs, so that a selection in it survives.
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export function toggle(node, name, on) {
  if (node.classList.contains(name) !== on) node.classList.toggle(name, on);
}

const known = new WeakMap();

// Makes `items` the children of `parent`, in order. It updates elements that stay in place, so that they keep focus and selection.
// `make(item)` returns { node, update(item) }.
export function keyed(parent, items, key, make) {
  const before = known.get(parent) ?? new Map();
  const now = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    const row = before.get(name) ?? make(item);
    before.delete(name);
    now.set(name, row);
    row.update?.(item);
    if (row.node === at) at = at.nextSibling;
    else parent.insertBefore(row.node, at);
  }
  for (const row of before.values()) row.node.remove();
  known.set(parent, now);
}

let ids = 0;

// An id that no other element has.
export function unique(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}

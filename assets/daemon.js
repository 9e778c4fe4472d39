// The daemon itself: its database, its configuration.

import { call, signOut } from "./api.js";
import { h, keyed, text } from "./dom.js";
import { age, moment, roughly, since, space, visible } from "./format.js";
import { action, toast } from "./ui.js";

const PHASES = { starting: "Starting", ready: "Ready", reloading: "Taking up a new configuration", draining: "Stopping" };

// Free space and its limit.
function disk(it) {
  if (!it) return null;
  const own = it.reusable ? `, ${space(it.reusable)} reusable in the database` : "";
  const limit = it.min_free ? `min-free-space ${space(it.min_free)}` : "no min-free-space";
  return `${space(it.free)} free of ${space(it.total)}${own}, ${limit}`;
}

export function daemon(server) {
  const list = h("dl", { class: "facts panel" });
  const reload = action("Reload the configuration", async () => {
    const { changed, finishing, left } = await call("POST", "reload", {});
    const still = finishing.length ? ` Items taken before are finished as they were: ${finishing.join(", ")}.` : "";
    const idle = left.length ? ` Removed, with items that this daemon does not process any more: ${left.map((it) => `${it.queue} (${it.items})`).join(", ")}.` : "";
    toast(changed.length ? `Changed: ${changed.join(", ")}.${still}${idle}` : "Nothing differs from the active configuration.");
  });
  const leave = action("Sign out", async () => {
    await signOut();
    location.reload();
  });
  const element = h("div", null, h("h1", null, "Daemon"), list, h("p", { class: "buttons" }, reload, leave));

  function update(it) {
    reload.hidden = server.read_only;
    leave.hidden = !server.signed_in;
    const { database, config } = it;
    const facts = [
      ["State", it.not_ready.length ? `${PHASES[it.phase]}: ${it.not_ready.join("; ")}` : PHASES[it.phase]],
      ["Version", `kvqueue ${it.version}`],
      ["Process", `${it.pid}, started ${moment(it.started_at)} (${roughly(it.up_seconds)} ago)`],
      ["Database", database.url],
      ["It answers", database.up ? `yes, in ${age(database.answered_in)}` : `no: ${database.error ?? "it has not been asked yet"}`],
      ["Disk", disk(database.space)],
      ["Pushes", database.space?.pushes_refused && `refused: ${database.space.pushes_refused}`],
      ["Configuration", config.path ?? "without a file: defaults, variables, options"],
      ["In force", `since ${moment(config.loaded_at)} (${since(config.loaded_at)})`],
      ["Last refused", config.refused],
      ["Finishing", config.finishing.length ? `items taken under earlier settings: ${config.finishing.join(", ")}` : null],
    ];
    keyed(list, facts.filter(([, value]) => value), ([name]) => name, ([name]) => {
      const value = h("dd");
      return { node: h("div", null, h("dt", null, name), value), update: ([, now]) => text(value, visible(now)) };
    });
  }
  return { title: "Daemon", page: "daemon", element, update };
}

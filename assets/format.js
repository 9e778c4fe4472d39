// Numbers, times and names as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const NONE = "–";

export const count = (n) => (n == null ? NONE : whole.format(n));

// Fits a tile: 12,345 but 1.2M.
export const compact = (n) => (n == null ? NONE : Math.abs(n) < 100000 ? whole.format(n) : short.format(n));

export function rate(n) {
  if (n == null) return NONE;
  return n !== 0 && n < 10 ? tenth.format(Math.max(n, 0.1)) : compact(n);
}

export function age(seconds) {
  if (seconds == null) return NONE;
  if (seconds > 0 && seconds < 0.001) return "< 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${tenth.format(seconds)} s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60]];
  const first = units.findIndex(([, size]) => seconds >= size);
  const [name, size] = units[first];
  const next = units[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return `${Math.floor(seconds / size)} ${name}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

// As age, without a fraction that changes at each look.
export const roughly = (seconds) =>
  seconds == null ? NONE : seconds < 1 ? "< 1 s" : age(seconds < 60 ? Math.floor(seconds) : seconds);

export function bytes(n) {
  if (n < 1000) return `${n} B`;
  const units = ["kB", "MB", "GB"];
  let value = n / 1000;
  while (value >= 1000 && units.length > 1) {
    value /= 1000;
    units.shift();
  }
  return `${tenth.format(value)} ${units[0]}`;
}

// Space on a disk, in the units of the configuration.
export function space(n) {
  const unit = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find(([, size]) => n >= size);
  return unit ? `${tenth.format(n / unit[1])} ${unit[0]}` : `${n} B`;
}

const day = new Intl.DateTimeFormat("en-CA", { dateStyle: "short" });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const minute = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });

// A moment, given in milliseconds or RFC 3339: the time of day, with the date if it is another day's.
export function moment(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const today = day.format(date) === day.format(new Date());
  return today ? clock.format(date) : `${day.format(date)} ${clock.format(date)}`;
}

// The same in a time zone, which it names: a schedule's times are read in its own zone.
export function momentIn(at, zone) {
  if (!zone) return moment(at);
  const parts = new Intl.DateTimeFormat("en-CA", { timeZone: zone, dateStyle: "short", timeStyle: "medium", hourCycle: "h23" });
  return `${parts.format(new Date(at)).replace(",", "")} ${zone}`;
}

export const hourMinute = (at) => minute.format(new Date(at));

export const since = (at) => roughly(Math.max(0, (Date.now() - new Date(at).getTime()) / 1000));

// A time to come, as "in 5 min"; one that has come is "now".
export function until(at) {
  const seconds = (new Date(at).getTime() - Date.now()) / 1000;
  return seconds <= 0 ? "now" : `in ${roughly(seconds)}`;
}

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const code = (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`;

// Names and one-line texts: what would be invisible, or turn the line around, is shown as its code.
export const visible = (text) => text.replace(HIDDEN, code);

// The same for texts of several lines.
export const visibleLines = (text) => text.replace(HIDDEN, (sign) => (sign === "\n" || sign === "\t" ? sign : code(sign)));

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

// Calls of the daemon's API. A cookie that scripts cannot read says who is signed in.

// The daemon gives up before: src/deadlines.rs has both.
const PATIENCE = 41000;

let asker = async () => false;

// Asks the person for a token: a function that resolves to whether the browser is signed in.
export function onTokenNeeded(ask) {
  asker = ask;
}

export class ApiError extends Error {
  constructor(status, { code, message, fix } = {}) {
    super(message ?? `the daemon answered with status ${status}`);
    Object.assign(this, { status, code: code ?? "unknown", fix: fix ?? "" });
  }
}

export async function failure(response) {
  const body = await response.json().catch(() => ({}));
  return new ApiError(response.status, body.error);
}

export const path = (queue, ...rest) => ["queues", queue, ...rest].map(encodeURIComponent).join("/");

export async function call(method, where, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const request = { method, headers, body: JSON.stringify(body), signal: AbortSignal.timeout(PATIENCE), cache: "no-store" };
  let response;
  try {
    response = await fetch(`api/v1/${where}`, request);
  } catch (error) {
    const message = error.name === "TimeoutError" ? "the daemon did not answer in time" : "the daemon cannot be reached";
    throw new ApiError(0, { code: "unreachable", message, fix: "see whether it still runs" });
  }
  if (response.status === 401 && (await asker())) return call(method, where, body);
  if (!response.ok) throw await failure(response);
  return response.status === 204 ? null : response.json();
}

export const get = (where) => call("GET", where);

// Signs the browser in with a token. False if the daemon does not know it.
export async function signIn(token) {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await fetch("sign-in", { method: "POST", headers, signal: AbortSignal.timeout(PATIENCE) });
  if (!response.ok && response.status !== 401) throw await failure(response);
  return response.ok;
}

export async function signOut() {
  const response = await fetch("sign-in", { method: "DELETE", signal: AbortSignal.timeout(PATIENCE) });
  if (!response.ok) throw await failure(response);
}

// Requests to the server. Answers are cached, as the same view is often shown again.

const kept = new Map();
const MOST = 80;

/** All runs, with what can be asked of them, and whether the server can train a model. */
export function runs() {
  return fetched("/api/runs");
}

/** The tokens of kept texts at which a unit did what it did at a token. */
export function alike(place) {
  return posted("/api/alike", JSON.stringify(place));
}

/** The lesson as it is, or as it is after an action. */
export function lesson(action) {
  return action ? posted("/api/learn", JSON.stringify(action)) : fetched("/api/learn");
}

/** The numbers of a view; a refusal is an Error with the server's sentence. */
export async function read(view, signal) {
  const body = JSON.stringify(view);
  if (kept.has(body)) return kept.get(body);
  const answer = await posted("/api/read", body, signal);
  kept.set(body, answer);
  if (kept.size > MOST) kept.delete(kept.keys().next().value);
  return answer;
}

function posted(address, body, signal) {
  return fetched(address, { method: "POST", headers: { "content-type": "application/json" }, body, signal });
}

async function fetched(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer: is `mufuru explore` still running?");
  }
  const content = await response.json();
  if (!response.ok) throw new Error(content.error);
  return content;
}

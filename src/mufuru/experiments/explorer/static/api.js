// Requests to the server. Answers are cached, as the same view is often shown again.

const kept = new Map();
const MOST = 80;

/** All runs, with what can be asked of them. */
export async function runs() {
  return (await fetched("/api/runs")).runs;
}

/** The numbers of a view; a refusal is an Error with the server's sentence. */
export async function read(view, signal) {
  const body = JSON.stringify(view);
  if (kept.has(body)) return kept.get(body);
  const headers = { "content-type": "application/json" };
  const answer = await fetched("/api/read", { method: "POST", headers, body, signal });
  kept.set(body, answer);
  if (kept.size > MOST) kept.delete(kept.keys().next().value);
  return answer;
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

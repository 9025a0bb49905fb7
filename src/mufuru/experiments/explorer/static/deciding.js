// Which operation decides the answer: the last prediction, with each operation forbidden alone.

import * as api from "./api.js";
import { percent, visible } from "./dom.js";

const LONGEST = 60;

/** Whether it can be asked: of labels, of few tokens, and while nothing is forbidden or forced. */
export function canAsk({ info, answer, baseline }) {
  const labels = info.kind !== "lm" && info.kind !== "tag" && !info.estimates;
  return Boolean(answer?.ops && answer.ops.length > 1 && labels && !baseline && answer.tokens.length <= LONGEST);
}

/** The operation without which the answer changes, by the surest change; null if there is none. */
export async function deciding({ answer }, view, signal) {
  const label = answer.predictions.at(-1).top[0][0];
  const without = await Promise.all(answer.ops.map(async (op) => {
    const [now, p] = (await api.read({ ...view, forbid: [op], force: null }, signal)).predictions.at(-1).top[0];
    return { op, now, p };
  }));
  return without.filter(({ now }) => now !== label).sort((one, other) => other.p - one.p)[0] ?? null;
}

/** The finding in a sentence. */
export function inSentence({ info, answer }, found) {
  const label = visible(answer.predictions.at(-1).top[0][0], 24);
  if (!found) return `${info.name} says ${label} whichever single operation is forbidden.`;
  return `Without ${found.op}, ${info.name} says ${visible(found.now, 24)} (${percent(found.p)}) instead of ${label}.`;
}

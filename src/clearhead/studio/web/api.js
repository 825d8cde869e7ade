// How the page talks to the server: plain JSON, answers that arrive line by line, and every question can be cancelled.

/** Something went wrong, in words a reader understands: the server's own, in English and Chinese, or those that `key`
 *  names in words.js. */
export class Trouble extends Error {
  constructor(message, { key = null, zh = null } = {}) {
    super(message);
    this.key = key;
    this.zh = zh;
  }
}

/** What the server has: {version, models, stores, questions, limits, runs, hub}. */
export const getState = () => getJson("/api/state");

/** One model, loaded: {card, config, questions: {name: null | why it cannot answer}}. */
const known = new Map();
export function getModel(name) {
  if (!known.has(name))
    known.set(
      name,
      getJson(`/api/models/${encodeURIComponent(name)}`).catch((error) => {
        known.delete(name);
        throw error;
      }),
    );
  return known.get(name);
}

export async function getJson(path, signal) {
  const answer = await reach(path, { signal });
  return answer.json();
}

/** A question: {model, question, text, second, params} → {finding, seconds}. The newest answers are kept. */
const answers = new Map();
const KEPT = 16;
export async function ask(request, { signal, progress } = {}) {
  const key = JSON.stringify(request);
  if (answers.has(key)) return answers.get(key);
  for await (const event of events("/api/ask", request, signal)) {
    if (event.event === "progress") progress?.(event);
    if (event.event === "finding") {
      const answer = { finding: event.finding, seconds: event.seconds };
      answers.set(key, answer);
      if (answers.size > KEPT) answers.delete(answers.keys().next().value);
      return answer;
    }
  }
  throw new Trouble("The answer broke off.", { key: "broke_off" });
}

/** The text a model writes, piece by piece: {model, text, options} → {event: "token", text} … {event: "end", text}. */
export const generate = (request, signal) => events("/api/generate", request, signal);

/** The same question as a page of its own: one HTML file that works offline. */
export async function savedPage(request) {
  const answer = await reach("/api/page", sent(request));
  return answer.text();
}

/** Questions wait for each other, so that a page full of figures asks one at a time. */
let last = Promise.resolve();
export function inTurn(work, signal) {
  const mine = last.then(() => {
    signal?.throwIfAborted();
    return work();
  });
  last = mine.catch(() => {});
  return mine;
}

export const isCancelled = (error) => error?.name === "AbortError";

async function* events(path, request, signal) {
  const answer = await reach(path, sent(request, signal));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw isCancelled(error) ? error : new Trouble(String(error), { key: "broke_off" });
      });
      const lines = (rest + (value ?? "")).split("\n");
      rest = done ? "" : lines.pop();
      for (const line of lines) {
        if (!line.trim()) continue;
        const event = JSON.parse(line);
        if (event.event === "error") throw new Trouble(event.error.message, { zh: event.error.zh });
        yield event;
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const sent = (request, signal) => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(request),
  signal,
});

async function reach(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    throw isCancelled(error) ? error : new Trouble(String(error), { key: "no_server" });
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw new Trouble(error?.message ?? `${answer.status} ${answer.statusText}`, { zh: error?.zh });
}

// Tokens as chips: spaces and line breaks are visible, the pieces of one word stand together.

import { el } from "./dom.js";

const SIGNS = { " ": "␣", "▁": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥" };

/** A token with its spaces and line breaks made visible. */
export function visible(text) {
  const shown = String(text).replace(/[ ▁\n\r\t]/g, (sign) => SIGNS[sign]);
  return shown.replace(
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it is these that are made visible
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028\u2029\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** A text that stands in a sentence: its outer spaces are left out. */
export const plain = (text) =>
  visible(
    String(text)
      .replace(/^[ ▁]+/, "")
      .replace(/^##/, ""),
  ) || visible(text);

export const textOf = (token) => (typeof token === "string" ? token : token.text);
export const isWritten = (token) => token?.kind === "written";
/** A row in a sentence: of what is written, with what has just been read. */
export const rowWords = (c, token) =>
  isWritten(token)
    ? `${visible(token.text)} (${c.words(token.guessed ? "row_guessed" : "row_after", { read: visible(token.read) })})`
    : visible(textOf(token));
/** The step of writing that a row stands for, as a sentence of its own. */
export const stepWords = (c, token) =>
  c.words(token.guessed ? "row_would_write" : "row_writes", { token: plain(token.text), read: plain(token.read) });
/** What names a row in a table, and the columns for it. */
export const rowColumns = (tokens) => (isWritten(tokens[0]) ? ["written_token", "read_token"] : ["query_token"]);
export const rowNames = (token) => (isWritten(token) ? [token.text, token.read] : [textOf(token)]);
export const isSpecial = (token) => typeof token !== "string" && token.word === null;

/** Is this a piece of the same word as the one before? */
export const joins = (tokens, n) =>
  n > 0 &&
  typeof tokens[n] !== "string" &&
  tokens[n].word !== null &&
  tokens[n].word === tokens[n - 1].word &&
  tokens[n].segment === tokens[n - 1].segment;

/** The visible text as nodes, with its signs (␣ ⏎) quieter than its letters. */
export function signed(text) {
  return visible(text)
    .split(/([␣⏎␍⇥]+)/)
    .filter(Boolean)
    .map((part) => (/^[␣⏎␍⇥]/.test(part) ? el("span", { class: "ch-sign" }, part) : part));
}

export function chip(tokens, n, attributes = {}, ...more) {
  const token = tokens[n];
  const kind = [
    "ch-tok",
    joins(tokens, n) && "ch-joins",
    n + 1 < tokens.length && joins(tokens, n + 1) && "ch-goes-on",
    isSpecial(token) && "ch-special",
    attributes.class,
  ]
    .filter(Boolean)
    .join(" ");
  return el(
    "span",
    { ...attributes, class: kind, "data-at": attributes["data-at"] ?? `t${n}` },
    signed(textOf(token)),
    ...more,
  );
}

/** All chips of a text. `attributes(n)` gives the attributes of one, `more(n)` what stands behind its text. */
export function chips(tokens, attributes = () => ({}), more = () => []) {
  const line = el("div", { class: "ch-tokens" });
  let word = line; // the pieces of one word stay on one line
  tokens.forEach((token, n) => {
    if (!joins(tokens, n)) {
      word = el("span", { class: "ch-word" });
      line.append(word);
    }
    word.append(chip(tokens, n, attributes(n), ...[more(n)].flat()));
    if (/\n/.test(textOf(token))) line.append(el("br"));
  });
  return line;
}

/** Cut to so many characters, with dots for what is gone. */
export const short = (text, most) => {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, Math.max(1, most - 1)).join("")}…` : text;
};

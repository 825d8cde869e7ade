// What the lab shows, as an address: everything that was chosen stands in it, so a copied link restores it all.
//
//   /lab?model=…&question=…&text=…&second=…      the question; `text` is left out while it is the sample of the model
//       &.k=5&.layers=0-2                        its parameters, by their own names, a dot before each
//       &vs=model&other=…                        beside it: another model, or another text ("vs=text")
//       &without=1                               the chosen head is taken away
//       &@view="all"                             what is chosen in the figure, as JSON
//
// Long texts go behind #, which is never sent to the server.

const PLAIN = ["model", "question", "text", "second", "vs", "other", "without"];
const LONG = 3000;

export function address(state) {
  const words = new URLSearchParams();
  for (const name of PLAIN)
    if (state[name] !== undefined && state[name] !== null && state[name] !== "")
      words.set(name, state[name] === true ? "1" : state[name]);
  for (const [name, value] of Object.entries(state.params ?? {}))
    if (value !== undefined && value !== null && value !== "") words.set(`.${name}`, String(value)); // a list: 0,1,2
  for (const [name, value] of Object.entries(state.state ?? {})) words.set(`@${name}`, JSON.stringify(value));
  const whole = String(words);
  return whole.length > LONG ? `/lab#${whole}` : whole ? `/lab?${whole}` : "/lab";
}

/** The state that an address means: {model, question, text, …, params, state}. */
export function stateOf({ search, hash }) {
  const words = new URLSearchParams(search);
  if (hash.includes("=")) for (const [name, value] of new URLSearchParams(hash.slice(1))) words.set(name, value);
  const state = { params: {}, state: {} };
  for (const [name, value] of words) {
    if (PLAIN.includes(name)) state[name] = value;
    else if (name.startsWith(".")) state.params[name.slice(1)] = value;
    else if (name.startsWith("@")) {
      try {
        state.state[name.slice(1)] = JSON.parse(value);
      } catch {
        /* a link that was cut off */
      }
    }
  }
  return state;
}

// The right view for a finding: its kind is the name of the module.

import { unpack } from "./numbers.js";

/** Draws any finding. Gives what the view gives: { update(options), state(), destroy() }. */
export async function draw(element, finding, options = {}) {
  const { draw: view } = await import(`./${finding.kind.replaceAll("-", "_")}.js`);
  return view(element, unpack(finding), options);
}

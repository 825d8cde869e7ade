// Texts × pictures, as CLIP compares them: how probable each text is for a picture.

import { figure } from "./figure.js";
import { heatmap } from "./heatmap.js";
import * as scale from "./scale.js";

export const draw = (element, finding, options = {}) => figure(element, finding, options, view);

const view = {
  /** row, column: the pinned pair */
  start: () => ({ row: null, column: null }),
  title: (c) => c.words("text_pictures_title"),
  reading: (c) => c.words("text_pictures_reading"),
  body(c, box) {
    const { texts, pictures, logits, probabilities } = c.finding;
    const { row, column } = c.state;
    box.append(
      heatmap(c, {
        rows: texts,
        columns: pictures,
        width: [22, 84],
        height: [22, 34],
        label: view.title(c),
        name: "text-pictures",
        colour: (r, k) => scale.ink(c, "accent", probabilities[r][k]),
        text: (r, k) => `${Math.round(probabilities[r][k] * 100)}`,
        tip: (r, k) =>
          `${texts[r]} · ${pictures[k]} · ${scale.percent(probabilities[r][k], 1)} · ${c.words("score")} ` +
          scale.number(logits[r][k]),
        picked: { row, column },
        pick: (r, k) => c.set(row === r && column === k ? { row: null, column: null } : { row: r, column: k }),
        release: () => c.set({ row: null, column: null }),
      }),
      scale.legend(
        c.words("text_pictures_scale"),
        scale.steps(9, (t) => scale.ink(c, "accent", t)),
        ["0", "50 %", "100 %"],
      ),
    );
  },
  *table(finding) {
    yield ["text", "picture", "logit", "probability"];
    for (const [r, text] of finding.texts.entries())
      for (const [k, picture] of finding.pictures.entries())
        yield [text, picture, finding.logits[r][k], finding.probabilities[r][k]];
  },
};

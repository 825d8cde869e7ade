// Python's words come in English, with their Chinese beside them in the same places: one is laid over the other.

/** The content with its Chinese in place of the English, where there is any. Nothing is copied that stays as it is. */
export function overlay(content, chinese) {
  if (chinese === undefined || chinese === null) return content;
  if (typeof chinese === "string") return chinese;
  const copy = Array.isArray(content) ? [...content] : { ...content };
  for (const [key, words] of Object.entries(chinese)) copy[key] = overlay(content[key], words);
  return copy;
}

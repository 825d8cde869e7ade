// Which model a page begins with, or a figure needs.

/** The model of this name; else the first that was trained and fits; else undefined. */
export const choose = (models, name, fits = () => true) =>
  models.find((one) => one.name === name) ?? models.find((one) => one.trained && fits(one));

// Sentences of our own, of many kinds: what chapters show to a model where one sentence would be too little.

export const CORPUS = `The king had a beautiful daughter who lived in the castle by the sea.
"Where are you going?" asked the fox, and the hare did not answer.
The old woman went into the kitchen to bake some bread.
In the morning the ship sailed out of the harbour.
She was so hungry that she ate three apples and a piece of cake.
The children ran through the snow until their fingers were cold.
At night the stars shone over the dark forest.
The dog barked, the cat ran up the tree, and the bird flew away.
He opened the window and looked down into the street.
Nobody knew why the little girl was crying.
The giant laughed so loudly that the walls shook.
"Give me back my golden ring," said the princess.
They had been walking for seven days and seven nights.
The boy was not afraid of the dragon, but he was afraid of the dark.
My father gave me a new coat, and my mother gave me a pair of shoes.
Once there was a miller who had a mill, an ass and three sons.
The soldiers marched over the bridge and into the town.
Under the bed there was a box, and in the box there was a key.`;

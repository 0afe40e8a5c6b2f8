"""Planning: pools for a model and a GPU's memory, with the arithmetic shown."""

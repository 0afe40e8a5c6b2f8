"""Reading a model's config.json into layers: one module for each question, none for a model."""

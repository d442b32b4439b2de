"""The documents: links, names, definitions, the API reference and the static site."""

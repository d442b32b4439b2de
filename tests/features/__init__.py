"""The promises of docs/features.md, each shown word by word: a test's name starts with the number of its promise."""

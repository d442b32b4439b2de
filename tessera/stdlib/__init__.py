"""What comes with Tessera, written in Tessera."""

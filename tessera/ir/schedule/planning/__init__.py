"""Planning over ranks: pipelines, overlap, collectives, halos and all-to-alls, as values that are checked and shown."""

"""Planning a training run on a described cluster: costs of a model, a simulated step, and a search over meshes."""

"""Models, providers, and the runtime."""

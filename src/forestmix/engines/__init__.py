"""Engines evaluate a layer: what its rows say of the latents above them, in any array library."""

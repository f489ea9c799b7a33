"""Problems: what an algorithm climbs, for every depth and family of latents."""

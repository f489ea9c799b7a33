"""Pictures of results. Each returns its axes; matplotlib is imported when a plot is asked for, not before."""

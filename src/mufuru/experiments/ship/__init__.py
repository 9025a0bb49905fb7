"""A run leaves the folder it was trained in: as files for others, as a graph, or smaller."""

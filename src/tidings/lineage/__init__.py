"""Send the datasets of a run as OpenLineage events, by OpenLineage's own client."""

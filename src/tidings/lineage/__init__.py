"""Send what a run reads and writes as OpenLineage events, by OpenLineage's own client."""

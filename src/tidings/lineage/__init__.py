"""
Send what a run reads and writes as OpenLineage events to a receiver such as Marquez or DataHub.

OpenLineage's own client creates and sends them. It is imported only if lineage is enabled.
"""

"""
What a run reads and writes, sent as OpenLineage events to a receiver such as Marquez or DataHub.

OpenLineage's own client makes and sends them, and is imported where lineage is asked for only.
"""

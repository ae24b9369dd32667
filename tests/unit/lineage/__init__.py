"""Lineage: OpenLineage events of syncs, tables and pipelines."""

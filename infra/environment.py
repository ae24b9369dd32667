"""What functions of a stage are told, whichever stack they stand in."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.aws import blueprint, metrics, settings

from infra.names import prefix
from infra.settings import Stage


def told(stage: Stage, tables: Mapping[str, str]) -> dict[str, str]:
    """The defaults, then the stage's choices, then *tables* by their names in the blueprint."""
    return (
        {each.variable: each.default for each in settings.SETTINGS if each.default}
        | stage.environment
        | {table.setting: tables[table.name] for table in blueprint.TABLES}
        | {
            "TIDINGS_STAGE": stage.name,
            "TIDINGS_FUNCTION_PREFIX": prefix(stage),
            metrics.SERVICE_VARIABLE: metrics.service(stage.name),
        }
    )

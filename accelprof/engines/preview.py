"""What ``config show`` says about engines: environment, arguments, ranks of each replica, and what a release ignores."""

from __future__ import annotations

from typing import Any

from accelprof.config.model import Config, Rule
from accelprof.engines.options import engines_of, ranks_of, settings_for
from accelprof.engines.tables import DISTRIBUTIONS
from accelprof.numberset import NumberSet
from accelprof.versions import installed


def preview(config: Config, run_dir: str = "<run>") -> list[dict[str, Any]]:
    """One row per engine and selected replica.

    Raises:
        ConfigError: an engine section is wrong.
    """
    rows = []
    for engine, options in engines_of(config).items():
        version = options.version or installed(DISTRIBUTIONS[engine])
        for replica in _replicas(config, options.groups):
            row: dict[str, Any] = {
                "engine": engine,
                "version": version,
                "replica": replica,
                "profiler": options.profiler,
            }
            row["ranks"] = [
                f"rank {r.rank} (dp {r.data}, pp {r.pipeline}, tp {r.tensor})" for r in ranks_of(options, replica)
            ]
            if version is None:
                row["notes"] = [
                    f"{DISTRIBUTIONS[engine]} is not installed here; engines.{engine}.version names a release"
                ]
            else:
                settings = settings_for(engine, version, options, f"{run_dir}/engines", replica)
                row.update(
                    env=dict(settings.env),
                    unset=list(settings.unset),
                    arguments=dict(settings.arguments),
                    start=f"{settings.start}({', '.join(f'{k}={v!r}' for k, v in settings.start_arguments.items())})"
                    if settings.start
                    else "",
                    notes=[*settings.ignored, *settings.notes],
                )
            rows.append(row)
    return rows


def text(row: dict[str, Any]) -> list[str]:
    """Lines of a row for people."""
    head = f"engine {row['engine']} {row['version'] or '(release unknown)'}, replica {row['replica']}: "
    lines = [head + (f"profiler {row['profiler']}" if row["profiler"] else "own profiler off")]
    lines.append("  ranks: " + ", ".join(row["ranks"]))
    for name in ("env", "arguments"):
        if row.get(name):
            lines.append(f"  {name}: " + " ".join(f"{key}={value}" for key, value in row[name].items()))
    if row.get("unset"):
        lines.append("  must not be set: " + " ".join(row["unset"]))
    if row.get("start"):
        lines.append(f"  window: {row['start']}")
    lines.extend(f"  note: {note}" for note in row.get("notes", ()))
    return lines


def _replicas(config: Config, groups: tuple[str, ...]) -> list[int]:
    """Replicas that the configuration selects, where it names them; replica 0 otherwise."""
    chosen: set[int] = set()
    rules = [
        rule
        for group, group_rules in (config.groups or {}).items()
        if not groups or group in groups
        for rule in group_rules
    ]
    choosers: list[Rule | Config] = [*rules, config]
    for chooser in choosers:
        if isinstance(chooser.replicas, NumberSet):
            chosen.update(list(chooser.replicas)[:64])
    return sorted(chosen) or [0]

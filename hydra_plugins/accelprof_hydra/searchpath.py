"""Found by Hydra itself, in every application of an environment that has accelprof."""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class AccelprofSearchPath(SearchPathPlugin):
    """Appends the presets; a file of the application with the same name comes first."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """See :class:`hydra.plugins.search_path_plugin.SearchPathPlugin`."""
        search_path.append(provider="accelprof", path="pkg://accelprof.config.presets")

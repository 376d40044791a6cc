"""Which ranks verl's own code starts a profiler on, from each composed file that it ships, as JSON.

usage: verl_starts.py FILE, with verl on the path"""

import itertools
import json
import sys
from pathlib import Path
from unittest import mock

import verl
import yaml
from omegaconf import OmegaConf
from verl.utils import omega_conf_to_dataclass
from verl.utils.profiler import DistProfiler

RANKS = {"[0,3]": "ranks=[0,3]", "none": "ranks=[]", "all": "all_ranks=true"}
started = []


def starts(role, rank):
    config = omega_conf_to_dataclass(role.profiler)
    profiler = DistProfiler(rank, config=config, tool_config=omega_conf_to_dataclass(role.profiler.tool_config.nsys))
    del started[:]
    profiler.start()
    return bool(started)


def main():
    found = {}
    for path in sorted(Path(verl.__file__).parent.glob("trainer/config/_generated_*.yaml")):
        text = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if "actor_rollout_ref" not in text:
            continue
        composed = OmegaConf.create(text)
        for ranks, on in itertools.product(RANKS, ("actor", "ref", "critic")):
            place = "critic" if on == "critic" else f"actor_rollout_ref.{on}"
            changes = ["global_profiler.tool=nsys", "global_profiler.steps=[2,5]"]
            changes += [f"{place}.profiler.enable=true", f"{place}.profiler.{RANKS[ranks]}"]
            composed.merge_with_dotlist(changes)
            roles = {
                "actor": composed.actor_rollout_ref.actor,
                "ref": composed.actor_rollout_ref.ref,
                "critic": composed.critic,
            }
            taken = {name: [rank for rank in range(5) if starts(role, rank)] for name, role in roles.items()}
            found[f"{path.name} {ranks} {on}"] = {"changes": changes, "taken": taken}
            composed.merge_with_dotlist(
                [f"{place}.profiler.enable=false", f"{place}.profiler.ranks=[]", f"{place}.profiler.all_ranks=false"]
            )
    Path(sys.argv[1]).write_text(json.dumps(found))


def noted(*arguments, **options):
    started.append(arguments)


patches = [mock.patch("torch.cuda.profiler.start", noted)]
try:
    from verl.plugin.platform import get_platform

    patches.append(mock.patch.object(type(get_platform()), "profiler_start", noted))
except ImportError:  # before 0.8
    pass
for patch in patches:
    patch.start()
main()

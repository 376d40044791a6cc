"""Which ranks verl's own code starts a profiler on, from each composed file that it ships. Needs verl on the path."""

import contextlib
import itertools
from pathlib import Path
from unittest import mock

import verl
import yaml
from omegaconf import OmegaConf
from verl.utils import omega_conf_to_dataclass
from verl.utils.profiler import DistProfiler

RANKS = {"[0,3]": "ranks=[0,3]", "none": "ranks=[]", "all": "all_ranks=true"}
started = []


def alone(text, *places):
    """The file with nothing but ``global_profiler`` and the ``profiler`` at each place: small, and so are its copies."""
    kept = {"global_profiler": text["global_profiler"]}
    for place in places:
        source, target = text, kept
        for key in place.split("."):
            source, target = source[key], target.setdefault(key, {})
        target["profiler"] = source["profiler"]
    return kept


def starts(role):
    """The ranks of five on which a worker with this role's section starts."""
    config = omega_conf_to_dataclass(role.profiler)
    tool = omega_conf_to_dataclass(role.profiler.tool_config.nsys)
    return [rank for rank in range(5) if _starts(DistProfiler(rank, config=config, tool_config=tool))]


def _starts(profiler):
    del started[:]
    profiler.start()
    return bool(started)


def every_start():
    """Per case of file, ranks and role: the changes made to the file, and the ranks taken by role."""
    patches = [mock.patch("torch.cuda.profiler.start", noted)]
    with contextlib.suppress(ImportError):  # before 0.8
        from verl.plugin.platform import get_platform

        patches.append(mock.patch.object(type(get_platform()), "profiler_start", noted))
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        return _every_start()


def noted(*arguments, **options):
    started.append(arguments)


def _every_start():
    found = {}
    for path in sorted(Path(verl.__file__).parent.glob("trainer/config/_generated_*.yaml")):
        text = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if "actor_rollout_ref" not in text:
            continue
        composed = OmegaConf.create(alone(text, "actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"))
        for ranks, on in itertools.product(RANKS, ("actor", "ref", "critic")):
            place = "critic" if on == "critic" else f"actor_rollout_ref.{on}"
            changes = ["global_profiler.tool=nsys", "global_profiler.steps=[2,5]"]
            changes += [f"{place}.profiler.enable=true", f"{place}.profiler.{RANKS[ranks]}"]
            resolved = composed.copy()
            resolved.merge_with_dotlist(changes)
            OmegaConf.resolve(resolved)  # verl's driver does
            hybrid = resolved.actor_rollout_ref
            roles = {"actor": hybrid.actor, "ref": hybrid.ref, "critic": resolved.critic}
            taken = {name: starts(role) for name, role in roles.items()}
            found[f"{path.name} {ranks} {on}"] = {"changes": changes, "taken": taken}
    return found

"""The steps in order of worth, each with its limit of time."""

import typing

from . import steps_machine as on_machine
from . import steps_measure as on_programs
from . import steps_processes as on_processes
from . import steps_tune as on_tuning


class Step(typing.NamedTuple):
    function: typing.Callable
    seconds: int
    """The most that it may take."""
    always: bool = False
    """Whether it is done again in every run, because the machine may be another one."""

    @property
    def name(self):
        return self.function.__name__

    @property
    def question(self):
        return self.function.__doc__.splitlines()[0]


STEPS = [
    Step(on_machine.facts, 20, always=True),
    Step(on_machine.warm_up, 30, always=True),
    Step(on_machine.device, 75, always=True),
    Step(on_machine.clocks, 20),
    Step(on_machine.jax_alone, 75),
    Step(on_programs.measure, 45),
    Step(on_tuning.main_job, 90),
    Step(on_tuning.store, 60),
    Step(on_tuning.mosaic_pjrt, 60),
    Step(on_tuning.mosaic_jax, 75),
    Step(on_tuning.confirm, 75),
    Step(on_processes.fresh, 75),
    Step(on_processes.neighbour, 90),
    Step(on_tuning.peer_triton, 60),
    Step(on_tuning.peer_tokamax, 90),
    Step(on_tuning.parallel, 60),
    Step(on_programs.replay, 45),
    Step(on_programs.eager, 45),
    Step(on_tuning.bad, 75),
    Step(on_programs.same_against_same, 60),
    Step(on_programs.compare, 45),
    Step(on_programs.kernels, 45),
    Step(on_programs.unlabelled, 60),
    Step(on_programs.options, 60),
    Step(on_programs.caches, 30),
    Step(on_programs.host, 45),
]
NAMES = [step.name for step in STEPS]
# the first run answers whether anything works; its time is short, because a machine may be lent for minutes. What the
# rest builds on is done again if the results of the first run are not there
FIRST = NAMES[: NAMES.index("main_job") + 1]
REST = [step.name for step in STEPS if step.always] + NAMES[NAMES.index("main_job") :]
SECONDS = {"first": 120, "rest": 360}


def chosen(words):
    """The steps that words of the command line name, in their order, and those among them that are named themselves.

    Raises ValueError for an unknown word.
    """
    unknown = [name for name in words if name not in (*SECONDS, *NAMES)]
    if unknown:
        raise ValueError(f"no step is called `{unknown[0]}`: name `first`, `rest` or some of {', '.join(NAMES)}")
    wanted = set(words) & set(NAMES)
    for word, names in (("first", FIRST), ("rest", REST)):
        wanted |= set(names) if word in words else set()
    return [step for step in STEPS if step.name in wanted], set(words) & set(NAMES)

"""One run: the steps one after the other, none of which can stop another, with the results kept after each."""

import json
import resource
import time

from .results import DOES_NOT, MOST_FIGURE, NOT_TRIED, WORKS
from .tools import LEAST_S, Finding, TimeUp, Unfit

COMPUTED = "needs computed values: rehearse with --plugin of a CPU"
# what a damaged document, or one of another version, may raise
FAULTS = (RuntimeError, OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration)


def run(steps, again, tools, results, say):
    """Does the steps that are not done yet, and those of `again`."""
    for step in steps:
        if step.always or step.name in again or not results.is_done(step.name):
            tools.begin(step.name, step.seconds)
            results.keep(step.name, tried(step, tools), tools.folder)
            say(results.line(step.name))
        else:
            say(f"{results.line(step.name)}, done before")


def tried(step, tools):
    """What a step found: its result, a figure in one line, seconds and notes."""
    began, cpu = time.monotonic(), cpu_seconds()
    limit = min(step.seconds, tools.ends - began)
    try:
        if limit < LEAST_S:
            raise Unfit("the time is up: start again for the remaining steps")
        result, figure, data = judged(step.function(tools), tools.machine.simulated)
    except Unfit as error:
        result, figure, data = NOT_TRIED, str(error), {}
    except TimeUp as error:
        # a step that the end of the run cut short may work with more time
        result = DOES_NOT if limit == step.seconds else NOT_TRIED
        figure, data = f"{error}, of {limit:.0f} s for the step", {}
    except FAULTS as error:
        result, figure, data = DOES_NOT, f"{type(error).__name__}: {error}", {}
    seconds = round(time.monotonic() - began, 1)
    figure = " ".join(figure.split())[:MOST_FIGURE]
    data = json.loads(json.dumps(data, default=str))
    found = {"result": result, "figure": figure, "seconds": seconds, "data": data}
    return found | {"cpu_seconds": round(cpu_seconds() - cpu, 1)}


def cpu_seconds():
    """Processor time of the processes that have ended, over all cores."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(found: Finding, simulated):
    """The result of a finding. On a SIMULATED device, kernels compute nothing and times are made up."""
    parts = [found.works] if simulated else [found.works, found.computed]
    parts = [part for part in parts if part is not None]
    if not parts:
        return NOT_TRIED, f"{COMPUTED}; it ran through", found.data
    return WORKS if all(parts) else DOES_NOT, found.figure, found.data

"""`python -m autotune_lowered record SCRIPT …`: runs an unmodified program with its operations recorded."""

from __future__ import annotations

import argparse
import logging
import os
import runpy
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status. SystemExit of the program passes through."""
    parser = argparse.ArgumentParser(prog="python -m autotune_lowered")
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="run a program with its operations recorded")
    record.add_argument("--registry", default=os.environ.get("AUTOTUNE_LOWERED_RECORD") or "registry", metavar="DIR")
    record.add_argument("--platforms", help="such as `cpu,cuda`; by default the one that the program runs on")
    record.add_argument("--target", help="one device in place of platforms, as `compile` names it: `cuda:h100_sxm`")
    record.add_argument(
        "--adapters", metavar="SETS", help="kernels of other projects, too: such as `jax-pallas,maxtext`"
    )
    record.add_argument(
        "--on-demand", action="store_true", help="lower the others than the baselines when `--recorder` asks for them"
    )
    record.add_argument("--capture-values", action="store_true", help="fetch what arguments of traced calls hold")
    record.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    record.add_argument("script", metavar="SCRIPT")
    record.add_argument("rest", nargs=argparse.REMAINDER, metavar="…")
    options = parser.parse_args(arguments)

    from ._printable import printable
    from ._recording import recording

    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("autotune_lowered").setLevel(logging.INFO)
    platforms = options.platforms.split(",") if options.platforms else None
    adapters = options.adapters.split(",") if options.adapters else ()
    settings = {"capture_values": options.capture_values, "adapters": adapters, "on_demand": options.on_demand}
    try:
        recorded = recording(options.registry, platforms=platforms, target=options.target, **settings)
    except (OSError, ValueError) as error:
        record.error(printable(str(error)))
    sys.argv = [options.script, *options.rest]
    with recorded:
        if options.module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
            runpy.run_path(options.script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Which options of `candidates/options/` a compiler takes.

    python benches/compiler_options.py PLATFORM [--plugin PATH] [--all]

Compiles one small program with each value of each option of PLATFORM (`cpu`, `cuda`, `tpu`), in a process of their own, since a
value may end it: then the next process continues after that value. Says what was accepted, what was refused and why, and what
ended the process. What cannot be serialized is refused, since the tuner's workers pass executables on. PATH is a PJRT plugin; without it JAX's own compiler is asked. `--all`
has a row for every value, not for those alone that are refused.

An option that is accepted need not do anything.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def choices(platform):
    """What each value sets."""
    options = json.loads((ROOT / "candidates" / "options" / f"{platform}.json").read_text())["options"]
    return [
        {"kind": option["kind"], "scope": option["scope"], "set": {option["name"]: value, **option.get("with", {})}}
        for option in options
        for value in option["values"]
    ]


def ask(first, platform, plugin, sets):
    """In the expendable process: compiles with each set, and prints a line of JSON for each before the next begins."""
    if plugin:
        from jax._src import xla_bridge

        xla_bridge.register_plugin(platform, priority=1000, library_path=plugin)
    import jax
    import jax.numpy as jnp

    def program(x, y):
        def body(carry):
            step, total = carry
            return step + 1, jnp.tanh(total @ y) / (1 + jnp.abs(total).sum(axis=0))

        _, total = jax.lax.while_loop(lambda carry: carry[0] < 3, body, (0, x))
        return jnp.sort(total, axis=1), jax.nn.softmax(total).astype(jnp.bfloat16), jnp.cumsum(total)

    device = jax.devices()[0]
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(device))
    lowered = jax.jit(program).lower(shape, shape)
    for options in sets[first:]:
        try:
            lowered.compile(compiler_options=options).runtime_executable().serialize()
            answer = {"accepted": ""}
        except Exception as error:
            answer = {"refused": str(error).strip().splitlines()[0][:160]}
        print(json.dumps(answer), flush=True)


def answers(platform, plugin, sets):
    """What the compiler says to each set."""
    said = []
    # a plugin takes a platform's name of its own beside the CPU's, which JAX always has
    name = platform if not plugin else f"{platform}_plugin"
    environment = {**os.environ, "JAX_PLATFORMS": name, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    while len(said) < len(sets):
        # text, as `autotune-lowered` sends it: booleans with capitals
        command = [sys.executable, __file__, "--ask", str(len(said)), name, *([plugin] if plugin else [])]
        child = subprocess.run(
            command, input=json.dumps(sets), env=environment, text=True, capture_output=True, check=False
        )
        new = [json.loads(line) for line in child.stdout.splitlines()]
        said += new
        if child.returncode == 0:
            break
        if not new and not said:
            sys.exit(f"the compiler did not start: {child.stderr.strip()[-500:]}")
        said.append({"ended": f"the process ended with {child.returncode}"})
    return said


def main():
    if sys.argv[1:2] == ["--ask"]:
        return ask(int(sys.argv[2]), sys.argv[3], (sys.argv[4:] or [None])[0], json.load(sys.stdin))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("platform")
    parser.add_argument("--plugin")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    asked = [choice for choice in choices(given.platform) if choice["scope"] == "compile"]
    spelled = [{name: str(value) for name, value in choice["set"].items()} for choice in asked]
    said = answers(given.platform, given.plugin, spelled)
    counts = collections.Counter(next(iter(answer)) for answer in said)
    for choice, answer in zip(spelled, said, strict=True):
        ((what, detail),) = answer.items()
        if what != "accepted" or given.all:
            print(f"{' '.join(f'{name}={value}' for name, value in choice.items())}: {what} {detail}")
    names = {next(iter(choice)) for choice, answer in zip(spelled, said, strict=True) if "accepted" in answer}
    print(
        f"{len(said)} values of {len({next(iter(choice)) for choice in spelled})} options: {counts['accepted']} accepted "
        f"of {len(names)}, {counts['refused']} refused, {counts['ended']} ended the process"
    )


if __name__ == "__main__":
    main()

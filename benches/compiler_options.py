"""Which options of `candidates/options/` a compiler takes.

    python benches/compiler_options.py PLATFORM [--plugin PATH | --target FILE] [--keep DIR] [--all]
    python benches/compiler_options.py PLATFORM --fill DIR

Compiles one small program with each value of each option of PLATFORM (`cpu`, `cuda`, `tpu`), in a separate process,
since a value may end it: then the next process continues after that value. Prints what was accepted, what was refused
and why, and what ended the process. A value whose program cannot be serialized counts as refused if the default's can
be, since the tuner's workers pass executables on. PATH is a PJRT plugin; without it the compiler of this Python's JAX
is used. FILE is a description of an absent GPU (`candidates/targets/*.txtpb`), for which this Python's CUDA plugin
compiles. `--all` prints a row for every value, instead of for refused ones only.

`--keep` writes the answers into DIR, one file per compiler. `--fill` writes into the list which of the compilers in DIR
were asked (`asked`), and which accept every value of each option (`versions`): `jaxlib 0.4.38 to 0.10.2` stands for all
asked ones from the first to the last. Answers of other compilers in the list stay.

An accepted option may still have no effect.
"""

import argparse
import collections
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def choices(platform):
    """The settings of each value of an option of one compilation."""
    options = json.loads((ROOT / "candidates" / "options" / f"{platform}.json").read_text())["options"]
    options = [option for option in options if option["scope"] == "compile"]
    return [spelled(option, value) for option in options for value in option["values"]]


def compiler(plugin, target):
    """Name and version of the package that compiles."""
    if target:
        names = [one.metadata["Name"] for one in importlib.metadata.distributions()]
        (name,) = [name for name in names if name.startswith("jax-cuda") and name.endswith("-pjrt")]
        return f"{name} {importlib.metadata.version(name)}"
    if not plugin:
        return f"jaxlib {importlib.metadata.version('jaxlib')}"
    path = pathlib.Path(plugin).resolve()
    for one in importlib.metadata.distributions():
        if any(
            pathlib.Path(one.locate_file(file)).resolve() == path for file in one.files or [] if file.name == path.name
        ):
            return f"{one.metadata['Name'].replace('_', '-')} {one.version}"
    return path.name


def sharding_of(target):
    """A sharding of the device here, or of an absent one."""
    import jax
    import numpy as np
    from jax.experimental import topologies

    if not target:
        return jax.sharding.SingleDeviceSharding(jax.devices()[0])
    described = pathlib.Path(target).read_text()
    topology = topologies.get_topology_desc(platform="cuda", target_config=described, topology="1x1x1")
    return jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(topology.devices), ("x",)), jax.sharding.PartitionSpec()
    )


def ask(first, platform, plugin, target, sets):
    """In the expendable process: compiles with each set, and prints a line of JSON after each."""
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

    sharding = sharding_of(target)
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=sharding)
    lowered = jax.jit(program, in_shardings=sharding, out_shardings=sharding).lower(shape, shape)

    def serialize(compiled):
        executable = compiled.runtime_executable()
        if hasattr(executable, "serialize"):
            return executable.serialize()
        return jax.devices()[0].client.serialize_executable(executable)

    # an early compiler that serializes nothing must not count as refusing everything
    default = lowered.compile()
    try:
        serialize(default)
    except Exception as error:
        print(f"the default is not serialized: {error}", file=sys.stderr)
        serialize = id
    for options in sets[first:]:
        try:
            serialize(lowered.compile(compiler_options=options))
            answer = {"accepted": ""}
        except Exception as error:
            answer = {"refused": str(error).strip().splitlines()[0][:160]}
        print(json.dumps(answer), flush=True)


def answers(platform, plugin, target, sets):
    """The compiler's answer for each set."""
    said = []
    # a plugin registers its own platform name beside the CPU's, which JAX always has
    name = platform if not plugin else f"{platform}_plugin"
    name = "cpu" if target else name
    environment = {**os.environ, "JAX_PLATFORMS": name, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    if target:
        # there is no CUDA whose version JAX could check, and no device for XLA's measurements
        environment["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
        environment["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    while len(said) < len(sets):
        # text, as `autotune-lowered` sends it: booleans with a capital letter
        command = [sys.executable, __file__, "--ask", str(len(said)), name, plugin or "", target or ""]
        child = subprocess.run(
            command, input=json.dumps(sets), env=environment, text=True, capture_output=True, check=False
        )
        # JAX's CUDA plugin also prints there
        new = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
        said += new
        if child.returncode == 0:
            break
        if not new and not said:
            sys.exit(f"the compiler did not start: {child.stderr.strip()[-500:]}")
        said.append({"ended": f"the process ended with {child.returncode}"})
    return said


def in_order(name):
    """Sorts compilers by name, and each package by version."""
    package, version = name.rsplit(" ", 1)
    return package, [int(part) for part in version.split(".")]


def ranges(accepting, asked):
    """Describes some of the asked compilers, with neighbours joined: `jaxlib 0.7.2 to 0.10.2`."""
    found = []
    for place, name in enumerate(asked):
        package, version = name.rsplit(" ", 1)
        if name in accepting:
            before = place > 0 and asked[place - 1] in accepting and asked[place - 1].startswith(f"{package} ")
            if before:
                found[-1] = f"{found[-1].split(' to ')[0]} to {version}"
            else:
                found.append(name)
    return found


def named(versions, asked):
    """The compilers that ranges of an option's `versions` stand for."""
    found = set()
    for each in versions:
        first, _, last = each.partition(" to ")
        last = f"{first.rpartition(' ')[0]} {last}" if last else first
        found |= {name for name in asked[asked.index(first) : asked.index(last) + 1]}
    return found


def fill(platform, folder):
    """Writes into the list which compilers were asked, and which accept each option; each line is an option.

    The answers of compilers that DIR does not have stay.
    """
    kept = {}
    for path in pathlib.Path(folder).glob("*.json"):
        one = json.loads(path.read_text())
        if one["platform"] == platform:
            kept[one["compiler"]] = {json.dumps(choice, sort_keys=True): answer for choice, answer in one["answers"]}
    place = ROOT / "candidates" / "options" / f"{platform}.json"
    space = json.loads(place.read_text())
    before = space.get("asked", [])
    asked = sorted({*kept, *before}, key=in_order)
    lines = []
    for option in space["options"]:
        if option["scope"] == "compile":
            sets = [json.dumps(spelled(option, value), sort_keys=True) for value in option["values"]]
            takes = named(option.get("versions", []), before) - kept.keys()
            takes |= {name for name in kept if all("accepted" in kept[name][one] for one in sets)}
            option["versions"] = ranges(takes, asked)
            # in the order of docs/options.md
            option.update({member: option.pop(member) for member in ["does", "source"]})
        lines.append(f"    {json.dumps(option, ensure_ascii=False)}")
    head = f'  "schema": {space["schema"]},\n  "platform": "{platform}",\n  "asked": {json.dumps(asked)},\n'
    place.write_text("{\n" + head + '  "options": [\n' + ",\n".join(lines) + "\n  ]\n}\n")


def spelled(option, value):
    """The settings of a value, as XLA reads them."""
    sets = {option["name"]: value, **option.get("with", {})}
    return {name: str(value) for name, value in sets.items()}


def main():
    if sys.argv[1:2] == ["--ask"]:
        return ask(int(sys.argv[2]), *sys.argv[3:6], json.load(sys.stdin))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("platform")
    parser.add_argument("--plugin")
    parser.add_argument("--target")
    parser.add_argument("--keep")
    parser.add_argument("--fill")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    if given.fill:
        return fill(given.platform, given.fill)
    sets = choices(given.platform)
    said = answers(given.platform, given.plugin, given.target, sets)
    name = compiler(given.plugin, given.target)
    if given.keep:
        kept = {"platform": given.platform, "compiler": name, "answers": list(zip(sets, said, strict=True))}
        os.makedirs(given.keep, exist_ok=True)
        path = pathlib.Path(given.keep) / f"{given.platform} {name}.json"
        path.write_text(json.dumps(kept, indent=1) + "\n")
    counts = collections.Counter(next(iter(answer)) for answer in said)
    for choice, answer in zip(sets, said, strict=True):
        ((what, detail),) = answer.items()
        if what != "accepted" or given.all:
            print(f"{' '.join(f'{name}={value}' for name, value in choice.items())}: {what} {detail}")
    options = {next(iter(choice)) for choice, answer in zip(sets, said, strict=True) if "accepted" in answer}
    print(
        f"{name}: {len(said)} values of {len({next(iter(choice)) for choice in sets})} options: {counts['accepted']} "
        f"accepted of {len(options)}, {counts['refused']} refused, {counts['ended']} ended the process"
    )


if __name__ == "__main__":
    main()

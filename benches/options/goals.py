"""Compares the tuning of compiler options with all single options and with pairs of those that matter.

    python benches/options/goals.py PROGRAM PLUGIN [--class passes] [--modules NAME,NAME] [--budget 40s] [--keep FILE] [--short]

PROGRAM is `target/release/autotune-lowered`, PLUGIN a PJRT plugin for CPUs. For each module of `modules.py`:

1. the reference: each value of the class alone in 41 rounds with the default, and the pairs of up to six values that
   are faster in at least 33 of them; the one with the smallest median ratio is its pick;
2. `PROGRAM MODULE --compiler-options CLASS`, and the same command once more;
3. the check: default, a second compilation of it, the reference's pick and the tool's set in 41 separate rounds.

`--short` takes six modules that tell the most. Before them, `layers` says what a search takes: some 5 ms that compile in 0.1 s. Exit code 1:
a set is slower than the default; `layers` takes over 40 s, or over 1 s the second time; or, of all modules, the score is below 90 %.

The reference and the check share no code with the tool: they run by JAX's client, take the wall time of runs that follow each other,
and order each round by chance. All take the same inputs, and all compile with what JAX's client sends of itself: jaxlib's own defaults
of every option, which `autotune_lowered.dump` keeps in the side file of a module. An interval is that of a median by order statistics, at 95 %. A gain is robust if the interval of the reference's pick
ends below 0.97. The score is the sum of the logarithms that the tool saves, over that of the reference, for modules with a
robust gain. A set is slower than the default if its interval begins above one and above that of the second compilation's.
"""

import argparse
import base64
import hashlib
import itertools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLASSES = ["safe", "passes", "fast-math"]
ROUNDS = 41
# three with a large gain, one with a small gain, two with none
SHORT = ["lstm", "jacobi", "mandelbrot", "cross_entropy", "half_mlp", "quantized_product"]
# seconds of `layers`, first and again, and the share of the reference's savings
GOALS = (40, 1, 0.9)
# minimum duration of a sample in seconds
SAMPLE = 0.002
# faster in this many of 41 rounds has a probability of 1 in 7000 by chance
OFTEN = 33


def choices(kind):
    """Each value of the class: names to strings, as the compiler takes them."""
    options = json.loads((ROOT / "candidates" / "options" / "cpu.json").read_text())["options"]
    kinds = CLASSES[: CLASSES.index(kind) + 1]
    return [
        {name: str(given) for name, given in {option["name"]: value, **option.get("with", {})}.items()}
        for option in options
        if option["scope"] == "compile" and option["kind"] in kinds
        for value in option["values"]
    ]


def together(*sets):
    """Joins several sets, or returns None if two of them give one name different values; lists of passes are joined."""
    joined = {}
    for name, value in itertools.chain.from_iterable(one.items() for one in sets):
        if name == "xla_disable_hlo_passes" and name in joined:
            joined[name] += "," + value
        elif joined.setdefault(name, value) != value:
            return None
    return joined


def child(plugin):
    """In the expendable process: compiles the request from stdin, compares outputs with the first, and times rounds."""
    asked = json.load(sys.stdin)
    from jax._src import xla_bridge

    xla_bridge.register_plugin("cpu_plugin", priority=1000, library_path=plugin)
    import jax
    import modules
    import numpy
    from jax._src.lib import xla_client

    device = jax.devices()[0]
    text = pathlib.Path(asked["text"])
    inputs = []
    for index, spec in enumerate(jax.tree.leaves(modules.MODULES[asked["module"]][1])):
        values = numpy.fromfile(inputs_of(text) / f"{index}.bin", spec.dtype).reshape(spec.shape)
        inputs.append(jax.device_put(values, device))
    text = text.read_bytes()

    def run(executable):
        results = executable.execute_sharded(inputs).disassemble_into_single_device_arrays()
        return [one[0] for one in results]

    def code(executable):
        try:
            return hashlib.sha256(executable.serialize()).hexdigest()
        except Exception:
            # programs with XNNPACK in them cannot be serialized: each counts as different
            return None

    def tell(**what):
        print(json.dumps(what), flush=True)

    def differs(outputs):
        for seen, expected in zip(outputs, expectations, strict=True):
            # three roundings of a narrow type: one of `bf16` is 0.8 %
            is_real = jax.numpy.issubdtype(expected.dtype, jax.numpy.floating)
            relative = max(5e-3, 3 * float(jax.numpy.finfo(expected.dtype).eps)) if is_real else 5e-3
            seen, expected = seen.astype(numpy.float64), expected.astype(numpy.float64)
            largest = numpy.abs(expected).max(initial=0)
            if not numpy.allclose(seen, expected, rtol=relative, atol=1e-4 * largest, equal_nan=True):
                return True
        return False

    running, known, expectations = {}, {}, None
    for index, given in enumerate(asked["sets"]):
        if str(index) in asked["left"]:
            continue
        tell(begins=index)
        options = xla_client.CompileOptions()
        options.env_option_overrides = sorted(given.items())
        try:
            executable = device.client.compile_and_load(text, xla_client.DeviceList((device,)), options)
            digest = code(executable)
            if digest in known and not asked["apart"]:
                tell(same=known[digest], index=index)
                continue
            outputs = [numpy.asarray(one) for one in run(executable)]
        except Exception as error:
            tell(failed=str(error).strip().splitlines()[0][:120], index=index)
            continue
        if expectations is None:
            expectations = outputs
        elif differs(outputs):
            tell(failed="other outputs", index=index)
            continue
        if digest:
            known[digest] = index
        running[index] = executable

    def sample(executable, times):
        begin = time.perf_counter()
        for _ in range(times):
            # a step waits for the one before; otherwise two of them would run at the same time
            jax.block_until_ready(run(executable))
        return (time.perf_counter() - begin) / times

    tell(begins=None)
    once = sorted(sample(running[0], 1) for _ in range(5))[2]
    times = max(1, round(SAMPLE / once))
    order, rounds = list(running), {index: [] for index in running}
    for executable in running.values():
        sample(executable, times)
    for _ in range(asked["rounds"]):
        random.shuffle(order)
        for index in order:
            rounds[index].append(sample(running[index], times))
    tell(rounds=rounds)


def inputs_of(text):
    """The folder of a module's inputs, which both the tool and the reference use."""
    return text.with_suffix("")


def write_module(module, path):
    """Writes the module, and the side file that says how JAX compiles it."""
    import modules
    from jax._src.lib import xla_client

    text = modules.lowered(module).as_text().encode()
    path.write_bytes(text)
    options = base64.b64encode(xla_client.CompileOptions().SerializeAsString()).decode()
    side = {"schema": 1, "module_digest": hashlib.sha256(text).hexdigest(), "labels": [], "compile_options": options}
    path.with_name(path.name + ".labels.json").write_text(json.dumps(side))


def write_inputs(module, folder):
    import jax
    import modules
    import numpy

    source = numpy.random.default_rng(0)
    folder.mkdir()
    for index, spec in enumerate(jax.tree.leaves((modules.MODULES | modules.SPEED)[module][1])):
        if numpy.issubdtype(spec.dtype, numpy.integer):
            values = source.integers(0, 100, spec.shape)
        else:
            values = 0.1 * numpy.abs(source.standard_normal(spec.shape))
        values.astype(spec.dtype).tofile(folder / f"{index}.bin")


def measured(plugin, module, text, sets, apart=False):
    """The times of each set that runs, in seconds, by index; and why the others do not."""
    left, same = {}, {}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu_plugin", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    while True:
        asked = {"module": module, "text": str(text), "sets": sets, "left": left, "apart": apart, "rounds": ROUNDS}
        done = subprocess.run(
            [sys.executable, __file__, "--child", plugin],
            input=json.dumps(asked),
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )
        at = None
        for line in done.stdout.splitlines():
            said = json.loads(line)
            if "begins" in said:
                at = said["begins"]
            elif "same" in said:
                same[said["index"]] = said["same"]
                left[str(said["index"])] = "same"
            elif "failed" in said:
                left[str(said["index"])] = said["failed"]
            else:
                return {int(index): times for index, times in said["rounds"].items()}, left
        if at is None or at == 0:
            sys.exit(f"{module}: the process ended with {done.returncode}: {done.stderr[-800:]}")
        left[str(at)] = f"the process ended with {done.returncode}"


def interval(values):
    """The median and its interval by order statistics, at 95 % for 41 values."""
    values = sorted(values)
    reach = math.ceil(0.98 * math.sqrt(len(values)))
    middle = len(values) // 2
    return statistics.median(values), values[middle - reach], values[middle + reach]


def ratios(rounds, index):
    return [mine / default for mine, default in zip(rounds[index], rounds[0], strict=True)]


def reference(plugin, module, text, singles):
    """The reference's pick, and how many values were timed."""
    rounds, left = measured(plugin, module, text, [{}, *singles])
    found = {index: ratios(rounds, index) for index in rounds if index}
    matter = [index for index, seen in found.items() if sum(ratio < 1 for ratio in seen) >= OFTEN]
    matter.sort(key=lambda index: statistics.median(found[index]))
    best = [(statistics.median(found[index]), singles[index - 1]) for index in matter]
    sets = [together(singles[one - 1], singles[two - 1]) for one, two in itertools.combinations(matter[:6], 2)]
    sets = [joined for joined in sets if joined]
    if sets:
        rounds, _ = measured(plugin, module, text, [{}, *sets])
        best += [(statistics.median(ratios(rounds, index)), sets[index - 1]) for index in rounds if index]
    pick = min(best, key=lambda one: one[0], default=(1.0, {}))
    return pick[1] if pick[0] < 1 else {}, len(found), left


def tuned(program, plugin, text, kind, budget, cache):
    command = [
        program, text, "--inputs", inputs_of(text), "--compiler-options", kind, "--timer", "pjrt", "--plugin", plugin, "--cache", cache,
        "--format", "json", *(["--budget", budget] if budget else []),
    ]  # fmt: skip
    begin = time.monotonic()
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True, check=False)
    wall = time.monotonic() - begin
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout), wall


def speed(given, folder):
    """The seconds of a search for a module that compiles quickly, first and again."""
    name = "layers"
    text = folder / f"{name}.mlir"
    write_module(name, text)
    write_inputs(name, inputs_of(text))
    cache = folder / f"cache-{name}"
    answer, first = tuned(given.program, given.plugin, text, given.kind, given.budget, cache)
    _, again = tuned(given.program, given.plugin, text, given.kind, given.budget, cache)
    (operation,) = answer["operations"]
    spent = {part: took / 1e9 for part, took in operation["time_breakdown"].items()}
    default = operation["baseline"]["median_ns"] / 1e6
    print(
        f"{name}: {default:.1f} ms, {len(operation['candidates'])} rows; {first:.1f} s, of it compiling {spent['compile_ns']:.1f}, measuring "
        f"{spent['measuring_ns']:.1f}, comparing outputs {spent['checking_ns']:.1f}, warm-up {spent['warm_up_ns']:.1f}; again {again:.2f} s"
    )
    return first, again


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2])
    import modules

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("plugin")
    parser.add_argument("--class", dest="kind", choices=CLASSES, default="passes")
    parser.add_argument("--modules")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--budget")
    parser.add_argument("--keep", type=pathlib.Path)
    given = parser.parse_args()
    singles = choices(given.kind)
    print(f"{len(singles)} values of the class `{given.kind}`; load {os.getloadavg()[0]:.1f} at the start")
    print(
        f"{'module':22} {'default':>8} {'values':>6} {'copy':>15} {'reference':>20} {'tool':>20} {'first':>6} {'again':>6}  set"
    )
    saved = [0.0, 0.0]
    slower, kept = [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        first_time, second_time = speed(given, folder)
        for module in (given.modules or ",".join(SHORT if given.short else modules.MODULES)).split(","):
            text = folder / f"{module}.mlir"
            write_module(module, text)
            write_inputs(module, inputs_of(text))
            pick, values, left = reference(given.plugin, module, text, singles)
            cache = folder / f"cache-{module}"
            answer, first = tuned(given.program, given.plugin, text, given.kind, given.budget, cache)
            _, again = tuned(given.program, given.plugin, text, given.kind, given.budget, cache)
            (operation,) = answer["operations"]
            config = {name: str(value) for name, value in (operation["best"] or {"config": {}})["config"].items()}
            rounds, why = measured(given.plugin, module, text, [{}, {}, pick, config], apart=True)
            if why:
                sys.exit(f"{module}: what was chosen does not run again: {pick}, {config}: {why}")
            copy, of_reference, of_tool = (interval(ratios(rounds, index)) for index in (1, 2, 3))
            is_robust = of_reference[2] < 0.97
            if is_robust:
                saved[0] += math.log(of_reference[0])
                saved[1] += math.log(of_tool[0])
            if config and of_tool[1] > max(1, copy[2]):
                slower.append(module)
            spelled = [f"{median:.3f} {low:.2f}–{high:.2f}" for median, low, high in (copy, of_reference, of_tool)]
            default = statistics.median(rounds[0]) * 1e3
            print(
                f"{module:22} {default:6.2f}ms {values:6} {spelled[0]:>15} {spelled[1]:>19}{'*' if is_robust else ' '} "
                f"{spelled[2]:>20} {first:5.1f}s {again:5.2f}s  {' '.join(f'{name}={value}' for name, value in config.items()) or '-'}"
                f" (reference: {' '.join(f'{name}={value}' for name, value in pick.items()) or '-'})",
                flush=True,
            )
            kept.append({"module": module, "pick": pick, "tool": operation, "left": left, "check": rounds})
    share = saved[1] / saved[0] if saved[0] else float("nan")
    print(
        f"of what the reference saves (marked *) the tool saves {share:.0%}; slower than the default: {slower or 'none'}"
    )
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if given.keep:
        given.keep.write_text(json.dumps(kept))
    is_whole = not given.short and not given.modules
    missed = [slower, first_time > GOALS[0], second_time > GOALS[1], is_whole and share < GOALS[2]]
    return 1 if any(missed) else 0


if __name__ == "__main__":
    sys.exit(main())

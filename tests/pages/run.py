"""Runs the blocks of the documents that are marked as runnable: python3 tests/pages/run.py PROGRAM [PAGE...]

Each page has a separate folder with the files that its commands name: the example's module and registry, a tuned cache,
captures, a dump, the peaks of the roofline's page, the worker of the protocol's page. `replay` simulates times unless a
command names a timer.
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEP, STEPS, DEVICES = (f"xplane/{name}.xplane.pb.gz" for name in ("tf2_step", "tf8_steps3", "multi8_shardmap"))
CAPTURES = {
    "LOGDIR/plugins/profile/2026_01_01_00_00_00/host0.xplane.pb": STEPS,
    "step.xplane.pb": STEP,
    "before.xplane.pb": STEPS,
    "after.xplane.pb": STEPS,
    "host0.xplane.pb": DEVICES,
    "host1.xplane.pb": DEVICES,
    "compile.xplane.pb": "compile/compile2.xplane.pb.gz",
}
BLOCK = re.compile(r"^```sh run\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prepare(place, environment):
    """Fills a page's folder."""
    example = ROOT / "examples/transformer"
    (place / "examples").symlink_to(ROOT / "examples")
    for name in ("module.mlir", "step.mlir"):
        shutil.copy(example / "module.stablehlo.mlir", place / name)
    shutil.copy(example / "module.hlo.txt", place / "module.hlo.txt")
    shutil.copytree(example / "registry", place / "registry")
    for name, source in CAPTURES.items():
        capture = place / name
        capture.parent.mkdir(parents=True, exist_ok=True)
        capture.write_bytes(gzip.decompress((ROOT / "tests/data" / source).read_bytes()))
    (place / "dump").mkdir()
    dumped = place / "dump/module_0001.jit_f.cpu_after_optimizations.hlo.pb"
    shutil.copy(ROOT / "tests/data/hlo/flash_attention.json.post.hlo.pb", dumped)
    peaks = (ROOT / "docs/roofline.md").read_text()
    (place / "my-cpu.json").write_text(peaks.split("```json\n", 1)[1].split("```", 1)[0])
    protocol = (ROOT / "docs/worker-protocol.md").read_text()
    (place / "worker.py").write_text(protocol.rsplit("```python\n", 1)[1].split("```", 1)[0])
    (place / "settings.toml").write_text(f'timer = "replay:{example / "simulated.json"}"\n')
    shell(place, environment, "autotune-lowered tune module.mlir >tuned.txt")


def shell(place, environment, script):
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=place, env=environment, timeout=600, check=True)


def run(page, program):
    blocks = BLOCK.findall(page.read_text())
    if not blocks:
        return 0
    print(f"== {page.relative_to(ROOT)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "bin").mkdir()
        (place / "bin/autotune-lowered").symlink_to(program)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_LOWERED_")}
        environment = kept | {
            "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "HOME": str(place / "home"),
            "AUTOTUNE_LOWERED_CACHE": str(place / "cache"),
            "AUTOTUNE_LOWERED_CONFIG": str(place / "settings.toml"),
        }
        environment.pop("XDG_CACHE_HOME", None)
        prepare(place, environment)
        shell(place, environment, "set -x\n" + "".join(blocks))
    return len(blocks)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    pages = [ROOT / name for name in sys.argv[2:]] or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    count = sum(run(page, program) for page in pages)
    print(f"{count} blocks of commands ran")
    sys.exit(0 if count else "no block is marked as runnable")


if __name__ == "__main__":
    main()

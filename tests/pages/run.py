"""Runs the blocks of the documents that are marked as runnable: python3 tests/pages/run.py PROGRAM [PAGE...]

Each page has a folder of its own with what its commands name: the example's module and registry, a cache that was
tuned, a capture, the worker of the protocol's page. Times are simulated by `replay` unless a command names a timer.
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
BLOCK = re.compile(r"^```sh run\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prepare(place, environment):
    """Fills a page's folder."""
    example = ROOT / "examples/transformer"
    (place / "examples").symlink_to(ROOT / "examples")
    for name in ("module.mlir", "step.mlir"):
        shutil.copy(example / "module.stablehlo.mlir", place / name)
    shutil.copy(example / "module.hlo.txt", place / "module.hlo.txt")
    shutil.copytree(example / "registry", place / "registry")
    capture = place / "LOGDIR/plugins/profile/2026_01_01_00_00_00/host.xplane.pb"
    capture.parent.mkdir(parents=True)
    capture.write_bytes(gzip.decompress((ROOT / "tests/data/xplane/tf2_step.xplane.pb.gz").read_bytes()))
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

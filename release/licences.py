"""Writes the licence texts of all crates that a release links: licences.py TARGET, run where `Cargo.toml` is.

A crate without a text gets this project's copy of Apache-2.0 if it allows that licence; otherwise it is an error.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

HEAD = """\
This release holds code of others. Below is each licence's text with the crates whose files it comes from.
The source of every crate is at https://crates.io/crates/NAME/VERSION, also that of inferno, whose licence, the Common
Development and Distribution License, asks for this notice. All of it is unchanged.
"""
TEXT = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?", re.IGNORECASE)


def linked(metadata):
    """The packages that the workspace links, directly or not, without those that are only for builds and tests."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    # what writes the Rust of `proto/` is in no release
    found, open_ = set(), [member for member in metadata["workspace_members"] if "proto/generate" not in member]
    while open_:
        package = open_.pop()
        if package not in found:
            found.add(package)
            deps = nodes[package]["deps"]
            open_ += [dep["pkg"] for dep in deps if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    return found - set(metadata["workspace_members"])


def main():
    command = "cargo metadata --locked --all-features --format-version 1 --filter-platform"
    metadata = json.loads(subprocess.run([*command.split(), sys.argv[1]], check=True, stdout=subprocess.PIPE).stdout)
    wanted = linked(metadata)
    crates_of = collections.defaultdict(list)
    missing = []
    for package in metadata["packages"]:
        if package["id"] not in wanted:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        texts = [path for path in sorted(folder.iterdir()) if path.is_file() and TEXT.fullmatch(path.name)]
        texts += [path for path in sorted(folder.glob("LICENSES/*")) if path.is_file()]
        if not texts and "Apache-2.0" in (package["license"] or ""):
            texts = [pathlib.Path("LICENSE-APACHE")]
        if not texts:
            missing.append(f"{package['name']} {package['version']} ({package['license']})")
        for path in texts:
            crates_of[path.read_text(errors="replace").strip()].append(
                f"{package['name']} {package['version']} ({package['license']})"
            )
    if missing:
        sys.exit("no text of the licence of " + ", ".join(missing))
    print(HEAD)
    for text, crates in sorted(crates_of.items(), key=lambda item: item[1]):
        print("=" * 80, *sorted(set(crates)), "-" * 80, text, "", sep="\n")


main()

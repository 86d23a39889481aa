"""Writes C stubs for the functions that a plugin may look up in a library and that the library does not have.

    stubs.py PREFIX ERROR PLUGIN LIBRARY >stubs.c

The names are the plugin's strings that begin with PREFIX. A stub logs its name and returns ERROR, so that the plugin
hears "not supported" instead of a success that nothing stands behind.
"""

import re
import subprocess
import sys


def main():
    prefix, error, plugin, library = sys.argv[1:]
    name = re.compile(rb"(?<=\0)(?:__)?" + prefix.encode() + rb"[A-Z]\w{2,90}(?=\0)")
    with open(plugin, "rb") as file:
        names = {found.decode() for found in name.findall(file.read())}
    symbols = subprocess.run(["nm", "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True)
    exported = {line.split()[-1] for line in symbols.stdout.splitlines()}
    print("void sim_log_stub(const char *function);")
    for missing in sorted(names - exported):
        print(f'int {missing}(void) {{ sim_log_stub("{missing}"); return {error}; }}')


if __name__ == "__main__":
    main()

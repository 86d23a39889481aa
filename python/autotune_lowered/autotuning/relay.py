"""What the tuner takes for its worker, if a process measures by itself: it passes requests and answers on.

It runs as a script, and the variable names the socket of that process.
"""

import os
import socket
import sys
import threading

SOCKET = "AUTOTUNE_LOWERED_WORKER_SOCKET"
_BLOCK = 1 << 16


def main() -> None:
    measuring = socket.socket(socket.AF_UNIX)
    measuring.connect(os.environ[SOCKET])

    def requests() -> None:
        while block := os.read(0, _BLOCK):
            measuring.sendall(block)
        # the tuner has ended, and with it the answers
        measuring.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=requests, daemon=True).start()
    while block := measuring.recv(_BLOCK):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

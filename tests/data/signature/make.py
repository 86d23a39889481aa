"""Signs the SHA-256 of `abc` as docs/trust.md has it, with the `cryptography` package in place of this program."""

import hashlib
import pathlib
import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# RFC 8032, section 7.1, test 1
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")

folder = pathlib.Path(__file__).parent
key = Ed25519PrivateKey.from_private_bytes(SEED)
public = key.public_key().public_bytes_raw()
digest = hashlib.sha256(b"abc").digest()
# as the generation 7 that was published at this time, seconds since 1970
GENERATION, TIME = 7, 1_790_000_000
numbers = struct.pack(">QQ", GENERATION, TIME)
signature = key.sign(b"autotune-lowered snapshot v1\0" + digest + numbers)
(folder / "key").write_text(f"autotune-lowered-private-key-v1 {SEED.hex()}\n")
(folder / "key.pub").write_text(f"autotune-lowered-public-key-v1 {public.hex()}\n")
line = f"autotune-lowered-signature-v1 {public.hex()} {digest.hex()} {GENERATION} {TIME} {signature.hex()}\n"
(folder / "abc.sig").write_text(line)

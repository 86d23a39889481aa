"""Look up best configs: overlay, then memory, then the published snapshot, then the shipped configs."""

from .lookup.cache import Cache as Cache
from .lookup.cache import CacheError as CacheError
from .lookup.cache import SnapshotMismatch as SnapshotMismatch
from .lookup.cache import current_cache as current_cache
from .lookup.cache import default_folder as default_folder
from .lookup.device import Device as Device
from .lookup.entry import Entry as Entry

__all__ = ["Cache", "CacheError", "Device", "Entry", "SnapshotMismatch", "current_cache", "default_folder"]

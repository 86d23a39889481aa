//! Best configs by device, operation and call: one tier each in memory, in sled and in shipped files, and the tiers together.

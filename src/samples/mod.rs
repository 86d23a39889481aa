//! The sample log: framed, checksummed, append-only; the record of truth.

//! The statement that a signature covers, and the signed bytes.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::digest::Digest;

const DOMAIN: &[u8] = b"autotune-lowered snapshot v1\0";

/// States that this snapshot was published as this generation, at this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// The snapshot's digest.
    pub digest: Digest,
    /// The generation at a URL; zero for a file that is published nowhere.
    pub generation: u64,
    /// Seconds since 1970.
    pub time: u64,
}

impl Statement {
    /// The statement for a generation at a URL, published at `time`, seconds since 1970.
    pub fn new(digest: Digest, generation: u64, time: u64) -> Self {
        Self { digest, generation, time }
    }

    /// The statement for a file, now.
    pub fn of_file(digest: Digest) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { digest, generation: 0, time }
    }

    /// The signed bytes, of fixed length, so that no two statements share them.
    pub(super) fn to_message(self) -> Vec<u8> {
        let numbers = [self.generation.to_be_bytes(), self.time.to_be_bytes()].concat();
        [DOMAIN, self.digest.as_bytes(), &numbers].concat()
    }
}

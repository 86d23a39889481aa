//! Entries, snapshots and machines for the tests of shared caches.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use autotune_lowered::cache::{CacheKey, ConfigStore, Entry, Mapping, Snapshot, SnapshotStore, write_snapshot};
use autotune_lowered::call::{Call, Direction};
use autotune_lowered::device::DeviceIdentity;
use serde_json::json;

use super::program::{Run, command};

pub fn entry(call: &str, block: u64, decided_at: u64) -> (CacheKey, Arc<Entry>) {
    let device = DeviceIdentity {
        platform: "cpu".into(),
        device_kind: "cpu".into(),
        hardware: BTreeMap::from([("cpu_model".into(), "simulated".into())]),
    };
    let key = CacheKey { call: Call::new("flash_attention@v2", call), direction: Direction::Forward, device };
    let provenance = json!({
        "job": "00".repeat(32), "timer": "test", "source": "host-wall", "environment": {}, "baseline": {},
        "baseline_ns": 2.0, "best_ns": 1.0, "ratio": 0.5, "interval": {"low": 0.4, "high": 0.6, "confidence": 0.99},
        "rounds": 16, "measured": 2, "failed": 0, "tool": "test", "decided_at": decided_at,
    });
    let entry = json!({"config": {"block": block}, "provenance": provenance});
    (key, Arc::new(serde_json::from_value(entry).unwrap()))
}

pub fn snapshot(path: &Path, entries: &[(CacheKey, Arc<Entry>)]) -> String {
    write_snapshot(path, entries).unwrap().to_string()
}

/// The block sizes in a snapshot, by call.
pub fn blocks(path: &Path) -> BTreeMap<String, String> {
    let snapshot = Snapshot::open(path, Mapping::WhereLocal).unwrap();
    snapshot.verify().unwrap();
    let entries = SnapshotStore::new(snapshot).entries().unwrap();
    entries.into_iter().map(|(key, entry)| (key.call.call_key, entry.config.to_brief())).collect()
}

pub fn calls(path: &Path) -> BTreeSet<String> {
    blocks(path).into_keys().collect()
}

/// A machine: its home, with its default cache and its copies.
pub struct Machine {
    pub home: tempfile::TempDir,
    pub environment: Vec<(String, String)>,
}

impl Machine {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.path("cache"));
        let ours = ["VERIFY_KEY", "SIGN_KEY", "SIGN_COMMAND", "SHIPPED", "PIN"];
        for name in ours {
            command.env_remove(format!("AUTOTUNE_LOWERED_{name}"));
        }
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_") || name.ends_with("_proxy")) {
            command.env_remove(name);
        }
        command.env("XDG_CACHE_HOME", self.path("home")).env("HOME", self.home.path());
        command.envs(self.environment.iter().cloned()).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        let output = self.command(arguments).output().unwrap();
        Run::of(output, arguments)
    }

    /// Runs a command that must succeed.
    pub fn good(&self, arguments: &[&str]) -> Run {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
        run
    }
}

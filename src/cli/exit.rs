//! Exit codes. Scripts rely on them: a number never changes its meaning.

/// Every label of the module is tuned, or was already.
pub const ALL_TUNED: u8 = 0;
/// A command that found nothing wrong.
pub const FINE: u8 = ALL_TUNED;
/// Some operations failed, or some labels match no recorded invocation, or have no config; the rest is tuned.
pub const SOME_FAILED: u8 = 1;
/// The command line is wrong. (`clap` exits with this number itself.)
pub const USAGE: u8 = 2;
/// The module holds no label, for `scan` no kernel either, or no label matches a recorded invocation of this device; a look-up found nothing.
pub const NOTHING_MATCHED: u8 = 3;
/// An input cannot be used: module, registry, search space, recorded samples, configuration file.
pub const BAD_INPUT: u8 = 4;
/// The plugin, the device or its worker cannot be used.
pub const DEVICE_TROUBLE: u8 = 5;
/// The cache cannot be used: locked by another process, unwritable, full disk; a remote one unreachable, damaged, not
/// signed.
pub const CACHE_TROUBLE: u8 = 6;
/// A cached config regressed, is no longer better than the baseline, or fails; or would with another compiler.
pub const REGRESSED: u8 = 7;
/// Two caches differ.
pub const DIFFERENT: u8 = 8;
/// A kernel runs on the values that its project takes if nothing is tuned.
pub const ON_DEFAULTS: u8 = 9;
/// The run was ended by Ctrl-C, SIGTERM, SIGQUIT or SIGHUP; decisions made so far are committed.
pub const INTERRUPTED: u8 = 130;

/// The codes and their meanings, for `--help` and the documentation's test.
pub const TABLE: &[(u8, &str)] = &[
    (ALL_TUNED, "every label is tuned, or was already, or is undecided and keeps its baseline"),
    (SOME_FAILED, "some operations or programs failed, matched nothing or were not started"),
    (USAGE, "wrong command line"),
    (NOTHING_MATCHED, "no label, or none that matches a recorded invocation of this device"),
    (BAD_INPUT, "an input cannot be used, or stdout cannot be written"),
    (DEVICE_TROUBLE, "the plugin, device or worker cannot be used"),
    (CACHE_TROUBLE, "the cache cannot be used: locked, unwritable, full, unreachable or untrusted"),
    (REGRESSED, "`check`, `upgrade`, `bisect`: a cached config regressed, fails, or another one is better"),
    (DIFFERENT, "`cache diff`: two caches differ"),
    (ON_DEFAULTS, "`scan --fail-on-defaults`: a kernel runs on default values"),
    (INTERRUPTED, "ended by Ctrl-C, SIGTERM, SIGQUIT or SIGHUP; decisions made so far are kept"),
];

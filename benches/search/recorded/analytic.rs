//! Small simulated spaces: closed formulas, no measurements.

use serde_json::json;

use super::Recorded;
use autotune_lowered::config::Config;
use autotune_lowered::search::TrialOutcome;
use autotune_lowered::search::{NoSpace, Space};

/// A simulated space by its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Analytic {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    configs: fn() -> Vec<(Config, TrialOutcome)>,
}

impl Analytic {
    /// Its configs and their computed times.
    ///
    /// # Errors
    /// Never for the spaces here; a space of no configs would be one.
    pub(crate) fn recorded(&self) -> Result<Recorded, NoSpace> {
        let (configs, outcomes): (Vec<Config>, Vec<TrialOutcome>) = (self.configs)().into_iter().unzip();
        Ok(Recorded { space: Space::new(configs)?, outcomes, format: "simulated" })
    }
}

/// The simulated spaces.
pub(crate) fn analytic() -> &'static [Analytic] {
    &[
        Analytic { name: "simulated:tiles", configs: tiles },
        Analytic { name: "simulated:waves", configs: waves },
        Analytic { name: "simulated:failures", configs: failures },
    ]
}

fn config(value: serde_json::Value) -> Config {
    Config::new(value.as_object().cloned().unwrap_or_default())
}

/// A blocked product of 2048 by 2048 matrices: traffic over tiles, a scratchpad of 64 Ki numbers, few blocks in flight.
fn tiles() -> Vec<(Config, TrialOutcome)> {
    let mut found = Vec::new();
    for block_m in [16_u32, 32, 64, 128, 256, 512] {
        for block_n in [16_u32, 32, 64, 128, 256, 512] {
            for block_k in [16_u32, 32, 64, 128] {
                for stages in 1_u32..=4 {
                    let held = stages * block_k * (block_m + block_n);
                    if held > 1 << 16 {
                        continue;
                    }
                    let (m, n, k, s) = (f64::from(block_m), f64::from(block_n), f64::from(block_k), f64::from(stages));
                    let traffic = 2048.0 / m + 2048.0 / n;
                    let start_up = 8192.0 / (k * s) + 24.0 * s;
                    let blocks = (2048.0 / m) * (2048.0 / n);
                    let waves = (blocks / 96.0).ceil() * 96.0 / blocks;
                    let spill = 1.0 + (m * n / 16_384.0 - 1.0).max(0.0) * 0.6;
                    let time = (40.0 + traffic + start_up) * waves * spill;
                    found.push((
                        config(json!({"block_m": block_m, "block_n": block_n, "block_k": block_k, "stages": stages})),
                        TrialOutcome::of(time),
                    ));
                }
            }
        }
    }
    found
}

/// Threads in waves of 32 over a row, an unrolling and two booleans: steps, a ridge, and categories that interact.
fn waves() -> Vec<(Config, TrialOutcome)> {
    let mut found = Vec::new();
    for threads in (32_u32..=1024).step_by(32) {
        for items in [1_u32, 2, 3, 4, 6, 8, 12, 16] {
            if threads * items > 4096 {
                continue;
            }
            for layout in ["row", "column", "swizzled"] {
                for vector in [1_u32, 2, 4] {
                    if items % vector != 0 {
                        continue;
                    }
                    let (t, i, v) = (f64::from(threads), f64::from(items), f64::from(vector));
                    let blocks = (100_000.0 / (t * i)).ceil();
                    let resident = (2048.0 / t).floor().min((65_536.0 / (t * (16.0 + 6.0 * i))).floor()).max(0.25);
                    let rounds = (blocks / (24.0 * resident)).ceil();
                    let access = match layout {
                        "row" => 1.0 + 0.8 / v,
                        "column" => 2.4 - 0.2 * v,
                        _ => 1.15 + 0.5 * ((v - 2.0) / 2.0).powi(2),
                    };
                    let time = rounds * (3.0 + i * access * (1.0 + 0.5 * resident * t / 2048.0)) + 4.0;
                    found.push((
                        config(json!({"threads": threads, "items": items, "layout": layout, "vector": vector})),
                        TrialOutcome::of(time),
                    ));
                }
            }
        }
    }
    found
}

/// Like the tiles, with a third of the configs failing: those that a compiler would refuse for their registers.
fn failures() -> Vec<(Config, TrialOutcome)> {
    let refused = |config: &Config| {
        let number = |name: &str| config.get(name).and_then(serde_json::Value::as_u64).unwrap_or_default();
        number("block_m") * number("block_n") * number("stages") > 1 << 15
    };
    let failed = |(config, outcome): (Config, TrialOutcome)| {
        let outcome = if refused(&config) { TrialOutcome::Failed } else { outcome };
        (config, outcome)
    };
    tiles().into_iter().map(failed).collect()
}

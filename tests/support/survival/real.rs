//! A module of a few operations for a real plugin. Times are SIMULATED: each operation has one candidate that is far
//! faster than the others.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use autotune_lowered::registry::Registry;
use serde_json::json;

use crate::support::folder::in_memory;
use crate::support::pjrt::NamedTimes;
use crate::support::program;

pub const OPERATIONS: usize = 6;
const KEY: &str = "0123456789abcdef";
/// Microseconds that an operation's candidates take, of which the first is the baseline.
const TAKES: [u64; 3] = [2400, 600, 1800];

/// Registry and module.
pub struct Real {
    folder: tempfile::TempDir,
    plugin: NamedTimes,
}

/// The same result whatever it takes: its name says that, and a loop makes it another program.
fn program(takes: u64, op: usize) -> String {
    let turns = takes / 100;
    format!(
        r#"module @takes_{takes}000 {{
  func.func public @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {{
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4096xf32>
    cond {{
      %turns = stablehlo.constant dense<{turns}> : tensor<i32>
      %more = stablehlo.compare LT, %i, %turns, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }} do {{
      %one = stablehlo.constant dense<1> : tensor<i32>
      %next = stablehlo.add %i, %one : tensor<i32>
      %least = stablehlo.constant dense<-{op}.5> : tensor<4096xf32>
      %w = stablehlo.maximum %v, %least : tensor<4096xf32>
      stablehlo.return %next, %w : tensor<i32>, tensor<4096xf32>
    }}
    return %r#1 : tensor<4096xf32>
  }}
}}
"#
    )
}

impl Real {
    /// `None`, with a message, if there is no plugin.
    pub fn new() -> Option<Self> {
        let real = Self { folder: in_memory(), plugin: NamedTimes::new()? };
        let (mut module, mut body) = (String::from("#at = loc(\"model.py\":7:3)\n"), String::new());
        let mut registry = Registry::create_or_open(real.path("registry")).unwrap();
        for op in 0..OPERATIONS {
            writeln!(module, "#op{op} = loc(\"jit(step)/ejkernel_ops#op{op}@v1:{KEY}/add\"(#at))").unwrap();
            writeln!(body, "    %{op} = stablehlo.add %arg0, %arg0 : tensor<4096xf32> loc(#op{op})").unwrap();
            let rows: Vec<_> = (0..TAKES.len())
                .map(|candidate| {
                    let path = real.path(&format!("op{op}-{candidate}.mlir"));
                    fs::write(&path, program(TAKES[candidate], op)).unwrap();
                    json!({"config": {"takes": TAKES[candidate]}, "program_file": path})
                })
                .collect();
            let description = json!({
                "target": {"platform": "cpu"}, "op_id": format!("op{op}@v1"), "call_key": KEY, "baseline": {"takes": TAKES[0]},
                "candidates": rows,
                "arguments": [{"name": "x", "spec": "f32[4096]", "fill": {"kind": "normal", "scale": 1.0}}],
            });
            let file = real.path(&format!("op{op}.json"));
            fs::write(&file, description.to_string()).unwrap();
            registry.add_described(&file).unwrap();
        }
        writeln!(module, "module @jit_step {{").unwrap();
        writeln!(module, "  func.func public @main(%arg0: tensor<4096xf32>) -> tensor<4096xf32> {{").unwrap();
        writeln!(module, "{body}    return %0 : tensor<4096xf32> loc(#at)\n  }} loc(#at)\n}} loc(#at)").unwrap();
        fs::write(real.path("module.mlir"), module).unwrap();
        Some(real)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, cache: &Path) -> Command {
        let mut command = program::command(cache);
        command.arg(self.path("module.mlir")).arg("--registry").arg(self.path("registry"));
        self.plugin.measures(&mut command);
        command.args(["--rounds", "8", "--compile-jobs", "2", "--format", "json"]);
        command
    }

    /// The config of each operation's fastest candidate.
    pub fn fastest() -> serde_json::Value {
        json!({"takes": TAKES[1]})
    }
}

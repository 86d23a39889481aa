//! `bisect`: the plugin of a list that makes a call slower. Times are SIMULATED.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::pjrt::NamedTimes;
use crate::support::prerequisite::python3;
use crate::support::program::*;

const KEY: &str = "0123456789abcdef";
const REGRESSED: i32 = autotune_lowered::cli::exit::REGRESSED as i32;

impl Place {
    /// Records a call of one config, whose program says in its name how long it takes.
    fn record_taking(&self, op_id: &str, (takes, operation): (u32, &str), platform: &str) {
        let body = format!("%y = stablehlo.{operation} %x, %x : tensor<64xf32>");
        self.record_program("registry", op_id, (takes, &body), platform);
    }

    /// The same in a folder, of a program that makes `%y` of `%x`.
    pub(super) fn record_program(&self, registry: &str, op_id: &str, (takes, body): (u32, &str), platform: &str) {
        let module = format!(
            "module @takes_{takes} {{ func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {{ \
             {body} return %y : tensor<64xf32> }} }}"
        );
        let program = self.file(&format!("{takes}.mlir"), module);
        let description = json!({
            "target": {"platform": platform}, "op_id": op_id, "call_key": KEY, "baseline": {},
            "candidates": [{"config": {}, "program_file": program}],
            "arguments": [{"name": "x", "spec": "f32[64]", "fill": {"kind": "normal", "scale": 1.0}}],
        });
        let description = self.file("description.json", description.to_string());
        let added = self.run(&["registry", "add", &self.text(registry), &description]);
        assert_eq!(added.code, 0, "{}", added.stderr);
    }
}

/// Plugins in a list, and a registry with a call that takes 80 µs and one that takes 60 µs.
struct Plugins {
    place: Place,
    plugin: NamedTimes,
    list: String,
}

impl Plugins {
    /// `slower` has for each plugin the first digits of the times that are longer there. `None` without a plugin.
    fn new(slower: &[&str]) -> Option<Self> {
        let (place, plugin) = (Place::new(), NamedTimes::new()?);
        place.record_taking("long@v1", (80_000, "add"), "cpu");
        place.record_taking("short@v1", (60_000, "multiply"), "cpu");
        let name = |(index, digits): (usize, &&str)| match *digits {
            "" => format!("{index}.so"),
            digits => format!("{index}-slower_{digits}.so"),
        };
        let names: Vec<String> = slower.iter().enumerate().map(name).collect();
        names.iter().for_each(|name| plugin.copy(&place.path(name)));
        let list = place.file("list.txt", format!("# oldest first\n\n{}\n", names.join("\n")));
        Some(Self { place, plugin, list })
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = command(&self.place.path("cache"));
        command.args(["bisect", &self.list, &self.place.text("registry")]).args(more);
        self.plugin.simulates(&mut command);
        command
    }

    fn run(&self, more: &[&str]) -> Run {
        ended(&mut self.command(more))
    }

    /// Bytes of all sample logs.
    fn logged(&self) -> Vec<(PathBuf, u64)> {
        let folders = fs::read_dir(self.place.path("cache/upgrades-v1")).unwrap();
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        let logs =
            files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "log"));
        let mut logs: Vec<_> = logs.map(|path| (path.clone(), fs::metadata(path).unwrap().len())).collect();
        logs.sort();
        logs
    }
}

/// Outcome, last place at which it held, first changed place, and verdict.
fn found(result: &Value, op_id: &str) -> Value {
    let call = result["calls"].as_array().unwrap().iter().find(|call| call["op_id"] == op_id).unwrap();
    json!([call["outcome"], call["held"], call["changed"], call["verdict"]])
}

#[test]
fn each_change_is_found_by_a_run_that_goes_on_after_a_kill() {
    let (slower_from_2, from_5) = ("6", "86");
    let slower = ["", "", slower_from_2, slower_from_2, slower_from_2, from_5, from_5, from_5];
    let Some(plugins) = Plugins::new(&slower) else { return };
    let mut killed = plugins.command(&[]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(killed.stderr.take().unwrap()).lines();
    // the first comparison is done, and a call of the second is
    let is_second = lines.by_ref().any(|line| line.unwrap().starts_with("`3-slower_6.so` beside"));
    let is_measured = lines.by_ref().any(|line| line.unwrap().starts_with("long@v1"));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(is_second && is_measured);
    let before = plugins.logged();
    let run = plugins.run(&["--format", "json"]);
    assert_eq!(run.code, REGRESSED, "{}", run.stderr);
    let result = run.json();
    assert_eq!(found(&result, "long@v1"), json!(["found", 4, 5, "compiler-regressed"]), "{result}");
    assert_eq!(found(&result, "short@v1"), json!(["found", 1, 2, "compiler-regressed"]), "{result}");
    // half as long again, as the plugin's file says
    let ratio = result["calls"][0]["ratio"].as_f64().unwrap();
    assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
    // two changes share the comparisons with the last and with one in the middle
    assert!(result["comparisons"].as_array().unwrap().len() <= 6, "{result}");
    // what the killed run measured of the first comparison is not measured again
    let after = plugins.logged();
    assert_eq!(before.iter().filter(|log| after.contains(log)).count(), 1, "{before:?} {after:?}");
    let again = plugins.run(&["--format", "json"]);
    assert_eq!((again.code, again.json()), (REGRESSED, result), "{}", again.stderr);
    assert_eq!(plugins.logged(), after, "a search that is done measures nothing");
}

#[test]
fn environments_that_cannot_be_compared_are_left_out_in_the_middle_alone() {
    let Some(plugins) = Plugins::new(&["", "", "", "8"]) else { return };
    let python = plugins.place.path("no-jax");
    let made = Command::new(python3()).args(["-m", "venv", "--without-pip"]).arg(&python).status().unwrap();
    assert!(made.success());
    plugins.place.file("1.so", "no library");
    let write = |names: &[&str]| plugins.place.file("list.txt", names.join("\n"));
    write(&["0.so", "1.so", "no-jax", "3-slower_8.so"]);
    let run = plugins.run(&["--format", "json"]);
    assert_eq!(run.code, REGRESSED, "{}", run.stderr);
    let result = run.json();
    assert_eq!(found(&result, "long@v1"), json!(["between", 0, 3, "compiler-regressed"]), "{result}");
    assert_eq!(found(&result, "short@v1"), json!(["unchanged", 3, null, "holds"]), "{result}");
    for name in ["1.so", "no-jax"] {
        assert_eq!(run.stderr.matches(&format!("`{name}` is left out: ")).count(), 1, "{}", run.stderr);
        assert!(!run.stderr.contains(&format!("left out: `{name}`")), "named once: {}", run.stderr);
    }
    assert!(
        run.stderr.contains("1 of 3 environments compared with the first, 2 left out: of 2 calls, "),
        "{}",
        run.stderr
    );
    let table = plugins.run(&[]).stdout;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let long = format!("long@v1:{KEY}");
    assert_eq!(rows[1], ["compiler", "regressed", &long, "0.so", "3-slower_8.so", "1.500"], "{table}");
    assert!(rows[2].starts_with(&["its", "config", "takes", "50.0", "%", "more"]), "{table}");
    assert!(rows[3].starts_with(&["note:", "between", "these", "two,"]), "{table}");
    let short = format!("short@v1:{KEY}");
    assert_eq!(rows[4], ["holds", &short, "3-slower_8.so", "—", "1.000"], "{table}");
    for (ends, why) in [
        (["0.so", "1.so"], "cannot be loaded"),
        (["1.so", "0.so"], "cannot be loaded"),
        (["0.so", "no-jax"], "has no JAX"),
    ] {
        write(&ends);
        let run = plugins.run(&[]);
        assert_eq!(run.code, DEVICE_TROUBLE, "{ends:?}: {}", run.stderr);
        assert!(run.fault().contains(why), "{}", run.stderr);
    }
    write(&["0.so", "3-slower_8.so"]);
    fs::remove_dir_all(plugins.place.path("registry")).unwrap();
    plugins.place.record_taking("long@v1", (80_000, "add"), "rocm");
    let run = plugins.run(&[]);
    assert_eq!(run.code, NOTHING_MATCHED, "{}", run.stderr);
    assert!(run.fault().contains("has no call of cpu"), "{}", run.stderr);
}

#[test]
fn a_list_that_is_none_gets_one_line() {
    let place = Place::new();
    place.record_taking("long@v1", (80_000, "add"), "cpu");
    let registry = place.text("registry");
    let fifo = place.text("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    place.file("some.so", "");
    let many = "some.so\n".repeat(1001);
    for (list, words) in [
        (place.text("absent"), "No such file"),
        (place.text("registry"), "it is a folder"),
        ("/dev/zero".to_owned(), "not a regular file"),
        (fifo, "nothing writes into"),
        (place.file("empty", "\n# nothing\n"), "fewer than two"),
        (place.file("one", "some.so\n"), "fewer than two"),
        (place.file("typo", "some.so\n# a comment\n\nsome.s\n"), "line 4 of"),
        (place.file("nul", "some.so\nso\0me.so\n"), "line 2 of"),
        (place.file("latin", b"\xe9.so\n"), "not UTF-8"),
        (place.file("many", many), "more than 1000"),
        (place.file("long", "#".repeat((1 << 20) + 1)), "at most 1048576"),
    ] {
        let run = place.run(&["bisect", &list, &registry]);
        assert_eq!(run.code, BAD_INPUT, "{list}: {}", run.stderr);
        assert!(run.fault().contains(words) && run.fault().contains(&list), "{}", run.fault());
        assert_eq!(run.stdout, "");
    }
    // a plugin records nothing, which shows before any environment does
    place.file("python3", "");
    fs::create_dir(place.path("cache")).unwrap();
    let list = place.file("mixed", "python3\nsome.so\npython3\n");
    let run = place.run(&["bisect", &list, "--record", "train.py"]);
    assert_eq!((run.code, &*run.stdout), (BAD_INPUT, ""), "{}", run.stderr);
    assert!(run.fault().contains("line 2 of") && run.fault().contains("is a plugin: `--record`"), "{}", run.fault());
}

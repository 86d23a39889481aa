//! `upgrade` on a real plugin, whose times are SIMULATED.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::pjrt::NamedTimes;
use crate::support::prerequisite::python3;
use crate::support::program::*;

const REGRESSED: i32 = autotune_lowered::cli::exit::REGRESSED as i32;

/// Twice the input, and the same by another operation: what two versions of JAX might make of one function.
const ADDED: &str = "%y = stablehlo.add %x, %x : tensor<64xf32>";
const MULTIPLIED: &str = "%two = stablehlo.constant dense<2.0> : tensor<64xf32> \
                          %y = stablehlo.multiply %x, %two : tensor<64xf32>";

/// The same of three times the input. A registry keeps programs that compute the same once.
const ADDED_TWICE: &str = "%z = stablehlo.add %x, %x : tensor<64xf32> %y = stablehlo.add %z, %x : tensor<64xf32>";
const MULTIPLIED_BY_3: &str = "%three = stablehlo.constant dense<3.0> : tensor<64xf32> \
                               %y = stablehlo.multiply %x, %three : tensor<64xf32>";

/// Two plugins, of which the new one takes half as long again for programs of 80 µs.
struct Plugins {
    place: Place,
    plugin: NamedTimes,
}

impl Plugins {
    fn new() -> Option<Self> {
        let (place, plugin) = (Place::new(), NamedTimes::new()?);
        ["old.so", "same.so", "slower_8.so", "unreadable_8.so"].iter().for_each(|name| plugin.copy(&place.path(name)));
        Some(Self { place, plugin })
    }

    fn upgrade(&self, new: &str, more: &[&str]) -> Run {
        ended(&mut self.command(new, more))
    }

    fn command(&self, new: &str, more: &[&str]) -> Command {
        let mut command = command(&self.place.path("cache"));
        let (old, new) = (self.place.text("old.so"), self.place.text(new));
        command.args(["upgrade", &self.place.text("registry"), "--old", &old, "--new", &new, "--format", "json"]);
        self.plugin.simulates(command.args(more));
        command
    }

    /// The same on a device that one library's processes hold alone.
    fn upgrade_held(&self, new: &str, more: &[&str]) -> Run {
        let held = self.place.path("held");
        fs::create_dir_all(&held).unwrap();
        ended(self.command(new, more).env("SIMULATED_HELD", held))
    }
}

fn call<'a>(result: &'a Value, op_id: &str) -> &'a Value {
    result["calls"].as_array().unwrap().iter().find(|call| call["op_id"] == op_id).unwrap()
}

#[test]
fn a_compiler_that_is_slower_is_named_with_its_call_for_people_and_for_ci() {
    let Some(plugins) = Plugins::new() else { return };
    plugins.place.record_program("registry", "long@v1", (80_000, ADDED), "cpu");
    plugins.place.record_program("registry", "short@v1", (60_000, MULTIPLIED), "cpu");
    let junit = plugins.place.text("upgrade.xml");
    let run = plugins.upgrade("slower_8.so", &["--junit", &junit]);
    assert_eq!(run.code, REGRESSED, "{}", run.stderr);
    let result = run.json();
    let (long, short) = (call(&result, "long@v1"), call(&result, "short@v1"));
    assert_eq!((&long["verdict"], &short["verdict"]), (&"compiler-regressed".into(), &"holds".into()), "{result}");
    assert_eq!(long["cause"], "compiler", "the program is the same");
    let ratio = long["change"]["ratio"].as_f64().unwrap();
    assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("failures=\"1\"") && xml.contains("<failure type=\"compiler regressed\""), "{xml}");
    // what is tuned again is what it names
    let file = plugins.place.file("upgrade.json", &run.stdout);
    let module = plugins.place.file("none.mlir", "module @m { func.func public @main() { return } }");
    let tune = plugins.place.run(&[&module, "--from", &file, "--only", "long@v1"]);
    assert_eq!(tune.code, USAGE, "{}", tune.stderr);
    let held = plugins.upgrade("same.so", &[]);
    assert_eq!(held.code, 0, "{}", held.stderr);
    let file = plugins.place.file("held.json", &held.stdout);
    let tune = plugins.place.run(&[&module, "--from", &file]);
    assert_eq!((tune.code, tune.stdout.as_str()), (0, ""), "{}", tune.stderr);
    assert!(tune.stderr.contains("nothing to tune again"), "{}", tune.stderr);
}

#[test]
fn a_slower_lowering_is_told_from_a_slower_compiler() {
    let Some(plugins) = Plugins::new() else { return };
    for (op_id, program) in [("lowered@v1", (40_000, ADDED)), ("compiled@v1", (80_000, ADDED_TWICE))] {
        plugins.place.record_program("registry", op_id, program, "cpu");
    }
    // the new environment lowers both to other programs, one of which takes longer whatever compiles it
    for (op_id, program) in [("lowered@v1", (60_000, MULTIPLIED)), ("compiled@v1", (81_000, MULTIPLIED_BY_3))] {
        plugins.place.record_program("renewed", op_id, program, "cpu");
    }
    let renewed = plugins.place.text("renewed");
    let run = plugins.upgrade("slower_8.so", &["--new-registry", &renewed]);
    assert_eq!(run.code, REGRESSED, "{}", run.stderr);
    let result = run.json();
    let (lowered, compiled) = (call(&result, "lowered@v1"), call(&result, "compiled@v1"));
    assert_eq!(lowered["verdict"], "lowering-regressed", "{result}");
    assert_eq!(compiled["verdict"], "compiler-regressed", "{result}");
    assert_eq!((&lowered["cause"], &compiled["cause"]), (&"lowering".into(), &"compiler".into()), "{result}");
    assert_eq!(lowered["compiler_change"]["shift"], "same", "{result}");
    assert!(
        lowered["reason"].as_str().unwrap().contains("as the old environment lowered it does not, or far less"),
        "{lowered}"
    );
    // a call that the new environment did not record is no verdict
    fs::remove_dir_all(plugins.place.path("renewed")).unwrap();
    plugins.place.record_program("renewed", "lowered@v1", (40_000, MULTIPLIED), "cpu");
    let run = plugins.upgrade("same.so", &["--new-registry", &renewed, "--force"]);
    let result = run.json();
    assert_eq!(call(&result, "lowered@v1")["verdict"], "holds", "{result}");
    let unknown = call(&result, "compiled@v1");
    assert_eq!((run.code, &unknown["verdict"]), (SOME_FAILED, &"undecided".into()), "{result}");
    assert!(unknown["reason"].as_str().unwrap().contains("the new environment recorded no such call"), "{unknown}");
}

#[test]
fn compilers_that_cannot_run_beside_each_other_take_turns() {
    let Some(plugins) = Plugins::new() else { return };
    plugins.place.record_program("registry", "long@v1", (80_000, ADDED), "cpu");
    plugins.place.record_program("registry", "short@v1", (60_000, MULTIPLIED), "cpu");
    let run = plugins.upgrade_held("slower_8.so", &[]);
    assert_eq!(run.code, REGRESSED, "{}", run.stderr);
    assert!(run.stderr.contains("the new compiler starts only while"), "{}", run.stderr);
    let result = run.json();
    let (long, short) = (call(&result, "long@v1"), call(&result, "short@v1"));
    assert_eq!((&long["verdict"], &short["verdict"]), (&"compiler-regressed".into(), &"holds".into()), "{result}");
    let ratio = long["change"]["ratio"].as_f64().unwrap();
    assert!((ratio - 1.5).abs() < 0.01, "{ratio}");
    // JAX takes another device in place of one that it cannot have
    let held = plugins.place.text("held");
    let mut fallback = plugins.command("slower_8.so", &["--force"]);
    let fallback = ended(fallback.env("SIMULATED_HELD", held).env("SIMULATED_FALLBACK", "elsewhere"));
    assert!(fallback.stderr.contains("the new compiler starts only while"), "{}", fallback.stderr);
    assert_eq!(call(&fallback.json(), "long@v1")["verdict"], "compiler-regressed", "{}", fallback.stdout);
    // asked for, it is the same where both may run; and without, if nothing is kept
    let beside = plugins.upgrade("slower_8.so", &["--no-persist"]);
    assert_eq!(call(&beside.json(), "long@v1")["verdict"], "compiler-regressed", "{}", beside.stdout);
    let asked = plugins.upgrade("slower_8.so", &["--one-at-a-time", "--no-persist"]);
    assert!(!asked.stderr.contains("starts only while"), "{}", asked.stderr);
    assert_eq!(call(&asked.json(), "long@v1")["verdict"], "compiler-regressed", "{}", asked.stdout);
}

#[test]
fn blocks_of_an_earlier_run_count_and_a_compiler_that_does_not_start_is_named() {
    let Some(plugins) = Plugins::new() else { return };
    plugins.place.record_program("registry", "long@v1", (80_000, ADDED), "cpu");
    let pairs = |run: &Run| call(&run.json(), "long@v1")["change"]["processes"].as_array().unwrap().len();
    let few = plugins.upgrade_held("same.so", &["--processes", "3"]);
    assert_eq!((few.code, &call(&few.json(), "long@v1")["verdict"]), (0, &"undecided".into()), "{}", few.stderr);
    assert_eq!(pairs(&few), 3);
    let more = plugins.upgrade_held("same.so", &["--processes", "3"]);
    assert_eq!(pairs(&more), 6, "{}", more.stdout);
    let again = plugins.upgrade_held("same.so", &["--processes", "3", "--force"]);
    assert_eq!(pairs(&again), 3, "{}", again.stdout);
    // it starts neither beside the other one nor alone
    fs::write(plugins.place.path("broken.so"), "no library").unwrap();
    let broken = plugins.upgrade_held("broken.so", &[]);
    assert_eq!((broken.code, broken.stdout.as_str()), (DEVICE_TROUBLE, ""), "{}", broken.stderr);
    assert!(broken.stderr.lines().last().unwrap().contains("broken.so"), "{}", broken.stderr);
}

#[test]
fn a_module_that_only_one_compiler_can_read_is_no_alarm() {
    let Some(plugins) = Plugins::new() else { return };
    plugins.place.record_program("registry", "long@v1", (80_000, ADDED), "cpu");
    plugins.place.record_program("registry", "short@v1", (60_000, MULTIPLIED), "cpu");
    let run = plugins.upgrade("unreadable_8.so", &[]);
    let result = run.json();
    let (long, short) = (call(&result, "long@v1"), call(&result, "short@v1"));
    assert_eq!((run.code, &long["verdict"]), (SOME_FAILED, &"undecided".into()), "{result}");
    assert_eq!(long["failure"]["kind"], "unreadable", "{long}");
    assert!(long["reason"].as_str().unwrap().contains("under the new compiler"), "{long}");
    assert_eq!(short["verdict"], "holds", "{short}");
    // and the other way round
    let (old, new) = (plugins.place.text("unreadable_8.so"), plugins.place.text("same.so"));
    let mut command = command(&plugins.place.path("cache"));
    command.args(["upgrade", &plugins.place.text("registry"), "--old", &old, "--new", &new, "--format", "json"]);
    plugins.plugin.simulates(&mut command);
    let result = ended(&mut command).json();
    assert_eq!(call(&result, "long@v1")["verdict"], "undecided", "{result}");
    assert!(call(&result, "long@v1")["reason"].as_str().unwrap().contains("under the old compiler"), "{result}");
}

#[test]
fn what_cannot_record_is_named_in_one_line() {
    let Some(plugins) = Plugins::new() else { return };
    let python = plugins.place.path("bare");
    let made = Command::new(python3()).args(["-m", "venv", "--without-pip"]).arg(&python).status().unwrap();
    assert!(made.success());
    let bare = plugins.place.text("bare");
    let upgrade = |old: &str, more: &[&str]| {
        let mut command = command(&plugins.place.path("cache"));
        command.args(["upgrade", "--old", old, "--new", &plugins.place.text("same.so"), "--record", "train.py"]);
        plugins.plugin.simulates(command.args(more));
        ended(&mut command)
    };
    let plugin = upgrade(&plugins.place.text("old.so"), &[]);
    assert_eq!(plugin.code, USAGE, "{}", plugin.stderr);
    assert!(plugin.fault().contains("`--record` needs environments of Python with JAX; `"), "{}", plugin.stderr);
    let none = upgrade(&bare, &[]);
    assert_eq!(none.code, DEVICE_TROUBLE, "{}", none.stderr);
    assert!(none.fault().contains("it has no `autotune_lowered`: install it there"), "{}", none.stderr);
    // a registry is what is recorded
    plugins.place.record_program("registry", "long@v1", (80_000, ADDED), "cpu");
    let both = upgrade(&bare, &["--new-registry", &plugins.place.text("registry")]);
    assert_eq!(both.code, USAGE, "{}", both.stderr);
}

//! The survival of caches, in numbers: `docs/reliability.md` has the output.
//!
//! `cargo bench --bench survival [-- --kills 500 --workers 200 --readers 64 --seconds 60 --flips all|NUMBER --seed 6]`
//! runs only the parts named in the arguments. Without arguments it runs all of them in their long form.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[path = "../tests/support/mod.rs"]
mod support;

use support::survival::flips::{Beside, Extent, Whole, is_log, is_sled, is_snapshot};
use support::survival::{kills, readers, workers};

fn main() {
    if readers::serve_if_asked() {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let is_all = words.is_empty();
    let value = |name: &str| words.iter().position(|word| word == name).map(|at| words[at + 1].as_str());
    let number = |name: &str, long: u64| match value(name) {
        Some(text) => Some(text.parse().unwrap_or_else(|_| panic!("{name} takes a number, not {text}"))),
        None => is_all.then_some(long),
    };
    let seed = number("--seed", 6).unwrap_or(6);
    if let Some(count) = number("--kills", 500) {
        print_kills(count, seed);
    }
    if let Some(count) = number("--workers", 200) {
        print_workers(count, seed);
    }
    if number("--readers", 64).is_some() || number("--seconds", 60).is_some() {
        let count = number("--readers", 64).unwrap_or(64);
        print_readers(count, number("--seconds", 60).unwrap_or(60));
    }
    match value("--flips") {
        Some("all") => print_flips(Extent::All),
        Some(_) => print_flips(Extent::Some { of_a_file: number("--flips", 0).unwrap_or(0), seed }),
        None if is_all => print_flips(Extent::All),
        None => {}
    }
}

fn print_kills(count: u64, seed: u64) {
    let seen = kills::run(count, seed);
    println!(
        "| runs killed | of these between the first and the last decision | folders tuned to the end | decisions that a killed run had reported | of these lost | torn or wrong entries | other results at the end |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    println!("| {} | {} | {} | {} | 0 | 0 | 0 |\n", seen.kills, seen.in_between, seen.folders, seen.reported);
}

fn print_workers(count: u64, seed: u64) {
    println!(
        "| timer | runs | killed | of these | measuring worker started again | operations failed, candidates out, other results |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let print = |timer: &str, seen: &workers::Killed| {
        let victims: Vec<String> = seen.victims.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
        println!("| {timer} | {} | {} | {} | {} | 0 |", seen.runs, seen.kills(), victims.join(", "), seen.restarts);
    };
    println!("| `command:`, one run for each request | {} | | | | 0 |", workers::run_every_request(1));
    print("`command:`, simulated times", &workers::run_played(count, seed));
    if let Some(seen) = workers::run_real(count, seed) {
        print("`pjrt`", &seen);
    }
    println!();
}

fn print_readers(count: u64, seconds: u64) {
    let seen = readers::run(usize::try_from(count).unwrap(), seconds, 0, &[]);
    println!(
        "| readers | seconds | published | opened | refreshed | of these something newer | look-ups | errors, mixtures, older ones |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let readers::Readers { published, opens, refreshes, newer, look_ups } = seen;
    println!("| {count} | {seconds} | {published} | {opens} | {refreshes} | {newer} | {look_ups} | 0 |\n");
}

fn print_flips(extent: Extent) {
    println!(
        "| damaged | beside it | trials | named, everything is read | named, an entry lost | unnoticed, everything is read | unnoticed, an entry lost | wrong configs |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let whole = Whole::new();
    let print = |store: &str, is_damaged: fn(&str) -> bool, beside: Beside, others: &str| {
        let seen = whole.damage(is_damaged, beside, extent);
        let (named, lost, harmless) = (seen.named, seen.named_and_lost, seen.harmless);
        let cut = seen.cut_between_records;
        println!("| {store} | {others} | {} | {named} | {lost} | {harmless} | {cut} | 0 |", seen.trials);
        seen.harmless_at
    };
    let harmless_at = [
        print("sled folder and its state", is_sled, Beside::Everything, "log, snapshot"),
        print("sample log", is_log, Beside::Everything, "sled, snapshot"),
        print("sample log", is_log, Beside::Snapshot, "snapshot, a sled that was not closed"),
        print("sample log", is_log, Beside::Nothing, "nothing"),
        print("snapshot", is_snapshot, Beside::Everything, "log, sled"),
    ];
    println!();
    for (at, trials) in harmless_at.into_iter().flatten() {
        eprintln!("unnoticed: {at}: {trials}");
    }
}

//! Cached configs measured again on simulated machines: the verdict on each change, the rate of false alarms, and what
//! a check stores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use crate::noisy::{BUSY, MS, Machine, Noisy, QUIET};
use crate::support::scripted;
use crate::support::scripted::*;
use autotune_lowered::cache::{CacheKey, SNAPSHOT_FILE};
use autotune_lowered::decision::{ProcessSpread, Resolution, Round};
use autotune_lowered::device::MatchMode;
use autotune_lowered::failure::{Failure, FailureKind};
use autotune_lowered::gate::{CheckOptions, CheckResult, CheckVerdict, Limits, OperationCheck, look, margin};
use autotune_lowered::ledger::Ledger;
use autotune_lowered::race::QuietWait;
use autotune_lowered::registry::Registry;
use autotune_lowered::stats::Interval;
use autotune_lowered::timer::{
    Job, OutputsAs, Prepared, RoundRequest, RoundSamples, TakenOutputs, Timer, TimerExt, TimerInfo,
};
use autotune_lowered::tune::{Session, Shard, Status, TuneOptions};

/// The options of a check.
struct Asked {
    options: TuneOptions,
    match_mode: MatchMode,
    shard: Option<Shard>,
    false_positive_rate: f64,
}

impl Default for Asked {
    fn default() -> Self {
        Self { options: TuneOptions::default(), match_mode: MatchMode::Exact, shard: None, false_positive_rate: 0.01 }
    }
}

fn tune_all(registry: &Registry, timer: &mut dyn Timer, ledger: &Ledger) -> Vec<Status> {
    tune_in(None, registry, timer, ledger)
}

/// The same, with this many rounds requested.
fn tune_in(rounds: Option<u32>, registry: &Registry, timer: &mut dyn Timer, ledger: &Ledger) -> Vec<Status> {
    let options = TuneOptions::default().rounds(rounds);
    let result = Session::new(registry, ledger, timer).options(options).run(&planned(registry.invocations())).unwrap();
    result.operations.iter().map(|operation| operation.status).collect()
}

fn check(registry: &Registry, timer: &mut dyn Timer, ledger: &Ledger, asked: &Asked) -> CheckResult {
    let mut session = Session::new(registry, ledger, timer).options(asked.options.clone());
    let mut told = 0;
    let mut on_checked = |_: &OperationCheck| told += 1;
    let Asked { match_mode, shard, false_positive_rate, .. } = *asked;
    let all = planned(registry.invocations());
    let plan = shard.map_or(all.clone(), |shard| all.of_shard(shard));
    let options = CheckOptions::default().match_mode(match_mode).false_positive_rate(false_positive_rate);
    let result = autotune_lowered::gate::check(&mut session, &plan, options, &mut on_checked).unwrap();
    assert_eq!(told, result.operations.len());
    result
}

/// A registry with `calls` calls of three configs.
fn calls(folder: &Path, calls: u64) -> Registry {
    let (mut registry, first) = registry(folder, 3, &distinct_program);
    for number in 1..calls {
        let mut other = first.as_ref().clone();
        other.call.call_key = format!("{number:016x}");
        registry.add(&other).unwrap();
    }
    registry
}

/// Tunes at these times, then checks at others.
fn tuned_then(then: &[u64], timer: &mut dyn Timer) -> OperationCheck {
    let folder = tempfile::tempdir().unwrap();
    let registry = calls(folder.path(), 1);
    let ledger = Ledger::in_memory(vec![]);
    assert_eq!(tune_all(&registry, &mut ScriptedTimer::new(then), &ledger), [Status::Tuned]);
    check(&registry, timer, &ledger, &Asked::default()).operations.remove(0)
}

#[test]
fn each_change_has_its_verdict() {
    // the winner takes half of the baseline's time; the limits are two per cent beyond its interval
    let then = [10 * MS, 8 * MS, 5 * MS];
    for (now, verdict, ratio) in [
        (5 * MS, CheckVerdict::Holds, 0.5),
        (5 * MS + MS / 20, CheckVerdict::Holds, 0.505),
        (6 * MS, CheckVerdict::Regressed, 0.6),
        (9 * MS, CheckVerdict::Regressed, 0.9),
        (99 * MS / 10, CheckVerdict::NotBetter, 0.99),
        (10 * MS, CheckVerdict::NotBetter, 1.0),
        (14 * MS, CheckVerdict::NotBetter, 1.4),
        (90 * MS, CheckVerdict::NotBetter, 9.0),
        (4 * MS, CheckVerdict::Faster, 0.4),
    ] {
        // the job has two candidates: the baseline and the winner
        let found = tuned_then(&then, &mut ScriptedTimer::new(&[10 * MS, now]));
        assert_eq!(found.verdict, verdict, "{now}: {}", found.reason);
        assert!((found.ratio.unwrap() - ratio).abs() < 0.005, "{now}: {:?}", found.ratio);
        let (interval, ratio) = (found.interval.unwrap(), found.ratio.unwrap());
        assert!((interval.low..=interval.high).contains(&ratio));
        assert!((0.50..0.56).contains(&found.limit.unwrap()), "{:?}", found.limit);
        let processes = if verdict == CheckVerdict::Holds { 1 } else { 3 };
        assert_eq!((found.processes, found.rounds), (processes, 20 * processes), "{now}: three processes agree");
        assert_eq!(found.entry.unwrap().config, config(2));
    }
}

#[test]
fn a_winner_that_fails_is_broken_and_trouble_around_it_is_not() {
    let then = [10 * MS, 8 * MS, 5 * MS];
    let fails = |candidate: usize, kind: FailureKind, method: &'static str| {
        ScriptedTimer::new(&[10 * MS, 5 * MS]).with_script(move |called, name, _| match called == candidate {
            true if name == method => Err(Failure::new(kind.clone(), "as planted")),
            _ => Ok(()),
        })
    };
    for (mut timer, verdict) in [
        (fails(1, FailureKind::Compile, "prepare"), CheckVerdict::Broken),
        (fails(1, FailureKind::Crash, "measure"), CheckVerdict::Broken),
        (fails(1, FailureKind::NoProgram, "prepare"), CheckVerdict::Failed),
        (fails(1, FailureKind::CustomCall, "prepare"), CheckVerdict::Failed),
        (fails(0, FailureKind::Compile, "prepare"), CheckVerdict::Failed),
        (fails(0, FailureKind::Device, "prepare"), CheckVerdict::Failed),
    ] {
        let found = tuned_then(&then, &mut timer);
        assert_eq!(found.verdict, verdict, "{}", found.reason);
        assert!(found.reason.contains("as planted") && found.failure.is_some(), "{}", found.reason);
    }
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS]);
    timer.outputs[1] = 7.0;
    let found = tuned_then(&then, &mut timer);
    assert_eq!((found.verdict, found.failure.unwrap().kind), (CheckVerdict::Broken, FailureKind::WrongOutput));
}

/// If the second process does not confirm the first, the first was unlucky.
#[test]
fn one_slow_process_is_no_alarm() {
    struct FirstSlow(Noisy);
    impl Timer for FirstSlow {
        fn info(&self) -> &TimerInfo {
            &self.0.timer.info
        }

        fn begin(&mut self, job: &Job) -> Result<(), Failure> {
            self.0.begin(job)
        }
        fn prepare(&mut self, candidate: usize) -> Result<Prepared, Failure> {
            self.0.prepare(candidate)
        }
        fn measure(&mut self, round: &RoundRequest) -> Result<RoundSamples, Failure> {
            self.0.times[2] = if self.0.info().epoch == 1 { 0.8 } else { 0.5 };
            self.0.measure(round)
        }
        fn outputs(&mut self, candidate: usize, taken: OutputsAs<'_>) -> Result<TakenOutputs, Failure> {
            self.0.outputs(candidate, taken)
        }
        fn restart(&mut self, without: &[usize]) -> Result<(), Failure> {
            self.0.restart(without)
        }
        fn end(&mut self) {
            self.0.end();
        }
    }
    let mut noisy = Noisy::new(1, QUIET, &[1.0, 0.9, 0.5]);
    // as the timer that tuned
    noisy.timer.info.name = "scripted".to_owned();
    let mut timer = FirstSlow(noisy);
    let found = tuned_then(&[10 * MS, 9 * MS, 5 * MS], &mut timer);
    assert_eq!((found.verdict, found.processes), (CheckVerdict::Holds, 2), "{}", found.reason);
}

/// A process that met a busy machine proves less than a quiet one, so that more are needed.
#[test]
fn a_busy_machine_takes_more_processes_until_a_change_is_proven() {
    let slower = |calls_of_module: u64, false_positive_rate: f64| {
        let folder = tempfile::tempdir().unwrap();
        let registry = calls(folder.path(), calls_of_module);
        let ledger = Ledger::in_memory(vec![]);
        tune_all(&registry, &mut ScriptedTimer::new(&[10 * MS, 8 * MS, 5 * MS]), &ledger);
        let mut timer = ScriptedTimer::new(&[10 * MS, 20 * MS]);
        timer.info.others_use = Some(0.9);
        let mut options = TuneOptions::default();
        options.race.quiet = QuietWait::new(Duration::ZERO);
        let asked = Asked { options, false_positive_rate, ..Asked::default() };
        check(&registry, &mut timer, &ledger, &asked).operations.remove(0)
    };
    // each process multiplies the e-value by 2.55 at most
    for (calls, processes) in [(1, 5), (4, 7), (20, 9)] {
        let found = slower(calls, 0.01);
        assert_eq!((found.verdict, found.processes), (CheckVerdict::NotBetter, processes), "{}", found.reason);
    }
    // no number of processes is enough: that is not the verdict that it holds
    let found = slower(1, 1e-12);
    assert_eq!((found.verdict, found.processes), (CheckVerdict::Failed, 24));
    let why = "in 24 processes, too few for a verdict: allow more time, or check while the machine is quiet";
    assert!(found.reason.ends_with(why), "{}", found.reason);
}

#[test]
fn rounds_of_a_busy_machine_count_if_they_are_of_more_processes() {
    let limits = Limits { slower: 0.7, faster: None };
    // the other processes pause for three rounds now and then
    let rounds = |pauses: &[u32]| -> Vec<Round> {
        let numbers = (0..8).flat_map(|epoch| (0..20).map(move |number| (epoch, number)));
        let round = |(epoch, number): (u32, u32)| {
            let ns = vec![Some(1000.0), Some(2000.0 + f64::from(number % 3))];
            Round::new(epoch, ns).is_contended(!(pauses.contains(&epoch) && number < 3))
        };
        numbers.map(round).collect()
    };
    let seen = |pauses: &[u32]| {
        let seen = look(&rounds(pauses), &limits, |_| ProcessSpread::QUIET).unwrap();
        (seen.processes, seen.rounds, seen.could_prove(400.0), seen.is_proven(400.0))
    };
    assert_eq!(seen(&[]), (8, 160, true, true));
    assert_eq!(seen(&[1, 4, 6]), (8, 151, true, true));
    assert_eq!(seen(&[0, 1, 2, 3, 4, 5, 6, 7]), (8, 24, true, true));
}

/// Alarms among `runs` winners that were tuned in this many rounds and checked on one machine; `now` is the winners'
/// time relative to the time before.
fn alarms(runs: usize, rounds: Option<u32>, machine: Machine, now: f64, asked: &Asked) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let (registry, _) = registry(folder.path(), 6, &distinct_program);
    // close behind the winner, so that luck chooses, and its interval is too good
    let times = [1.0, 0.600, 0.602, 0.604, 0.9, 1.1];
    let checks = (0..).filter_map(|seed| {
        let ledger = Ledger::in_memory(vec![]);
        // on a noisy machine the tuner keeps some baselines: nothing to check
        let tuned = tune_in(rounds, &registry, &mut Noisy::new(2 * seed, machine, &times), &ledger);
        (tuned == [Status::Tuned]).then(|| {
            let times = times.map(|time| if time < 0.7 { time * now } else { time });
            let result = check(&registry, &mut Noisy::new(2 * seed + 1, machine, &times), &ledger, asked);
            result.operations[0].verdict.is_alarm()
        })
    });
    checks.take(runs).filter(|is_alarm| *is_alarm).count()
}

#[test]
fn an_unchanged_winner_passes_every_time_and_a_slower_one_does_not() {
    let asked = Asked::default();
    for machine in [QUIET, BUSY] {
        assert_eq!(alarms(200, None, machine, 1.0, &asked), 0);
    }
    for (machine, now) in [(QUIET, 1.13), (BUSY, 1.35)] {
        // a decision from few rounds is less precise, and a check tolerates that much more
        let found = alarms(50, Some(20), machine, now, &asked);
        assert!(found >= 48, "{found} of 50 found at {now}");
    }
}

/// The hardest case: a config whose ratio is exactly the limit, checked after every series.
#[test]
fn at_the_limit_itself_the_error_is_the_one_that_was_asked_for() {
    for machine in [QUIET, BUSY] {
        let limits = Limits { slower: 0.7, faster: None };
        let alarms = (0..400).filter(|&seed| {
            let mut noisy = Noisy::new(seed, machine, &[1.0, 0.7]);
            noisy.configs = vec![config(0), config(1)];
            let mut rounds = Vec::new();
            (0..4).any(|epoch| {
                for _ in 0..20 {
                    let mut sample = |candidate| noisy.run(candidate, 1).unwrap()[0] as f64;
                    let (begin, samples_ns) = (sample(0), vec![Some(sample(0)), Some(sample(1))]);
                    rounds.push(Round::new(epoch, samples_ns).sentinel_ns(Some([begin, sample(0)])));
                }
                look(&rounds, &limits, |_| ProcessSpread::QUIET).unwrap().is_proven(1.0 / 0.05)
            })
        });
        let alarms = alarms.count();
        assert!(alarms <= 20, "{alarms} of 400 at an error of 5%");
    }
}

/// More rounds cannot remove the effect of a process's memory on a program; `selftest` knows its size.
#[test]
fn what_selftest_found_keeps_the_luck_of_processes_from_being_an_alarm() {
    let machine = Machine { placement: 0.03, ..QUIET };
    // 99% of the pairs of two copies: 2.576 standard deviations of their difference
    let resolution = Resolution::new([(1e5, 2.576 * f64::sqrt(2.0) * 0.03)]);
    let options = TuneOptions::default().resolution(resolution);
    assert_eq!(alarms(200, None, machine, 1.0, &Asked { options, ..Asked::default() }), 0);
    // without the figures the processes themselves tell
    assert!(alarms(200, None, machine, 1.0, &Asked::default()) <= 2);
}

#[test]
fn limits_are_the_interval_and_the_margin_and_never_above_the_baseline() {
    let interval = |low, high| Some(Interval { low, high, confidence: 0.95 });
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    let two = margin(0.02, 0.0, 1);
    assert!(close(two.exp(), 1.0 / 0.98));
    let limits = Limits::new(interval(0.4, 0.5), two);
    assert!(close(limits.slower, 0.5 / 0.98) && close(limits.faster.unwrap(), 0.4 * 0.98));
    assert!(close(Limits::new(interval(0.9, 1.3), two).slower, 1.0 / 0.98));
    // no comparable figure is known, or the known one is no interval
    for none in [None, interval(0.0, 0.5), interval(0.6, 0.5), interval(f64::NAN, 0.5), interval(0.5, f64::INFINITY)] {
        let limits = Limits::new(none, two);
        assert!(close(limits.slower, 1.0 / 0.98) && limits.faster.is_none(), "{none:?}");
    }
    // two differences of 5%, and for a hundred pairs the luckiest: z² + 2 ln 100 over z²
    assert!(close(margin(0.02, 0.05, 1), 2.0_f64.sqrt() * 1.05_f64.ln()));
    let luckiest = (1.0 + 2.0 * 100.0_f64.ln() / 2.576_f64.powi(2)).sqrt();
    assert!(close(margin(0.02, 0.05, 100), 2.0_f64.sqrt() * 1.05_f64.ln() * luckiest));
}

#[test]
fn what_is_cached_for_other_circumstances_is_stale_and_still_measured() {
    let folder = tempfile::tempdir().unwrap();
    let registry = calls(folder.path(), 1);
    let ledger = Ledger::in_memory(vec![]);
    tune_all(&registry, &mut ScriptedTimer::new(&[10 * MS, 8 * MS, 5 * MS]), &ledger);
    let mut now = ScriptedTimer::new(&[10 * MS, 5 * MS]);
    now.info.device.environment.driver = Some("999.1".into());
    let found = check(&registry, &mut now, &ledger, &Asked::default()).operations.remove(0);
    assert_eq!(found.verdict, CheckVerdict::Stale, "{}", found.reason);
    assert!(found.stale[0].contains("driver `none` there, `999.1` here"), "{:?}", found.stale);
    // the same config and program, timed by the same clock: the check must judge the new driver
    now.ns[1] = 7 * MS;
    let found = check(&registry, &mut now, &ledger, &Asked::default()).operations.remove(0);
    assert_eq!(found.verdict, CheckVerdict::Regressed, "{}", found.reason);

    // another baseline: the old ratio is meaningless, but slower than the baseline is slower
    let mut other = registry.invocations()[0].as_ref().clone().recorded_at(2);
    other.baseline = config(1);
    let (mut changed, _) = scripted::registry(&folder.path().join("changed"), 3, &distinct_program);
    changed.add(&other).unwrap();
    for (ns, verdict) in [([8 * MS, 5 * MS], CheckVerdict::Stale), ([8 * MS, 9 * MS], CheckVerdict::NotBetter)] {
        let found = check(&changed, &mut ScriptedTimer::new(&ns), &ledger, &Asked::default()).operations.remove(0);
        assert_eq!(found.verdict, verdict, "{}", found.reason);
        assert!(found.stale[0].contains("the baseline was"), "{:?}", found.stale);
        assert!((found.limit.unwrap() - 1.0 / 0.98).abs() < 1e-9 && found.entry.unwrap().interval.is_none());
    }
    // other programs under the same configs
    let (rewritten, _) = scripted::registry(&folder.path().join("rewritten"), 3, &|n| distinct_program(n + 100));
    let found = check(&rewritten, &mut ScriptedTimer::new(&[10 * MS, 7 * MS]), &ledger, &Asked::default());
    assert_eq!(found.operations[0].verdict, CheckVerdict::Stale, "{}", found.operations[0].reason);
    assert_eq!(found.operations[0].stale.len(), 2, "{:?}", found.operations[0].stale);

    // another device's entry, which the user's options accept
    let mut elsewhere = ScriptedTimer::new(&[10 * MS, 7 * MS]);
    elsewhere.info.device.identity.hardware.insert("cores".into(), "64".into());
    let found = check(&registry, &mut elsewhere, &ledger, &Asked::default()).operations.remove(0);
    assert_eq!(found.verdict, CheckVerdict::Missing, "{}", found.reason);
    assert!(found.reason.contains("--match kind"), "{}", found.reason);
    let kind = Asked { match_mode: MatchMode::Kind, ..Asked::default() };
    let found = check(&registry, &mut elsewhere, &ledger, &kind).operations.remove(0);
    assert_eq!(found.verdict, CheckVerdict::Stale, "{}", found.reason);
}

#[test]
fn a_baseline_that_was_kept_is_nothing_to_lose_and_nothing_cached_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let registry = calls(folder.path(), 1);
    let ledger = Ledger::in_memory(vec![]);
    let mut idle = ScriptedTimer::new(&[MS; 3]);
    let found = check(&registry, &mut idle, &ledger, &Asked::default()).operations.remove(0);
    assert_eq!((found.verdict, idle.calls), (CheckVerdict::Missing, 0));
    let mut timer = ScriptedTimer::new(&[10 * MS, 11 * MS, 12 * MS]);
    assert_eq!(tune_all(&registry, &mut timer, &ledger), [Status::BaselineKept]);
    let result = check(&registry, &mut idle, &ledger, &Asked::default());
    assert_eq!((result.operations[0].verdict, idle.calls, result.compared), (CheckVerdict::Holds, 0, 0));
}

#[test]
fn a_check_changes_no_cache_and_no_later_decision() {
    let folder = tempfile::tempdir().unwrap();
    // two configs: the check's job equals the tuner's
    let (registry, _) = registry(&folder.path().join("registry"), 2, &distinct_program);
    let cache = folder.path().join("cache");
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    tune_all(&registry, &mut ScriptedTimer::new(&[10 * MS, 5 * MS]), &ledger);
    let entries = |ledger: &Ledger| ledger.own_entries().unwrap();
    let snapshot = || std::fs::read(cache.join(SNAPSHOT_FILE)).unwrap();
    let log = || std::fs::metadata(cache.join("samples-v1.log")).unwrap().len();
    let (before, published, logged) = (entries(&ledger), snapshot(), log());
    let found = check(&registry, &mut ScriptedTimer::new(&[10 * MS, 12 * MS]), &ledger, &Asked::default());
    assert_eq!(found.operations[0].verdict, CheckVerdict::NotBetter);
    assert_eq!((entries(&ledger), snapshot()), (before.clone(), published.clone()));
    assert!(log() > logged, "the samples are kept");
    drop(ledger);
    let ledger = Ledger::open(&cache, vec![]).unwrap();
    assert_eq!(ledger.notes(), &[] as &[String]);
    assert_eq!(entries(&ledger), before);
    let mut timer = ScriptedTimer::new(&[10 * MS, 12 * MS]);
    assert_eq!(tune_all(&registry, &mut timer, &ledger), [Status::Cached], "the samples of a check decide nothing");
    assert_eq!(timer.calls, 0);
    // an earlier check does not affect a later one
    let again = check(&registry, &mut ScriptedTimer::new(&[10 * MS, 5 * MS]), &ledger, &Asked::default());
    assert_eq!((again.operations[0].verdict, again.operations[0].rounds), (CheckVerdict::Holds, 20));
}

#[test]
fn the_error_is_of_all_operations_together_whatever_the_shard() {
    let folder = tempfile::tempdir().unwrap();
    let registry = calls(folder.path(), 9);
    let ledger = Ledger::in_memory(vec![]);
    tune_all(&registry, &mut ScriptedTimer::new(&[10 * MS, 8 * MS, 5 * MS]), &ledger);
    let mut timer = ScriptedTimer::new(&[10 * MS, 5 * MS]);
    let whole = check(&registry, &mut timer, &ledger, &Asked { false_positive_rate: 0.03, ..Asked::default() });
    assert_eq!((whole.compared, whole.operations.len()), (9, 9));
    assert!((whole.e_value_needed - 300.0).abs() < 1e-9, "nine operations share three per cent");
    let mut seen: Vec<CacheKey> = Vec::new();
    for index in 0..4 {
        let shard = Some(Shard::new(index, 4).unwrap());
        let part =
            check(&registry, &mut timer, &ledger, &Asked { shard, false_positive_rate: 0.03, ..Asked::default() });
        assert!((part.e_value_needed - 300.0).abs() < 1e-9);
        seen.extend(part.operations.into_iter().map(|operation| CacheKey {
            call: operation.call,
            direction: operation.direction,
            device: device().identity,
        }));
    }
    seen.sort();
    let mut all: Vec<CacheKey> = ledger.own_entries().unwrap().into_iter().map(|(key, _)| key).collect();
    all.sort();
    assert_eq!(seen, all, "each once");
}

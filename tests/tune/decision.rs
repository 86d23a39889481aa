//! Racing and deciding on simulated rounds: error rates over many races, what each rule does, and bad samples.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use autotune_lowered::decision::{
    DecidedRace, DecisionRules, DropReason, Final, Finalist, JudgedOutcome, Judgement, ProcessOutcome, ProcessQuestion,
    ProcessSpread, RaceState, Round, Settled, finalists, judge as decide, process_ratios, race, wants_bracket,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const BASELINE: usize = 0;

/// A machine: relative deviation of a sample, frequency of disturbances, and their kind.
#[derive(Debug, Clone, Copy)]
struct Machine {
    deviation: f64,
    disturbed: f64,
    kind: Kind,
}

/// The effect of a disturbance on a sample, and how the level of all samples moves.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Up to three times as long.
    Plain,
    /// Longer by a draw from Pareto's distribution, whose mean is infinite.
    Heavy,
    /// Some milliseconds longer: another process had its turn.
    Turns,
    /// Every sample takes longer than the one before.
    Drift,
    /// The level jumps between one and 1.6 and stays there for thirty samples or so.
    Steps,
}

const fn machine(deviation: f64, disturbed: f64, kind: Kind) -> Machine {
    Machine { deviation, disturbed, kind }
}

const QUIET: Machine = machine(0.01, 0.01, Kind::Plain);
const BUSY: Machine = machine(0.05, 0.15, Kind::Plain);
const WILD: [Machine; 7] = [
    machine(0.01, 0.03, Kind::Heavy),
    machine(0.05, 0.15, Kind::Heavy),
    machine(0.01, 0.03, Kind::Turns),
    machine(0.05, 0.15, Kind::Turns),
    machine(0.02, 0.05, Kind::Drift),
    machine(0.01, 0.01, Kind::Steps),
    machine(0.05, 0.15, Kind::Steps),
];

struct Simulated {
    random: ChaCha8Rng,
    machine: Machine,
    times: Vec<f64>,
    /// Current factor on all samples.
    level: f64,
}

impl Simulated {
    fn new(seed: u64, machine: Machine, times: &[f64]) -> Self {
        Self { random: ChaCha8Rng::seed_from_u64(seed), machine, times: times.to_vec(), level: 1.0 }
    }

    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn sample(&mut self, candidate: usize) -> f64 {
        // the sum of twelve uniform numbers is nearly normal
        let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        match self.machine.kind {
            Kind::Drift => self.level *= 1.002,
            Kind::Steps => {
                if self.uniform() < 1.0 / 30.0 {
                    self.level = 2.6 - self.level;
                }
            }
            Kind::Plain | Kind::Heavy | Kind::Turns => {}
        }
        let time = 1e6 * self.times[candidate] * (self.machine.deviation * normal).exp() * self.level;
        if self.uniform() >= self.machine.disturbed {
            return time;
        }
        match self.machine.kind {
            Kind::Heavy => time / (1.0 - self.uniform()),
            Kind::Turns => time + 20e6 * self.uniform(),
            _ => time * (1.0 + 2.0 * self.uniform()),
        }
    }

    fn round(&mut self, contenders: &[usize]) -> Round {
        let begin = self.sample(BASELINE);
        let mut samples_ns = vec![None; self.times.len()];
        for &candidate in contenders {
            samples_ns[candidate] = Some(self.sample(candidate));
        }
        Round::new(1, samples_ns).sentinel_ns(Some([begin, self.sample(BASELINE)]))
    }

    /// The same after looks at some candidates, four at a time together with the fastest so far, and with the baseline
    /// at both ends of a round when it is due.
    fn race_in_waves(&mut self, most: usize, rules: &DecisionRules) -> (Vec<Round>, RaceState) {
        let competing: Vec<usize> = (0..self.times.len()).collect();
        let mut rounds: Vec<Round> = Vec::new();
        let mut add = |this: &mut Self, contenders: &[usize]| {
            let bracket = wants_bracket(&rounds);
            let round = this.round(contenders);
            rounds.push(if bracket { round } else { round.sentinel_ns(None) });
            race(&rounds, &competing, BASELINE, rules)
        };
        let mut race_state = add(self, &[BASELINE, 1, 2, 3, 4]);
        for wave in competing[5..].chunks(4) {
            let mut contenders: Vec<usize> =
                [BASELINE].into_iter().chain(race_state.leader.filter(|l| *l > 0)).collect();
            contenders.extend(wave);
            race_state = add(self, &contenders);
        }
        for _ in 0..2 * most {
            if race_state.settled.is_some() || race_state.leader_rounds >= most {
                break;
            }
            let next = race_state.next.clone();
            race_state = add(self, &next);
        }
        (rounds, race_state)
    }

    /// Races as the tuner does: until settled, or until this many rounds count.
    fn race(&mut self, most: usize, rules: &DecisionRules) -> (Vec<Round>, RaceState) {
        let competing: Vec<usize> = (0..self.times.len()).collect();
        let mut rounds = Vec::new();
        loop {
            let race_state = race(&rounds, &competing, BASELINE, rules);
            if race_state.settled.is_some() || race_state.rounds >= most || rounds.len() > 2 * most {
                return (rounds, race_state);
            }
            rounds.push(self.round(&race_state.contenders));
        }
    }
}

fn judge(rounds: &[Round], candidates: usize, incumbent: Option<usize>, rules: &DecisionRules) -> Judgement {
    let competing: Vec<usize> = (0..candidates).collect();
    decide(rounds, candidates, &competing, BASELINE, incumbent, &[], rules)
}

fn eager() -> DecisionRules {
    DecisionRules::default().min_improvement(0.0)
}

/// Rounds in which candidate `i` takes `base * factors[i]`, while the machine drifts by `drift` per round.
fn rounds(n: usize, factors: &[f64], drift: f64) -> Vec<Round> {
    (0..n)
        .map(|round| {
            let base = 1000.0 * (1.0 + drift * round as f64);
            // a small spread that differs by candidate, equal in every run
            let wobble = |i: usize| 1.0 + 0.001 * (((round * 7 + i * 3) % 5) as f64 - 2.0);
            let samples = factors.iter().enumerate().map(|(i, f)| Some(base * f * wobble(i))).collect();
            Round::new(1, samples)
        })
        .collect()
}

#[test]
fn equal_programs_are_not_called_better() {
    // at a minimum improvement of zero, the hardest case: 2 × 200 races of 6 equal candidates
    for machine in [QUIET, BUSY] {
        let wins = (0..200).filter(|&seed| {
            let mut simulated = Simulated::new(seed, machine, &[1.0; 6]);
            let (rounds, _) = simulated.race(20, &eager());
            judge(&rounds, 6, None, &eager()).outcome == JudgedOutcome::Faster
        });
        let wins = wins.count();
        assert!(wins <= 2, "{wins} of 200");
    }
}

#[test]
fn a_speed_up_is_believed_up_to_the_bound() {
    for (factor, outcome) in [(1.0 / 900.0, JudgedOutcome::Faster), (1.0 / 1100.0, JudgedOutcome::NotBelieved)] {
        let rules = DecisionRules::default();
        let judgement = judge(&rounds(8, &[1.0, factor, 0.5], 0.0), 3, None, &rules);
        assert_eq!(judgement.outcome, outcome, "{factor}");
        let winner = if outcome == JudgedOutcome::Faster { 1 } else { BASELINE };
        assert_eq!(judgement.winner, winner);
        // a cached config gets no special trust
        assert_eq!(judge(&rounds(8, &[1.0, factor, 0.5], 0.0), 3, Some(1), &rules).outcome, outcome);
    }
}

#[test]
fn the_fastest_is_hardly_ever_dropped() {
    for machine in [QUIET, BUSY] {
        let mut times = vec![1.0; 10];
        // close behind the best, so that bad luck could drop it
        times[1..].iter_mut().enumerate().for_each(|(i, time)| *time = 0.8 + 0.002 * i as f64);
        let dropped = (0..100).filter(|&seed| {
            let mut simulated = Simulated::new(seed, machine, &times);
            simulated.race(20, &eager()).1.dropped.contains_key(&1)
        });
        let dropped = dropped.count();
        assert!(dropped <= 5, "{dropped} of 100");
    }
}

#[test]
fn the_fastest_stays_on_machines_that_are_out_of_order() {
    // twenty-eight, some close behind the best and most far behind, with the best among the last
    let times: Vec<f64> = (0..28).map(|i| if i == 25 { 0.6 } else { 0.606 * 1.07_f64.powi((i * 11) % 28) }).collect();
    for machine in WILD.into_iter().chain([QUIET, BUSY]) {
        let dropped = (0..50).filter(|&seed| {
            let mut simulated = Simulated::new(seed, machine, &times);
            simulated.race_in_waves(20, &eager()).1.dropped.contains_key(&25)
        });
        let dropped = dropped.count();
        assert!(dropped <= 2, "{dropped} of 50 on {machine:?}");
    }
}

#[test]
fn turns_of_other_processes_hide_no_large_gain() {
    // programs of 0.1 ms, each of whose samples may be up to 20 ms longer
    let mut times: Vec<f64> = (0..32).map(|i| 0.05 * 1.09_f64.powi((i * 11) % 32)).collect();
    (times[BASELINE], times[25]) = (0.1, 0.038);
    let machine = machine(0.03, 0.05, Kind::Turns);
    let found = (0..60).filter(|&seed| {
        let (rounds, _) = Simulated::new(seed, machine, &times).race_in_waves(20, &DecisionRules::default());
        judge(&rounds, 32, None, &DecisionRules::default()).winner == 25
    });
    let found = found.count();
    assert!(found >= 45, "{found} of 60 after twenty rounds");
}

#[test]
fn what_is_far_behind_takes_one_sample_where_the_machine_is_quiet() {
    let mut times = vec![1.0, 0.6];
    times.extend((0..26).map(|i| 1.4 * 1.07_f64.powi(i)));
    let mut simulated = Simulated::new(5, QUIET, &times);
    let (_, race_state) = simulated.race_in_waves(20, &DecisionRules::default());
    let rounds: Vec<usize> = race_state.dropped.values().map(|dropped| dropped.after).collect();
    assert!(race_state.dropped.len() == 26, "{race_state:?}");
    // seven rounds are looks at four each
    assert!(rounds.iter().all(|after| *after <= 9), "{rounds:?}");
}

#[test]
fn most_rounds_go_to_those_that_may_be_the_best() {
    // a baseline, and eleven others, each a little slower than the one before
    let mut times = vec![1.0];
    times.extend((0..11).map(|i| 0.6 + 0.0002 * f64::from(i)));
    let competing: Vec<usize> = (0..12).collect();
    let next = |n| race(&rounds(n, &times, 0.0), &competing, BASELINE, &DecisionRules::default()).next;
    assert_eq!(next(1), competing, "each is measured twice");
    // the baseline, and of twelve those up to the rank of twelve divided by the samples of each
    assert_eq!((next(2).len(), next(3).len()), (7, 5), "{:?} {:?}", next(2), next(3));
    assert!(next(3).contains(&BASELINE) && next(3).contains(&1));
    // a candidate with fewer samples comes back if those before it are slower than they seemed
    let mut late = rounds(4, &times, 0.0);
    late[2..].iter_mut().for_each(|round| round.samples_ns[5..].fill(None));
    late[2..].iter_mut().for_each(|round| round.samples_ns[2..5].iter_mut().flatten().for_each(|ns| *ns *= 1.1));
    let back = race(&late, &competing, BASELINE, &DecisionRules::default()).next;
    assert!(back.contains(&5) && back.contains(&6), "{back:?}");
}

#[test]
fn the_resolution_is_what_can_be_told() {
    for machine in [QUIET, BUSY] {
        let beyond = (0..100).filter(|&seed| {
            let mut simulated = Simulated::new(seed, machine, &[1.0, 0.7, 0.701, 0.702, 0.703]);
            let (rounds, race_state) = simulated.race(20, &eager());
            let judgement = judge(&rounds, 5, None, &eager());
            let ratio = judgement.candidates[1].as_ref().unwrap().ratio;
            (ratio / 0.7).ln().abs() > race_state.resolution
        });
        let beyond = beyond.count();
        assert!(beyond <= 4, "{beyond} of 100 medians are further from the truth than the 99% resolution");
    }
}

#[test]
fn what_is_clear_takes_few_runs() {
    // a baseline, one good config, and thirty that are 1.15 to 8 times slower
    let mut times = vec![1.0, 0.6];
    times.extend((0..30).map(|i| 0.69 * 1.07_f64.powi(i)));
    let mut shares: Vec<f64> = (0..21)
        .map(|seed| {
            let mut simulated = Simulated::new(seed, QUIET, &times);
            let (rounds, race_state) = simulated.race(20, &DecisionRules::default());
            assert_eq!(race_state.leader, Some(1));
            assert!(matches!(race_state.settled, Some(Settled::Separated | Settled::Tied)), "{:?}", race_state.settled);
            let spent = |round: &Round| {
                round.samples_ns.iter().enumerate().filter(|(_, ns)| ns.is_some()).map(|(i, _)| times[i]).sum::<f64>()
            };
            rounds.iter().map(spent).sum::<f64>() / (20.0 * times.iter().sum::<f64>())
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    assert!(shares[10] < 0.25, "half of the races take {} of twenty full rounds", shares[10]);
}

#[test]
fn far_slower_ones_are_cut_off_at_once() {
    let mut simulated = Simulated::new(1, QUIET, &[1.0, 0.9, 2.2, 5.0, 9.0]);
    let mut rounds: Vec<Round> = (0..3).map(|_| simulated.round(&[0, 1, 2, 3, 4])).collect();
    let scaled_to = |rounds: &mut [Round], slowest_ns: f64| {
        let by = slowest_ns / rounds[0].samples_ns[4].unwrap();
        rounds.iter_mut().flat_map(|round| &mut round.samples_ns).flatten().for_each(|ns| *ns *= by);
    };
    // a sample this short may contain another process's turn on the core, even twice in a row
    scaled_to(&mut rounds, 19e6);
    for (seen, left) in [(1, &[0, 1, 2, 3, 4][..]), (2, &[0, 1, 2, 3, 4]), (3, &[0, 1])] {
        assert_eq!(race(&rounds[..seen], &[0, 1, 2, 3, 4], BASELINE, &DecisionRules::default()).contenders, left);
    }
    scaled_to(&mut rounds, 40e6);
    for (seen, left) in [(1, &[0, 1, 2, 3][..]), (2, &[0, 1, 2]), (3, &[0, 1])] {
        let race_state = race(&rounds[..seen], &[0, 1, 2, 3, 4], BASELINE, &DecisionRules::default());
        assert_eq!(race_state.contenders, left, "the fewer rounds, the more it takes");
        assert!(race_state.dropped.values().all(|dropped| dropped.reason == DropReason::CutOff));
    }
}

#[test]
fn nothing_that_can_win_ends_the_race() {
    let mut simulated = Simulated::new(3, QUIET, &[1.0, 1.0, 1.01, 1.3]);
    let (rounds, race_state) = simulated.race(20, &DecisionRules::default());
    assert_eq!(race_state.settled, Some(Settled::NothingFaster));
    assert!(rounds.len() < 20, "{}", rounds.len());
    let mut simulated = Simulated::new(3, QUIET, &[1.0, 0.7, 0.7]);
    let (rounds, race_state) = simulated.race(20, &DecisionRules::default());
    assert_eq!(race_state.settled, Some(Settled::Tied), "either will do");
    assert!(rounds.len() < 20, "{}", rounds.len());
}

#[test]
fn drift_does_not_choose_the_winner() {
    let judgement = judge(&rounds(20, &[1.0, 0.9, 0.95], 0.5), 3, None, &DecisionRules::default());
    assert_eq!((judgement.outcome, judgement.winner), (JudgedOutcome::Faster, 1));
    let best = judgement.candidates[1].as_ref().unwrap();
    assert!((best.ratio - 0.9).abs() < 0.004, "{}", best.ratio);
    assert_eq!(judgement.tie_set(), [1]);
}

#[test]
fn a_gain_below_the_minimum_keeps_the_baseline() {
    let rules = DecisionRules::default();
    let judgement = judge(&rounds(20, &[1.0, 0.985], 0.0), 2, None, &rules);
    assert_eq!((judgement.outcome, judgement.winner), (JudgedOutcome::BaselineKept, 0));
    assert!(judgement.reason.contains("2 %"), "{}", judgement.reason);
    assert_eq!(judge(&rounds(20, &[1.0, 0.985], 0.0), 2, None, &eager()).winner, 1);
}

#[test]
fn a_gain_below_what_the_machine_can_tell_keeps_the_baseline() {
    let rules = DecisionRules::default().resolution(0.03);
    let judgement = judge(&rounds(20, &[1.0, 0.975], 0.0), 2, None, &rules);
    assert_eq!((judgement.outcome, judgement.winner), (JudgedOutcome::BaselineKept, 0));
    assert!(judgement.reason.contains("3 %"), "{}", judgement.reason);
    assert_eq!(judge(&rounds(20, &[1.0, 0.96], 0.0), 2, None, &rules).winner, 1);
}

#[test]
fn a_gain_in_doubt_keeps_the_baseline() {
    // median ratio 0.9, but four rounds in ten are slower
    let samples = [0.9, 1.3, 0.9, 1.3, 0.9, 1.3, 0.9, 1.3, 0.9, 0.9];
    let rounds: Vec<Round> = samples.iter().map(|s| Round::new(0, vec![Some(1.0), Some(*s)])).collect();
    let judgement = judge(&rounds, 2, None, &DecisionRules::default());
    assert_eq!(judgement.winner, 0);
    assert_eq!(judgement.candidates[1].as_ref().unwrap().ratio, 0.9);
}

#[test]
fn the_cached_config_stays_among_ties() {
    let rounds = rounds(20, &[1.0, 0.8, 0.8, 0.85], 0.0);
    let rules = DecisionRules::default().resolution(0.01);
    let free = judge(&rounds, 4, None, &rules);
    assert_eq!(free.tie_set(), [1, 2]);
    for incumbent in [1, 2] {
        assert_eq!(judge(&rounds, 4, Some(incumbent), &rules).winner, incumbent);
    }
    assert_eq!(judge(&rounds, 4, Some(3), &rules).winner, free.winner, "a slower one does not stay");
}

#[test]
fn of_those_shown_to_be_equal_the_first_is_taken() {
    let of = |third: [f64; 8]| -> Vec<Round> {
        (0..24).map(|n| Round::new(1, vec![Some(1.0), Some(0.8), Some(third[n % 8])])).collect()
    };
    let rules = DecisionRules::default().resolution(0.01);
    // the second is faster by two thousandths in every round: which of the two is published does not hang on that
    let judgement = judge(&of([0.7984; 8]), 3, None, &rules);
    assert_eq!(judgement.tie_set(), [1, 2]);
    assert_eq!((judgement.winner, judgement.outcome), (1, JudgedOutcome::Faster), "{}", judgement.reason);
    // by a thousandth, and it scatters by a tenth: that they are equal is not shown
    let wild = judge(&of([0.799, 0.72, 0.799, 0.88, 0.799, 0.73, 0.799, 0.87]), 3, None, &rules);
    assert_eq!((wild.tie_set(), wild.winner), (vec![1, 2], 2), "{}", wild.reason);
    // a loss of one and a half per cent is less than the minimum improvement, and not negligible
    let apart = judge(&of([0.788; 8]), 3, None, &rules);
    assert_eq!((apart.tie_set(), apart.winner), (vec![2], 2));
}

#[test]
fn among_ties_the_smallest_memory_is_taken() {
    let rules = DecisionRules::default().resolution(0.01);
    let judged = |times: &[f64], bytes: &[Option<u64>], incumbent: Option<usize>| {
        let competing: Vec<usize> = (0..times.len()).collect();
        decide(&rounds(20, times, 0.0), times.len(), &competing, BASELINE, incumbent, bytes, &rules)
    };
    let tied = [1.0, 0.8, 0.8, 0.8, 0.9];
    let needs = [Some(1), Some(300), Some(100), Some(200), Some(1)];
    let judgement = judged(&tied, &needs, None);
    assert_eq!(judgement.tie_set(), [1, 2, 3], "memory is no part of the tie set");
    assert_eq!((judgement.winner, judgement.outcome), (2, JudgedOutcome::Faster), "{}", judgement.reason);
    assert_eq!(judged(&tied, &[], None).tie_set(), judgement.tie_set());
    for winner in [1, 2, 3] {
        let mut least = needs;
        least[winner] = Some(0);
        assert_eq!(judged(&tied, &least, None).winner, winner);
        // the cached one stays, so that the result does not alternate
        assert_eq!(judged(&tied, &needs, Some(winner)).winner, winner);
    }
    // a property that is unknown for some of them decides nothing
    let free = judged(&tied, &[], None).winner;
    for unknown in [1, 3] {
        let mut some = needs;
        some[unknown] = None;
        assert_eq!(judged(&tied, &some, None).winner, free);
    }
    // a baseline that nothing beats stays, and a config more than a hundredth slower is not taken
    assert_eq!(judged(&[1.0, 0.999, 1.001], &[Some(9), Some(1), Some(1)], None).winner, BASELINE);
    assert_eq!(judged(&[1.0, 0.8, 0.815], &[Some(9), Some(9), Some(1)], None).winner, 1);
}

#[test]
fn disturbed_rounds_do_not_count() {
    let mut rounds = rounds(12, &[1.0, 0.9], 0.0);
    for round in &mut rounds {
        round.sentinel_ns = Some([1000.0, 1001.0]);
    }
    let clean = race(&rounds, &[0, 1], BASELINE, &eager());
    rounds[6] = Round::new(1, vec![Some(1000.0), Some(1900.0)]).sentinel_ns(Some([1000.0, 2000.0]));
    let race_state = race(&rounds, &[0, 1], BASELINE, &eager());
    assert_eq!((race_state.disturbance.set_aside.as_slice(), race_state.rounds), (&[6][..], clean.rounds - 1));
    let judgement = judge(&rounds, 2, None, &eager());
    assert_eq!(judgement.candidates[1].as_ref().unwrap().rounds, 11);
}

/// A candidate that was measured while another one led has times, but none paired with the current leader.
#[test]
fn turns_without_the_leader_are_turns_all_the_same() {
    let round = |of_leader: Option<f64>, of_other: Option<f64>| Round::new(0, vec![Some(1.0), of_leader, of_other]);
    let mut rounds = vec![round(None, Some(0.7)); 4];
    rounds.extend(vec![round(Some(0.6), None); 4]);
    let race_state = race(&rounds, &[0, 1, 2], BASELINE, &DecisionRules::default());
    assert_eq!((race_state.leader, race_state.dropped.len()), (Some(1), 0), "{race_state:?}");
}

#[test]
fn unusable_samples_decide_nothing() {
    let rules = DecisionRules::default();
    let round = |a: f64, b: f64| Round::new(0, vec![Some(a), Some(b)]).sentinel_ns(Some([a, a]));
    for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        let judgement = judge(&vec![round(1.0, bad); 20], 2, None, &rules);
        assert_eq!((judgement.outcome, judgement.winner), (JudgedOutcome::BaselineKept, 0), "{bad}");
        assert!(judgement.candidates[1].is_none());
        assert_eq!(judgement.race_state.dropped[&1].reason, DropReason::NoTime);
        assert_eq!(judge(&vec![round(bad, 1.0); 20], 2, None, &rules).outcome, JudgedOutcome::Undecided);
    }
    assert_eq!(judge(&[], 2, None, &rules).outcome, JudgedOutcome::Undecided);
    assert_eq!(decide(&[], 0, &[], 5, None, &[], &rules).outcome, JudgedOutcome::Undecided);
    assert_eq!(judge(&vec![round(5.0, 5.0); 20], 2, None, &rules).outcome, JudgedOutcome::BaselineKept);
    assert_eq!(judge(&vec![round(5.0, 4.0); 20], 2, None, &rules).winner, 1, "constant times are times");
}

#[test]
fn a_gain_that_is_not_significant_is_not_called_none() {
    let at = |round: usize| if round == 3 { 2.0 } else { 0.4 };
    let few: Vec<Round> = (0..7).flat_map(|round| rounds(1, &[1.0, at(round)], 0.0)).collect();
    let judgement = judge(&few, 2, None, &DecisionRules::default());
    assert_eq!((judgement.outcome, judgement.winner), (JudgedOutcome::BaselineKept, 0));
    assert!(judgement.reason.contains("× as fast, but not significantly"), "{}", judgement.reason);
}

/// Spread of a ratio between processes, as quiet machines have it.
const BETWEEN_PROCESSES: f64 = 0.02;

/// A call's candidates and the chance of a process.
struct Call {
    times: Vec<f64>,
    seed: u64,
}

impl Call {
    /// One of several kinds: nothing gains, a gain at the least that matters, equals, neighbours, or one far ahead.
    fn of(seed: u64) -> Self {
        let mut draw = Simulated::new(seed, QUIET, &[]);
        let best = 1.0 - 0.15 * draw.uniform();
        let mut times = vec![1.0, best];
        for _ in 0..1 + seed % 4 {
            times.push(best * (1.0 + 0.04 * draw.uniform()));
        }
        // the best is anywhere in the order of the space
        let last = times.len() - 1;
        times.swap(1, 1 + (draw.uniform() * last as f64) as usize);
        Self { times, seed }
    }

    /// A process, in which each program has an effect of its own.
    fn process(&self, run: u64, process: u64) -> Simulated {
        let seed = (self.seed * 1000 + run) * 100 + process;
        let mut draw = Simulated::new(seed ^ 0x5eed, machine(1.0, 0.0, Kind::Plain), &[1.0]);
        let deviation = BETWEEN_PROCESSES / std::f64::consts::SQRT_2;
        // of a sample the logarithm is normal
        let mut effect = || (draw.sample(0) / 1e6).powf(deviation);
        let times: Vec<f64> = self.times.iter().map(|time| time * effect()).collect();
        Simulated::new(seed, QUIET, &times)
    }

    /// A fresh run with so many finalists at most.
    fn tune(&self, run: u64, most: usize) -> FreshRun {
        let (rules, count) = (DecisionRules::default(), self.times.len());
        let (rounds, _) = self.process(run, 0).race(40, &rules);
        let judged = judge(&rounds, count, None, &rules);
        let mut confirming: Vec<Round> = Vec::new();
        let mut published = Some(BASELINE).filter(|_| judged.outcome != JudgedOutcome::Faster);
        let mut chosen = finalists(&judged, &self.competing(), BASELINE, ProcessSpread::QUIET);
        chosen.truncate(most);
        let known = |rounds: &[Round]| -> Vec<Finalist> {
            chosen.iter().map(|&one| (one, process_ratios(rounds, one, BASELINE))).collect()
        };
        for process in 1..=8 {
            if judged.outcome != JudgedOutcome::Faster || published.is_some() {
                break;
            }
            let mut fresh = self.process(run, process);
            let epoch = u32::try_from(process).unwrap();
            let measured: Vec<usize> = [BASELINE].into_iter().chain(chosen.iter().copied()).collect();
            confirming.extend((0..12).map(|_| Round::new(epoch, fresh.round(&measured).samples_ns)));
            let question = ProcessQuestion::gain(&rules);
            let last = Final::new(question, &[ProcessSpread::QUIET], &[]).is_last(process == 8);
            let said = last.judge(&known(&confirming)).unwrap();
            published = match said.outcome {
                ProcessOutcome::Confirmed => Some(said.candidate),
                ProcessOutcome::Refuted => Some(BASELINE),
                _ => None,
            };
        }
        FreshRun { published, finalists: known(&confirming), rounds }
    }

    fn competing(&self) -> Vec<usize> {
        (0..self.times.len()).collect()
    }

    /// How much slower than the best config a run's is.
    fn regret(&self, run: &FreshRun) -> f64 {
        let best = self.times.iter().copied().fold(f64::INFINITY, f64::min);
        self.times[run.published.unwrap_or(BASELINE)] / best - 1.0
    }

    /// The stability that a run says.
    fn stability(&self, FreshRun { published, finalists, rounds }: &FreshRun) -> f64 {
        let (rules, competing) = (DecisionRules::default(), self.competing());
        let race = DecidedRace::new(rounds, (&competing, BASELINE), &[], &rules, published.unwrap_or(BASELINE));
        race.confirmed(8, ProcessSpread::QUIET, finalists).stability().unwrap()
    }
}

/// A run: what it publishes, if anything, and what it measured.
struct FreshRun {
    published: Option<usize>,
    finalists: Vec<Finalist>,
    rounds: Vec<Round>,
}

/// Stabilities, and how often so many fresh runs published the same as the run that said so.
fn stabilities(calls: u64, repeats: u64) -> Vec<(f64, f64)> {
    let decided = |call: Call| {
        let first = call.tune(0, usize::MAX);
        first.published?;
        let again = (1..=repeats).filter(|&run| call.tune(run, usize::MAX).published == first.published).count();
        Some((call.stability(&first), again as f64 / repeats as f64))
    };
    (0..calls).map(Call::of).filter_map(decided).collect()
}

/// In so many equal parts of what was said: how many calls, the mean said, and the mean seen.
fn by_part(known: &[(f64, f64)], parts: usize) -> Vec<(usize, f64, f64)> {
    let in_part = |part: usize| {
        let own = |(said, _): &&(f64, f64)| ((parts as f64 * said) as usize).min(parts - 1) == part;
        let own: Vec<&(f64, f64)> = known.iter().filter(own).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| own.iter().map(|one| of(one)).sum::<f64>() / own.len().max(1) as f64;
        (own.len(), mean(|one| one.0), mean(|one| one.1))
    };
    (0..parts).map(in_part).collect()
}

#[test]
#[allow(clippy::print_stdout, reason = "the table of the document")]
fn the_stability_is_how_often_fresh_runs_publish_the_same() {
    // the table of docs/decisions.md is that of 500 calls
    let calls = std::env::var("STABILITY_CALLS").map_or(120, |calls| calls.parse().unwrap());
    let known = stabilities(calls, if calls > 120 { 10 } else { 6 });
    println!("{} decided; by tenth: calls, said, seen", known.len());
    for (count, said, seen) in by_part(&known, 10) {
        println!("{count} {said:.2} {seen:.2}");
    }
    let means = by_part(&known, 3);
    for (_, said, seen) in &means {
        assert!((said - seen).abs() < 0.2, "{means:?}");
    }
    assert!(means[2].2 > means[0].2 + 0.25, "what is said to be stable is more stable: {means:?}");
}

/// One process's choice alone is the best of what it met; its rivals in fresh processes tell what is the best elsewhere.
#[test]
fn rivals_in_fresh_processes_lower_regret_and_flips() {
    let (calls, runs) = (100, 4);
    // with the winner alone, and with its rivals
    let (mut regret, mut flips) = ([0.0; 2], [0; 2]);
    for call in (0..calls).map(Call::of) {
        for (way, most) in [1, usize::MAX].into_iter().enumerate() {
            let all: Vec<FreshRun> = (0..runs).map(|run| call.tune(run, most)).collect();
            regret[way] += all.iter().map(|run| call.regret(run)).sum::<f64>() / (calls * runs) as f64;
            let pairs = all.iter().enumerate().flat_map(|(at, run)| all[..at].iter().map(move |other| (run, other)));
            flips[way] += pairs.filter(|(one, other)| one.published != other.published).count();
        }
    }
    assert!(regret[1] < 0.8 * regret[0] && 4 * flips[1] < 3 * flips[0], "{regret:?} {flips:?}");
}

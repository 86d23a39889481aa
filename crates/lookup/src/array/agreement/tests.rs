//! Sums, products, softmax and scans in other orders, and errors planted in them. The numbers are computed here,
//! rounded after each step to the type that accumulates, and the exact ones in `f64`.

use super::*;
use crate::array::element::push_float;
use crate::array::{ArraySpec, Reference, error_of};

const DTYPES: [DType; 4] = [DType::Bf16, DType::F16, DType::F8E4M3Fn, DType::F32];

/// Small pseudo-random numbers that are the same on every machine.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        // Knuth, The Art of Computer Programming, volume 2, 3.3.4: the constants of MMIX
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: u64) -> usize {
        (self.next() % bound) as usize
    }

    /// About normal, of mean zero and variance one.
    fn normal(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.next() as f64 / f64::from(1_u32 << 31)).sum();
        sum - 6.0
    }
}

/// Rounds to a type; `f64` is exact.
fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F64 => value,
        DType::F32 => f64::from(value as f32),
        _ => dtype.nearest(value).unwrap(),
    }
}

/// What is computed of each row.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Sum,
    Product,
    /// The mean of the second half of a row, weighted by the softmax of the first: attention with one query.
    Softmax,
    /// `h = a h + b` along the row, where `a` is 7/8 and the row is `b`.
    Scan,
}

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Sequential,
    Reversed,
    Pairwise,
    /// Parts of this length, one after the other, whose results are combined.
    Blocks(usize),
    /// As many partial results as lanes, each of every so manyth term.
    Lanes(usize),
}

/// Combines terms in an order, rounding after each step.
fn fold(terms: &[f64], order: Order, step: &dyn Fn(f64, f64) -> f64) -> f64 {
    let in_order = |terms: &mut dyn Iterator<Item = f64>| terms.reduce(step).unwrap();
    match order {
        Order::Sequential => in_order(&mut terms.iter().copied()),
        Order::Reversed => in_order(&mut terms.iter().rev().copied()),
        Order::Pairwise if terms.len() == 1 => terms[0],
        Order::Pairwise => {
            let (left, right) = terms.split_at(terms.len() / 2);
            step(fold(left, order, step), fold(right, order, step))
        }
        Order::Blocks(length) => in_order(&mut terms.chunks(length).map(|part| fold(part, Order::Sequential, step))),
        Order::Lanes(lanes) => {
            let lane = |lane| in_order(&mut terms.iter().skip(lane).step_by(lanes).copied());
            in_order(&mut (0..lanes.min(terms.len())).map(lane))
        }
    }
}

/// A scan in chunks: each from zero, then what comes before it, scaled by the decay so far.
fn scan(row: &[f64], chunk: usize, round: &dyn Fn(f64) -> f64) -> Vec<f64> {
    let decay = 0.875;
    let (mut all, mut before) = (Vec::with_capacity(row.len()), 0.0);
    for part in row.chunks(chunk) {
        let (mut own, mut decayed) = (0.0, 1.0);
        for &term in part {
            own = round(round(decay * own) + term);
            decayed = round(decayed * decay);
            all.push(round(own + round(decayed * before)));
        }
        before = all.last().copied().unwrap_or_default();
    }
    all
}

#[derive(Clone, Copy)]
struct Program {
    operation: Operation,
    order: Order,
    /// The type that accumulates.
    accumulator: DType,
    /// Terms that a wrong mask leaves out at the end of each row.
    masked: usize,
}

impl Program {
    /// The results of a row, before they are rounded to the type of the output.
    fn row(&self, row: &[f64]) -> Vec<f64> {
        let round = |value: f64| rounded(self.accumulator, value);
        let sum = |terms: &[f64]| fold(terms, self.order, &|a, b| round(a + b));
        match self.operation {
            Operation::Sum => vec![sum(&row[..row.len() - self.masked])],
            Operation::Product => {
                let factors: Vec<f64> = row[..row.len() - self.masked].iter().map(|x| 1.0 + x / 32.0).collect();
                vec![fold(&factors, self.order, &|a, b| round(a * b))]
            }
            Operation::Softmax => {
                let (scores, values) = row.split_at(row.len() / 2);
                let scores = &scores[..scores.len() - self.masked];
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| round((score - most).exp())).collect();
                let weighted: Vec<f64> =
                    weights.iter().zip(values).map(|(weight, value)| round(weight * value)).collect();
                vec![round(sum(&weighted) / sum(&weights))]
            }
            Operation::Scan => {
                let chunk = if let Order::Blocks(length) = self.order { length } else { row.len() };
                scan(row, chunk, &round)
            }
        }
    }

    /// The results of all rows, in a type.
    fn run(&self, rows: &[Vec<f64>], dtype: DType) -> Vec<f64> {
        rows.iter().flat_map(|row| self.row(row)).map(|value| rounded(dtype, value)).collect()
    }
}

fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|&value| assert!(push_float(dtype, value, &mut bytes)));
    bytes
}

fn rows(dtype: DType, count: usize, terms: usize, draws: &mut Draws) -> Vec<Vec<f64>> {
    (0..count).map(|_| (0..terms).map(|_| rounded(dtype, draws.normal())).collect()).collect()
}

/// The judgement about a candidate, with the program in `f64` and without.
fn judged(dtype: DType, dims: &[u64], outputs: (&[f64], &[f64], &[f64])) -> [Result<ComparedBy, Disagreement>; 2] {
    judged_within(OutputBounds::of(dtype), dtype, dims, outputs)
}

fn judged_within(
    bounds: OutputBounds,
    dtype: DType,
    dims: &[u64],
    (candidate, baseline, exact): (&[f64], &[f64], &[f64]),
) -> [Result<ComparedBy, Disagreement>; 2] {
    let spec = ArraySpec::new(dtype, dims.to_vec());
    let (own, exact) = (bytes(dtype, candidate), bytes(DType::F64, exact));
    let reference = Reference::new(spec.clone(), bytes(dtype, baseline), bounds.tolerance());
    let error = |of: &[u8]| error_of(&spec, of, &exact, bounds.tolerance()).unwrap();
    let errors = (error(&own), error(reference.bytes()));
    let found = reference.compare(&own);
    let found = OutputDeviation {
        elements: spec.elements().unwrap(),
        mismatches: found.mismatches,
        of_tolerance: found.worst.map_or(0.0, |worst| worst.of_tolerance),
        rms: found.rms,
        of_tile: found.of_tile,
        is_clustered: found.is_clustered,
        baseline_rms: reference.finiteness().unwrap().rms,
    };
    [bounds.judge(&found, Some(&errors)), bounds.judge(&found, None)]
}

#[test]
fn two_hundred_other_orders_are_all_accepted() {
    let orders =
        [Order::Reversed, Order::Pairwise, Order::Blocks(8), Order::Blocks(32), Order::Lanes(4), Order::Lanes(16)];
    let operations = [Operation::Sum, Operation::Product, Operation::Softmax, Operation::Scan];
    let (mut cases, mut by_f64) = (0, 0);
    for dtype in DTYPES {
        for case in 0..50 {
            let mut draws = Draws(1000 * cases as u64 + 17);
            let operation = operations[case % operations.len()];
            let order = match operation {
                Operation::Scan => Order::Blocks([4, 8, 16, 32, 64, 128][case / 4 % 6]),
                _ => orders[case / 4 % orders.len()],
            };
            // in the type itself for every other one, as far as that computes anything
            let is_narrow = case % 8 >= 4 && dtype != DType::F8E4M3Fn;
            let accumulator = if is_narrow { dtype } else { DType::F32 };
            let (count, terms) = match operation {
                Operation::Scan => (64, 256),
                _ if is_narrow => (2048, 64),
                _ => (1024, 256),
            };
            let rows = rows(dtype, count, terms, &mut draws);
            let baseline = Program { operation, order: Order::Sequential, accumulator, masked: 0 };
            let candidate = Program { order, ..baseline };
            let exact = Program { accumulator: DType::F64, ..baseline }.run(&rows, DType::F64);
            let outputs = (candidate.run(&rows, dtype), baseline.run(&rows, dtype));
            let dims = [(exact.len() / 128) as u64, 128];
            let [found, _] = judged(dtype, &dims, (&outputs.0, &outputs.1, &exact));
            assert!(found.is_ok(), "{dtype} {operation:?} {order:?} in {accumulator}: {found:?}");
            by_f64 += u32::from(found == Ok(ComparedBy::F64));
            cases += 1;
        }
    }
    assert_eq!(cases, 200);
    assert!(by_f64 > 0, "none needs the program in f64, so that the cases are too easy");
}

/// The error of each sum is that of a random walk, which is beyond the tolerance; the bound knows how long they are.
#[test]
fn long_sums_in_the_type_itself_are_judged_by_their_length() {
    for dtype in [DType::Bf16, DType::F16] {
        let rows = rows(dtype, 1024, 512, &mut Draws(5));
        let in_order = Program { operation: Operation::Sum, order: Order::Sequential, accumulator: dtype, masked: 0 };
        let baseline = in_order.run(&rows, dtype);
        let exact = Program { accumulator: DType::F64, ..in_order }.run(&rows, DType::F64);
        for order in [Order::Reversed, Order::Pairwise, Order::Lanes(4)] {
            let candidate = Program { order, ..in_order }.run(&rows, dtype);
            let outputs = (&candidate[..], &baseline[..], &exact[..]);
            let long = judged_within(OutputBounds::of(dtype).summing(512), dtype, &[8, 128], outputs);
            assert!(long.iter().all(Result::is_ok), "{dtype} {order:?}: {long:?}");
        }
    }
}

/// An error that is planted in a program.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// One tile leaves out the last eighth of the terms.
    Tile,
    /// Two rows are swapped.
    Row,
    /// Each row leaves out its last term.
    Mask,
    /// A narrower type accumulates 1,024 terms or more.
    Narrow,
}

/// Changes an output, of rows of 128 elements, where the fault is.
fn plant(fault: Fault, (program, rows, dtype): (Program, &[Vec<f64>], DType), draws: &mut Draws) -> Vec<f64> {
    let mut found = program.run(rows, dtype);
    let tiles = found.len() / 1024;
    match fault {
        Fault::Tile => {
            let begin = draws.below(tiles as u64) * 1024;
            let wrong = Program { masked: rows[0].len() / 8, ..program };
            let wrong = wrong.run(&rows[begin..begin + 1024], dtype);
            found[begin..begin + 1024].copy_from_slice(&wrong);
        }
        Fault::Row => {
            let half = found.len() / 256 * 128;
            let first = draws.below(half as u64 / 128) * 128;
            let (before, after) = found.split_at_mut(half);
            before[first..first + 128].swap_with_slice(&mut after[first..first + 128]);
        }
        Fault::Mask => found = Program { masked: 1, ..program }.run(rows, dtype),
        Fault::Narrow => {
            let narrow = match dtype {
                DType::F32 => [DType::Bf16, DType::F16][draws.below(2)],
                dtype => dtype,
            };
            found = Program { accumulator: narrow, ..program }.run(rows, dtype);
        }
    }
    found
}

#[test]
fn two_hundred_planted_errors_are_all_refused() {
    let faults = [Fault::Tile, Fault::Row, Fault::Mask, Fault::Narrow];
    let orders = [Order::Sequential, Order::Reversed, Order::Blocks(8), Order::Lanes(4)];
    let mut cases = 0;
    for dtype in DTYPES {
        for case in 0..50 {
            let mut draws = Draws(1000 * cases as u64 + 23);
            let fault = faults[case % faults.len()];
            let operation = match fault {
                Fault::Row => [Operation::Sum, Operation::Product, Operation::Scan][case / 4 % 3],
                Fault::Tile => [Operation::Sum, Operation::Softmax][case / 4 % 2],
                Fault::Mask => [Operation::Sum, Operation::Softmax][case / 4 % 2],
                Fault::Narrow => Operation::Sum,
            };
            let (count, terms) = match (fault, operation) {
                (_, Operation::Scan) => (64, 256),
                (Fault::Mask, _) => (2048, 32),
                (Fault::Narrow, _) => (1024, 1024 << (case / 4 % 2)),
                _ => (16 * 1024, 32),
            };
            let rows = rows(dtype, count, terms, &mut draws);
            let baseline = Program { operation, order: Order::Sequential, accumulator: DType::F32, masked: 0 };
            let order = orders[case / 8 % orders.len()];
            let candidate = plant(fault, (Program { order, ..baseline }, &rows, dtype), &mut draws);
            let exact = Program { accumulator: DType::F64, ..baseline }.run(&rows, DType::F64);
            let dims = [(exact.len() / 128) as u64, 128];
            let found = judged(dtype, &dims, (&candidate, &baseline.run(&rows, dtype), &exact));
            for found in found {
                assert!(found.is_err(), "{dtype} {operation:?} {fault:?} {order:?}: {found:?}");
            }
            cases += 1;
        }
    }
    assert_eq!(cases, 200);
}

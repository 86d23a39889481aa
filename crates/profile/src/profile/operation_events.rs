//! A stream of each execution's events, for analyses that need more than sums.

use super::execution::OutsideKernel;
use super::find::{outside, texts, views};
use super::index::{ExecutionSource, Index};
use super::interval::Interval;
use super::names::Names;
use super::plane_view::{Layout, PlaneView};
use super::record::Record;
use super::space::XSpace;
use super::sweep::{Fold, Sweep};

/// Which execution of which module.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ExecutionOf<'a> {
    /// The device, as [`super::Execution::device`].
    pub device: Option<i64>,
    /// How the execution was distinguished.
    pub layout: Layout,
    /// The module's name.
    pub module: &'a str,
    /// The program's id.
    pub program_id: Option<i64>,
    /// The launch's id; devices that run one launch share it.
    pub run_id: Option<i64>,
}

/// An event of an operation.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct OperationEvent<'a> {
    /// The number of the operation's name.
    pub number: u32,
    /// The name.
    pub name: &'a str,
    /// When.
    pub time: Interval,
}

/// A fold of the events of an execution. Several are in progress at once, on several threads.
pub trait EventFold: Sync {
    /// An execution in progress.
    type Open: Send;
    /// A completed one.
    type Done: Send;

    /// Begins an execution.
    fn open(&self, of: &ExecutionOf<'_>) -> Self::Open;
    /// Takes its next event. They arrive by start, and of those that start together the shortest first.
    fn add(&self, open: &mut Self::Open, event: OperationEvent<'_>);
    /// Ends it.
    fn close(&self, open: Self::Open) -> Self::Done;
}

/// Takes the result of an execution, with the index of its space and its number by first appearance in the file, which
/// executions share if their events name no run.
pub type TakeDone<'t, D> = dyn FnMut(usize, u32, &ExecutionOf<'_>, D) + 't;

/// Folds the events of each execution, and passes on the results in the order in which executions end. Several spaces
/// are read side by side, by their clocks' time, each with a fold of its own.
///
/// Returns, for each space, what ran outside every execution, with its name.
pub fn fold_events<F: EventFold>(
    spaces: &[(&XSpace, &F)],
    give: &mut TakeDone<'_, F::Done>,
) -> Vec<Vec<(Box<str>, OutsideKernel)>> {
    let mut names: Vec<Names<'_>> = spaces.iter().map(|_| Names::default()).collect();
    let views: Vec<_> = spaces.iter().zip(&mut names).map(|((space, _), names)| views(space, names)).collect();
    let index = |((space, _), (names, views)): (&(&XSpace, &F), (&Names<'_>, _))| {
        let views: &Vec<PlaneView<'_>> = views;
        Index::new(views, names.list(), space.held_events)
    };
    let indexes: Vec<Index<'_, '_>> = spaces.iter().zip(names.iter().zip(&views)).map(index).collect();
    let names: Vec<_> = names.iter().zip(&indexes).map(|(names, index)| texts(names, index)).collect();
    let named: Vec<Named<'_, F>> =
        spaces.iter().zip(&names).map(|((_, fold), names)| Named { fold: *fold, names }).collect();
    let mut give = |place: usize, number: u32, done: F::Done| {
        let (Some(index), Some(named)) = (indexes.get(place), named.get(place)) else { return };
        let found = index.executions.get(number as usize);
        if let Some(source) = found.and_then(|found| index.source(found)) {
            give(place, number, &named.of(&source), done);
        }
    };
    let runs_of = |_| None;
    let mut sweeps: Vec<Sweep<'_, '_, '_, _>> = Vec::new();
    for (place, (index, named)) in indexes.iter().zip(&named).enumerate() {
        sweeps.push(Sweep::new(index, &runs_of, named, &mut |number, done| give(place, number, done)));
    }
    while let Some((place, sweep)) = sweeps
        .iter_mut()
        .enumerate()
        .filter(|(_, sweep)| sweep.next_ps().is_some())
        .min_by_key(|(_, sweep)| sweep.next_ps())
    {
        sweep.step(&mut |number, done| give(place, number, done));
    }
    let of_space = |(index, names): (&Index<'_, '_>, &Vec<Box<str>>)| {
        let named = |kernel: OutsideKernel| (names.get(kernel.name.0 as usize).cloned().unwrap_or_default(), kernel);
        outside(index).into_iter().map(named).collect()
    };
    indexes.iter().zip(&names).map(of_space).collect()
}

struct Named<'f, F> {
    fold: &'f F,
    names: &'f [Box<str>],
}

impl<F> Named<'_, F> {
    fn text(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }

    fn of(&self, source: &ExecutionSource<'_, '_>) -> ExecutionOf<'_> {
        ExecutionOf {
            device: source.device,
            layout: source.view.layout,
            module: self.text(source.module),
            program_id: source.program,
            run_id: source.run,
        }
    }
}

impl<F: EventFold> Fold for Named<'_, F> {
    type Open = F::Open;
    type Done = F::Done;
    type Scratch = ();

    fn open(&self, source: &ExecutionSource<'_, '_>) -> F::Open {
        self.fold.open(&self.of(source))
    }

    fn add(&self, open: &mut F::Open, records: &[Record], (): &mut ()) {
        for at_once in records.chunk_by(|one, next| one.time.start_ps == next.time.start_ps) {
            let event = |record: &Record| {
                let number = record.operation;
                OperationEvent { number, name: self.text(number), time: record.time }
            };
            match at_once {
                [one] => self.fold.add(open, event(one)),
                several => {
                    let mut several = several.to_vec();
                    several.sort_by_key(|record| (record.time.end_ps, record.place()));
                    several.iter().for_each(|record| self.fold.add(open, event(record)));
                }
            }
        }
    }

    fn close(&self, open: F::Open, _: &ExecutionSource<'_, '_>) -> F::Done {
        self.fold.close(open)
    }
}

//! Enumerates the configs of a space, without those that constraints exclude.

use serde_json::Value;

use super::error::SpaceError;
use super::locate::PathStep;
use super::space::CandidateSpace;
use crate::config::Config;

/// Maximum number of constraints evaluated from one config to the next, so that a space without any config ends too.
const MAX_EVALUATIONS: u32 = 1 << 18;

/// Iterator over the configs of a space: those listed first, then the rest, the last parameter varying fastest.
///
/// A constraint is checked as soon as the parameters that it reads are chosen, so a choice that it excludes is never
/// combined with the values of later parameters. After an error it ends; it is an error if the constraints exclude so
/// much that finding the next config would take too long.
#[derive(Debug, Clone)]
pub struct Configs<'a> {
    space: &'a CandidateSpace,
    listed: usize,
    /// For each chosen parameter the index of its value.
    chosen: Vec<usize>,
    state: WalkState,
    visited: u64,
    /// Evaluations of constraints since the last config.
    evaluated: u32,
    gave_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalkState {
    Listed,
    /// The last choice is to be checked, and then descended from or moved on.
    Descending,
    /// The last choice is done with.
    Advancing,
    Done,
}

impl CandidateSpace {
    /// The configs of the space.
    pub fn configs(&self) -> Configs<'_> {
        Configs {
            space: self,
            listed: 0,
            chosen: Vec::new(),
            state: WalkState::Listed,
            visited: 0,
            evaluated: 0,
            gave_up: false,
        }
    }
}

impl Configs<'_> {
    /// Choices of a parameter's value tried so far, including the excluded ones.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// The share of all combinations of values already passed, in their order: 0 at the beginning.
    pub fn progress(&self) -> f64 {
        let mut part = 1.0;
        let mut sum = 0.0;
        for (&index, (_, values)) in self.chosen.iter().zip(&self.space.parameters) {
            part /= values.len().max(1) as f64;
            sum += part * index as f64;
        }
        sum
    }

    /// Whether it ended because the constraints excluded too much for too long.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    fn values(&self) -> Vec<&Value> {
        let parameters = self.space.parameters.iter().zip(&self.chosen);
        parameters.filter_map(|((_, values), &index)| values.get(index)).collect()
    }

    /// Whether the constraints that can be checked since the last choice hold.
    fn admits(&mut self) -> Result<bool, SpaceError> {
        let depth = self.chosen.len();
        let mut evaluated = self.evaluated;
        let values = self.values();
        for (index, _) in self.space.constraints.iter().enumerate().filter(|(_, constraint)| constraint.after == depth)
        {
            evaluated += 1;
            if evaluated > MAX_EVALUATIONS {
                self.gave_up = true;
                let message =
                    format!("no config found by {MAX_EVALUATIONS} evaluations of constraints; narrow the values");
                return Err(self.space.error(&[PathStep::Key("constraints")], message));
            }
            if !self.space.holds(index, &values)? {
                self.evaluated = evaluated;
                return Ok(false);
            }
        }
        self.evaluated = evaluated;
        Ok(true)
    }

    /// Advances the last choice, dropping those that are at their end.
    fn advance(&mut self) {
        while let Some(index) = self.chosen.pop() {
            let count = self.space.parameters.get(self.chosen.len()).map_or(0, |(_, values)| values.len());
            if index + 1 < count {
                self.chosen.push(index + 1);
                self.state = WalkState::Descending;
                return;
            }
        }
        self.state = WalkState::Done;
    }
}

impl Iterator for Configs<'_> {
    type Item = Result<Config, SpaceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.evaluated = 0;
        loop {
            match self.state {
                WalkState::Listed => {
                    if let Some(config) = self.space.listed.get(self.listed) {
                        self.listed += 1;
                        return Some(Ok(config.clone()));
                    }
                    // nothing is chosen yet: constraints over given values alone
                    self.state = if self.space.parameters.is_empty() { WalkState::Done } else { WalkState::Descending };
                }
                WalkState::Descending => {
                    self.visited += u64::from(!self.chosen.is_empty());
                    match self.admits() {
                        Err(error) => {
                            self.state = WalkState::Done;
                            return Some(Err(error));
                        }
                        Ok(false) => self.state = WalkState::Advancing,
                        Ok(true) if self.chosen.len() < self.space.parameters.len() => self.chosen.push(0),
                        Ok(true) => {
                            self.state = WalkState::Advancing;
                            let values: Vec<Value> = self.values().into_iter().cloned().collect();
                            let config = self.space.config_of(&values);
                            if !self.space.listed.contains(&config) {
                                return Some(Ok(config));
                            }
                        }
                    }
                }
                WalkState::Advancing => self.advance(),
                WalkState::Done => return None,
            }
        }
    }
}

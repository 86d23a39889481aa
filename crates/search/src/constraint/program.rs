//! A compiled constraint and its evaluation.

use super::error::ConstraintError;
use super::operator::{Binary, Unary};
use super::value::ConstraintValue;

/// Maximum number of values on the stack, ensured by the parser's maximum nesting.
pub(super) const MAX_STACK: usize = 128;
/// Enough for most constraints: a smaller stack is set up faster.
const SMALL_STACK: usize = 8;

/// A compiled constraint.
#[derive(Debug, Clone)]
pub struct Constraint {
    pub(super) steps: Box<[StackStep]>,
    /// For each step the character of its text.
    pub(super) places: Box<[u32]>,
    pub(super) stack: usize,
    pub(super) reads: Box<[usize]>,
}

/// One step of a stack machine.
#[derive(Debug, Clone)]
pub(super) enum StackStep {
    Constant(ConstraintValue<'static>),
    Text(Box<str>),
    /// The value of a name, by its number.
    Name(usize),
    Unary(Unary),
    Binary(Binary),
    /// If the last value is this, it is the result, and the right side is skipped up to a later step; otherwise the
    /// right side is the result.
    Unless(bool, usize),
    /// The last value must be true or false.
    Bools,
}

impl Constraint {
    /// The numbers of the names that it reads, ascending.
    pub fn reads(&self) -> &[usize] {
        &self.reads
    }

    /// Whether it holds. `value` gives the value of a name by its number, or why there is none. Nothing is allocated
    /// unless there is an error.
    ///
    /// # Errors
    /// If an operator does not take its values or has no result for them, with the operator's place; and the error of
    /// `value`, with the name's.
    pub fn holds<'v>(
        &'v self,
        value: impl Fn(usize) -> Result<ConstraintValue<'v>, String>,
    ) -> Result<bool, ConstraintError> {
        if self.stack <= SMALL_STACK { self.run::<SMALL_STACK>(value) } else { self.run::<MAX_STACK>(value) }
    }

    fn run<'v, const SIZE: usize>(
        &'v self,
        value: impl Fn(usize) -> Result<ConstraintValue<'v>, String>,
    ) -> Result<bool, ConstraintError> {
        let mut stack = Stack { slots: [ConstraintValue::Null; SIZE], height: 0 };
        let mut next = 0;
        while let Some(step) = self.steps.get(next) {
            let failed = |message: String| ConstraintError::new(self.place(next), message);
            let result = match step {
                StackStep::Constant(value) => Ok(*value),
                StackStep::Text(value) => Ok(ConstraintValue::Text(value)),
                StackStep::Name(name) => value(*name),
                StackStep::Unary(operator) => operator.apply(stack.pop()),
                StackStep::Binary(operator) => {
                    let (right, left) = (stack.pop(), stack.pop());
                    operator.apply(left, right)
                }
                StackStep::Bools => truth(stack.pop()).map(ConstraintValue::Bool),
                StackStep::Unless(decisive, end) => {
                    let left = truth(stack.pop()).map_err(failed)?;
                    next = if left == *decisive { *end } else { next + 1 };
                    if left == *decisive {
                        stack.push(ConstraintValue::Bool(left));
                    }
                    continue;
                }
            };
            stack.push(result.map_err(failed)?);
            next += 1;
        }
        truth(stack.pop()).map_err(|message| ConstraintError::new(0, message))
    }

    fn place(&self, step: usize) -> usize {
        self.places.get(step).map_or(0, |&place| place as usize)
    }
}

fn truth(value: ConstraintValue<'_>) -> Result<bool, String> {
    match value {
        ConstraintValue::Bool(value) => Ok(value),
        _ => Err(format!("it gives {}, not true or false", value.kinds())),
    }
}

struct Stack<'v, const SIZE: usize> {
    slots: [ConstraintValue<'v>; SIZE],
    height: usize,
}

impl<'v, const SIZE: usize> Stack<'v, SIZE> {
    fn push(&mut self, value: ConstraintValue<'v>) {
        if let Some(slot) = self.slots.get_mut(self.height) {
            *slot = value;
            self.height += 1;
        }
    }

    fn pop(&mut self) -> ConstraintValue<'v> {
        self.height = self.height.saturating_sub(1);
        self.slots.get(self.height).copied().unwrap_or(ConstraintValue::Null)
    }
}

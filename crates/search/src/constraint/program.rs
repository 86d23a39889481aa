//! A compiled constraint and its evaluation.

use super::error::ConstraintError;
use super::operator::{Binary, Unary};
use super::value::Value;

/// Maximum number of values on the stack, ensured by the parser's maximum nesting.
pub(super) const MAX_STACK: usize = 128;
/// Enough for most constraints: a smaller stack is set up faster.
const SMALL_STACK: usize = 8;

/// A compiled constraint.
#[derive(Debug, Clone)]
pub struct Constraint {
    pub(super) steps: Box<[Step]>,
    /// For each step the character of its text.
    pub(super) places: Box<[u32]>,
    pub(super) stack: usize,
    pub(super) reads: Box<[usize]>,
}

/// One step of a stack machine. Jumps lead forward only, to a step's number.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Box<str>),
    /// The value of a name, by its number.
    Name(usize),
    Unary(Unary),
    Binary(Binary),
    /// If the last value is false, it is the result, and the right side is skipped; otherwise the right side is the
    /// result.
    And(usize),
    /// The same if it is true.
    Or(usize),
    /// The last value must be true or false.
    Bools,
    /// Pops the last value and jumps if it is false.
    JumpUnless(usize),
    Jump(usize),
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
    pub fn holds<'v>(&'v self, value: impl Fn(usize) -> Result<Value<'v>, String>) -> Result<bool, ConstraintError> {
        if self.stack <= SMALL_STACK { self.run::<SMALL_STACK>(value) } else { self.run::<MAX_STACK>(value) }
    }

    fn run<'v, const SIZE: usize>(
        &'v self,
        value: impl Fn(usize) -> Result<Value<'v>, String>,
    ) -> Result<bool, ConstraintError> {
        let mut stack = Stack { slots: [Value::Null; SIZE], height: 0 };
        let mut next = 0;
        while let Some(step) = self.steps.get(next) {
            let failed = |message: String| ConstraintError::new(self.place(next), message);
            let mut then = next + 1;
            match step {
                Step::Null => stack.push(Value::Null),
                Step::Bool(value) => stack.push(Value::Bool(*value)),
                Step::Int(value) => stack.push(Value::Int(*value)),
                Step::Float(value) => stack.push(Value::Float(*value)),
                Step::Text(value) => stack.push(Value::Text(value)),
                Step::Name(name) => stack.push(value(*name).map_err(failed)?),
                Step::Unary(operator) => {
                    let of = stack.pop();
                    stack.push(operator.apply(of).map_err(failed)?);
                }
                Step::Binary(operator) => {
                    let (right, left) = (stack.pop(), stack.pop());
                    stack.push(operator.apply(left, right).map_err(failed)?);
                }
                Step::And(end) | Step::Or(end) => {
                    let left = truth(stack.pop()).map_err(failed)?;
                    if left == matches!(step, Step::Or(_)) {
                        stack.push(Value::Bool(left));
                        then = *end;
                    }
                }
                Step::Bools => {
                    let last = truth(stack.pop()).map_err(failed)?;
                    stack.push(Value::Bool(last));
                }
                Step::JumpUnless(end) => {
                    if !truth(stack.pop()).map_err(failed)? {
                        then = *end;
                    }
                }
                Step::Jump(end) => then = *end,
            }
            next = then;
        }
        truth(stack.pop()).map_err(|message| ConstraintError::new(0, message))
    }

    fn place(&self, step: usize) -> usize {
        self.places.get(step).map_or(0, |&place| place as usize)
    }
}

fn truth(value: Value<'_>) -> Result<bool, String> {
    match value {
        Value::Bool(value) => Ok(value),
        _ => Err(format!("it gives {}, not true or false", value.kinds())),
    }
}

struct Stack<'v, const SIZE: usize> {
    slots: [Value<'v>; SIZE],
    height: usize,
}

impl<'v, const SIZE: usize> Stack<'v, SIZE> {
    fn push(&mut self, value: Value<'v>) {
        if let Some(slot) = self.slots.get_mut(self.height) {
            *slot = value;
            self.height += 1;
        }
    }

    fn pop(&mut self) -> Value<'v> {
        self.height = self.height.saturating_sub(1);
        self.slots.get(self.height).copied().unwrap_or(Value::Null)
    }
}

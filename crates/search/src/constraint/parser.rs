//! Compiles a text to steps, operators by their binding powers (Pratt, Top down operator precedence, 1973).

use super::error::ConstraintError;
use super::operator::{Binary, Unary};
use super::program::{Constraint, MAX_STACK, StackStep};
use super::token::{Token, Tokens};
use super::value::{ConstraintValue, Kinds};

/// Maximum number of steps of one constraint: none runs twice, so this bounds the work of an evaluation.
const MAX_STEPS: usize = 10_000;
/// Maximum nesting of expressions. Each keeps at most one value while the inner ones are evaluated.
const MAX_DEPTH: usize = MAX_STACK - 1;
/// How strongly `||` and `&&` bind.
const OR: u8 = 1;
const AND: u8 = 2;

impl Constraint {
    /// Compiles an expression over names, each with the kinds of values that it may hold. A point in a name is part of
    /// it in the expression too. Names are referred to by their number.
    ///
    /// # Errors
    /// If the text is not an expression, reads a name that is none of these, applies an operator to what it never
    /// takes, gives no boolean, is nested more than 127 deep or has more than 10 000 steps; with the character.
    pub fn compile(text: &str, names: &[(&str, Kinds)]) -> Result<Self, ConstraintError> {
        let mut parser = Parser {
            tokens: Tokens::new(text),
            token: Token::End,
            at: 0,
            names,
            steps: Vec::new(),
            places: Vec::new(),
            height: 0,
            stack: 0,
            depth: 0,
            reads: Vec::new(),
        };
        parser.advance()?;
        let whole = parser.expression(0)?;
        if parser.token != Token::End {
            return Err(parser.unexpected("an operator or the end"));
        }
        if !whole.kinds.meets(Kinds::BOOL) {
            return Err(ConstraintError::new(whole.at, format!("it gives {}, not true or false", whole.kinds)));
        }
        parser.must_be_bool(whole)?;
        let mut reads = parser.reads;
        reads.sort_unstable();
        reads.dedup();
        Ok(Self { steps: parser.steps.into(), places: parser.places.into(), stack: parser.stack, reads: reads.into() })
    }
}

struct Parser<'t, 'n> {
    tokens: Tokens<'t>,
    /// The next word, and the character where it begins.
    token: Token<'t>,
    at: usize,
    names: &'n [(&'n str, Kinds)],
    steps: Vec<StackStep>,
    places: Vec<u32>,
    /// Values on the stack after the last step, and their maximum.
    height: usize,
    stack: usize,
    depth: usize,
    reads: Vec<usize>,
}

/// The kind of an expression, and the character where it begins.
#[derive(Clone, Copy)]
struct TypedPart {
    kinds: Kinds,
    at: usize,
}

impl<'t> Parser<'t, '_> {
    /// An expression whose operators bind at least this strongly.
    fn expression(&mut self, least: u8) -> Result<TypedPart, ConstraintError> {
        let mut left = self.operand()?;
        while let Token::Symbol(symbol) = self.token {
            let kinds = match (symbol, Binary::infix(symbol)) {
                ("||", _) if least <= OR => self.either(left, OR, true)?,
                ("&&", _) if least <= AND => self.either(left, AND, false)?,
                (_, Some((power, operator))) if least <= power => {
                    let at = self.at;
                    self.advance()?;
                    let to_the_left = u8::from(operator != Binary::Power);
                    let right = self.deeper(|parser| parser.expression(power + to_the_left))?;
                    self.binary(operator, left, right, at)?
                }
                _ => break,
            };
            left = TypedPart { kinds, at: left.at };
        }
        Ok(left)
    }

    /// The rest of `||` or `&&`, whose right side is evaluated unless the left is `decisive`.
    fn either(&mut self, left: TypedPart, power: u8, decisive: bool) -> Result<Kinds, ConstraintError> {
        let symbol = if decisive { "||" } else { "&&" };
        self.advance()?;
        self.takes_bool(symbol, left)?;
        let jump = self.emit(StackStep::Unless(decisive, 0), left.at, -1)?;
        let right = self.deeper(|parser| parser.expression(power + 1))?;
        self.takes_bool(symbol, right)?;
        self.must_be_bool(right)?;
        let next = self.steps.len();
        if let Some(StackStep::Unless(_, end)) = self.steps.get_mut(jump) {
            *end = next;
        }
        Ok(Kinds::BOOL)
    }

    /// An operand with its prefix operators.
    fn operand(&mut self) -> Result<TypedPart, ConstraintError> {
        let at = self.at;
        let Token::Symbol(symbol @ ("-" | "!")) = self.token else { return self.primary() };
        self.advance()?;
        // the least integer has no positive counterpart
        if let (Token::Int(value), "-") = (self.token, symbol) {
            self.advance()?;
            return self.integer(0_i64.checked_sub_unsigned(value), at);
        }
        let of = self.deeper(Self::operand)?;
        let operator = if symbol == "-" { Unary::Negate } else { Unary::Not };
        self.emit(StackStep::Unary(operator), at, 0)?;
        let kinds = operator.kinds(of.kinds).map_err(|message| ConstraintError::new(at, message))?;
        Ok(TypedPart { kinds, at })
    }

    fn primary(&mut self) -> Result<TypedPart, ConstraintError> {
        let (token, at) = (self.token, self.at);
        if !matches!(token, Token::End | Token::Symbol(_)) {
            self.advance()?;
        }
        match token {
            Token::Int(value) => self.integer(i64::try_from(value).ok(), at),
            Token::Float(value) => self.value(StackStep::Constant(ConstraintValue::Float(value)), Kinds::FLOAT, at),
            Token::Text(value) => self.value(StackStep::Text(value.into()), Kinds::TEXT, at),
            Token::Name(word @ ("true" | "false")) => {
                self.value(StackStep::Constant(ConstraintValue::Bool(word == "true")), Kinds::BOOL, at)
            }
            Token::Name(function) if self.token == Token::Symbol("(") => self.call(function, at),
            Token::Name(name) => self.name(name, at),
            Token::Symbol("(") => {
                self.advance()?;
                let inner = self.deeper(|parser| parser.expression(0))?;
                self.expect(")")?;
                Ok(TypedPart { at, ..inner })
            }
            Token::End | Token::Symbol(_) => Err(self.unexpected("a value")),
        }
    }

    /// The call of a function whose name was read.
    fn call(&mut self, function: &str, at: usize) -> Result<TypedPart, ConstraintError> {
        let operator = match function {
            "min" => Binary::Min,
            "max" => Binary::Max,
            _ => {
                let message = format!("there is no function `{function}`, only `min` and `max`");
                return Err(ConstraintError::new(at, message));
            }
        };
        self.expect("(")?;
        let one = self.deeper(|parser| parser.expression(0))?;
        self.expect(",")?;
        let other = self.deeper(|parser| parser.expression(0))?;
        self.expect(")")?;
        Ok(TypedPart { kinds: self.binary(operator, one, other, at)?, at })
    }

    fn binary(
        &mut self,
        operator: Binary,
        left: TypedPart,
        right: TypedPart,
        at: usize,
    ) -> Result<Kinds, ConstraintError> {
        self.emit(StackStep::Binary(operator), at, -1)?;
        operator.kinds(left.kinds, right.kinds).map_err(|message| ConstraintError::new(at, message))
    }

    fn name(&mut self, name: &str, at: usize) -> Result<TypedPart, ConstraintError> {
        if let Some((index, (_, kinds))) = self.names.iter().enumerate().find(|(_, (known, _))| *known == name) {
            self.reads.push(index);
            return self.value(StackStep::Name(index), *kinds, at);
        }
        let inside = |known: &&str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let message = match self.names.iter().map(|(known, _)| *known).find(inside) {
            Some(member) => format!("`{name}` is an object; name a member of it, as `{member}`"),
            None => format!("`{name}` is neither a parameter nor a given value"),
        };
        Err(ConstraintError::new(at, message))
    }

    /// `None` for one that is too large.
    fn integer(&mut self, value: Option<i64>, at: usize) -> Result<TypedPart, ConstraintError> {
        let value = value.ok_or_else(|| ConstraintError::new(at, "the number is beyond an integer of 64 bits"))?;
        self.value(StackStep::Constant(ConstraintValue::Int(value)), Kinds::INT, at)
    }

    fn value(&mut self, step: StackStep, kinds: Kinds, at: usize) -> Result<TypedPart, ConstraintError> {
        self.emit(step, at, 1)?;
        Ok(TypedPart { kinds, at })
    }

    /// Adds a step that changes the number of values by this much, and returns its number.
    fn emit(&mut self, step: StackStep, at: usize, more: isize) -> Result<usize, ConstraintError> {
        if self.steps.len() == MAX_STEPS {
            return Err(ConstraintError::new(at, format!("the constraint has more than {MAX_STEPS} steps")));
        }
        self.steps.push(step);
        self.places.push(u32::try_from(at).unwrap_or(u32::MAX));
        self.height = self.height.saturating_add_signed(more);
        self.stack = self.stack.max(self.height);
        Ok(self.steps.len() - 1)
    }

    fn takes_bool(&self, symbol: &str, part: TypedPart) -> Result<(), ConstraintError> {
        if part.kinds.meets(Kinds::BOOL) {
            return Ok(());
        }
        Err(ConstraintError::new(part.at, format!("`{symbol}` takes true or false, not {}", part.kinds)))
    }

    /// A check at evaluation, if the kinds alone do not suffice.
    fn must_be_bool(&mut self, part: TypedPart) -> Result<(), ConstraintError> {
        if part.kinds != Kinds::BOOL {
            self.emit(StackStep::Bools, part.at, 0)?;
        }
        Ok(())
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, ConstraintError>) -> Result<T, ConstraintError> {
        if self.depth == MAX_DEPTH {
            return Err(ConstraintError::new(self.at, format!("nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn advance(&mut self) -> Result<(), ConstraintError> {
        (self.token, self.at) = self.tokens.next()?;
        Ok(())
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), ConstraintError> {
        if self.token != Token::Symbol(symbol) {
            return Err(self.unexpected(&format!("`{symbol}`")));
        }
        self.advance()
    }

    fn unexpected(&self, wanted: &str) -> ConstraintError {
        let found = match self.token {
            Token::End => "the end".to_owned(),
            Token::Int(value) => format!("`{value}`"),
            Token::Float(value) => format!("`{value:?}`"),
            Token::Text(value) => format!("`{value:?}`"),
            Token::Name(name) => format!("`{name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
        };
        ConstraintError::new(self.at, format!("{wanted} is expected here, not {found}"))
    }
}

//! Compiles a text to steps, operators by their binding powers (Pratt, Top down operator precedence, 1973).

use super::error::ConstraintError;
use super::operator::{Binary, Unary};
use super::program::{Constraint, MAX_STACK, Step};
use super::token::{Token, Tokens};
use super::value::Kinds;

/// Maximum number of steps of one constraint: none runs twice, so this bounds the work of an evaluation.
const MAX_STEPS: usize = 10_000;
/// Maximum nesting of expressions. Each keeps at most one value while the inner ones are evaluated.
const MAX_DEPTH: usize = MAX_STACK - 1;

impl Constraint {
    /// Compiles an expression over names, each with the kinds of values that it may hold. A point in a name is part of
    /// it in the expression too. Names are referred to by their number.
    ///
    /// # Errors
    /// If the text is not an expression, reads a name that is none of these, applies an operator to what it never takes,
    /// gives no boolean, is nested more than 127 deep or has more than 10 000 steps; with the character.
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
    steps: Vec<Step>,
    places: Vec<u32>,
    /// Values on the stack after the last step, and their maximum.
    height: usize,
    stack: usize,
    depth: usize,
    reads: Vec<usize>,
}

/// The kind of an expression, and the character where it begins.
#[derive(Clone, Copy)]
struct Part {
    kinds: Kinds,
    at: usize,
}

#[derive(Clone, Copy)]
enum Infix {
    Or,
    And,
    Binary(Binary),
}

/// An operator between two expressions, and how strongly it binds them.
fn infix(symbol: &str) -> Option<(u8, Infix)> {
    Some(match symbol {
        "||" => (1, Infix::Or),
        "|" => (1, Infix::Binary(Binary::Or)),
        "^" => (1, Infix::Binary(Binary::Xor)),
        "&&" => (2, Infix::And),
        "&" => (2, Infix::Binary(Binary::And)),
        "==" => (3, Infix::Binary(Binary::Equal)),
        "!=" => (3, Infix::Binary(Binary::Unequal)),
        "<" => (4, Infix::Binary(Binary::Less)),
        "<=" => (4, Infix::Binary(Binary::LessOrEqual)),
        ">" => (4, Infix::Binary(Binary::Greater)),
        ">=" => (4, Infix::Binary(Binary::GreaterOrEqual)),
        "+" => (5, Infix::Binary(Binary::Add)),
        "-" => (5, Infix::Binary(Binary::Subtract)),
        "*" => (6, Infix::Binary(Binary::Multiply)),
        "/" => (6, Infix::Binary(Binary::Divide)),
        "%" => (6, Infix::Binary(Binary::Remainder)),
        "**" => (7, Infix::Binary(Binary::Power)),
        "<<" => (8, Infix::Binary(Binary::Left)),
        ">>" => (8, Infix::Binary(Binary::Right)),
        _ => return None,
    })
}

impl<'t> Parser<'t, '_> {
    /// An expression whose operators bind at least this strongly.
    fn expression(&mut self, least: u8) -> Result<Part, ConstraintError> {
        let mut left = self.operand()?;
        while let Token::Symbol(symbol) = self.token
            && let Some((power, operator)) = infix(symbol)
            && power >= least
        {
            let at = self.at;
            self.advance()?;
            let kinds = match operator {
                Infix::Or | Infix::And => {
                    let is_or = matches!(operator, Infix::Or);
                    self.takes_bool(symbol, left)?;
                    let jump = self.emit(if is_or { Step::Or(0) } else { Step::And(0) }, left.at, -1)?;
                    let right = self.deeper(|parser| parser.expression(power + 1))?;
                    self.takes_bool(symbol, right)?;
                    self.must_be_bool(right)?;
                    self.lead(jump);
                    Kinds::BOOL
                }
                Infix::Binary(operator) => {
                    let to_the_left = u8::from(operator != Binary::Power);
                    let right = self.deeper(|parser| parser.expression(power + to_the_left))?;
                    let kinds = operator.kinds(left.kinds, right.kinds);
                    self.emit(Step::Binary(operator), at, -1)?;
                    kinds.map_err(|message| ConstraintError::new(at, message))?
                }
            };
            left = Part { kinds, at: left.at };
        }
        Ok(left)
    }

    /// An operand, with its prefix operators and the methods called on it.
    fn operand(&mut self) -> Result<Part, ConstraintError> {
        let at = self.at;
        if let Token::Symbol(symbol @ ("-" | "+" | "!")) = self.token {
            self.advance()?;
            // the least integer has no positive counterpart
            if let (Token::Int(value), "-") = (&self.token, symbol) {
                let value = 0_i64.checked_sub_unsigned(*value);
                self.advance()?;
                return self.constant(value.map(Step::Int), Kinds::INT, at);
            }
            let operator = match symbol {
                "-" => Unary::Negate,
                "+" => Unary::Plus,
                _ => Unary::Not,
            };
            let of = self.deeper(Self::operand)?;
            return self.unary(operator, of, at, at);
        }
        let mut part = self.primary()?;
        while self.token == Token::Symbol(".") {
            self.advance()?;
            let Token::Name(function) = self.token else { return Err(self.unexpected("`min`, `max` or `abs`")) };
            let called_at = self.at;
            self.advance()?;
            part = self.call(function, called_at, Some(part))?;
        }
        Ok(part)
    }

    fn primary(&mut self) -> Result<Part, ConstraintError> {
        let at = self.at;
        match std::mem::replace(&mut self.token, Token::End) {
            Token::Int(value) => {
                self.advance()?;
                self.constant(i64::try_from(value).ok().map(Step::Int), Kinds::INT, at)
            }
            Token::Float(value) => {
                self.advance()?;
                self.constant(Some(Step::Float(value)), Kinds::FLOAT, at)
            }
            Token::Text(value) => {
                self.advance()?;
                self.constant(Some(Step::Text(value)), Kinds::TEXT, at)
            }
            Token::Name(name @ ("true" | "false")) => {
                self.advance()?;
                self.constant(Some(Step::Bool(name == "true")), Kinds::BOOL, at)
            }
            Token::Name("if") => {
                self.advance()?;
                self.choice(at)
            }
            Token::Name(name) => {
                self.advance()?;
                if self.token != Token::Symbol("(") {
                    return self.name(name, at);
                }
                // a method is called on the operand before its point
                match name.rsplit_once('.') {
                    Some((object, function)) => {
                        let object_part = self.name(object, at)?;
                        self.call(function, at + object.len() + 1, Some(object_part))
                    }
                    None => self.call(name, at, None),
                }
            }
            Token::Symbol("(") => {
                self.advance()?;
                if self.token == Token::Symbol(")") {
                    self.advance()?;
                    return self.constant(Some(Step::Null), Kinds::NULL, at);
                }
                let inner = self.deeper(|parser| parser.expression(0))?;
                self.expect(")")?;
                Ok(Part { at, ..inner })
            }
            other => {
                self.token = other;
                Err(self.unexpected("a value"))
            }
        }
    }

    /// The rest of an `if` expression.
    fn choice(&mut self, at: usize) -> Result<Part, ConstraintError> {
        let condition = self.deeper(|parser| parser.expression(0))?;
        self.takes_bool("if", condition)?;
        let otherwise = self.emit(Step::JumpUnless(0), condition.at, -1)?;
        self.expect("{")?;
        let one = self.deeper(|parser| parser.expression(0))?;
        self.expect("}")?;
        // only one of the two values will exist
        let end = self.emit(Step::Jump(0), at, -1)?;
        self.lead(otherwise);
        if self.token != Token::Name("else") {
            return Err(self.unexpected("`else`"));
        }
        self.advance()?;
        let other_at = self.at;
        let other = if self.token == Token::Name("if") {
            self.advance()?;
            self.deeper(|parser| parser.choice(other_at))?
        } else {
            self.expect("{")?;
            let other = self.deeper(|parser| parser.expression(0))?;
            self.expect("}")?;
            other
        };
        self.lead(end);
        Ok(Part { kinds: one.kinds | other.kinds, at })
    }

    /// The call of a function whose name was read, on a value before its point or not.
    fn call(&mut self, function: &str, at: usize, object: Option<Part>) -> Result<Part, ConstraintError> {
        let (operator, takes) = match function {
            "min" => (Some(Binary::Min), 2),
            "max" => (Some(Binary::Max), 2),
            "abs" => (None, 1),
            _ => {
                let message = format!("there is no function `{function}`, only `min`, `max` and `abs`");
                return Err(ConstraintError::new(at, message));
            }
        };
        self.expect("(")?;
        let mut values: Vec<Part> = object.into_iter().collect();
        while values.len() < takes {
            if values.len() > usize::from(object.is_some()) {
                self.expect(",")?;
            }
            values.push(self.deeper(|parser| parser.expression(0))?);
        }
        self.expect(")")?;
        let begins = values.first().map_or(at, |first| first.at.min(at));
        match (operator, values.as_slice()) {
            (Some(operator), [one, other]) => {
                let kinds = operator.kinds(one.kinds, other.kinds);
                self.emit(Step::Binary(operator), at, -1)?;
                Ok(Part { kinds: kinds.map_err(|message| ConstraintError::new(at, message))?, at: begins })
            }
            (_, values) => {
                let of = values.first().copied().unwrap_or(Part { kinds: Kinds::NONE, at });
                self.unary(Unary::Abs, of, at, begins)
            }
        }
    }

    fn unary(&mut self, operator: Unary, of: Part, at: usize, begins: usize) -> Result<Part, ConstraintError> {
        self.emit(Step::Unary(operator), at, 0)?;
        let kinds = operator.kinds(of.kinds).map_err(|message| ConstraintError::new(at, message))?;
        Ok(Part { kinds, at: begins })
    }

    fn name(&mut self, name: &str, at: usize) -> Result<Part, ConstraintError> {
        if let Some((index, (_, kinds))) = self.names.iter().enumerate().find(|(_, (known, _))| *known == name) {
            self.reads.push(index);
            self.emit(Step::Name(index), at, 1)?;
            return Ok(Part { kinds: *kinds, at });
        }
        let inside = |known: &&str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let message = match self.names.iter().map(|(known, _)| *known).find(inside) {
            Some(member) => format!("`{name}` is an object; name a member of it, as `{member}`"),
            None => format!("`{name}` is neither a parameter nor a given value"),
        };
        Err(ConstraintError::new(at, message))
    }

    /// `None` for an integer that is too large.
    fn constant(&mut self, step: Option<Step>, kinds: Kinds, at: usize) -> Result<Part, ConstraintError> {
        let step = step.ok_or_else(|| ConstraintError::new(at, "the number is beyond an integer of 64 bits"))?;
        self.emit(step, at, 1)?;
        Ok(Part { kinds, at })
    }

    /// Adds a step that changes the number of values by this much, and returns its number.
    fn emit(&mut self, step: Step, at: usize, more: isize) -> Result<usize, ConstraintError> {
        if self.steps.len() == MAX_STEPS {
            return Err(ConstraintError::new(at, format!("the constraint has more than {MAX_STEPS} steps")));
        }
        self.steps.push(step);
        self.places.push(u32::try_from(at).unwrap_or(u32::MAX));
        self.height = self.height.saturating_add_signed(more);
        self.stack = self.stack.max(self.height);
        Ok(self.steps.len() - 1)
    }

    /// Makes a jump lead to the next step.
    fn lead(&mut self, jump: usize) {
        let next = self.steps.len();
        if let Some(Step::And(end) | Step::Or(end) | Step::JumpUnless(end) | Step::Jump(end)) = self.steps.get_mut(jump)
        {
            *end = next;
        }
    }

    fn takes_bool(&self, symbol: &str, part: Part) -> Result<(), ConstraintError> {
        if part.kinds.meets(Kinds::BOOL) {
            return Ok(());
        }
        Err(ConstraintError::new(part.at, format!("`{symbol}` takes true or false, not {}", part.kinds)))
    }

    /// A check at evaluation, if the kinds alone do not suffice.
    fn must_be_bool(&mut self, part: Part) -> Result<(), ConstraintError> {
        if part.kinds != Kinds::BOOL {
            self.emit(Step::Bools, part.at, 0)?;
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
        let found = match &self.token {
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

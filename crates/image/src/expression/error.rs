//! Why an expression has no value.

use model::GuestAddr;
use std::fmt;

/// Why an expression has no value, and the place in its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpressionError {
    /// In bytes from the start of the text.
    pub position: usize,
    pub kind: ExpressionErrorKind,
}

/// What went wrong, apart from where.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExpressionErrorKind {
    /// The text is no expression: what was found and what was expected.
    Syntax {
        found: String,
        expected: &'static str,
    },
    /// C has this, but it is not supported here; says what.
    Unsupported(&'static str),
    /// Nothing in scope has this name.
    UnknownName(String),
    UnknownType(String),
    UnknownRegister(String),
    /// The callees may have overwritten the register.
    LostRegister(String),
    /// The type has no member of this name.
    NoMember {
        name: String,
        of: String,
    },
    /// An operator cannot be applied to a value of this type; says what it needs.
    Unfit {
        found: String,
        needed: &'static str,
    },
    DivisionByZero,
    /// The program does not keep the value.
    OptimizedOut,
    Unreadable(GuestAddr),
    /// The debug information contradicts itself.
    Damaged,
    TooLong,
}

impl ExpressionErrorKind {
    pub(crate) fn at(self, position: usize) -> ExpressionError {
        ExpressionError { position, kind: self }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ExpressionErrorKind as Kind;
        match &self.kind {
            Kind::Syntax { found, expected } => write!(f, "expected {expected} but found {found}")?,
            Kind::Unsupported(what) => write!(f, "{what} are not supported in expressions")?,
            Kind::UnknownName(name) => write!(f, "nothing here is called {name}")?,
            Kind::UnknownType(name) => write!(f, "there is no type {name}")?,
            Kind::UnknownRegister(name) => write!(f, "there is no register ${name}")?,
            Kind::LostRegister(name) => write!(f, "the value of ${name} in this frame is not known")?,
            Kind::NoMember { name, of } => write!(f, "{of} has no member {name}")?,
            Kind::Unfit { found, needed } => write!(f, "this needs {needed}, not a value of type {found}")?,
            Kind::DivisionByZero => write!(f, "this divides by zero")?,
            Kind::OptimizedOut => write!(f, "the value is optimized out")?,
            Kind::Unreadable(at) => write!(f, "the memory at {at} cannot be read")?,
            Kind::Damaged => write!(f, "the debug information is damaged")?,
            Kind::TooLong => write!(f, "the expression is too long")?,
        }
        write!(f, ", at column {}", self.position + 1)
    }
}

impl std::error::Error for ExpressionError {}

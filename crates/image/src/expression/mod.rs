//! Expressions of C over the variables of a frame: `list->head[2].name`, `(long)p & ~7`, `argc > 1 && $rsp % 16 == 0`.
//!
//! Literals, names, members, elements, the unary, binary and conditional operators, casts to base types, to pointers
//! and to types of the program, `sizeof` and registers. There are no assignments and no calls: nothing here changes the
//! process. Types are those of C, also in C++ programs; a name may be a member of `this` there.
//!
//! Guarantees: no panic, and bounded work (see `parser` and `variables`).
//! May miss: operators that a C++ class defines, qualified names (`a::b`), static members, casts to structs.
//! Source: C17, section 6.5; the GDB manual, "Expressions".

mod arithmetic;
mod error;
mod lexer;
mod parser;
mod values;

use crate::dwarf::{Meter, Named};
use crate::evaluate::Missing;
use crate::variables::{BASE_ALLOWANCE, Inspector, Number, Program, Store};
pub use error::{ExpressionError, ExpressionErrorKind};
use model::GuestAddr;
use values::{Evaluator, explain};

/// The value of an expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// As gdb prints it: `(struct node *) 0x55..`, `{x = 1, y = 2}`.
    pub text: String,
    pub type_name: String,
    /// Where it lies, if it is an object in memory.
    pub address: Option<GuestAddr>,
    /// In bytes.
    pub size: Option<u64>,
    /// The number that it is, if it is one without a fraction, or a pointer.
    pub number: Option<i128>,
}

impl Inspector<'_> {
    /// The value of the expression `text` in this frame.
    pub fn evaluate(&self, text: &str) -> Result<Answer, ExpressionError> {
        let meter = Meter::new(BASE_ALLOWANCE);
        let program = Program::new(self.process, &meter);
        let view = self.view(&program);
        // A name that is a variable is one, even if a type has it too. Other images are asked when this one knows neither.
        let is_type = |name: &str| {
            let known = |image: usize| {
                let is = |what| !program.find(image, name, what, None).is_empty();
                if is(Named::Variable) { Some(false) } else { is(Named::Type).then_some(true) }
            };
            program.local(name, view).is_none() && program.images_from(view).find_map(known).unwrap_or(false)
        };
        let node = parser::parse(text, &is_type)?;
        let value = Evaluator { program: &program, view }.evaluate(&node)?;
        let size = program.size_of(&value.ty);
        // What is optimized out can be said; memory that cannot be read is an error.
        if let (Store::Memory(_), Some(size)) = (&value.store, size)
            && let Err(missing @ Missing::Memory(_)) = value.known_bytes(self.process, size.min(1))
        {
            return Err(explain(missing).at(node.at));
        }
        let number = match program.number(&value) {
            Ok(Number::Integer(n)) => Some(n),
            _ => None,
        };
        let (type_name, text) = (program.type_name(&value.ty), program.print_answer(&value));
        Ok(Answer { text, type_name, address: value.address(), size, number })
    }
}

impl Program<'_> {
    /// The enumeration with an enumerator called `name`, and its value.
    pub(crate) fn enumerator(
        &self,
        name: &str,
        view: crate::variables::View<'_>,
    ) -> Option<(std::rc::Rc<crate::variables::Type>, i128)> {
        self.images_from(view).find_map(|image| {
            let candidates = self.file(image, crate::dwarf::Part::Own)?.debug.named(name, Named::Enumerator);
            candidates.into_iter().take(16).find_map(|c| {
                let at = crate::variables::DieRef::of(image, &c);
                let ty = self.type_at(at);
                let crate::variables::Type::Enumeration { enumerators, .. } = &*ty else { return None };
                let value = enumerators.iter().find(|(n, _)| n == name)?.1;
                Some((ty.clone(), value))
            })
        })
    }
}

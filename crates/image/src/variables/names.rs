//! Types as C declarations: `struct node *`, `int (*)(const char *)`, `char [16]`.
//!
//! A declarator is built from the inside out: what stands before the place of the name and what stands behind it.
//! Guarantee: at most a few hundred characters and a bounded number of steps, however types refer to each other.

use super::dies::Program;
use super::types::{Count, MAX_STEPS, Target, Type};
use crate::text::printable;
use std::cell::Cell;
use std::rc::Rc;

/// How deeply parameters of function types may have parameters of function types.
const MAX_NESTING: u32 = 3;
/// How many pointers, parameters and the like one name is made of.
const MAX_PARTS: u32 = 500;

impl Program<'_> {
    /// The type as gdb writes it in casts.
    pub fn type_name(&self, ty: &Rc<Type>) -> String {
        self.declare(ty, MAX_NESTING, &Cell::new(MAX_PARTS))
    }

    fn declare(&self, ty: &Rc<Type>, nesting: u32, left: &Cell<u32>) -> String {
        let (mut before, mut behind) = (String::new(), String::new());
        let mut ty = ty.clone();
        for _ in 0..MAX_STEPS {
            left.set(left.get().saturating_sub(1));
            if left.get() == 0 {
                return join("...", &before, &behind);
            }
            // An array or function behind a pointer needs parentheses around the pointer.
            let close = |before: &mut String, behind: &mut String| {
                if before.starts_with(['*', '&']) {
                    *before = format!("({before}");
                    behind.insert(0, ')');
                }
            };
            let next = match &*ty {
                Type::Pointer { to } => {
                    before.insert(0, '*');
                    to.clone()
                }
                Type::Reference { to, rvalue } => {
                    before.insert_str(0, if *rvalue { "&&" } else { "&" });
                    to.clone()
                }
                Type::Qualified { word, to } => {
                    let inner = self.load(to);
                    let qualifies_pointer = matches!(&*inner, Type::Pointer { .. });
                    if qualifies_pointer {
                        before = if before.is_empty() { format!(" {word}") } else { format!(" {word} {before}") };
                    } else {
                        let base = match &*inner {
                            Type::Array { .. } | Type::Function { .. } if nesting > 0 => {
                                self.declare(&inner, nesting - 1, left)
                            }
                            _ => format!("{word} {}", self.base_name(&inner, nesting, left)),
                        };
                        return join(&base, &before, &behind);
                    }
                    Target::Known(inner)
                }
                Type::Array { element, count } => {
                    close(&mut before, &mut behind);
                    let count = match count {
                        Count::Known(n) => n.to_string(),
                        _ => String::new(),
                    };
                    behind.push_str(&format!("[{count}]"));
                    element.clone()
                }
                Type::Function { returns, parameters, variadic, prototyped } => {
                    close(&mut before, &mut behind);
                    behind.push_str(&self.parameters(parameters, *variadic, *prototyped, nesting, left));
                    returns.clone()
                }
                _ => break,
            };
            ty = self.load(&next);
        }
        join(&self.base_name(&ty, nesting, left), &before, &behind)
    }

    fn parameters(
        &self,
        parameters: &[Target],
        variadic: bool,
        prototyped: bool,
        nesting: u32,
        left: &Cell<u32>,
    ) -> String {
        if nesting == 0 {
            return "(...)".to_string();
        }
        let shown = parameters.iter().take_while(|_| left.get() > 0);
        let mut names: Vec<String> = shown.map(|p| self.declare(&self.load(p), nesting - 1, left)).collect();
        if variadic {
            names.push("...".to_string());
        }
        if names.is_empty() && prototyped {
            names.push("void".to_string());
        }
        format!("({})", names.join(", "))
    }

    /// The name of a type that is no pointer, array or function.
    fn base_name(&self, ty: &Rc<Type>, nesting: u32, left: &Cell<u32>) -> String {
        let mut words: Vec<&'static str> = Vec::new();
        let mut ty = ty.clone();
        for _ in 0..MAX_STEPS {
            let Type::Qualified { word, to } = &*ty else { break };
            words.push(word);
            let inner = self.load(to);
            ty = inner;
        }
        let name = match &*ty {
            Type::Void => "void".to_string(),
            Type::Base { name, .. } | Type::Typedef { name, .. } | Type::Unknown { name, .. } => printable(name),
            Type::Record(r) => tagged(r.shows_keyword.then_some(r.keyword), r.keyword, r.name.as_deref()),
            Type::Enumeration { name, keyword, .. } => tagged(keyword.then_some("enum"), "enum", name.as_deref()),
            _ if nesting > 0 => self.declare(&ty, nesting - 1, left),
            _ => "...".to_string(),
        };
        words.into_iter().rev().fold(name, |name, word| format!("{word} {name}"))
    }
}

fn tagged(keyword: Option<&str>, always: &str, name: Option<&str>) -> String {
    match (keyword, name) {
        (_, None) => format!("{always} {{...}}"),
        (Some(keyword), Some(name)) => format!("{keyword} {}", printable(name)),
        (None, Some(name)) => printable(name),
    }
}

fn join(base: &str, before: &str, behind: &str) -> String {
    let space = if (before.is_empty() && behind.is_empty()) || before.starts_with(' ') { "" } else { " " };
    format!("{base}{space}{before}{behind}")
}

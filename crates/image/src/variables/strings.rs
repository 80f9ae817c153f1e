//! Strings of C++ and Rust, which are structs, as text: `std::string`, `&str`, `String`.
//!
//! Recognized by the names of the type and its members, as the libraries have had them for years. What does not look as
//! expected, or points nowhere, is shown as the struct that it is; so a wrong guess hides nothing.
//! Source: libstdc++'s `basic_string.h`; the Rust library's `string.rs`, `vec/mod.rs` and `raw_vec.rs`.

use super::dies::Program;
use super::location::Value;
use super::scalar::Number;
use super::types::{Record, Type};
use model::GuestAddr;

/// How deeply the pointer of a Rust vector is wrapped at most.
const MAX_WRAPPED: u32 = 6;
/// How many members of each wrapper are looked at: hostile ones may have many, each with many.
const MAX_BESIDE: usize = 4;

impl Program<'_> {
    /// Where the bytes of a string object are, and how many; `None` for what is no string.
    pub(super) fn text_of(&self, whole: &Value, record: &Record) -> Option<(GuestAddr, u64)> {
        let member = |name: &str| self.member_called(whole, record, name);
        let (pointer, length) = match record.name.as_deref()? {
            "&str" => (member("data_ptr")?, member("length")?),
            "String" => {
                let vector = member("vec")?;
                let stripped = self.strip(&vector.ty);
                let Type::Record(inner) = &*stripped else { return None };
                let length = self.member_called(&vector, inner, "len")?;
                (self.wrapped_pointer(&self.member_called(&vector, inner, "buf")?, MAX_WRAPPED)?, length)
            }
            name if name.starts_with("basic_string<char,") => {
                (self.wrapped_pointer(&member("_M_dataplus")?, 2)?, member("_M_string_length")?)
            }
            _ => return None,
        };
        match (self.number(&pointer).ok()?, self.number(&length).ok()?) {
            (Number::Integer(at), Number::Integer(len)) => Some((GuestAddr(at as u64), u64::try_from(len).ok()?)),
            _ => None,
        }
    }

    fn member_called(&self, whole: &Value, record: &Record, name: &str) -> Option<Value> {
        let member = record.members.iter().find(|m| m.name.as_deref() == Some(name))?;
        Some(self.member_value(whole, member))
    }

    /// The first pointer in `value`, which may be wrapped in structs.
    fn wrapped_pointer(&self, value: &Value, depth: u32) -> Option<Value> {
        match &*self.strip(&value.ty) {
            Type::Pointer { .. } => Some(value.clone()),
            Type::Record(record) if depth > 0 => {
                let mut members = record.members.iter().take(MAX_BESIDE);
                members.find_map(|m| self.wrapped_pointer(&self.member_value(value, m), depth - 1))
            }
            _ => None,
        }
    }
}

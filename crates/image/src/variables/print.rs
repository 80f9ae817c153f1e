//! Values as text, as gdb prints them: `{next = 0x55.. <head>, name = "abc", '\000' <repeats 12 times>}`.
//!
//! Guarantees: text of at most `MAX_TEXT` bytes and a few thousand reads of memory, whatever the types claim; depth is
//! limited, so recursion is.
//! Strings of C++ and Rust are shown as text (see `strings`).
//! May miss, against gdb: static members, wide characters, other pretty printers; letters beyond ASCII are shown as bytes.
//! Source: the GDB manual, "Print Settings", with their defaults.

use super::dies::Program;
use super::location::{Store, Value};
use super::scalar::{Class, Number, escape, float_text, integer};
use super::types::{Count, Member, Record, Type, Variants};
use crate::evaluate::Missing;
use crate::text::printable;
use model::GuestAddr;
use std::rc::Rc;

/// Elements of an array and characters of a string that are shown.
const MAX_ELEMENTS: u64 = 200;
/// More equal elements than this are shown once.
const REPEATS: u64 = 10;
/// How deeply structs and arrays are shown inside of each other.
const MAX_DEPTH: u32 = 20;
/// Where text ends.
const MAX_TEXT: usize = 64 << 10;
/// How many single values are shown.
const MAX_VALUES: u32 = 10_000;
/// Records up to this size are read at once.
const MAX_RECORD: u64 = 64 << 10;

struct Printer<'p, 'a> {
    program: &'p Program<'a>,
    out: String,
    values: u32,
}

impl Program<'_> {
    /// The value as it reads inside of others and in lists of variables.
    pub fn print(&self, value: &Value) -> String {
        let mut printer = Printer { program: self, out: String::new(), values: 0 };
        printer.value(value, 0);
        printer.out
    }

    /// The value as an answer of its own: pointers say their type.
    pub fn print_answer(&self, value: &Value) -> String {
        let text = self.print(value);
        let shows_type = match &*self.strip(&value.ty) {
            Type::Pointer { to } => {
                let target = self.load(to);
                let is_text = matches!(&*value.ty, Type::Pointer { .. }) && self.is_plain_char(&target);
                !is_text
            }
            Type::Reference { .. } => true,
            _ => false,
        };
        if shows_type && !text.starts_with('<') { format!("({}) {text}", self.type_name(&value.ty)) } else { text }
    }

    fn is_plain_char(&self, ty: &Rc<Type>) -> bool {
        let mut ty = ty.clone();
        // Qualifiers keep the name of what they qualify, typedefs have their own.
        for _ in 0..4 {
            let Type::Qualified { to, .. } = &*ty else { break };
            let inner = self.load(to);
            ty = inner;
        }
        matches!(&*ty, Type::Base { name, .. } if name == "char")
    }
}

impl<'a> Printer<'_, 'a> {
    fn is_full(&self) -> bool {
        self.out.len() > MAX_TEXT || self.values > MAX_VALUES
    }

    fn missing(&mut self, missing: Missing) {
        match missing {
            Missing::OptimizedOut => self.out.push_str("<optimized out>"),
            Missing::Synthetic => self.out.push_str("<synthetic pointer>"),
            Missing::Memory(at) => self.out.push_str(&format!("<error: Cannot access memory at address {at}>")),
            Missing::Unsupported(what) => self.out.push_str(&format!("<error: {what}>")),
            Missing::Damaged => self.out.push_str("<error: damaged debug information>"),
        }
    }

    fn value(&mut self, value: &Value, depth: u32) {
        if self.is_full() {
            return self.out.push_str("...");
        }
        self.values += 1;
        if let Store::Missing(missing) = value.store {
            return self.missing(missing);
        }
        let ty = self.program.strip(&value.ty);
        match &*ty {
            Type::Record(_) | Type::Array { .. } if depth >= MAX_DEPTH => self.out.push_str("{...}"),
            Type::Record(record) => self.record(value, record, depth),
            Type::Array { element, count } => self.array(value, &self.program.load(element), *count, depth),
            Type::Function { .. } => self.function(value),
            Type::Reference { to, .. } => self.reference(value, &self.program.load(to), depth),
            Type::Void => self.out.push_str("void"),
            Type::Pointer { to } => match self.program.number(value) {
                Ok(Number::Integer(n)) => self.pointer(GuestAddr(n as u64), &self.program.load(to)),
                Ok(Number::Float(_)) => self.missing(Missing::Damaged),
                Err(missing) => self.missing(missing),
            },
            Type::Unknown { name, .. } => self.out.push_str(&printable(name)),
            _ => match self.program.number(value) {
                Ok(number) => self.number(number, &ty),
                Err(missing) => self.missing(missing),
            },
        }
    }

    fn number(&mut self, number: Number, ty: &Rc<Type>) {
        match (number, self.program.class(ty)) {
            (Number::Float(n), class) => self.out.push_str(&float_text(n, class.map_or(8, Class::size))),
            (Number::Integer(n), Some(Class::Boolean { .. })) if n == 0 || n == 1 => {
                self.out.push_str(if n == 1 { "true" } else { "false" });
            }
            (Number::Integer(n), Some(Class::Character { size, .. })) => {
                self.out.push_str(&format!(
                    "{n} {}'",
                    if size == 1 {
                        ""
                    } else if size == 2 {
                        "u"
                    } else {
                        "U"
                    }
                ));
                escape(&mut self.out, n as u32 & if size == 1 { 0xff } else { u32::MAX }, '\'');
                self.out.push('\'');
            }
            (Number::Integer(n), Some(Class::Enumeration { .. })) => self.enumerator(n, ty),
            (Number::Integer(n), _) => self.out.push_str(&n.to_string()),
        }
    }

    fn enumerator(&mut self, n: i128, ty: &Rc<Type>) {
        let Type::Enumeration { name, enumerators, scoped, .. } = &**ty else { return };
        let shown = |enumerator: &str| match (scoped, name) {
            (true, Some(name)) => format!("{}::{}", printable(name), printable(enumerator)),
            _ => printable(enumerator),
        };
        if let Some((name, _)) = enumerators.iter().find(|(_, v)| *v == n) {
            let text = shown(name);
            return self.out.push_str(&text);
        }
        // Values of single bits are meant to be combined.
        let is_flag = |v: i128| v >= 0 && v.count_ones() <= 1;
        if n <= 0 || !enumerators.iter().all(|(_, v)| is_flag(*v)) {
            return self.out.push_str(&n.to_string());
        }
        let mut left = n;
        let mut parts = Vec::new();
        for (name, v) in enumerators {
            if *v != 0 && left & v == *v {
                parts.push(shown(name));
                left &= !v;
            }
        }
        if left != 0 {
            parts.push(format!("unknown: {left:#x}"));
        }
        self.out.push_str(&format!("({})", parts.join(" | ")));
    }

    fn pointer(&mut self, at: GuestAddr, target: &Rc<Type>) {
        self.out.push_str(&at.to_string());
        let target = self.program.strip(target);
        self.symbol(at);
        let is_char = matches!(self.program.class(&target), Some(Class::Character { size: 1, .. }));
        if is_char && at.0 != 0 {
            self.out.push(' ');
            self.text_at(at);
        }
    }

    /// ` <name+12>` when a function or variable of that name is there.
    fn symbol(&mut self, at: GuestAddr) {
        if let Some((name, offset)) = self.program.process.images().symbol(at) {
            let offset = if offset == 0 { String::new() } else { format!("+{offset}") };
            self.out.push_str(&format!(" <{}{offset}>", printable(&name)));
        }
    }

    fn function(&mut self, value: &Value) {
        let name = self.program.type_name(&value.ty);
        let Store::Memory(at) = value.store else { return self.missing(Missing::OptimizedOut) };
        self.out.push_str(&format!("{{{name}}} {at}"));
        self.symbol(at);
    }

    /// What it refers to is shown only for a reference by itself, as in gdb.
    fn reference(&mut self, value: &Value, target: &Rc<Type>, depth: u32) {
        match value.bytes(self.program.process, 8) {
            Ok(bytes) => {
                let at = GuestAddr(integer(&bytes, false) as u64);
                self.out.push_str(&format!("@{at}"));
                if depth == 0 {
                    self.out.push_str(": ");
                    self.value(&Value::in_memory(target.clone(), at), depth + 1);
                }
            }
            Err(missing) => self.missing(missing),
        }
    }

    fn record(&mut self, value: &Value, record: &Record, depth: u32) {
        if record.incomplete {
            return self.out.push_str("<incomplete type>");
        }
        // All of it at once: one error for all members, and one read.
        let read = (record.size <= MAX_RECORD && matches!(value.store, Store::Memory(_)))
            .then(|| value.bytes(self.program.process, record.size));
        let whole = match read {
            Some(Ok(bytes)) => Value::of_bytes(value.ty.clone(), &bytes),
            Some(Err(missing)) => return self.missing(missing),
            None => value.clone(),
        };
        if self.text_object(&whole, record) {
            return;
        }
        let active = record.variants.as_ref().and_then(|v| self.active_variant(&whole, v));
        let members: Vec<&Member> = record.members.iter().chain(active).collect();
        self.out.push('{');
        if members.is_empty() {
            self.out.push_str("<No data fields>");
        }
        for (i, member) in members.into_iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            if self.is_full() {
                self.out.push_str("...");
                break;
            }
            let value = self.program.member_value(&whole, member);
            if member.base_class {
                self.out.push_str(&format!("<{}> = ", self.program.type_name(&value.ty)));
            } else if let Some(name) = &member.name {
                self.out.push_str(&format!("{} = ", printable(name)));
            }
            self.value(&value, depth + 1);
        }
        self.out.push('}');
    }

    /// A string of C++ or Rust, as text. `false` when it is none, or its bytes cannot be read.
    fn text_object(&mut self, whole: &Value, record: &Record) -> bool {
        let Some((at, len)) = self.program.text_of(whole, record) else { return false };
        // A few more than are shown, to count repetitions.
        let mut bytes = vec![0; len.min(MAX_ELEMENTS * 2) as usize];
        let good = self.program.process.read(at, &mut bytes) == bytes.len();
        if good {
            self.string(&bytes, len > bytes.len() as u64);
        }
        good
    }

    /// The member that exists in a Rust enum.
    fn active_variant<'v>(&self, whole: &Value, variants: &'v Variants) -> Option<&'v Member> {
        let tag = variants.discriminant.as_ref().map(|d| {
            let value = self.program.member_value(whole, d);
            let size = self.program.size_of(&value.ty)?.min(8);
            let bytes = value.bytes(self.program.process, size).ok()?;
            Some((integer(&bytes, false) as u64, size))
        });
        let is_tag = |v: Option<u64>| match tag {
            Some(Some((tag, size))) => v.is_some_and(|v| v & (u64::MAX >> (64 - 8 * size.clamp(1, 8))) == tag),
            _ => v.is_none(),
        };
        let exact = variants.list.iter().find(|(v, _)| is_tag(*v));
        exact.or_else(|| variants.list.iter().find(|(v, _)| v.is_none())).map(|(_, member)| member)
    }

    fn array(&mut self, value: &Value, element: &Rc<Type>, count: Count, depth: u32) {
        let Count::Known(count) = count else { return self.out.push_str("<array of unknown size>") };
        let Some(size) = self.program.size_of(element) else { return self.out.push_str("<incomplete type>") };
        if count == 0 {
            return self.out.push_str("{}");
        }
        if let Some(Class::Character { size: 1, .. }) = self.program.class(element)
            && self.characters(value, count)
        {
            return;
        }
        self.out.push('{');
        let (mut at, mut shown) = (0, 0);
        while at < count && shown < MAX_ELEMENTS {
            if at > 0 {
                self.out.push_str(", ");
            }
            if self.is_full() {
                break;
            }
            let item = |i: u64| value.part(element.clone(), i.saturating_mul(size), size, None);
            let first = item(at);
            let repeats = self.repeats(&first, size, at, count, &item);
            self.value(&first, depth + 1);
            if repeats > REPEATS {
                self.out.push_str(&format!(" <repeats {repeats} times>"));
                at += repeats;
                shown += REPEATS;
            } else {
                at += 1;
                shown += 1;
            }
        }
        self.out.push_str(if at < count { "...}" } else { "}" });
    }

    /// How many elements from `at` on have the bytes of `first`.
    fn repeats(&self, first: &Value, size: u64, at: u64, count: u64, item: &dyn Fn(u64) -> Value) -> u64 {
        // Enough for every array whose elements are worth counting.
        const MAX_COMPARED: u64 = 1 << 20;
        let Ok(bytes) = first.known_bytes(self.program.process, size) else { return 1 };
        let end = count.min(at.saturating_add((MAX_COMPARED / size.max(8)).max(REPEATS)));
        let same = |i: &u64| item(*i).known_bytes(self.program.process, size).is_ok_and(|b| b == bytes);
        1 + (at + 1..end).take_while(same).count() as u64
    }

    /// An array of characters: a string, without the zero that ends it. `false` when some are optimized out.
    fn characters(&mut self, value: &Value, count: u64) -> bool {
        // A few more than are shown, to count repetitions.
        const MAX_READ: u64 = 4096;
        let read = count.min(MAX_READ);
        match value.bytes(self.program.process, read) {
            Ok(mut bytes) => {
                if count == read && bytes.last() == Some(&0) {
                    bytes.pop();
                }
                self.string(&bytes, count > read);
            }
            Err(Missing::OptimizedOut) => return false,
            Err(missing) => self.missing(missing),
        }
        true
    }

    /// The string that begins at `at`.
    fn text_at(&mut self, at: GuestAddr) {
        let mut bytes = vec![0; MAX_ELEMENTS as usize];
        let read = self.program.process.read(at, &mut bytes);
        bytes.truncate(read);
        let end = bytes.iter().position(|b| *b == 0);
        let cut = end.is_none() && read == MAX_ELEMENTS as usize;
        match end {
            None if read == 0 => return self.missing(Missing::Memory(at)),
            None if !cut => {
                self.string(&bytes, false);
                return self.missing(Missing::Memory(GuestAddr(at.0.wrapping_add(read as u64))));
            }
            end => bytes.truncate(end.unwrap_or(read)),
        }
        self.string(&bytes, cut);
    }

    fn string(&mut self, bytes: &[u8], cut: bool) {
        let mut parts: Vec<String> = Vec::new();
        let mut quoted = String::new();
        let (mut at, mut rest) = (0, bytes);
        while let Some(&first) = rest.first() {
            if at >= MAX_ELEMENTS as usize {
                break;
            }
            let run = rest.iter().take_while(|b| **b == first).count();
            if run > REPEATS as usize {
                if !quoted.is_empty() {
                    parts.push(format!("\"{}\"", std::mem::take(&mut quoted)));
                }
                let mut one = String::new();
                escape(&mut one, first.into(), '\'');
                parts.push(format!("'{one}' <repeats {run} times>"));
            } else {
                rest[..run].iter().for_each(|b| escape(&mut quoted, (*b).into(), '"'));
            }
            at += run;
            rest = &rest[run..];
        }
        if !quoted.is_empty() || parts.is_empty() {
            parts.push(format!("\"{quoted}\""));
        }
        self.out.push_str(&parts.join(", "));
        if cut || !rest.is_empty() {
            self.out.push_str("...");
        }
    }
}

impl Program<'_> {
    /// A member of the record `whole`.
    pub fn member_value(&self, whole: &Value, member: &Member) -> Value {
        let ty = self.load(&member.target);
        match member.bits {
            Some((first, count)) => {
                let bytes = (first % 8).saturating_add(count).div_ceil(8);
                whole.part(ty, first / 8, bytes, Some((first % 8, count)))
            }
            None => {
                let size = self.size_of(&ty).unwrap_or(0);
                whole.part(ty, member.offset, size, None)
            }
        }
    }
}

//! The value of an expression, against the state of one frame.
//!
//! As gdb does, a member of a pointer is found with `.` too, `void *` counts single bytes, and of `a ? b : c` only the
//! chosen side is evaluated, in its own type. Comparisons give `int`, as in C.
//! Guarantee: work is bounded by the size of the expression and by what each name costs to look up.

use super::arithmetic::{
    Arithmetic, INT, LONG, UNSIGNED, UNSIGNED_LONG, compare, compute, float, is_true, shift, wrap,
};
use super::error::{ExpressionError, ExpressionErrorKind as Kind};
use super::parser::{Node, TypeText, What};
use crate::dwarf::Named;
use crate::evaluate::Missing;
use crate::process::Register;
use crate::text::printable;
use crate::variables::{Class, Count, Number, Program, Record, Store, Target, Type, Value, View};
use model::GuestAddr;
use std::rc::Rc;

/// How many members are looked at to find one inside of anonymous members and base classes.
const MAX_SEARCHED: usize = 10_000;
const MAX_DEPTH: usize = 16;

pub(super) struct Evaluator<'e, 'a> {
    pub program: &'e Program<'a>,
    pub view: View<'e>,
}

type Evaluated = Result<Value, ExpressionError>;

impl Evaluator<'_, '_> {
    pub fn evaluate(&self, node: &Node) -> Evaluated {
        let at = node.at;
        match &node.what {
            What::Integer { value, unsigned, long, decimal } => Ok(literal(*value, *unsigned, *long, *decimal)),
            What::Float { value, single } => {
                let of = if *single { Arithmetic::Single } else { Arithmetic::Double };
                Ok(self.value(Number::Float(*value), of.as_type()))
            }
            What::Character(c) => Ok(Value::of_bytes(base("char", 1, gimli::DW_ATE_signed_char), &[*c])),
            What::Name(name) => self.named(name).ok_or_else(|| Kind::UnknownName(printable(name)).at(at)),
            What::Register(name) => self.register(name).map_err(|kind| kind.at(at)),
            What::Unary(operator, operand) => self.unary(operator, operand, at),
            What::Binary(operator @ ("&&" | "||"), a, b) => {
                let first = is_true(self.condition(a)?);
                let result = if first == (*operator == "||") { first } else { is_true(self.condition(b)?) };
                Ok(self.truth(result))
            }
            What::Binary(operator, a, b) => {
                let (left, right) = (self.operand(a)?, self.operand(b)?);
                self.binary(operator, (left, a.at), (right, b.at), at)
            }
            What::Choice(condition, yes, no) => {
                self.evaluate(if is_true(self.condition(condition)?) { yes } else { no })
            }
            What::Member(whole, name) => self.member(self.object(whole)?, name, at),
            What::Index(a, b) => self.index(a, b, at),
            What::Cast(target, operand) => {
                let target = self.type_of(target)?;
                self.cast(self.operand(operand)?, target, at)
            }
            What::SizeOf(operand) => {
                let value = self.dereferenced(self.evaluate(operand)?, operand.at)?;
                self.size(&value.ty, at)
            }
            What::SizeOfType(target) => self.size(&self.type_of(target)?, at),
        }
    }

    fn truth(&self, truth: bool) -> Value {
        self.value(Number::Integer(truth.into()), INT.as_type())
    }

    /// A number as a value of type `ty`, which must be one of numbers.
    fn value(&self, number: Number, ty: Rc<Type>) -> Value {
        let bytes = match (self.program.class(&ty), number) {
            (Some(Class::Float { size: 4 }), n) => (float(n) as f32).to_le_bytes().to_vec(),
            (Some(Class::Float { .. }), n) => float(n).to_le_bytes().to_vec(),
            (Some(Class::Boolean { .. }), n) => vec![u8::from(is_true(n)); 1],
            (class, n) => {
                let n = match n {
                    Number::Integer(n) => n,
                    Number::Float(n) => n as i128,
                };
                let size = class.map_or(8, Class::size).min(16);
                n.to_le_bytes()[..size as usize].to_vec()
            }
        };
        Value::of_bytes(ty, &bytes)
    }

    fn pointer(&self, at: u64, ty: Rc<Type>) -> Value {
        Value::of_bytes(ty, &at.to_le_bytes())
    }

    fn size(&self, ty: &Rc<Type>, at: usize) -> Evaluated {
        let size = self.program.size_of(ty).ok_or_else(|| self.unfit(ty, "a type with a size").at(at))?;
        Ok(self.value(Number::Integer(size.into()), UNSIGNED_LONG.as_type()))
    }

    fn unfit(&self, ty: &Rc<Type>, needed: &'static str) -> Kind {
        Kind::Unfit { found: self.program.type_name(ty), needed }
    }

    /// What a name stands for: a local, a member of `this`, a global, an enumerator, a function.
    fn named(&self, name: &str) -> Option<Value> {
        let in_this = || {
            let this = self.program.local("this", self.view)?;
            let object = self.pointed(this, 0).ok()?;
            self.member(object, name, 0).ok()
        };
        let enumerator = || {
            let (ty, n) = self.program.enumerator(name, self.view)?;
            Some(self.value(Number::Integer(n), ty))
        };
        self.program
            .local(name, self.view)
            .or_else(in_this)
            .or_else(|| self.program.global(name, self.view))
            .or_else(enumerator)
            .or_else(|| self.program.function(name, self.view))
    }

    fn register(&self, name: &str) -> Result<Value, Kind> {
        // `eax` and `r8d` are halves of `rax` and `r8`.
        let half = match name.strip_prefix('e') {
            Some(rest) => Some(format!("r{rest}")),
            None => name.strip_suffix('d').map(str::to_string),
        };
        let (register, narrow) = match (Register::named(name), half.as_deref().and_then(Register::named)) {
            (Some(register), _) => (register, false),
            (None, Some(register)) => (register, true),
            (None, None) => return Err(Kind::UnknownRegister(printable(name))),
        };
        let value = match register {
            Register::FS_BASE => self.program.process.register(register),
            register => self.view.frame.registers.get(register),
        };
        let value = value.ok_or_else(|| Kind::LostRegister(printable(name)))?;
        let function =
            || Type::Function { returns: Target::Void, parameters: vec![], variadic: false, prototyped: false };
        let ty = match register {
            _ if narrow => INT.as_type(),
            Register::RIP => Type::pointer_to(&Rc::new(function())),
            Register::RSP | Register::RBP => Type::pointer_to(&Rc::new(Type::Void)),
            _ => LONG.as_type(),
        };
        Ok(self.value(Number::Integer(value.into()), ty))
    }

    /// An operand of arithmetic: what a reference refers to; arrays and functions as pointers.
    fn operand(&self, node: &Node) -> Evaluated {
        let value = self.object(node)?;
        match &*self.program.strip(&value.ty) {
            Type::Array { element, .. } => {
                let Some(at) = value.address() else { return Err(self.missing(&value).at(node.at)) };
                Ok(self.pointer(at.0, Type::pointer_to(&self.program.load(element))))
            }
            Type::Function { .. } => {
                let Some(at) = value.address() else { return Err(self.missing(&value).at(node.at)) };
                Ok(self.pointer(at.0, Type::pointer_to(&value.ty)))
            }
            _ => Ok(value),
        }
    }

    /// An operand as it is, or what it refers to.
    fn object(&self, node: &Node) -> Evaluated {
        self.dereferenced(self.evaluate(node)?, node.at)
    }

    fn dereferenced(&self, value: Value, at: usize) -> Evaluated {
        match &*self.program.strip(&value.ty) {
            Type::Reference { to, .. } => {
                let bytes = value.bytes(self.program.process, 8).map_err(|m| explain(m).at(at))?;
                let target = bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                Ok(Value::in_memory(self.program.load(to), GuestAddr(target)))
            }
            _ => Ok(value),
        }
    }

    /// Why something that is no memory has no address.
    fn missing(&self, value: &Value) -> Kind {
        match value.store {
            Store::Missing(missing) => explain(missing),
            _ if value.bits.is_some() => {
                Kind::Unfit { found: "bit field".to_string(), needed: "something with an address" }
            }
            _ => Kind::Unfit { found: self.program.type_name(&value.ty), needed: "something in memory" },
        }
    }

    fn number(&self, value: &Value, at: usize) -> Result<(Number, Class), ExpressionError> {
        let class =
            self.program.class(&value.ty).ok_or_else(|| self.unfit(&value.ty, "a number or a pointer").at(at))?;
        Ok((self.program.number(value).map_err(|m| explain(m).at(at))?, class))
    }

    fn condition(&self, node: &Node) -> Result<Number, ExpressionError> {
        Ok(self.number(&self.operand(node)?, node.at)?.0)
    }

    fn unary(&self, operator: &str, operand: &Node, at: usize) -> Evaluated {
        match operator {
            "&" => {
                let value = self.object(operand)?;
                let address = value.address().ok_or_else(|| self.missing(&value).at(operand.at))?;
                Ok(self.pointer(address.0, Type::pointer_to(&value.ty)))
            }
            "*" => self.pointed(self.operand(operand)?, operand.at),
            "!" => Ok(self.truth(!is_true(self.condition(operand)?))),
            _ => {
                let value = self.operand(operand)?;
                let (number, class) = self.number(&value, operand.at)?;
                let of = Arithmetic::promoted(class, value.bits.map(|b| b.1));
                let is_whole = matches!(of, Arithmetic::Integer { .. });
                if class == Class::Pointer || (operator == "~" && !is_whole) {
                    return Err(self.unfit(&value.ty, "a number").at(at));
                }
                let result = match (operator, of.convert(number)) {
                    ("-", Number::Integer(n)) => Number::Integer(n.wrapping_neg()),
                    ("-", Number::Float(n)) => Number::Float(-n),
                    ("~", Number::Integer(n)) => Number::Integer(!n),
                    (_, n) => n,
                };
                Ok(self.value(of.convert(result), of.as_type()))
            }
        }
    }

    /// What a pointer points to.
    fn pointed(&self, value: Value, at: usize) -> Evaluated {
        let stripped = self.program.strip(&value.ty);
        let Type::Pointer { to } = &*stripped else { return Err(self.unfit(&value.ty, "a pointer").at(at)) };
        let target = self.program.load(to);
        if matches!(&*self.program.strip(&target), Type::Void) {
            return Err(self.unfit(&value.ty, "a pointer to something").at(at));
        }
        let (number, _) = self.number(&value, at)?;
        Ok(Value::in_memory(target, GuestAddr(whole(number) as u64)))
    }

    fn index(&self, a: &Node, b: &Node, at: usize) -> Evaluated {
        let array = self.object(a)?;
        let (n, class) = self.number(&self.operand(b)?, b.at)?;
        // An array that is in registers can be indexed, though it has no address.
        if let (Type::Array { element, count }, None) = (&*self.program.strip(&array.ty), array.address()) {
            let element = self.program.load(element);
            let size =
                self.program.size_of(&element).ok_or_else(|| self.unfit(&array.ty, "elements with a size").at(at))?;
            let inside = u64::try_from(whole(n)).ok().filter(|i| matches!(count, Count::Known(c) if i < c));
            let offset = inside.and_then(|i| i.checked_mul(size));
            return match offset {
                Some(offset) => Ok(array.part(element, offset, size, None)),
                None => Err(Kind::OptimizedOut.at(at)),
            };
        }
        let pointer = self.operand(a)?;
        let sum = match class {
            Class::Pointer => self.binary("+", (self.operand(b)?, b.at), (pointer, a.at), at)?,
            _ => self.binary("+", (pointer, a.at), (self.operand(b)?, b.at), at)?,
        };
        self.pointed(sum, a.at)
    }

    fn binary(&self, operator: &str, a: (Value, usize), b: (Value, usize), at: usize) -> Evaluated {
        let ((left, left_class), (right, right_class)) = (self.number(&a.0, a.1)?, self.number(&b.0, b.1)?);
        let pointers = (left_class == Class::Pointer, right_class == Class::Pointer);
        let of_left = Arithmetic::promoted(left_class, a.0.bits.map(|b| b.1));
        let of_right = Arithmetic::promoted(right_class, b.0.bits.map(|b| b.1));
        let common = of_left.common(of_right);
        match (operator, pointers) {
            ("==" | "!=" | "<" | ">" | "<=" | ">=", (false, false)) => {
                Ok(self.truth(compare(operator, left, right, common)))
            }
            ("==" | "!=" | "<" | ">" | "<=" | ">=", _) => Ok(self.truth(compare(operator, left, right, UNSIGNED_LONG))),
            ("+" | "-", (true, false)) => self.moved(&a.0, left, right, operator == "-", b, at),
            ("+", (false, true)) => self.moved(&b.0, right, left, false, a, at),
            ("-", (true, true)) => {
                let size = self.step(&a.0, a.1)?;
                if self.step(&b.0, b.1)? != size {
                    return Err(self.unfit(&b.0.ty, "two pointers of one type").at(at));
                }
                let bytes = wrap(whole(left).wrapping_sub(whole(right)), 64, true);
                Ok(self.value(Number::Integer(bytes / size), LONG.as_type()))
            }
            (_, (true, _)) => Err(self.unfit(&a.0.ty, "a number").at(a.1)),
            (_, (_, true)) => Err(self.unfit(&b.0.ty, "a number").at(b.1)),
            ("<<" | ">>", _) => {
                let (Number::Integer(n), Number::Integer(count)) = (of_left.convert(left), right) else {
                    return Err(self.unfit(&b.0.ty, "whole numbers").at(at));
                };
                let result = shift(operator == "<<", n, count, of_left).map_err(|kind| kind.at(at))?;
                Ok(self.value(result, of_left.as_type()))
            }
            _ => {
                let result = compute(operator, left, right, common).map_err(|kind| kind.at(at))?;
                Ok(self.value(result, common.as_type()))
            }
        }
    }

    /// The size of what a pointer points to.
    fn step(&self, pointer: &Value, at: usize) -> Result<i128, ExpressionError> {
        let stripped = self.program.strip(&pointer.ty);
        let Type::Pointer { to } = &*stripped else { return Err(self.unfit(&pointer.ty, "a pointer").at(at)) };
        let target = self.program.load(to);
        match &*self.program.strip(&target) {
            Type::Void | Type::Function { .. } => Ok(1),
            _ => match self.program.size_of(&target) {
                Some(size @ 1..) => Ok(size.into()),
                _ => Err(self.unfit(&pointer.ty, "a pointer to something with a size").at(at)),
            },
        }
    }

    /// A pointer moved by `count` of what it points to.
    fn moved(
        &self,
        pointer: &Value,
        from: Number,
        count: Number,
        back: bool,
        counted: (Value, usize),
        at: usize,
    ) -> Evaluated {
        let Number::Integer(count) = count else {
            return Err(self.unfit(&counted.0.ty, "a whole number").at(counted.1));
        };
        let distance = self.step(pointer, at)?.wrapping_mul(count);
        let to = if back { whole(from).wrapping_sub(distance) } else { whole(from).wrapping_add(distance) };
        Ok(self.pointer(to as u64, pointer.ty.clone()))
    }

    fn member(&self, whole: Value, name: &str, at: usize) -> Evaluated {
        let stripped = self.program.strip(&whole.ty);
        let whole = if matches!(&*stripped, Type::Pointer { .. }) { self.pointed(whole, at)? } else { whole };
        let stripped = self.program.strip(&whole.ty);
        let Type::Record(record) = &*stripped else {
            return Err(self.unfit(&whole.ty, "a struct or union").at(at));
        };
        let mut searched = 0;
        let found = self.search(&whole, record, name, MAX_DEPTH, &mut searched);
        let of = || self.program.type_name(&whole.ty);
        found.ok_or_else(|| Kind::NoMember { name: printable(name), of: of() }.at(at))
    }

    /// The member in `record` itself, else in what it has without a name or inherits.
    fn search(&self, whole: &Value, record: &Record, name: &str, depth: usize, searched: &mut usize) -> Option<Value> {
        *searched += record.members.len();
        if depth == 0 || *searched > MAX_SEARCHED {
            return None;
        }
        let variants = record.variants.iter().flat_map(|v| v.list.iter().map(|(_, m)| m));
        let mut members = record.members.iter().chain(variants);
        if let Some(member) = members.find(|m| m.name.as_deref() == Some(name)) {
            return Some(self.program.member_value(whole, member));
        }
        record.members.iter().filter(|m| m.name.is_none()).find_map(|m| {
            let value = self.program.member_value(whole, m);
            match &*self.program.strip(&value.ty) {
                Type::Record(inner) => self.search(&value, inner, name, depth - 1, searched),
                _ => None,
            }
        })
    }

    fn cast(&self, value: Value, target: Rc<Type>, at: usize) -> Evaluated {
        let Some(class) = self.program.class(&target) else {
            return Err(self.unfit(&target, "a type of numbers or pointers").at(at));
        };
        let (number, _) = self.number(&value, at)?;
        let number = match class {
            Class::Float { .. } => Number::Float(float(number)),
            Class::Boolean { .. } => Number::Integer(is_true(number).into()),
            class => Number::Integer(wrap(whole(number), class.size() as u32 * 8, class.is_signed())),
        };
        Ok(self.value(number, target))
    }

    fn type_of(&self, text: &TypeText) -> Result<Rc<Type>, ExpressionError> {
        let named = || {
            let name = text.words.first().filter(|_| text.words.len() == 1)?;
            self.program.named_type(name, text.keyword, self.view)
        };
        let base = if text.keyword.is_none() { base_type(&text.words) } else { None };
        let mut ty = base.or_else(named).ok_or_else(|| {
            let words = text.keyword.into_iter().chain(text.words.iter().map(String::as_str));
            Kind::UnknownType(printable(&words.collect::<Vec<_>>().join(" "))).at(text.at)
        })?;
        for _ in 0..text.pointers {
            ty = Type::pointer_to(&ty);
        }
        Ok(ty)
    }
}

pub(super) fn explain(missing: Missing) -> Kind {
    match missing {
        Missing::OptimizedOut | Missing::Synthetic => Kind::OptimizedOut,
        Missing::Memory(at) => Kind::Unreadable(at),
        Missing::Unsupported(_) | Missing::Damaged => Kind::Damaged,
    }
}

fn whole(number: Number) -> i128 {
    match number {
        Number::Integer(n) => n,
        Number::Float(n) => n as i128,
    }
}

/// The first of C's types that an integer fits into.
fn literal(value: u64, unsigned: bool, long: bool, decimal: bool) -> Value {
    let fits = |of: &Arithmetic| match *of {
        Arithmetic::Integer { bits, signed } => wrap(value.into(), bits, signed) == i128::from(value),
        _ => false,
    };
    let allowed = |of: &Arithmetic| match *of {
        Arithmetic::Integer { bits, signed } => {
            (!long || bits == 64) && if signed { !unsigned } else { unsigned || !decimal || bits == 64 }
        }
        _ => false,
    };
    let types = [INT, UNSIGNED, LONG, UNSIGNED_LONG];
    let of = types.into_iter().find(|of| fits(of) && allowed(of)).unwrap_or(UNSIGNED_LONG);
    let size = if of == INT || of == UNSIGNED { 4 } else { 8 };
    Value::of_bytes(of.as_type(), &value.to_le_bytes()[..size])
}

fn base(name: &str, size: u64, encoding: gimli::DwAte) -> Rc<Type> {
    Rc::new(Type::Base { name: name.to_string(), size, encoding })
}

/// A type of C by its words, in any order; `None` for other names.
fn base_type(words: &[String]) -> Option<Rc<Type>> {
    let count = |word: &str| words.iter().filter(|w| *w == word).count();
    let known = ["int", "char", "short", "long", "unsigned", "signed", "float", "double", "void", "_Bool", "bool"];
    if words.iter().any(|w| !known.contains(&w.as_str()) && w != "__int128") {
        return None;
    }
    let (signed, unsigned) = (gimli::DW_ATE_signed, gimli::DW_ATE_unsigned);
    let encoding = if count("unsigned") > 0 { unsigned } else { signed };
    let prefix = if count("unsigned") > 0 { "unsigned " } else { "" };
    let integer = |name: &str, size| Some(base(&format!("{prefix}{name}"), size, encoding));
    match () {
        _ if count("void") > 0 => Some(Rc::new(Type::Void)),
        _ if count("_Bool") > 0 => Some(base("_Bool", 1, gimli::DW_ATE_boolean)),
        _ if count("bool") > 0 => Some(base("bool", 1, gimli::DW_ATE_boolean)),
        _ if count("float") > 0 => Some(base("float", 4, gimli::DW_ATE_float)),
        _ if count("double") > 0 => Some(base("double", 8, gimli::DW_ATE_float)),
        _ if count("char") > 0 && count("unsigned") > 0 => Some(base("unsigned char", 1, gimli::DW_ATE_unsigned_char)),
        _ if count("char") > 0 && count("signed") > 0 => Some(base("signed char", 1, gimli::DW_ATE_signed_char)),
        _ if count("char") > 0 => Some(base("char", 1, gimli::DW_ATE_signed_char)),
        _ if count("short") > 0 => integer("short", 2),
        _ if count("__int128") > 0 => integer("__int128", 16),
        _ if count("long") > 1 => integer("long long", 8),
        _ if count("long") > 0 => integer("long", 8),
        _ => integer("int", 4),
    }
}

impl Program<'_> {
    /// The type called `name`, with the keyword before it if it has one.
    pub fn named_type(&self, name: &str, keyword: Option<&str>, view: View<'_>) -> Option<Rc<Type>> {
        let fits = |ty: &Type| match (keyword, ty) {
            (None, _) => true,
            (Some("enum"), Type::Enumeration { .. }) => true,
            (Some("union"), Type::Record(r)) => r.keyword == "union",
            (Some("struct" | "class"), Type::Record(r)) => r.keyword != "union",
            _ => false,
        };
        let here = view.place.map(|p| p.scope);
        let search = |image: usize| {
            let found = self.find(image, name, Named::Type, here);
            found.into_iter().map(|die| self.type_at(die.at)).find(|ty| fits(ty))
        };
        self.images_from(view).find_map(search)
    }
}

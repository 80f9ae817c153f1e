//! The types of a program, as far as values need them: sizes, members, elements, names.
//!
//! A type is read when it is first needed, and what it refers to only when that is needed in turn, so a list of structs
//! costs one struct. Types that the compiler did not describe but an expression makes (`&x`) are built the same way.
//! Guarantees: no recursion while reading; whoever follows types counts its steps (`MAX_STEPS`), since hostile ones may
//! refer to themselves.
//! May miss: types of variable size other than arrays; members at computed places (virtual base classes).
//! Source: DWARF 5, chapter 5.

use super::dies::{Die, DieRef, Program};
use crate::dwarf::{Candidate, Named, Part};
use gimli::{AttributeValue, DwAte, DwTag};
use std::rc::Rc;

/// How many typedefs, qualifiers and the like are looked through. Real types have a handful.
pub(crate) const MAX_STEPS: usize = 64;
/// How many members and enumerators of one type are kept.
const MAX_MEMBERS: usize = 1 << 16;

/// A type that is read when needed.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Void,
    Entry(DieRef),
    Known(Rc<Type>),
}

#[derive(Clone, Debug)]
pub(crate) enum Type {
    Void,
    Base {
        name: String,
        size: u64,
        encoding: DwAte,
    },
    Pointer {
        to: Target,
    },
    Reference {
        to: Target,
        rvalue: bool,
    },
    Array {
        element: Target,
        count: Count,
    },
    Record(Record),
    Enumeration {
        name: Option<String>,
        size: u64,
        enumerators: Vec<(String, i128)>,
        scoped: bool,
        keyword: bool,
    },
    Typedef {
        name: String,
        to: Target,
    },
    Qualified {
        word: &'static str,
        to: Target,
    },
    Function {
        returns: Target,
        parameters: Vec<Target>,
        variadic: bool,
        prototyped: bool,
    },
    /// A type without values to show, by its name (`decltype(nullptr)`), or one that is damaged.
    Unknown {
        name: String,
        size: u64,
    },
}

/// How many elements an array has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Count {
    Known(u64),
    /// The entry of the bounds, which depend on the frame.
    Computed(DieRef),
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub keyword: &'static str,
    pub name: Option<String>,
    pub size: u64,
    pub members: Vec<Member>,
    /// Rust's enums: which members exist depends on the value of one.
    pub variants: Option<Variants>,
    /// The size and the members are elsewhere or nowhere.
    pub incomplete: bool,
    /// C++ names such types without a keyword.
    pub shows_keyword: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub name: Option<String>,
    pub target: Target,
    /// In bytes from the start.
    pub offset: u64,
    /// Of a bit field: its first bit from the start of the record, and how many.
    pub bits: Option<(u64, u64)>,
    pub base_class: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Variants {
    pub discriminant: Option<Member>,
    /// The value of the discriminant, or `None` for the one that is meant otherwise, and its member.
    pub list: Vec<(Option<u64>, Member)>,
}

impl<'a> Program<'a> {
    pub fn load(&self, target: &Target) -> Rc<Type> {
        match target {
            Target::Void => Rc::new(Type::Void),
            Target::Known(known) => known.clone(),
            Target::Entry(at) => self.type_at(*at),
        }
    }

    pub fn type_at(&self, at: DieRef) -> Rc<Type> {
        if let Some(known) = self.types.borrow().get(&at) {
            return known.clone();
        }
        let read = self.die(at).map(|die| self.read_type(&die));
        let read = Rc::new(read.unwrap_or_else(|| Type::unknown("<damaged type>")));
        self.types.borrow_mut().insert(at, read.clone());
        read
    }

    /// The type behind typedefs and qualifiers.
    pub fn strip(&self, ty: &Rc<Type>) -> Rc<Type> {
        let mut ty = ty.clone();
        for _ in 0..MAX_STEPS {
            let to = match &*ty {
                Type::Typedef { to, .. } | Type::Qualified { to, .. } => to.clone(),
                _ => return ty,
            };
            ty = self.load(&to);
        }
        Rc::new(Type::unknown("<endless type>"))
    }

    /// The size in bytes; `None` where there is none, or it depends on the frame.
    pub fn size_of(&self, ty: &Rc<Type>) -> Option<u64> {
        let mut factor = 1u64;
        let mut ty = ty.clone();
        for _ in 0..MAX_STEPS {
            let next = match &*ty {
                Type::Typedef { to, .. } | Type::Qualified { to, .. } => to.clone(),
                Type::Array { element, count: Count::Known(count) } => {
                    factor = factor.checked_mul(*count)?;
                    element.clone()
                }
                Type::Base { size, .. } | Type::Enumeration { size, .. } => return factor.checked_mul(*size),
                Type::Pointer { .. } | Type::Reference { .. } => return factor.checked_mul(8),
                Type::Record(r) if !r.incomplete => return factor.checked_mul(r.size),
                Type::Unknown { size: 1.., .. } => return None,
                _ => return None,
            };
            ty = self.load(&next);
        }
        None
    }

    fn target(&self, die: &Die<'a>) -> Target {
        match self.inherited(die, gimli::DW_AT_type) {
            // A type that is stated but cannot be found must not become `void`.
            Some((owner, value)) => self
                .follow(owner, &value)
                .map_or_else(|| Target::Known(Rc::new(Type::unknown("<unknown type>"))), Target::Entry),
            None => Target::Void,
        }
    }

    /// The type of a variable, parameter or function.
    pub fn type_of(&self, die: &Die<'a>) -> Rc<Type> {
        self.load(&self.target(die))
    }

    fn read_type(&self, die: &Die<'a>) -> Type {
        let to = self.target(die);
        let name = self.name(die);
        let size = die.number(gimli::DW_AT_byte_size);
        let qualified = |word| Type::Qualified { word, to: to.clone() };
        match die.tag {
            gimli::DW_TAG_base_type => {
                let encoding = match die.attribute(gimli::DW_AT_encoding) {
                    Some(AttributeValue::Encoding(e)) => e,
                    _ => gimli::DW_ATE_unsigned,
                };
                let name = name.unwrap_or_else(|| "<unnamed>".to_string());
                Type::Base { name, size: size.unwrap_or(0), encoding }
            }
            gimli::DW_TAG_pointer_type => Type::Pointer { to },
            gimli::DW_TAG_reference_type => Type::Reference { to, rvalue: false },
            gimli::DW_TAG_rvalue_reference_type => Type::Reference { to, rvalue: true },
            gimli::DW_TAG_typedef => Type::Typedef { name: name.unwrap_or_default(), to },
            gimli::DW_TAG_const_type => qualified("const"),
            gimli::DW_TAG_volatile_type => qualified("volatile"),
            gimli::DW_TAG_restrict_type => qualified("restrict"),
            gimli::DW_TAG_atomic_type => qualified("_Atomic"),
            gimli::DW_TAG_array_type => self.array(die, to),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                self.complete(die, name.as_deref()).unwrap_or_else(|| self.record(die, name))
            }
            gimli::DW_TAG_enumeration_type => {
                self.complete(die, name.as_deref()).unwrap_or_else(|| self.enumeration(die, name, &to))
            }
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_subprogram => self.function_type(die, to),
            _ => Type::Unknown { name: name.unwrap_or_else(|| "<unknown type>".to_string()), size: size.unwrap_or(0) },
        }
    }

    /// The definition of a type that is only declared here.
    fn complete(&self, die: &Die<'a>, name: Option<&str>) -> Option<Type> {
        if !die.flag(gimli::DW_AT_declaration) && !die.has(gimli::DW_AT_signature) {
            return None;
        }
        let same = |d: &Die<'a>| d.tag == die.tag && !d.flag(gimli::DW_AT_declaration);
        // The definition may be named by its signature; else it is the one of the same name.
        let signed = die.attribute(gimli::DW_AT_signature).and_then(|s| self.die(self.follow(die.at, &s)?));
        let named = || self.find(die.at.image, name?, Named::Type, Some(die.at)).into_iter().find(same);
        let found = signed.filter(same).or_else(named)?;
        let name = self.name(&found);
        Some(match found.tag {
            gimli::DW_TAG_enumeration_type => {
                let to = self.target(&found);
                self.enumeration(&found, name, &to)
            }
            _ => self.record(&found, name),
        })
    }

    /// The entries of an image that are called `name`, those of the unit of `first` first.
    pub fn find(&self, image: usize, name: &str, what: Named, first: Option<DieRef>) -> Vec<Die<'a>> {
        let Some(file) = self.file(image, Part::Own) else { return Vec::new() };
        let candidates = file.debug.named(name, what);
        let first = first.filter(|at| at.image == image).map(|at| at.home);
        let (near, far): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|c| Some(c.home) == first);
        let die = |c: &Candidate| self.die(DieRef::of(image, c)).filter(|die| self.name(die).as_deref() == Some(name));
        // The same type is described again in every unit; a few are enough to choose from.
        near.iter().chain(&far).filter_map(die).take(16).collect()
    }

    fn is_cpp(&self, at: DieRef) -> bool {
        let root = self.unit(at).and_then(|(_, unit)| {
            let entry = unit.header.header_size();
            self.die(DieRef { entry, ..at })
        });
        match root.and_then(|r| r.attribute(gimli::DW_AT_language)) {
            Some(AttributeValue::Language(l)) => !matches!(
                l,
                gimli::DW_LANG_C89 | gimli::DW_LANG_C | gimli::DW_LANG_C99 | gimli::DW_LANG_C11 | gimli::DW_LANG_C17
            ),
            _ => false,
        }
    }

    fn array(&self, die: &Die<'a>, mut element: Target) -> Type {
        let counts: Vec<Count> = self
            .children(die.at)
            .into_iter()
            .filter(|d| matches!(d.tag, gimli::DW_TAG_subrange_type | gimli::DW_TAG_enumeration_type))
            .take(MAX_STEPS)
            .map(|d| self.count(&d))
            .collect();
        let (first, inner) = counts.split_first().unwrap_or((&Count::Unknown, &[]));
        for &count in inner.iter().rev() {
            element = Target::Known(Rc::new(Type::Array { element, count }));
        }
        Type::Array { element, count: *first }
    }

    fn count(&self, bounds: &Die<'a>) -> Count {
        if let Some(count) = bounds.number(gimli::DW_AT_count) {
            return Count::Known(count);
        }
        match bounds.attribute(gimli::DW_AT_upper_bound) {
            None if bounds.has(gimli::DW_AT_count) => Count::Computed(bounds.at),
            None => Count::Unknown,
            Some(upper) => match upper.udata_value() {
                // All bits set is how an array without elements is written.
                Some(upper) if upper == u64::MAX || upper == u64::from(u32::MAX) => Count::Known(0),
                Some(upper) => {
                    let lower = bounds.number(gimli::DW_AT_lower_bound).unwrap_or(0);
                    Count::Known(upper.wrapping_sub(lower).wrapping_add(1))
                }
                None if upper.sdata_value() == Some(-1) => Count::Known(0),
                None => Count::Computed(bounds.at),
            },
        }
    }

    fn record(&self, die: &Die<'a>, name: Option<String>) -> Type {
        let keyword = keyword(die.tag);
        let mut record = Record {
            keyword,
            name,
            size: die.number(gimli::DW_AT_byte_size).unwrap_or(0),
            members: Vec::new(),
            variants: None,
            incomplete: die.flag(gimli::DW_AT_declaration),
            shows_keyword: !self.is_cpp(die.at),
        };
        for child in self.children(die.at).into_iter().take(MAX_MEMBERS) {
            match child.tag {
                // A static member is declared here and lies elsewhere.
                gimli::DW_TAG_member if !child.has(gimli::DW_AT_declaration) && !child.has(gimli::DW_AT_external) => {
                    record.members.push(self.member(&child));
                }
                gimli::DW_TAG_inheritance => record.members.push(self.member(&child)),
                gimli::DW_TAG_variant_part => record.variants = Some(self.variants(&child)),
                _ => {}
            }
        }
        Type::Record(record)
    }

    fn member(&self, die: &Die<'a>) -> Member {
        let target = self.target(die);
        let mut offset = match die.attribute(gimli::DW_AT_data_member_location) {
            Some(value) => value.udata_value().or_else(|| simple_offset(&value)).unwrap_or(0),
            None => 0,
        };
        let size = die.number(gimli::DW_AT_bit_size);
        let bits = size.map(|size| match die.number(gimli::DW_AT_data_bit_offset) {
            Some(first) => (first, size),
            None => {
                // Before version 4: counted from the most significant bit of a unit of storage.
                let storage = die.number(gimli::DW_AT_byte_size).or_else(|| self.size_of(&self.load(&target)));
                let from_top = die.number(gimli::DW_AT_bit_offset).unwrap_or(0);
                let top = storage.unwrap_or(0).saturating_mul(8);
                let first = offset.saturating_mul(8).saturating_add(top);
                (first.saturating_sub(from_top.saturating_add(size)), size)
            }
        });
        if let Some((first, _)) = bits {
            offset = first / 8;
        }
        let base_class = die.tag == gimli::DW_TAG_inheritance;
        let name = if base_class { None } else { self.name(die) };
        Member { name, target, offset, bits, base_class }
    }

    fn variants(&self, part: &Die<'a>) -> Variants {
        let at = part.attribute(gimli::DW_AT_discr).and_then(|v| self.follow(part.at, &v));
        let discriminant = at.and_then(|at| self.die(at)).map(|d| self.member(&d));
        let mut list = Vec::new();
        for variant in self.children(part.at).into_iter().filter(|d| d.tag == gimli::DW_TAG_variant).take(MAX_MEMBERS) {
            let value = variant.attribute(gimli::DW_AT_discr_value);
            let value = value.and_then(|v| v.udata_value().or(v.sdata_value().map(|s| s as u64)));
            let members = self.children(variant.at).into_iter().filter(|d| d.tag == gimli::DW_TAG_member);
            list.extend(members.take(1).map(|m| (value, self.member(&m))));
        }
        Variants { discriminant, list }
    }

    fn enumeration(&self, die: &Die<'a>, name: Option<String>, to: &Target) -> Type {
        let underlying = self.strip(&self.load(to));
        let size = die.number(gimli::DW_AT_byte_size).or_else(|| self.size_of(&underlying)).unwrap_or(4);
        let mut enumerators = Vec::new();
        for child in self.children(die.at).into_iter().filter(|d| d.tag == gimli::DW_TAG_enumerator).take(MAX_MEMBERS) {
            let value = child.attribute(gimli::DW_AT_const_value);
            let value = value.and_then(|v| match v {
                AttributeValue::Sdata(n) => Some(i128::from(n)),
                v => v.udata_value().map(i128::from),
            });
            if let (Some(name), Some(value)) = (self.name(&child), value) {
                enumerators.push((name, value));
            }
        }
        let scoped = die.flag(gimli::DW_AT_enum_class);
        Type::Enumeration { name, size, enumerators, scoped, keyword: !self.is_cpp(die.at) }
    }

    fn function_type(&self, die: &Die<'a>, returns: Target) -> Type {
        let children = self.children(die.at);
        let variadic = children.iter().any(|d| d.tag == gimli::DW_TAG_unspecified_parameters);
        let parameters = children.iter().filter(|d| d.tag == gimli::DW_TAG_formal_parameter);
        let parameters = parameters.take(MAX_STEPS).map(|d| self.target(d)).collect();
        let prototyped = die.flag(gimli::DW_AT_prototyped) || self.is_cpp(die.at);
        Type::Function { returns, parameters, variadic, prototyped }
    }
}

impl Type {
    pub fn unknown(name: &str) -> Type {
        Type::Unknown { name: name.to_string(), size: 0 }
    }

    pub fn pointer_to(ty: &Rc<Type>) -> Rc<Type> {
        Rc::new(Type::Pointer { to: Target::Known(ty.clone()) })
    }
}

fn keyword(tag: DwTag) -> &'static str {
    match tag {
        gimli::DW_TAG_class_type => "class",
        gimli::DW_TAG_union_type => "union",
        _ => "struct",
    }
}

/// `DW_OP_plus_uconst n`, as old compilers write a member's place.
fn simple_offset<R: gimli::Reader>(value: &AttributeValue<R>) -> Option<u64> {
    let mut bytes = value.exprloc_value()?.0;
    (bytes.read_u8().ok()? == gimli::DW_OP_plus_uconst.0).then(|| bytes.read_uleb128().ok()).flatten()
}

//! What a parameter was when its function was entered, by what the caller passed.
//!
//! Optimized code often keeps a parameter only until it was used, and says "its value on entry" from then on. The call
//! site in the caller's debug information says how the caller computed that value, and often it still can be.
//!
//! Guarantee: a value is given only when the call site names this very function as what it calls. A tail call in between
//! would pass other values.
//! May miss: calls through pointers; parameters on the stack; values more than `MAX_CALLERS` calls away.
//! Source: DWARF 5, sections 2.5.1.7 and 3.4; the GNU extensions of version 4 that became them.

use super::dies::{Die, DieRef, Program};
use super::location::{FrameMachine, View};
use crate::evaluate::evaluate_address;
use crate::process::Register;
use crate::unwind::Origin;
use gimli::{DwTag, Operation, UnitRef};

/// How many calls back a value is followed. Each is a recursion, and real chains have one or two.
pub(super) const MAX_CALLERS: usize = 8;
/// How many entries a definition, its declaration and its original are.
const MAX_LINKS: usize = 4;

impl<'a> Program<'a> {
    /// What `register` was when the function of `view` was entered.
    pub(super) fn entry_value(&self, register: Register, view: View<'_>) -> Option<u64> {
        let (caller, callers) = view.callers.split_first()?;
        if caller.origin != Origin::CallFrame || caller.trampoline {
            return None;
        }
        let image = caller.image?;
        let bias = self.loaded(image)?.bias;
        let place = self.place(image, bias.to_image(caller.at).0, 0)?;
        let site = self.call_site(place.function, bias.to_image(caller.pc).0)?;
        let callee =
            site.attribute(gimli::DW_AT_call_origin).or_else(|| site.attribute(gimli::DW_AT_abstract_origin))?;
        if !self.is_same_function(self.follow(site.at, &callee)?, view.place?.function) {
            return None;
        }
        let (file, unit) = self.unit(site.at)?;
        let passes = |die: &Die<'a>| {
            let location = die.attribute(gimli::DW_AT_location)?.exprloc_value()?;
            let mut operations = location.operations(unit.encoding());
            let first = operations.next().ok()??;
            matches!(first, Operation::Register { register: r } if r.0 == register.0).then_some(())
        };
        let parameter = self.children(site.at).into_iter().find(|d| is_parameter(d.tag) && passes(d).is_some())?;
        let value = parameter.attribute(gimli::DW_AT_call_value);
        let value = value.or_else(|| parameter.attribute(gimli::DW_AT_GNU_call_site_value))?.exprloc_value()?;
        let view = View { frame: caller, callers, place: Some(place) };
        let machine: FrameMachine<'_, 'a> = self.machine(image, UnitRef::new(&file.dwarf, &unit), view);
        evaluate_address(value, unit.encoding(), None, &machine).ok().map(|value| value.0)
    }

    /// The call in `function` that returns to `address`.
    fn call_site(&self, function: DieRef, address: u64) -> Option<Die<'a>> {
        let mut site = None;
        self.walk(function, |die| {
            let returns_to = match die.tag {
                gimli::DW_TAG_call_site => die.attribute(gimli::DW_AT_call_return_pc),
                gimli::DW_TAG_GNU_call_site => die.attribute(gimli::DW_AT_low_pc),
                _ => None,
            };
            let returns_to = returns_to.and_then(|value| {
                let (file, unit) = self.unit(die.at)?;
                file.dwarf.attr_address(&unit, value).ok()?
            });
            if returns_to == Some(address) {
                site = Some(die);
            }
            site.is_none()
        });
        site
    }

    /// Do both entries describe one function: the same entry, or the same declaration or original, or the same name?
    fn is_same_function(&self, a: DieRef, b: DieRef) -> bool {
        let chain = |at: DieRef| {
            let mut chain: Vec<Die<'a>> = self.die(at).into_iter().collect();
            while let Some(next) = chain.last().filter(|_| chain.len() < MAX_LINKS).and_then(|d| self.origin(d)) {
                let Some(die) = self.die(next) else { break };
                chain.push(die);
            }
            chain
        };
        let (a, b) = (chain(a), chain(b));
        if a.iter().any(|x| b.iter().any(|y| x.at == y.at)) {
            return true;
        }
        let external = |chain: &[Die<'a>]| chain.iter().any(|d| d.flag(gimli::DW_AT_external));
        let linkage = |chain: &[Die<'a>]| {
            let (owner, value) = self.inherited(chain.first()?, gimli::DW_AT_linkage_name)?;
            self.text(owner, value)
        };
        let name = |chain: &[Die<'a>]| linkage(chain).or_else(|| self.name(chain.first()?));
        // Only one function of a program has a name that all of it can see.
        external(&a) && external(&b) && name(&a).is_some() && name(&a) == name(&b)
    }
}

fn is_parameter(tag: DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_call_site_parameter | gimli::DW_TAG_GNU_call_site_parameter)
}

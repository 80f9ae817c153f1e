//! Which variables are visible at a place in a function.
//!
//! Starting with the function, or one inlined call of it, the blocks around the place are entered one after the other;
//! other inlined calls are not, since they are frames of their own. What the optimizer removed from a function's copy
//! is taken from the original, so that it is reported as optimized out rather than missing.
//! Source: DWARF 5, sections 3.3.8 and 3.5; the treatment of removed variables follows gdb.

use super::dies::{Die, DieRef, Program};
use crate::dwarf::{Home, Part};

/// How many variables of one frame are reported.
const MAX_VARIABLES: usize = 10_000;

/// A variable or parameter that is visible.
#[derive(Clone, Debug)]
pub(crate) struct Local<'a> {
    pub die: Die<'a>,
    pub name: String,
    pub parameter: bool,
    /// How many blocks of the function are around its declaration.
    pub nesting: u32,
}

/// The function that a frame belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The function, or the inlined call.
    pub scope: DieRef,
    /// The machine function, which has the frame base.
    pub function: DieRef,
    /// The address in the image.
    pub at: u64,
}

impl<'a> Program<'a> {
    /// The function at `at` of an image; `level` 0 is the innermost of those inlined there.
    pub fn place(&self, image: usize, at: u64, level: usize) -> Option<Place> {
        let found = self.file(image, Part::Own)?.debug.scope(at)?;
        let home = Home { part: found.part, types: false, unit: found.unit };
        let die = |entry: usize| DieRef { image, home, entry };
        let index = found.functions.len().checked_sub(level)?.checked_sub(1)?;
        Some(Place { scope: die(*found.functions.get(index)?), function: die(*found.functions.first()?), at })
    }

    /// The variables of the function at `place`, the innermost block first, in each block as declared.
    pub fn locals(&self, place: Place) -> Vec<Local<'a>> {
        let mut blocks: Vec<Vec<Local<'a>>> = Vec::new();
        let mut next = self.die(place.scope);
        while let Some(block) = next.take() {
            let (locals, inner) = self.block(&block, place.at, blocks.len() as u32);
            blocks.push(locals);
            next = inner;
        }
        blocks.into_iter().rev().flatten().take(MAX_VARIABLES).collect()
    }

    /// The variables of one block, and the block in it that holds `at`.
    fn block(&self, block: &Die<'a>, at: u64, nesting: u32) -> (Vec<Local<'a>>, Option<Die<'a>>) {
        let (mut locals, mut inner) = (Vec::new(), None);
        let mut completed: Vec<DieRef> = Vec::new();
        let mut add = |die: Die<'a>| {
            let parameter = die.tag == gimli::DW_TAG_formal_parameter;
            if let Some(name) = self.name(&die) {
                locals.push(Local { die, name, parameter, nesting });
            }
        };
        for child in self.children(block.at) {
            completed.extend(self.origin(&child));
            match child.tag {
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => add(child),
                gimli::DW_TAG_lexical_block if inner.is_none() && self.covers(&child, at) == Some(true) => {
                    inner = Some(child);
                }
                _ => {}
            }
        }
        // What is left of the original was optimized away, or needs no place of its own (constants, statics).
        if let Some(origin) = self.origin(block).filter(|_| block.has(gimli::DW_AT_abstract_origin)) {
            for child in self.children(origin).into_iter().filter(|c| !completed.contains(&c.at)) {
                if matches!(child.tag, gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter) {
                    add(child);
                }
            }
        }
        (locals, inner)
    }
}

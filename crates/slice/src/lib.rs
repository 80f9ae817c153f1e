//! Dynamic slices: what made a value so, and why was it computed at all?
//!
//! ```text
//! trace ─ Builder ─▶ Window (blocks, addresses, control parents) ─ backward ─▶ Slice (nodes, distances, paths, inputs)
//!                       ▲ Facts: merges, saves and restores (from crate `flow`)
//! ```
//! [`window`] holds a traced stretch, [`insn`] says what each instruction makes of what, `control` who decided about
//! what, [`mod@backward`] walks. Nothing here knows a live process; whoever has one feeds a [`window::Builder`].

mod addresses;
pub mod backward;
pub mod chops;
pub mod code;
mod column;
mod control;
mod decisions;
pub mod executed;
pub mod facts;
pub mod forward;
pub mod graph;
pub mod influence;
pub mod insn;
mod instances;
#[cfg(test)]
mod made;
pub mod pair;
pub mod places;
mod quick;
pub mod registers;
mod seam;
pub mod sites;
mod stretches;
mod syscalls;
mod wants;
pub mod window;

pub use backward::{Backward, Criterion, Omit, Options, Sent, SoFar, backward};
pub use chops::{both_sides, from_input, within};
pub use executed::Executed;
pub use facts::{Border, Facts, MayDefine, Merge, NoFacts};
pub use forward::{Forward, forward};
pub use graph::{Called, Delivered, Edge, Input, Node, Site, Slice, Why};
pub use influence::{Influence, influence};
pub use instances::Instance;
pub use pair::Pair;
pub use places::{Places, Shown};
pub use registers::RegId;
pub use sites::Sites;
pub use window::{Builder, CallEffects, Prepare, Window};

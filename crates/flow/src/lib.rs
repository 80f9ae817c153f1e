//! A static view of one image: functions, their control flow, and where branches come together again.
//!
//! [`Flow`] is given the bytes of an image's executable sections and what is known about its functions. It finds a
//! function's code by recursive descent when it is first asked for, and keeps it. What a run shows (targets of indirect
//! jumps and calls, landing pads) is added with [`Flow::observe`]; functions that this changes are analysed again.
//!
//! Addresses are *image addresses*: ELF virtual addresses, without the bias of a mapping.
//!
//! Guarantee: every edge that a run shows is in the graph once it was observed; the same bytes, hints, observations and
//! questions give the same answers (an address that is asked for counts as seen); hostile bytes give a small or cut
//! graph, never a panic. The test `against_runs` compares all of this with programs that are stepped through.
//!
//! What it may miss: targets of indirect jumps that neither a recognised jump table nor a run shows; code that only a
//! landing pad reaches, until it is observed or asked for; functions that neither a hint nor a call shows.

mod call_graph;
mod code;
mod define;
mod discover;
mod dominators;
mod extents;
mod function;
mod jump_table;
mod merging;
mod places;
mod returns;
mod saves;
mod summaries;
mod view;

pub use call_graph::Callees;
pub use code::CodeRange;
pub use define::MayDefine;
pub use extents::{FunctionHint, Import};
pub use function::{Block, CallSite, CallTarget, Ending, Exit, Function, Merge};
pub use places::Place;
pub use saves::{MAX_SAVES, Save};
pub use view::Flow;

//! Formats of trace windows: what the engine writes, what the host reads, and the plan that both derive from a block.
//!
//! A trace is one stream of records for all threads of a process, in execution order. A record names a block that ran
//! and holds the few register values from which all addresses the block touched can be computed; the [`plan`] says
//! which. Both sides compute the plan from the same instructions, so it never travels.
//!
//! Without the feature `host` this crate is `no_std` and holds only [`mod@plan`], [`mod@motion`] and [`mod@format`], which the
//! engine uses. With it come the reference decoder, the fast consumer, the ring's reader and the checker.
#![cfg_attr(not(any(test, feature = "host")), no_std)]
extern crate alloc;

pub mod format;
pub mod motion;
pub mod plan;
mod recall;

#[cfg(feature = "host")]
pub mod block;
#[cfg(feature = "host")]
pub mod check;
#[cfg(feature = "host")]
pub mod checksum;
#[cfg(feature = "host")]
pub mod chunk;
#[cfg(feature = "host")]
pub mod consume;
#[cfg(feature = "host")]
pub mod decode;
#[cfg(feature = "host")]
pub mod event;
#[cfg(feature = "host")]
mod mapping;
#[cfg(feature = "host")]
pub mod ring;
#[cfg(feature = "host")]
pub mod synthetic;
#[cfg(feature = "host")]
mod template;

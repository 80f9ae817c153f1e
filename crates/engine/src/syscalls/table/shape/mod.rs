//! Calls whose memory depends on a command, a flag or a structure: one named function for each.
//!
//! Guarantees and limits are those of [`super::call`]. Each function lists exactly the `Shaped` arguments of its row;
//! everything else of the row is listed from its kinds. Where a family of commands is open-ended (ioctl, socket
//! options, bpf), [`super::misses`] says which calls are not fully described.
//! Source: the bodies of the system calls in Linux, whose order of copying decides what a failed call has written.

pub mod control;
pub mod events;
pub mod files;
pub mod ipc;
pub mod memory;
pub mod net;
pub mod task;

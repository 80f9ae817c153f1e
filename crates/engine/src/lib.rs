//! Clew's engine: runs a native program in its own process from a code cache, where it can be watched and altered.
//!
//! The engine translates, runs, intercepts and alters; it judges nothing. All `unsafe` code of size in Clew is here.
//! This is a library so that ordinary tests can exercise its parts; the freestanding program around it is `engine-bin`.
//!
//! Reading order: [`load`] brings a program into memory, [`run`] is the loop that executes it, [`blocks`], [`translate`],
//! [`cache`] and [`direct`] make its code and let it find its way, [`vault`] protects it, [`gate`] is the passage between both worlds, [`syscalls`], [`signals`] and [`threads`] are what it meets
//! outside.
#![cfg_attr(not(test), no_std)]
#![expect(unsafe_code, reason = "the engine is the one crate that holds it; every block says why it is sound")]
extern crate alloc;

pub mod address_map;
pub mod blocks;
pub mod cache;
pub mod code_pages;
pub mod cpu;
pub mod direct;
pub mod files;
pub mod fork;
pub mod gate;
pub mod heap;
pub mod images;
pub mod load;
pub mod memory;
pub mod pc_table;
pub mod pool;
pub mod probes;
pub mod procfs;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod seccomp;
pub mod shared_page;
pub mod signals;
pub mod specials;
pub mod start;
pub mod state;
pub mod sys;
pub mod syscalls;
pub mod text;
pub mod threads;
pub mod tracer;
pub mod translate;
pub mod trial;
pub mod vault;

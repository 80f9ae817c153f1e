//! Program files as people see them: which function, file and line an address belongs to, and the way back; which
//! variables are there, and what they hold.
//!
//! [`Image`] is one ELF file with its debug information, which may lie in separate files; [`Images`] keeps many of
//! them and turns addresses into sentences; [`Describe`] turns a crash into lines of text.
//! Of a process that is [`Stopped`], [`backtrace`] tells which function called which, and an [`Inspector`] what the
//! variables and expressions of a frame hold. This crate never touches a process itself: whoever has one lends it.
//! Nothing is parsed until a question needs it: opening an image reads headers only, the first question about an
//! address reads the tables of the one compilation unit that holds it.
//!
//! Guarantees: no `unsafe`, no panic, and work and memory linear in the size of the files, whatever their contents.
//! Damage makes an answer less precise before it makes it an error.
//! An answer is never wrong on purpose: a guess is marked as one ([`FoundBy::Nearest`]).
//!
//! Limits: x86-64 little-endian ELF only; no `.gnu_debugdata`, no zstd-compressed sections. Nothing is fetched from a
//! network unless the user names servers ([`Debuginfod`]).

mod address;
mod debuginfod;
mod demangle;
mod describe;
mod dwarf;
mod elf;
mod error;
mod evaluate;
mod expression;
mod functions;
mod image;
mod images;
mod line_table;
mod mapping;
mod plt;
mod process;
mod range_map;
mod return_address;
mod separate;
mod signals;
mod source;
mod symbols;
mod text;
mod unwind;
mod variables;

pub use address::{Bias, FileOffset, ImageOffset, Position};
pub use debuginfod::Debuginfod;
pub use demangle::demangle;
pub use describe::Describe;
pub use elf::BuildId;
pub use error::{ImageError, ImageErrorKind};
pub use expression::{Answer, ExpressionError, ExpressionErrorKind};
pub use functions::{CodeSection, FunctionRange, KnownBy};
pub use image::{FoundBy, Frame, Function, Image, LineSpan, Location};
pub use images::Images;
pub use line_table::{LineRow, LineTable};
pub use mapping::SourceMap;
pub use process::{LoadedImage, LoadedImages, MappedFile, Register, Registers, Stopped};
pub use separate::Search;
pub use symbols::{Symbol, SymbolKind, Symbols};
pub use unwind::{Backtrace, End, Origin, StackFrame, backtrace};
pub use variables::{Inspector, Role, Storage, Variable};

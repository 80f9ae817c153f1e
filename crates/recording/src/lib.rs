//! Recordings on disk: the folder, its logs, its kept files, the store they share, and packs.
//!
//! [`Folder`] is a recording being written, [`Recording`] one being read, [`Home`] the place where they live, and
//! [`pack()`] makes one portable file of one. docs/recording-format.md describes every byte.
//!
//! Guarantees: what the engine committed is read back, or the log ends before the first record that is not as it was
//! written, and says so. Content is never believed: lengths are bounded before memory is reserved, names cannot lead
//! out of a folder, links are not followed, and no content makes a reader panic. Nothing here prints.
//!
//! May miss: checks tell accidents, not forgeries. A log that was cut exactly behind a record looks like a process that
//! was killed there.

mod chunk;
mod disk;
mod error;
mod folder;
mod home;
mod join;
mod log;
mod meta;
mod missing;
mod name;
mod pack;
mod promises;
mod reader;
mod segment;
mod store;
mod unpack;

pub use error::{Error, Kind as ErrorKind, Result};
pub use folder::{Folder, Sealed};
pub use home::{Entry, Home, Removed, State};
pub use log::{Log, Records};
pub use meta::{Meta, Status};
pub use missing::Missing;
pub use name::UnitName;
pub use pack::{PackEntry, PackSummary, pack};
pub use promises::assert_promises;
pub use reader::{Recording, Unit};
pub use segment::MAX_SEGMENT;
pub use unpack::{is_pack, pack_contents, unpack};

//! Many images by path, and sentences about addresses in them.
//!
//! Every message that names a place in a program gets it here. A file that cannot be opened is remembered too, so that
//! it is tried once. Paths are as the kernel shows them in a process's list of mappings.
//! Limit: a file that was replaced after it was mapped is described as it is now.

use crate::address::{ImageOffset, Position};
use crate::error::ImageError;
use crate::image::{FoundBy, Frame, Image, Location, shorten};
use crate::separate::Search;
use crate::text::{printable, printable_path};
use model::GuestAddr;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

type Opened = Result<Arc<Image>, Arc<ImageError>>;

/// Images that were asked for.
#[derive(Debug, Default)]
pub struct Images {
    search: Search,
    opened: Mutex<HashMap<PathBuf, Opened>>,
}

impl Images {
    pub fn new() -> Images {
        Images::default()
    }

    pub fn with_search(search: Search) -> Images {
        Images { search, opened: Mutex::default() }
    }

    pub fn get(&self, path: impl AsRef<Path>) -> Opened {
        let path = path.as_ref();
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = opened.get(path) {
            return known.clone();
        }
        let image = Image::open_with(path, self.search.clone()).map(Arc::new).map_err(Arc::new);
        opened.insert(path.to_path_buf(), image.clone());
        image
    }

    /// Where `position` of the file `path` lies, in one sentence without a full stop:
    /// `parse_header at src/parse.c:88 (in /usr/bin/foo+0x1234)`. `addr` is where the guest has it, for places without
    /// a file.
    pub fn describe(&self, path: &str, position: impl Into<Position>, addr: GuestAddr) -> String {
        let place = self.place(path, position.into(), addr);
        let mut text = match place.names.split_first() {
            None => return place.address,
            Some((first, rest)) => rest.iter().fold(first.clone(), |text, name| format!("{text}, inlined into {name}")),
        };
        text.push_str(&format!(" (in {})", place.address));
        text
    }

    /// What is known about a position, in words.
    pub(crate) fn place(&self, path: &str, position: Position, addr: GuestAddr) -> Place {
        // Besides files there are mappings with names like `[vdso]`.
        if !path.starts_with('/') {
            let what =
                if path.is_empty() { "no file is mapped there".to_string() } else { format!("in {}", printable(path)) };
            return Place::unnamed(format!("{addr} ({what})"));
        }
        let shown = printable_path(Path::new(path));
        let in_file = |position: Position| match position {
            Position::File(at) => format!("{shown} at file offset {at}"),
            Position::Image(at) => format!("{shown}+{at}"),
        };
        let Ok(image) = self.get(path) else { return Place::unnamed(in_file(position)) };
        let Some(at) = image.resolve(position) else { return Place::unnamed(in_file(position)) };
        Place { names: names(&image.locate(at)), address: format!("{shown}+{at}"), image: Some((image, at)) }
    }
}

/// A position in words.
#[derive(Debug)]
pub(crate) struct Place {
    /// `function at file:line`, the innermost first; empty when nothing has a name.
    pub names: Vec<String>,
    /// `file+offset`, or what else there is to say.
    pub address: String,
    pub image: Option<(Arc<Image>, ImageOffset)>,
}

impl Place {
    fn unnamed(address: String) -> Place {
        Place { names: Vec::new(), address, image: None }
    }
}

fn names(location: &Location) -> Vec<String> {
    if location.found_by == FoundBy::Nothing {
        return Vec::new();
    }
    let machine_function = location.inlined.len();
    let name = |(i, frame): (usize, Frame)| {
        let Frame { function, file, line, .. } = frame;
        let mut text = function.as_deref().map_or_else(|| "a function without a name".to_string(), printable);
        // Without a line the distance from the start is the best there is.
        if i == machine_function && line.is_none() && function.is_some() && location.offset_in_function != 0 {
            text.push_str(&format!("+{:#x}", location.offset_in_function));
        }
        if location.found_by == FoundBy::Nearest {
            text.insert_str(0, "near ");
        }
        if let Some(file) = file {
            let file = printable_path(shorten(&file, location.folder.as_deref()));
            text.push_str(&line.map_or_else(|| format!(" in {file}"), |line| format!(" at {file}:{line}")));
        }
        text
    };
    location.frames().into_iter().enumerate().map(name).collect()
}

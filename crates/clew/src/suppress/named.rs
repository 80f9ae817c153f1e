//! What `--at` names: a place in the code or a function, and one execution of it or all.

use crate::case::{At, Place};

/// What to leave out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    pub thing: Thing,
    pub instance: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Thing {
    Place(Place),
    Function(String),
}

impl std::str::FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        if let Ok(At { place, instance }) = text.parse() {
            return Ok(Named { thing: Thing::Place(place), instance });
        }
        let wrong = || format!("`{text}` is no place: write FILE:LINE[#N], FUNCTION[#N] or IMAGE+0xOFFSET[#N]");
        let (name, instance) = match text.rsplit_once('#') {
            Some((name, n)) => (name, Some(n.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?)),
            None => (text, None),
        };
        // `space::name` is a function, `file.c:` is nothing.
        let is_line = name.replace("::", "").contains(':');
        if name.is_empty() || is_line || name.contains("+0x") {
            return Err(wrong());
        }
        Ok(Named { thing: Thing::Function(name.to_owned()), instance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_beside_lines_and_offsets() {
        let function = |name: &str| Thing::Function(name.to_owned());
        for (text, thing, instance) in [
            ("a.c:12#4", Thing::Place(Place::Line("a.c".into(), 12)), Some(4)),
            ("prog+0x1f", Thing::Place(Place::Offset(0x1f)), None),
            ("release#2", function("release"), Some(2)),
            ("space::release", function("space::release"), None),
        ] {
            assert_eq!(text.parse(), Ok(Named { thing, instance }), "{text}");
        }
        for wrong in ["", "#2", "a.c:", "a.c:0", "release#", "release#0", "prog+0xg"] {
            assert!(wrong.parse::<Named>().is_err(), "{wrong}");
        }
    }
}

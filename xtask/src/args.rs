//! Command-line arguments of a task: `--name value`, `--name=value`, `--flag`, and positional words.
//!
//! Guarantees: an option that a task does not know is an error that names it, so a misspelt option never runs a
//! different check than the one asked for.

/// Arguments that have not been asked for yet.
#[derive(Debug, Default)]
pub struct Args {
    words: Vec<String>,
}

impl Args {
    pub fn new(words: impl IntoIterator<Item = String>) -> Args {
        let mut split = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => split.extend([name.to_owned(), value.to_owned()]),
                _ => split.push(word),
            }
        }
        Args { words: split }
    }

    /// Takes `name` if it is there.
    pub fn flag(&mut self, name: &str) -> bool {
        match self.words.iter().position(|w| w == name) {
            Some(i) => {
                self.words.remove(i);
                true
            }
            None => false,
        }
    }

    /// Takes `name VALUE` if it is there.
    pub fn value(&mut self, name: &str) -> Result<Option<String>, String> {
        let Some(i) = self.words.iter().position(|w| w == name) else { return Ok(None) };
        self.words.remove(i);
        if i >= self.words.len() {
            return Err(format!("{name} needs a value"));
        }
        Ok(Some(self.words.remove(i)))
    }

    /// Takes `name NUMBER` if it is there.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.value(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{name} needs a number, not `{text}`"))
    }

    /// Takes the first word that is not an option.
    pub fn word(&mut self) -> Option<String> {
        let i = self.words.iter().position(|w| !w.starts_with("--"))?;
        Some(self.words.remove(i))
    }

    /// Everything must have been taken by now.
    pub fn finish(self) -> Result<(), String> {
        match self.words.first() {
            Some(word) => Err(format!("unknown argument `{word}`")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Args {
        Args::new(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_taken_in_any_order() {
        let mut a = args("engine --jobs=2 --keep --mode trace");
        assert_eq!(a.value("--mode"), Ok(Some("trace".to_owned())));
        assert_eq!(a.number("--jobs"), Ok(Some(2)));
        assert!(a.flag("--keep"));
        assert_eq!(a.word(), Some("engine".to_owned()));
        assert_eq!(a.finish(), Ok(()));
    }

    #[test]
    fn an_unknown_option_is_named() {
        assert_eq!(args("--moed trace").finish(), Err("unknown argument `--moed`".to_owned()));
        assert_eq!(args("--jobs many").number("--jobs"), Err("--jobs needs a number, not `many`".to_owned()));
        assert_eq!(args("--mode").value("--mode"), Err("--mode needs a value".to_owned()));
    }
}

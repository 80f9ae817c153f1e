//! A parser of framesets with a bug, and what the original found for it: a check against published figures.
//!
//! Letters stand for tags: H head, S frameset, F frame, N noframes, B body, P paragraph, a quoted letter for text, `/X` for
//! an end. It fails where a paragraph behind the body is in a frameset that is not the outermost one.
//!
//! Source: the running example of relevant input analysis, and the figures of ddmin there.

use super::tested::made::Made;
use super::tested::{Outcome, Tested};
use super::{Grain, Input, ddmin};

#[derive(Default)]
struct Parser<'a> {
    rest: &'a [u8],
    /// Children of nodes, and what nodes are.
    children: Vec<Vec<usize>>,
    tags: Vec<u8>,
    outermost: Option<usize>,
    has_seen_end_of_body: bool,
}

/// A child was added to nothing.
struct Died;

impl Parser<'_> {
    fn peek(&self) -> u8 {
        self.rest.first().copied().unwrap_or(0)
    }

    fn get(&mut self) -> u8 {
        let byte = self.peek();
        self.rest = self.rest.get(1..).unwrap_or_default();
        byte
    }

    /// Takes this byte if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let comes = self.peek() == byte && !self.rest.is_empty();
        if comes {
            self.get();
        }
        comes
    }

    fn node(&mut self, tag: u8) -> usize {
        self.tags.push(tag);
        self.children.push(Vec::new());
        self.tags.len() - 1
    }

    fn add(&mut self, to: Option<usize>, tag: u8) -> Result<usize, Died> {
        let node = self.node(tag);
        self.children[to.ok_or(Died)?].push(node);
        Ok(node)
    }

    fn end(&mut self) {
        if self.get() == b'/' {
            self.get();
        }
    }

    fn document(&mut self) -> Result<(), Died> {
        if self.take(b'H') {
            let head = self.node(b'H');
            self.text(head)?;
            self.end();
        }
        self.frameset(None)
    }

    fn frameset(&mut self, parent: Option<usize>) -> Result<(), Died> {
        if self.get() != b'S' {
            return Ok(());
        }
        let set = match parent {
            Some(parent) => self.add(Some(parent), b'S')?,
            None => self.node(b'S'),
        };
        self.outermost.get_or_insert(set);
        loop {
            match self.peek() {
                b'S' => self.frameset(Some(set))?,
                b'F' => {
                    self.get();
                    self.add(Some(set), b'F')?;
                }
                _ => break,
            }
        }
        if self.take(b'N') {
            let node = self.add(Some(set), b'N')?;
            self.outside()?;
            self.body(node)?;
            self.outside()?;
            self.end();
        }
        self.end();
        Ok(())
    }

    fn outside(&mut self) -> Result<(), Died> {
        match self.has_seen_end_of_body {
            true => {
                let body = self.find_body();
                self.paragraphs(body)
            }
            false => {
                let nobody = self.node(0);
                self.paragraphs(Some(nobody))
            }
        }
    }

    fn body(&mut self, parent: usize) -> Result<(), Died> {
        if self.take(b'B') {
            let body = self.add(Some(parent), b'B')?;
            self.paragraphs(Some(body))?;
            if self.get() == b'/' && self.get() == b'B' {
                self.has_seen_end_of_body = true;
            }
        }
        Ok(())
    }

    fn paragraphs(&mut self, body: Option<usize>) -> Result<(), Died> {
        while self.take(b'P') {
            let paragraph = self.add(body, b'P')?;
            self.text(paragraph)?;
            self.end();
        }
        Ok(())
    }

    fn text(&mut self, parent: usize) -> Result<(), Died> {
        if self.take(b'"') {
            self.get();
            self.add(Some(parent), b'T')?;
            self.get();
        }
        Ok(())
    }

    fn find_body(&self) -> Option<usize> {
        let child = |of: usize, tag: u8| self.children[of].iter().copied().find(|c| self.tags[*c] == tag);
        child(child(self.outermost?, b'N')?, b'B')
    }
}

fn program(input: &[u8]) -> Outcome {
    match (Parser { rest: input, ..Parser::default() }).document() {
        Err(Died) => Outcome::Fails,
        Ok(()) => Outcome::Passes,
    }
}

#[test]
fn ddmin_finds_what_was_published() {
    let text = br#"H"t"/HSFFFSFFNP"a"/PP"b"/PBP"c"/PP"d"/P/BP"e"/PP"f"/P/N/S/S"#;
    assert_eq!((text.len(), program(text)), (59, Outcome::Fails));
    let mut made = Made::new(1, program);
    let mut best = Input::new(text);
    assert!(ddmin::reduce(&mut Tested::new(&mut made), &mut best, Grain::Bytes).is_ok());
    assert_eq!(String::from_utf8_lossy(&best.bytes), r#"H""/HSSNPPBP""/PP""/P/BP"#);
    // The original counts 222 and does not know when two parts are the same text.
    assert!((100..=222).contains(&made.runs), "{}", made.runs);
}

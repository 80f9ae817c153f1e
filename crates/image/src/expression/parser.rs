//! The structure of an expression.
//!
//! Whether `(name)` is a cast depends on whether the name is a type, so the parser asks.
//! Guarantees: the text, the number of nodes and the nesting are limited, so neither this nor the evaluation can exhaust
//! the stack. Source: C17, section 6.5.

use super::error::{ExpressionError, ExpressionErrorKind as Kind};
use super::lexer::{Token, Word, words};
use crate::text::printable;

/// Longer texts are not typed by people.
const MAX_TEXT: usize = 4096;
/// How many operators, names and literals an expression may have.
const MAX_NODES: usize = 300;
/// How deeply they may nest while they are read.
const MAX_NESTING: usize = 60;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Node {
    /// Where the operator or the word stands in the text.
    pub at: usize,
    pub what: What,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum What {
    Integer {
        value: u64,
        unsigned: bool,
        long: bool,
        decimal: bool,
    },
    Float {
        value: f64,
        single: bool,
    },
    Character(u8),
    Name(String),
    Register(String),
    /// One of `* & - + ! ~`.
    Unary(&'static str, Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Member(Box<Node>, String),
    Index(Box<Node>, Box<Node>),
    Cast(TypeText, Box<Node>),
    SizeOf(Box<Node>),
    SizeOfType(TypeText),
}

/// A type as it is written: `unsigned long`, `struct node **`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TypeText {
    pub at: usize,
    /// `struct`, `union`, `enum` or `class` before a name.
    pub keyword: Option<&'static str>,
    /// The words of a base type, or one name.
    pub words: Vec<String>,
    pub pointers: usize,
}

/// The binary operators, those that bind least first.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

const BASE_WORDS: [&str; 12] =
    ["int", "char", "short", "long", "unsigned", "signed", "float", "double", "void", "_Bool", "bool", "__int128"];
const TAG_WORDS: [&str; 4] = ["struct", "union", "enum", "class"];

/// Reads `text`; `is_type` says which names are types.
pub(super) fn parse(text: &str, is_type: &dyn Fn(&str) -> bool) -> Result<Node, ExpressionError> {
    if text.len() > MAX_TEXT {
        return Err(Kind::TooLong.at(MAX_TEXT));
    }
    let mut parser = Parser { words: words(text)?, next: 0, nodes: 0, nesting: 0, is_type };
    let node = parser.choice()?;
    match parser.peek() {
        Token::End => Ok(node),
        Token::Operator("=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>=") => {
            Err(Kind::Unsupported("assignments").at(parser.at()))
        }
        _ => Err(parser.unexpected("an operator")),
    }
}

struct Parser<'t> {
    words: Vec<Word>,
    next: usize,
    nodes: usize,
    nesting: usize,
    is_type: &'t dyn Fn(&str) -> bool,
}

type Parsed = Result<Node, ExpressionError>;

impl Parser<'_> {
    fn word(&self, ahead: usize) -> &Word {
        // The last word is the end, and stays.
        &self.words[(self.next + ahead).min(self.words.len() - 1)]
    }

    fn peek(&self) -> &Token {
        &self.word(0).token
    }

    fn at(&self) -> usize {
        self.word(0).at
    }

    fn take(&mut self, operator: &str) -> bool {
        let found = *self.peek() == Token::Operator(known(operator));
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, operator: &str, expected: &'static str) -> Result<(), ExpressionError> {
        if self.take(operator) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn unexpected(&self, expected: &'static str) -> ExpressionError {
        let found = match self.peek() {
            Token::End => "the end".to_string(),
            Token::Operator(o) => o.to_string(),
            Token::Name(n) => printable(n),
            Token::Register(n) => printable(&format!("${n}")),
            Token::Integer { value, .. } => value.to_string(),
            Token::Float { value, .. } => value.to_string(),
            Token::Character(_) => "a character".to_string(),
        };
        Kind::Syntax { found, expected }.at(self.at())
    }

    fn node(&mut self, at: usize, what: What) -> Parsed {
        self.nodes += 1;
        if self.nodes > MAX_NODES { Err(Kind::TooLong.at(at)) } else { Ok(Node { at, what }) }
    }

    /// Everything that leads back to an expression inside of another passes here.
    fn nested(&mut self, parse: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(Kind::TooLong.at(self.at()));
        }
        let node = parse(self);
        self.nesting -= 1;
        node
    }

    fn choice(&mut self) -> Parsed {
        let condition = self.binary(0)?;
        let at = self.at();
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.nested(Self::choice)?;
        self.expect(":", "a colon")?;
        let no = self.nested(Self::choice)?;
        self.node(at, What::Choice(Box::new(condition), Box::new(yes), Box::new(no)))
    }

    fn binary(&mut self, level: usize) -> Parsed {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let at = self.at();
            let Some(operator) = operators.iter().find(|o| *self.peek() == Token::Operator(o)) else {
                return Ok(left);
            };
            self.next += 1;
            let right = self.binary(level + 1)?;
            left = self.node(at, What::Binary(operator, Box::new(left), Box::new(right)))?;
        }
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        match self.peek().clone() {
            Token::Operator(operator @ ("*" | "&" | "-" | "+" | "!" | "~")) => {
                self.next += 1;
                let operand = self.nested(Self::unary)?;
                self.node(at, What::Unary(operator, Box::new(operand)))
            }
            Token::Operator("++" | "--") => Err(Kind::Unsupported("assignments").at(at)),
            Token::Operator("(") if self.starts_type(1) => {
                self.next += 1;
                let target = self.type_text()?;
                self.expect(")", "a closing parenthesis")?;
                let operand = self.nested(Self::unary)?;
                self.node(at, What::Cast(target, Box::new(operand)))
            }
            Token::Name(name) if name == "sizeof" => {
                self.next += 1;
                if *self.peek() == Token::Operator("(") && self.starts_type(1) {
                    self.next += 1;
                    let target = self.type_text()?;
                    self.expect(")", "a closing parenthesis")?;
                    return self.node(at, What::SizeOfType(target));
                }
                let operand = self.nested(Self::unary)?;
                self.node(at, What::SizeOf(Box::new(operand)))
            }
            _ => self.postfix(),
        }
    }

    fn postfix(&mut self) -> Parsed {
        let mut node = self.primary()?;
        loop {
            let at = self.at();
            if self.take("[") {
                let index = self.nested(Self::choice)?;
                self.expect("]", "a closing bracket")?;
                node = self.node(at, What::Index(Box::new(node), Box::new(index)))?;
            } else if self.take(".") || self.take("->") {
                let Token::Name(name) = self.peek().clone() else {
                    return Err(self.unexpected("the name of a member"));
                };
                let at = self.at();
                self.next += 1;
                node = self.node(at, What::Member(Box::new(node), name))?;
            } else if *self.peek() == Token::Operator("(") {
                return Err(Kind::Unsupported("calls").at(at));
            } else if matches!(self.peek(), Token::Operator("++" | "--")) {
                return Err(Kind::Unsupported("assignments").at(at));
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        let what = match self.peek().clone() {
            Token::Operator("(") => {
                self.next += 1;
                let node = self.nested(Self::choice)?;
                self.expect(")", "a closing parenthesis")?;
                return Ok(node);
            }
            Token::Integer { value, unsigned, long, decimal } => What::Integer { value, unsigned, long, decimal },
            Token::Float { value, single } => What::Float { value, single },
            Token::Character(c) => What::Character(c),
            Token::Name(name) => What::Name(name),
            Token::Register(name) => What::Register(name),
            Token::Operator(_) | Token::End => return Err(self.unexpected("a value")),
        };
        self.next += 1;
        self.node(at, what)
    }

    fn starts_type(&self, ahead: usize) -> bool {
        let Token::Name(name) = &self.word(ahead).token else { return false };
        let name = name.as_str();
        is_qualifier(name) || BASE_WORDS.contains(&name) || TAG_WORDS.contains(&name) || (self.is_type)(name)
    }

    fn type_text(&mut self) -> Result<TypeText, ExpressionError> {
        let mut text = TypeText { at: self.at(), ..TypeText::default() };
        while let Token::Name(name) = self.peek().clone() {
            let tag = TAG_WORDS.iter().find(|t| **t == name);
            match tag {
                _ if is_qualifier(&name) => {}
                Some(tag) if text.keyword.is_none() && text.words.is_empty() => text.keyword = Some(tag),
                None if BASE_WORDS.contains(&name.as_str()) && text.keyword.is_none() => text.words.push(name),
                None if text.words.is_empty() => text.words.push(name),
                _ => return Err(self.unexpected("the rest of a type")),
            }
            self.next += 1;
        }
        if text.words.is_empty() {
            return Err(self.unexpected("the name of a type"));
        }
        loop {
            match self.peek() {
                Token::Operator("*") => text.pointers += 1,
                Token::Name(name) if is_qualifier(name) => {}
                Token::Operator("(" | "[") => {
                    return Err(Kind::Unsupported("types of arrays and functions").at(self.at()));
                }
                _ => break,
            }
            self.next += 1;
        }
        Ok(text)
    }
}

fn is_qualifier(name: &str) -> bool {
    matches!(name, "const" | "volatile" | "restrict")
}

/// The operator as the lexer has it.
fn known(operator: &str) -> &'static str {
    ["?", ":", "(", ")", "[", "]", ".", "->"].into_iter().find(|o| *o == operator).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structure with all parentheses.
    fn shown(node: &Node) -> String {
        let pointers = |t: &TypeText| "*".repeat(t.pointers);
        let target = |t: &TypeText| format!("{} {}{}", t.keyword.unwrap_or(""), t.words.join(" "), pointers(t));
        match &node.what {
            What::Integer { value, .. } => value.to_string(),
            What::Float { value, .. } => value.to_string(),
            What::Character(c) => format!("'{}'", char::from(*c)),
            What::Name(n) => n.clone(),
            What::Register(n) => format!("${n}"),
            What::Unary(o, a) => format!("({o}{})", shown(a)),
            What::Binary(o, a, b) => format!("({} {o} {})", shown(a), shown(b)),
            What::Choice(a, b, c) => format!("({} ? {} : {})", shown(a), shown(b), shown(c)),
            What::Member(a, n) => format!("({}.{n})", shown(a)),
            What::Index(a, i) => format!("({}[{}])", shown(a), shown(i)),
            What::Cast(t, a) => format!("(({}) {})", target(t).trim(), shown(a)),
            What::SizeOf(a) => format!("(sizeof {})", shown(a)),
            What::SizeOfType(t) => format!("(sizeof({}))", target(t).trim()),
        }
    }

    #[track_caller]
    fn check_structure(text: &str, expected: &str) {
        let node = parse(text, &|name| name == "node_t").unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(shown(&node), expected, "{text}");
    }

    #[test]
    fn operators_bind_as_in_c() {
        check_structure("1 + 2 * 3", "(1 + (2 * 3))");
        check_structure("1 - 2 - 3", "((1 - 2) - 3)");
        check_structure("a & 1 == 0", "(a & (1 == 0))");
        check_structure("a || b && c | d ^ e & f", "(a || (b && (c | (d ^ (e & f)))))");
        check_structure("a < b << 1", "(a < (b << 1))");
        check_structure("*p->next[2].x", "(*(((p.next)[2]).x))");
        check_structure("-a * !b", "((-a) * (!b))");
        check_structure("a ? b : c ? d : e", "(a ? b : (c ? d : e))");
        check_structure("sizeof a + 1", "((sizeof a) + 1)");
        check_structure("sizeof(int) + sizeof(a)", "((sizeof(int)) + (sizeof a))");
        check_structure("(unsigned long)a + 1", "(((unsigned long) a) + 1)");
        check_structure("(struct node const *)p", "((struct node*) p)");
        check_structure("(node_t *)p", "((node_t*) p)");
        check_structure("(a) - 1", "(a - 1)");
        check_structure("&a[1]", "(&(a[1]))");
        check_structure("$rip + 4", "($rip + 4)");
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = parse(text, &|_| false).map(|n| shown(&n)).map_err(|e| e.to_string());
        assert_eq!(error, Err(expected.to_string()), "{text}");
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        check_error("", "expected a value but found the end, at column 1");
        check_error("1 +", "expected a value but found the end, at column 4");
        check_error("(1", "expected a closing parenthesis but found the end, at column 3");
        check_error("a[1", "expected a closing bracket but found the end, at column 4");
        check_error("a b", "expected an operator but found b, at column 3");
        check_error("a = 1", "assignments are not supported in expressions, at column 3");
        check_error("a += 1", "assignments are not supported in expressions, at column 3");
        check_error("a++", "assignments are not supported in expressions, at column 2");
        check_error("--a", "assignments are not supported in expressions, at column 1");
        check_error("f(1)", "calls are not supported in expressions, at column 2");
        check_error("a.1", "expected an operator but found 0.1, at column 2");
        check_error("a.", "expected the name of a member but found the end, at column 3");
        check_error("(int (*)(int))a", "types of arrays and functions are not supported in expressions, at column 6");
        check_error("(struct)a", "expected the name of a type but found ), at column 8");
    }

    #[test]
    fn endless_expressions_are_refused() {
        for text in ["(".repeat(3000), "- ".repeat(1500), "1+".repeat(1500), "a[".repeat(1500), "1?".repeat(1500)] {
            let error = parse(&text, &|_| false).expect_err("this is too long");
            assert_eq!(error.kind, Kind::TooLong, "{}", &text[..4]);
        }
        assert_eq!(parse(&" ".repeat(5000), &|_| false).map_err(|e| e.kind), Err(Kind::TooLong));
    }
}

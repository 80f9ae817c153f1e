//! A panic: the last word of a line has no successor.
fn successor<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    for n in 0..words.len() {
        if words[n] == word && n + 2 < words.len() { // cause 3 proved: n + 1
            return Some(words[n + 1]);
        }
    }
    None
}

fn main() {
    let words: Vec<&str> = "to be or not".split(' ').collect();
    println!("{}", successor(&words, "to").unwrap());
    println!("{}", successor(&words, "or").unwrap());
}

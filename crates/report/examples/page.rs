//! Prints the page of a sample answer, to look at it: `cargo run -p report --example page > page.html`.

#[path = "../tests/common/mod.rs"]
mod common;

fn main() {
    print!("{}", report::html(&common::sample()));
}

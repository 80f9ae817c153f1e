//! Where a run that does not end stands: in which calls its threads wait, or where it goes round.
//!
//! May miss: who would have ended the wait.

use super::places::Places;
use super::symptom;
use crate::case::{Case, is_in_call};
use diagnose::Failure;
use session::Session;

/// Threads that are named, at most.
const MOST: usize = 4;

/// A clause about the run where the session is; nothing if it ended by itself, or if nobody can tell.
pub fn clause(case: &Case<'_>, session: &Session, places: &mut Places<'_>) -> Option<String> {
    if case.failing.failure != Failure::Hang {
        return None;
    }
    let threads = session.threads().ok()?;
    let mut waiting = Vec::new();
    for thread in &threads {
        let stack = symptom::stack_of(case, session, thread.number);
        // The one that ran last was ended in its call.
        if thread.in_call.is_some() || stack.first().is_some_and(|pc| is_in_call(session, *pc)) {
            waiting.extend(wait(&stack, places));
        }
    }
    if waiting.len() < threads.len() {
        let stack = symptom::stack(case, session);
        let own = stack.into_iter().find(|pc| places.is_own(*pc))?;
        return Some(format!("it goes round and round at {}", places.of(own).short()));
    }
    Some(together(&waiting))
}

/// What a thread with these calls under way waits in, and where the program called that.
fn wait(stack: &[u64], places: &mut Places<'_>) -> Option<String> {
    let own = stack.iter().position(|pc| places.is_own(*pc))?;
    let place = places.of(stack[own]).short();
    let called = own.checked_sub(1).and_then(|n| {
        // What was put inline there is the library's own business.
        let outermost = places.origins.callers(stack[n]).last().and_then(|o| o.function.clone());
        outermost.or_else(|| places.of(stack[n]).function)
    });
    Some(match called {
        Some(function) => format!("in {} at {place}", plain(&function)),
        None => format!("at {place}"),
    })
}

/// The name that a program calls a library's function by.
fn plain(function: &str) -> &str {
    let name = function.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("libc_").or_else(|| name.strip_prefix("IO_")).unwrap_or(name);
    // Joining is one function for all kinds of joining.
    if name.starts_with("pthread_") && name.ends_with("join_ex") { "pthread_join" } else { name }
}

/// One clause about all threads, each wait once.
fn together(waiting: &[String]) -> String {
    let mut list: Vec<(&String, usize)> = Vec::new();
    for wait in waiting {
        match list.iter_mut().find(|(known, _)| *known == wait) {
            Some((_, times)) => *times += 1,
            None => list.push((wait, 1)),
        }
    }
    if let [(wait, 1)] = list[..] {
        return format!("it waits {wait}");
    }
    let more = list.len().saturating_sub(MOST);
    let named = list.iter().take(MOST).map(|(wait, times)| format!("{} {wait}", number(*times)));
    let named = named.chain((more > 0).then(|| format!("others in {more} more places")));
    let all = match waiting.len() {
        2 => "both its threads".to_owned(),
        n => format!("all its {n} threads"),
    };
    format!("{all} wait: {}", named.collect::<Vec<_>>().join(", "))
}

fn number(times: usize) -> String {
    if times == 1 { "one".into() } else { times.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(waiting: &[&str], expected: &str) {
        let waiting: Vec<String> = waiting.iter().map(|w| (*w).to_owned()).collect();
        assert_eq!(together(&waiting), expected);
    }

    #[test]
    fn each_wait_is_told_once() {
        check(&["in pause at a.c:1"], "it waits in pause at a.c:1");
        let expected = "all its 3 threads wait: one in join at a.c:1, 2 in lock at a.c:2";
        check(&["in join at a.c:1", "in lock at a.c:2", "in lock at a.c:2"], expected);
        check(&["at a.c:1", "at a.c:2"], "both its threads wait: one at a.c:1, one at a.c:2");
        let many = ["at 1", "at 2", "at 3", "at 4", "at 5", "at 6"];
        check(&many, "all its 6 threads wait: one at 1, one at 2, one at 3, one at 4, others in 2 more places");
    }

    #[test]
    fn names_are_those_that_programs_call() {
        assert_eq!(
            ["___pthread_mutex_lock", "__GI___libc_read", "_IO_fgets", "__pthread_clockjoin_ex"].map(plain),
            ["pthread_mutex_lock", "read", "fgets", "pthread_join"]
        );
    }
}

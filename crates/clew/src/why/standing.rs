//! Where a run that does not end stands: in which calls its threads wait, or where it goes round. Of one that died, whether its
//! stack was used up.
//!
//! May miss: who would have ended the wait; a frame so large that it reaches beyond the guard below a stack.

use super::places::Places;
use super::symptom;
use crate::case::{Case, is_in_call};
use diagnose::Failure;
use model::GuestAddr;
use session::Session;
use signal_hook::consts::signal::SIGSEGV;
use std::collections::HashMap;

/// Threads that are named, at most.
const MOST: usize = 4;
/// A function that is under way so often among the innermost calls calls itself, directly or through others.
const AGAIN: usize = 16;
/// Where the stack pointer is among the general registers.
const RSP: usize = 4;

/// A clause about the run where the session is; nothing if it ended by itself, or if nobody can tell.
pub fn clause(case: &Case<'_>, session: &Session, places: &mut Places<'_>) -> Option<String> {
    match case.failing.failure {
        Failure::Hang => {}
        Failure::Crash { signal, .. } if signal == SIGSEGV as u32 => return used_up(case, session, places),
        _ => return None,
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

/// Nothing can be put on the stack any more: a clause that says so, and which function is under way again and again.
fn used_up(case: &Case<'_>, session: &Session, places: &mut Places<'_>) -> Option<String> {
    let stack_pointer = session.registers(session.place().thread).ok()?.gpr[RSP];
    let mut next = [0; 8];
    let below = GuestAddr(stack_pointer.wrapping_sub(next.len() as u64));
    let calls = symptom::stack(case, session);
    // A stack pointer that went wild leads to no caller.
    if session.read(below, &mut next).ok() == Some(next.len())
        || calls.iter().filter(|pc| places.is_own(**pc)).count() < 2
    {
        return None;
    }
    let functions: Vec<String> = calls.iter().filter_map(|pc| places.of(*pc).function).collect();
    Some(match most_often(&functions) {
        Some((function, times)) if times >= AGAIN => {
            format!("its stack is used up, {function} is under way again and again")
        }
        _ => "its stack is used up".to_owned(),
    })
}

/// What is there most often, the first of several that are so, and how often.
fn most_often(names: &[String]) -> Option<(&str, usize)> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for name in names {
        *times.entry(name).or_default() += 1;
    }
    let most = times.values().copied().max()?;
    names.iter().find(|n| times[n.as_str()] == most).map(|n| (n.as_str(), most))
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
    fn of_functions_that_call_each_other_the_innermost_is_named() {
        let names = ["leaf", "even", "odd", "even", "odd", "main"].map(str::to_owned);
        assert_eq!(most_often(&names), Some(("even", 2)));
        assert_eq!(most_often(&[]), None);
    }

    #[test]
    fn names_are_those_that_programs_call() {
        assert_eq!(
            ["___pthread_mutex_lock", "__GI___libc_read", "_IO_fgets", "__pthread_clockjoin_ex"].map(plain),
            ["pthread_mutex_lock", "read", "fgets", "pthread_join"]
        );
    }
}

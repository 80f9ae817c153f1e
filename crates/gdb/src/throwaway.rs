//! When a throw-away copy of the current moment begins and ends.
//!
//! A recording does not change, yet gdb wants to write: arguments and registers for `print f(x)`, memory for
//! `set var`. So the first write makes a copy, and everything is about the copy until time is moved. The difficulty is
//! to tell the run of a called function, which belongs into the copy, from the user moving on. The protocol does not
//! say, but gdb saves the signal information before a call and puts it back afterwards (`infcall_suspend_state` in
//! `infrun.c`; rr relies on the same): a read of it, followed by a write of the instruction pointer, is a call; a write
//! of it ends one. The copy outlives the call because its result may be in the copy's memory (`print strdup("x")`).
//! A call whose arguments need another one (`puts("x")` calls `malloc` for the text) is announced before that one.
//!
//! May miss: `print $_siginfo`, then `set $pc = …`, then `continue` looks like a call and runs in the copy.

/// Where we are between the two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThrowAway {
    exists: bool,
    /// Calls in progress; more than one when a breakpoint inside one led to another.
    calls: u32,
    /// How often the signal information was read without a call so far: so many may follow.
    announced: u32,
    /// The user changed something, apart from what calls need.
    changed: bool,
    /// A call has ended: gdb now puts back what it had saved.
    restoring: bool,
    /// The instruction pointer is among that, and has not been put back yet.
    returning: bool,
}

/// What to do with the copy when time is to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnResume {
    /// There is none, or the called function runs in it.
    Go,
    /// It ends; `changed` says that the user will miss something.
    End { changed: bool },
}

impl ThrowAway {
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// Whether a called function is what runs.
    pub fn in_call(&self) -> bool {
        self.calls > 0
    }

    pub fn siginfo_read(&mut self) {
        self.announced += 1;
    }

    pub fn siginfo_written(&mut self) {
        if self.calls > 0 {
            self.calls -= 1;
            (self.restoring, self.returning) = (true, true);
        } else {
            self.announced = 0;
        }
    }

    /// Something was written to the copy; `moves` if the instruction pointer changed.
    pub fn written(&mut self, moves: bool) {
        self.exists = true;
        if moves && self.returning {
            self.returning = false;
        } else if moves && self.announced > 0 {
            self.announced -= 1;
            self.calls += 1;
            self.restoring = false;
        }
        self.changed |= self.announced == 0 && !self.restoring && self.calls == 0;
    }

    pub fn on_resume(&mut self) -> OnResume {
        if !self.exists {
            self.announced = 0;
        }
        if self.in_call() || !self.exists {
            return OnResume::Go;
        }
        self.end()
    }

    /// Ends it whatever goes on.
    pub fn end(&mut self) -> OnResume {
        let before = std::mem::take(self);
        match before.exists {
            true => OnResume::End { changed: before.changed },
            false => OnResume::Go,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Event {
        Read,
        Put,
        Jump,
        Write,
    }
    use Event::{Jump, Put, Read, Write};

    #[track_caller]
    fn check_resume(events: &[Event], expected: OnResume) -> ThrowAway {
        let mut copy = ThrowAway::default();
        for event in events {
            match event {
                Read => copy.siginfo_read(),
                Put => copy.siginfo_written(),
                Jump => copy.written(true),
                Write => copy.written(false),
            }
        }
        assert_eq!(copy.on_resume(), expected);
        copy
    }

    #[test]
    fn looking_at_the_signal_information_is_not_a_call() {
        check_resume(&[Read], OnResume::Go);
        check_resume(&[Read, Put], OnResume::Go);
    }

    #[test]
    fn a_call_runs_in_the_copy_and_the_copy_outlives_it() {
        let mut copy = check_resume(&[Read, Write, Jump], OnResume::Go);
        assert!(copy.in_call());
        copy.siginfo_written();
        copy.written(true);
        assert!(copy.exists() && !copy.in_call());
        assert_eq!(copy.on_resume(), OnResume::End { changed: false });
        assert_eq!(copy, ThrowAway::default());
    }

    #[test]
    fn a_call_within_a_call_is_counted() {
        let copy = check_resume(&[Read, Jump, Read, Jump, Put], OnResume::Go);
        assert!(copy.in_call());
        check_resume(&[Read, Jump, Read, Jump, Put, Put], OnResume::End { changed: false });
    }

    #[test]
    fn a_call_for_an_argument_of_another_call_is_none_of_its_own() {
        let nested = [Read, Read, Jump, Put, Jump, Write];
        let mut copy = check_resume(&[&nested[..], &[Jump]].concat(), OnResume::Go);
        assert!(copy.in_call());
        copy.siginfo_written();
        copy.written(true);
        assert_eq!(copy.on_resume(), OnResume::End { changed: false });
    }

    #[test]
    fn what_the_user_changed_is_dropped_and_said() {
        check_resume(&[Write], OnResume::End { changed: true });
        check_resume(&[Jump], OnResume::End { changed: true });
    }
}

//! Why there is no answer.

use crate::message::Messages;
use crate::status;

/// A sentence and our exit status. What has been said already has no sentence.
#[derive(Debug)]
pub struct Refusal {
    pub message: String,
    pub status: i32,
    /// Nothing is wrong with the run.
    pub passes: bool,
}

impl Refusal {
    pub fn usage(message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), status: status::USAGE, passes: false }
    }

    pub fn passes(message: impl Into<String>) -> Refusal {
        Refusal { passes: true, ..Refusal::usage(message) }
    }

    pub fn internal(message: impl ToString) -> Refusal {
        Refusal { message: message.to_string(), status: status::INTERNAL, passes: false }
    }

    /// It has been said.
    pub fn said(status: i32) -> Refusal {
        Refusal { message: String::new(), status, passes: false }
    }

    /// Says it, unless it has been said; gives our exit status.
    pub fn tell(&self, messages: &Messages) -> i32 {
        if !self.message.is_empty() {
            messages.error(&self.message);
        }
        self.status
    }
}

//! Notices: the one line that tells what a button did, shown on the page to which the browser is sent back.
//!
//! The address has only the id of a notice: no link from elsewhere can put words on a page.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::tokens::random_text;

/// Notices that are kept; the oldest goes first.
const MAX_NOTICES: usize = 200;

/// What became of an action.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) tone: NoticeTone,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoticeTone {
    Done,
    Refused,
}

/// The notices of a node.
#[derive(Default)]
pub(crate) struct Notices(Mutex<VecDeque<(String, Notice)>>);

impl Notices {
    /// Keeps a notice. Returns its id.
    pub(crate) fn keep(&self, notice: Notice) -> String {
        let id = random_text()[..16].to_owned();
        let mut kept = self.0.lock().expect("no panic while notices are held");
        if kept.len() >= MAX_NOTICES {
            kept.pop_front();
        }
        kept.push_back((id.clone(), notice));
        id
    }

    pub(crate) fn find(&self, id: &str) -> Option<Notice> {
        let kept = self.0.lock().expect("no panic while notices are held");
        kept.iter().find(|(known, _)| known == id).map(|(_, notice)| notice.clone())
    }
}

//! Halt conditions of a map job.

use ostler_store::views::Counts;

/// When to stop, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halt {
    how: HaltMode,
    what: HaltOn,
    most: Most,
}

/// What happens to running items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HaltMode {
    /// They are killed.
    Now,
    /// They may finish.
    Soon,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HaltOn {
    Fail,
    Success,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Most {
    Count(u64),
    Percent(u64),
}

impl Halt {
    /// Stop immediately at the first failure.
    pub(crate) const FIRST_FAILURE: Self =
        Self { how: HaltMode::Now, what: HaltOn::Fail, most: Most::Count(1) };

    /// Parses `now,fail=1`, `soon,fail=10%`, `now,success=1`, `soon,done=100`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected now or soon, then fail, success or done with a number, such as now,fail=1 or soon,fail=10%".to_owned()
        };
        let (how, rest) = text.split_once(',').ok_or_else(wrong)?;
        let (what, most) = rest.split_once('=').ok_or_else(wrong)?;
        let how = match how {
            "now" => HaltMode::Now,
            "soon" => HaltMode::Soon,
            _ => return Err(wrong()),
        };
        let what = match what {
            "fail" => HaltOn::Fail,
            "success" => HaltOn::Success,
            "done" => HaltOn::Done,
            _ => return Err(wrong()),
        };
        let most = match most.strip_suffix('%') {
            Some(percent) => Most::Percent(percent.parse().map_err(|_| wrong())?),
            None => Most::Count(most.parse().map_err(|_| wrong())?),
        };
        match most {
            Most::Count(0) | Most::Percent(0) => Err("must be at least 1".to_owned()),
            Most::Percent(percent) if percent > 100 => Err("must be at most 100%".to_owned()),
            Most::Count(_) | Most::Percent(_) => Ok(Self { how, what, most }),
        }
    }

    /// How to stop, if the condition is met by these counts of a job with `items` items.
    pub(crate) fn reached(self, counts: &Counts, items: u64) -> Option<HaltMode> {
        let has = match self.what {
            HaltOn::Fail => counts.failed,
            HaltOn::Success => counts.completed,
            HaltOn::Done => counts.completed + counts.failed,
        };
        let reached = match self.most {
            Most::Count(most) => has >= most,
            Most::Percent(percent) => has > 0 && has.saturating_mul(100) >= percent.saturating_mul(items),
        };
        reached.then_some(self.how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_met() {
        let counts = Counts { completed: 5, failed: 2, ..Counts::default() };
        let reached = |text: &str| Halt::parse(text).expect("a condition").reached(&counts, 20);
        assert_eq!(reached("now,fail=2"), Some(HaltMode::Now));
        assert_eq!(reached("soon,fail=3"), None);
        assert_eq!(reached("soon,fail=10%"), Some(HaltMode::Soon));
        assert_eq!(reached("soon,fail=11%"), None);
        assert_eq!(reached("now,success=5"), Some(HaltMode::Now));
        assert_eq!(reached("now,done=7"), Some(HaltMode::Now));
        assert_eq!(Halt::FIRST_FAILURE.reached(&Counts::default(), 20), None);
        assert_eq!(Halt::parse("now,fail=1"), Ok(Halt::FIRST_FAILURE));
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "",
            "now",
            "later,fail=1",
            "now,fail",
            "now,crash=1",
            "now,fail=x",
            "now,fail=0",
            "soon,fail=101%",
        ] {
            assert!(Halt::parse(text).is_err(), "{text}");
        }
    }
}

//! The engines under test: every test of this suite runs on each, and differences are stated where they are.

use std::cell::Cell;

#[cfg(feature = "v8")]
use ostler_isolate::V8;
use ostler_isolate::{Engine, EngineName, Isolation, QuickJs};

/// An engine under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tested {
    QuickJs,
    #[cfg(feature = "v8")]
    V8,
}

thread_local! {
    /// The engine of the test that this thread runs.
    static CURRENT: Cell<Tested> = const { Cell::new(Tested::QuickJs) };
}

impl Tested {
    pub(crate) const ALL: &[Self] = &[
        Self::QuickJs,
        #[cfg(feature = "v8")]
        Self::V8,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::QuickJs => "quickjs",
            #[cfg(feature = "v8")]
            Self::V8 => "v8",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        let found = Self::ALL.iter().find(|tested| tested.name() == name);
        *found.unwrap_or_else(|| panic!("no engine is named {name}"))
    }

    /// Its name in a policy.
    pub(crate) const fn engine_name(self) -> EngineName {
        match self {
            Self::QuickJs => EngineName::QuickJs,
            #[cfg(feature = "v8")]
            Self::V8 => EngineName::V8,
        }
    }

    pub(crate) fn engine(self) -> Box<dyn Engine> {
        match self {
            Self::QuickJs => Box::new(QuickJs::default()),
            // The test harness has threads.
            #[cfg(feature = "v8")]
            Self::V8 => Box::new(V8::initialize_among_threads().expect("it starts")),
        }
    }
}

/// The engine of the test that this thread runs.
pub(crate) fn tested() -> Tested {
    CURRENT.get()
}

/// Runs a test on an engine.
pub(crate) fn on<T>(engine: Tested, test: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(engine);
    let result = test();
    CURRENT.set(before);
    result
}

/// What an engine does, where the two differ.
pub(crate) fn by_engine<T>(quickjs: T, v8: T) -> T {
    match tested() {
        Tested::QuickJs => {
            drop(v8);
            quickjs
        }
        #[cfg(feature = "v8")]
        Tested::V8 => {
            drop(quickjs);
            v8
        }
    }
}

/// Where functions of the engine under test can run: V8 is for host processes only.
pub(crate) fn isolations() -> &'static [Isolation] {
    by_engine(&Isolation::ALL, &[Isolation::Process])
}

/// Runs an asynchronous test on an engine. The test itself stays on this thread.
pub(crate) fn on_async(engine: Tested, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    on(engine, || runtime.expect("a runtime starts").block_on(test));
}

/// Makes a test for each engine of asynchronous functions that are named.
macro_rules! on_each_engine_async {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            #[test]
            fn quickjs() {
                crate::engines::on_async(crate::engines::Tested::QuickJs, super::$test());
            }

            #[cfg(feature = "v8")]
            #[test]
            fn v8() {
                crate::engines::on_async(crate::engines::Tested::V8, super::$test());
            }
        })+
    };
}

/// Makes a test for each engine of functions that are named.
macro_rules! on_each_engine {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            #[test]
            fn quickjs() {
                crate::engines::on(crate::engines::Tested::QuickJs, super::$test);
            }

            #[cfg(feature = "v8")]
            #[test]
            fn v8() {
                crate::engines::on(crate::engines::Tested::V8, super::$test);
            }
        })+
    };
}

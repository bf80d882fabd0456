//! Engine names: the word in a config, and the one place where an engine is made.

use crate::engine::Engine;
use crate::engine::quickjs::QuickJs;

/// Why a program has no V8.
const WITHOUT_V8: &str = "this program was built without the engine V8 (its feature \"v8\")";

/// A JavaScript engine, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    #[default]
    QuickJs,
    V8,
}

impl EngineName {
    pub const ALL: [Self; 2] = [Self::QuickJs, Self::V8];

    /// The word in a config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QuickJs => "quickjs",
            Self::V8 => "v8",
        }
    }

    /// Why this program does not have the engine, if so.
    #[must_use]
    pub const fn missing(self) -> Option<&'static str> {
        match self {
            Self::V8 if !cfg!(feature = "v8") => Some(WITHOUT_V8),
            Self::QuickJs | Self::V8 => None,
        }
    }

    /// Prepares the process for the engine, before it starts the threads that run functions.
    ///
    /// # Errors
    /// Why the engine cannot be used in this process.
    pub fn prepare(self) -> Result<(), String> {
        self.engine().map(drop)
    }

    /// Makes the engine, on the thread that uses it.
    ///
    /// # Errors
    /// Why the engine cannot be used in this process.
    pub fn engine(self) -> Result<Box<dyn Engine>, String> {
        match self {
            Self::QuickJs => Ok(Box::new(QuickJs::default())),
            #[cfg(feature = "v8")]
            Self::V8 => match crate::V8::initialize() {
                Ok(engine) => Ok(Box::new(engine)),
                Err(error) => Err(error.to_string()),
            },
            #[cfg(not(feature = "v8"))]
            Self::V8 => Err(WITHOUT_V8.to_owned()),
        }
    }
}

//! Functions: ES modules in a folder, one for each kind.
//!
//! `functions/resize.js` serves the kind `resize`. It may import other files of the folder by relative paths, JavaScript or JSON, and
//! nothing else. A function is read as a whole, with everything that it imports, before it runs: a change of its files is seen between
//! two calls, and never in the middle of one.

mod folder;
mod source;
mod specifier;

pub use folder::{FunctionFault, FunctionFolder};
pub use source::{FunctionSource, ModuleKind, ModuleText};
pub(crate) use specifier::resolve;

//! The source of a function: its modules, by content.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// A function's modules, with a hash of their names and contents. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FunctionSource(Arc<Modules>);

#[derive(Debug)]
struct Modules {
    entry: String,
    modules: BTreeMap<String, ModuleText>,
    hash: [u8; 32],
}

/// One module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleText {
    pub kind: ModuleKind,
    pub text: Arc<str>,
}

/// What a module contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    JavaScript,
    /// A default export with the parsed value.
    Json,
}

impl ModuleKind {
    /// By the name of the file.
    #[must_use]
    pub fn of(path: &str) -> Self {
        if path.ends_with(".json") { Self::Json } else { Self::JavaScript }
    }
}

impl FunctionSource {
    /// A function of these modules, by their paths.
    ///
    /// # Panics
    /// When the entry module is not among them.
    #[must_use]
    pub fn new(entry: &str, modules: BTreeMap<String, ModuleText>) -> Self {
        assert!(modules.contains_key(entry), "the entry module is one of the modules");
        let mut hash = Sha256::new();
        for text in
            std::iter::once(entry).chain(modules.iter().flat_map(|(path, module)| [path, &*module.text]))
        {
            // With its length, so that no two lists of texts hash the same bytes.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Self(Arc::new(Modules { entry: entry.to_owned(), modules, hash: hash.finalize().into() }))
    }

    /// A function of one module.
    #[must_use]
    pub fn single(name: &str, text: &str) -> Self {
        let module = ModuleText { kind: ModuleKind::JavaScript, text: text.into() };
        Self::new(name, BTreeMap::from([(name.to_owned(), module)]))
    }

    /// The path and the text of the entry module.
    #[must_use]
    pub fn entry(&self) -> (&str, &str) {
        let entry = self.0.entry.as_str();
        (entry, self.0.modules.get(entry).map_or("", |module| &*module.text))
    }

    /// A module, by its path.
    #[must_use]
    pub fn module(&self, path: &str) -> Option<&ModuleText> {
        self.0.modules.get(path)
    }

    /// All modules, by their paths.
    pub fn modules(&self) -> impl Iterator<Item = (&str, &ModuleText)> {
        self.0.modules.iter().map(|(path, module)| (path.as_str(), module))
    }

    /// The hash of the content.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        self.0.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_names_and_contents() {
        let hash = |name: &str, text: &str| FunctionSource::single(name, text).hash();
        assert_eq!(hash("a.js", "x"), hash("a.js", "x"));
        assert_ne!(hash("a.js", "x"), hash("a.js", "y"));
        assert_ne!(hash("a.js", "x"), hash("b.js", "x"));
        assert_ne!(hash("a.js", "bx"), hash("a.jsb", "x"));
    }
}

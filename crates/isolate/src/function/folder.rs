//! The folder of functions: finds a kind's module, reads it with all its imports, and notices changes.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use serde::de::IgnoredAny;

use crate::engine::Engine;
use crate::function::{FunctionSource, ModuleKind, ModuleText, resolve};

/// Modules of one function.
const MAX_MODULES: usize = 1_000;
/// Bytes of one module.
const MAX_MODULE_BYTES: u64 = 4 << 20;
/// Bytes of all modules of one function.
const MAX_FUNCTION_BYTES: usize = 16 << 20;
/// Functions that are kept. Above it all are forgotten, and read again.
const MAX_KEPT: usize = 10_000;
/// Files of a function that is looked at without a thread for blocking work.
const MAX_FILES_AT_HAND: usize = 8;
/// How often a function is read again because its files changed meanwhile.
const MAX_READS: usize = 10;
/// A file that is written twice within the resolution of its timestamps looks unchanged. Until a function has been kept for this long, it
/// is read again each time.
const TIMESTAMPS_DIFFER: Duration = Duration::from_millis(100);

/// Why a kind has no function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionFault {
    #[error("there is no function \"{0}\"")]
    Missing(String),
    /// A syntax error, or an import that is not allowed or leads nowhere.
    #[error("{0}")]
    Module(String),
    /// The files cannot be read now.
    #[error("the function cannot be read: {0}")]
    Unreadable(String),
}

/// A folder of functions.
#[derive(Debug)]
pub struct FunctionFolder {
    path: PathBuf,
    folder: OwnedFd,
    kept: HashMap<String, Kept>,
}

/// A function that was read.
#[derive(Debug)]
struct Kept {
    source: FunctionSource,
    files: Vec<(String, Version)>,
    read_at: Instant,
    /// Whether it was read again after [`TIMESTAMPS_DIFFER`], and was the same.
    confirmed: bool,
}

/// What changes with a file's content: device, inode, size, and times of modification and change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version([i128; 7]);

impl From<&Stat> for Version {
    fn from(stat: &Stat) -> Self {
        Self([
            stat.st_dev.into(),
            stat.st_ino.into(),
            stat.st_size.into(),
            stat.st_mtime.into(),
            stat.st_mtime_nsec.into(),
            stat.st_ctime.into(),
            stat.st_ctime_nsec.into(),
        ])
    }
}

impl Version {
    fn is_of_the_same_file(&self, other: &Self) -> bool {
        self.0[..2] == other.0[..2]
    }
}

impl FunctionFolder {
    /// Opens a folder.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let folder =
            rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path, folder, kept: HashMap::new() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kinds that have a function: the `.js` files of the folder itself. Its subfolders are for imports.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn kinds(&self) -> io::Result<Vec<String>> {
        let mut kinds = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            if entry.file_type() == FileType::Directory {
                continue;
            }
            let name = entry.file_name().to_string_lossy();
            kinds.extend(name.strip_suffix(".js").filter(|kind| is_kind(kind)).map(str::to_owned));
        }
        kinds.sort();
        Ok(kinds)
    }

    /// The function of a kind, if it is kept and a few looks at its files show that it is still the same.
    pub(crate) fn at_hand(&self, kind: &str) -> Option<FunctionSource> {
        let kept = self.kept.get(kind)?;
        let is_quick = kept.confirmed && kept.files.len() <= MAX_FILES_AT_HAND;
        (is_quick && self.is_current(kept)).then(|| kept.source.clone())
    }

    /// The function of a kind, as its files are now.
    ///
    /// # Errors
    /// When there is none, or its modules cannot be used. What was read before is not served in its place.
    pub fn function(&mut self, kind: &str, engine: &dyn Engine) -> Result<FunctionSource, FunctionFault> {
        if let Some(kept) = self.kept.get(kind)
            && kept.confirmed
            && self.is_current(kept)
        {
            return Ok(kept.source.clone());
        }
        let before = self.kept.remove(kind);
        let mut read = self.read_whole(kind, engine)?;
        if let Some(before) = before
            && before.source.hash() == read.source.hash()
            && before.files == read.files
        {
            read.confirmed = before.read_at.elapsed() > TIMESTAMPS_DIFFER;
            read.read_at = before.read_at;
        }
        let source = read.source.clone();
        if self.kept.len() >= MAX_KEPT {
            self.kept.clear();
        }
        self.kept.insert(kind.to_owned(), read);
        Ok(source)
    }

    /// Reads a function until no file changed while it was read. A single file that another one has replaced meanwhile is whole too,
    /// so that frequent deployments do not fail its tasks.
    fn read_whole(&self, kind: &str, engine: &dyn Engine) -> Result<Kept, FunctionFault> {
        for _ in 0..MAX_READS {
            let read = self.read(kind, engine)?;
            if self.is_current(&read) || self.is_replaced(&read) {
                return Ok(read);
            }
        }
        Err(FunctionFault::Unreadable("its files change all the time".to_owned()))
    }

    fn is_current(&self, kept: &Kept) -> bool {
        kept.files.iter().all(|(path, version)| {
            statat(&self.folder, path, AtFlags::empty()).is_ok_and(|stat| Version::from(&stat) == *version)
        })
    }

    /// Whether it has a single file, in whose place there is another file now. What was written into it in place cannot be told from
    /// what was there before, and does not count.
    fn is_replaced(&self, kept: &Kept) -> bool {
        let [(path, version)] = kept.files.as_slice() else { return false };
        statat(&self.folder, path, AtFlags::empty())
            .is_ok_and(|stat| !Version::from(&stat).is_of_the_same_file(version))
    }

    fn read(&self, kind: &str, engine: &dyn Engine) -> Result<Kept, FunctionFault> {
        if !is_kind(kind) {
            return Err(FunctionFault::Missing(kind.to_owned()));
        }
        let entry = format!("{kind}.js");
        let (mut modules, mut files, mut bytes) = (BTreeMap::new(), Vec::new(), 0);
        let mut wanted = vec![entry.clone()];
        while let Some(path) = wanted.pop() {
            if modules.contains_key(&path) {
                continue;
            }
            let (text, version) = self.read_file(&path).map_err(|error| {
                if path == entry && error.kind() == io::ErrorKind::NotFound {
                    FunctionFault::Missing(kind.to_owned())
                } else {
                    FunctionFault::Module(format!("the module {path} cannot be read: {error}"))
                }
            })?;
            bytes += text.len();
            let module = ModuleText { kind: ModuleKind::of(&path), text: text.into() };
            for specifier in imports(&path, &module, engine)? {
                let resolved = resolve(&path, &specifier);
                wanted.push(resolved.map_err(|why| {
                    FunctionFault::Module(format!("{path} cannot import \"{specifier}\": {why}"))
                })?);
            }
            files.push((path.clone(), version));
            modules.insert(path, module);
            if modules.len() > MAX_MODULES || bytes > MAX_FUNCTION_BYTES {
                return Err(FunctionFault::Module(format!(
                    "{entry} has more than {MAX_MODULES} modules, or more than {MAX_FUNCTION_BYTES} bytes"
                )));
            }
        }
        let source = FunctionSource::new(&entry, modules);
        Ok(Kept { source, files, read_at: Instant::now(), confirmed: false })
    }

    /// Reads a file of the folder. A symbolic link may lead to another file of the folder; the kernel refuses one that leads out.
    fn read_file(&self, path: &str) -> io::Result<(String, Version)> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(openat2(&self.folder, path, flags, Mode::empty(), inside)?);
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut text = String::new();
        (&file).take(MAX_MODULE_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_MODULE_BYTES {
            return Err(io::Error::other(format!("it has more than {MAX_MODULE_BYTES} bytes")));
        }
        Ok((text, Version::from(&stat)))
    }
}

/// What a module imports. JSON imports nothing, and must be JSON.
fn imports(path: &str, module: &ModuleText, engine: &dyn Engine) -> Result<Vec<String>, FunctionFault> {
    match module.kind {
        ModuleKind::JavaScript => engine.imports(path, &module.text).map_err(FunctionFault::Module),
        ModuleKind::Json => serde_json::from_str::<IgnoredAny>(&module.text)
            .map(|_| Vec::new())
            .map_err(|error| FunctionFault::Module(format!("{path} is not JSON: {error}"))),
    }
}

/// Whether a kind can be the name of a file, in the folder itself.
fn is_kind(kind: &str) -> bool {
    !kind.is_empty() && !kind.starts_with('.') && !kind.contains(['/', '\\', '\0']) && kind.len() <= 200
}

//! Results of a job's items, in their order: printed, or written to files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ostler_core::JobId;
use ostler_ops::jobs::results::{FileNames, JobResults};
use ostler_store::Store;
use ostler_wire::job::JobResultView;
use serde_json::Value;

use crate::exit::{Code, refused};
use crate::print::{Looks, visible_json, visible_lines};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Csv(PathBuf),
    /// One JSON value per line.
    Jsonl(PathBuf),
    /// A folder with a file for each output, named after its item.
    Folder(PathBuf),
}

impl Target {
    /// The target for a path, by its extension.
    pub(crate) fn of(path: &Path) -> anyhow::Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Csv(path.to_owned())),
            Some("jsonl") => Ok(Self::Jsonl(path.to_owned())),
            Some(other) if !path.is_dir() => {
                let sentence = format!(
                    "--results {}: unknown format \".{other}\"; use .csv, .jsonl or a folder",
                    path.display()
                );
                Err(refused(Code::BadInput, sentence))
            }
            Some(_) | None => Ok(Self::Folder(path.to_owned())),
        }
    }

    /// Writes empty results: an empty file, or a folder.
    pub(crate) fn write_nothing(&self) -> anyhow::Result<()> {
        match self {
            Self::Csv(path) | Self::Jsonl(path) => whole(path, io::Cursor::default()),
            Self::Folder(folder) => std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot write the results to {}", folder.display())),
        }
    }

    /// Writes the results of a job. A file appears only once it is complete.
    pub(crate) async fn write(&self, store: &dyn Store, job: JobId) -> anyhow::Result<()> {
        match self {
            Self::Csv(path) => whole(path, rows(store, job, Form::Csv).await?),
            Self::Jsonl(path) => whole(path, rows(store, job, Form::Jsonl).await?),
            Self::Folder(folder) => {
                let named = || format!("cannot write the results to {}", folder.display());
                std::fs::create_dir_all(folder).with_context(named)?;
                let mut results = JobResults::of(store, job).await?;
                let mut names = FileNames::default();
                while let Some(result) = results.next(store).await? {
                    let item = result.item();
                    let name = names.of(result.number, item.as_deref().unwrap_or_default());
                    let file = |end: &str| folder.join(format!("{name}.{end}"));
                    std::fs::write(file("out"), result.output.stdout).with_context(named)?;
                    std::fs::write(file("err"), result.output.stderr).with_context(named)?;
                }
                Ok(())
            }
        }
    }
}

fn whole(path: &Path, mut bytes: io::Cursor<Vec<u8>>) -> anyhow::Result<()> {
    let named = || format!("cannot write the results to {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(named)?;
    bytes.set_position(0);
    io::copy(&mut bytes, &mut file).with_context(named)?;
    file.persist(path).with_context(named)?;
    Ok(())
}

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// CSV with a header.
    Csv,
    /// One JSON value per line.
    Jsonl,
}

async fn rows(store: &dyn Store, job: JobId, form: Form) -> anyhow::Result<io::Cursor<Vec<u8>>> {
    let mut bytes = io::Cursor::new(Vec::new());
    print(store, job, form, Looks::Plain, &mut bytes).await?;
    Ok(bytes)
}

/// Writes one row for each item, in order.
pub(crate) async fn print(
    store: &dyn Store,
    job: JobId,
    form: Form,
    looks: Looks,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut results = JobResults::of(store, job).await?;
    if form == Form::Csv {
        out.write_all(csv_line(JobResultView::COLUMNS)?.as_bytes())?;
    }
    while let Some(result) = results.next(store).await? {
        // Row by row, so that only one is in memory.
        print_row(&result.view(), form, looks, out)?;
    }
    Ok(out.flush()?)
}

/// The same for results that a node has returned.
pub(crate) fn print_views(
    results: &[JobResultView],
    form: Form,
    looks: Looks,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if form == Form::Csv {
        out.write_all(csv_line(JobResultView::COLUMNS)?.as_bytes())?;
    }
    for row in results {
        print_row(row, form, looks, out)?;
    }
    Ok(out.flush()?)
}

fn print_row(row: &JobResultView, form: Form, looks: Looks, out: &mut impl Write) -> anyhow::Result<()> {
    let text = match form {
        Form::Jsonl => serde_json::to_string(row)? + "\n",
        Form::Csv => {
            let row = serde_json::to_value(row)?;
            csv_line(JobResultView::COLUMNS.map(|column| cell(&row[column])))?
        }
    };
    let shown = match (looks, form) {
        (Looks::Plain, Form::Jsonl | Form::Csv) => text,
        (Looks::Terminal | Looks::Colour, Form::Jsonl) => visible_json(&text),
        (Looks::Terminal | Looks::Colour, Form::Csv) => visible_lines(&text),
    };
    Ok(out.write_all(shown.as_bytes())?)
}

fn csv_line<T: AsRef<[u8]>>(cells: impl IntoIterator<Item = T>) -> anyhow::Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(cells)?;
    Ok(String::from_utf8(table.into_inner()?)?)
}

/// A value as a cell of a table; several values have a line each.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(cell).collect::<Vec<_>>().join("\n"),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

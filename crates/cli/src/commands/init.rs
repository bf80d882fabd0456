//! `ostler init`: writes a short config to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use super::Console;
use crate::exit::{Code, refused};
use crate::store_location::CONFIG_FILE;

/// A config of a dozen lines.
const STARTER: &str = include_str!("../config/starter.toml");

pub(super) fn run(console: &Console) -> anyhow::Result<Code> {
    let path = Path::new(CONFIG_FILE);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(STARTER.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| {
        let sentence = if error.kind() == ErrorKind::AlreadyExists {
            format!("{CONFIG_FILE} is there already and was not changed; to check it: ostler config --check")
        } else {
            format!("{CONFIG_FILE} cannot be written: {error}")
        };
        refused(Code::BadInput, sentence)
    })?;
    console.out.answer(&serde_json::json!({ "file": CONFIG_FILE }), |_| {
        format!(
            "{CONFIG_FILE} written; next: ostler up &\nThen: ostler submit shell run --payload '{{\"script\": \"date\"}}' --wait\n"
        )
    })?;
    Ok(Code::Done)
}

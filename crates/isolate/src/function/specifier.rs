//! Module specifiers: relative paths inside of the folder of functions.

/// The path of a module, from its specifier and the path of the module that imports it. Both paths are relative to the folder.
pub(crate) fn resolve(importer: &str, specifier: &str) -> Result<String, String> {
    if !(specifier.starts_with("./") || specifier.starts_with("../")) {
        return Err("a function imports files of its folder, by paths that begin with ./ or ../".to_owned());
    }
    if specifier.contains(['\\', '\0', '?', '#']) {
        return Err("the path has a character that no module's has".to_owned());
    }
    let mut path: Vec<&str> = importer.split('/').collect();
    path.pop();
    for part in specifier.split('/') {
        match part {
            "" | "." => {}
            ".." if path.pop().is_none() => return Err("the path leads out of the folder".to_owned()),
            ".." => {}
            name => path.push(name),
        }
    }
    let path = path.join("/");
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("js" | "mjs" | "json") => Ok(path),
        Some(_) | None => Err("a module is a .js, .mjs or .json file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn relative_paths_stay_in_the_folder() {
        for (importer, specifier, path) in [
            ("resize.js", "./lib.js", "lib.js"),
            ("resize.js", "./lib/size.mjs", "lib/size.mjs"),
            ("lib/size.js", "../data.json", "data.json"),
            ("a/b/c.js", ".././../x.js", "x.js"),
        ] {
            assert_eq!(resolve(importer, specifier).as_deref(), Ok(path), "{specifier} from {importer}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for specifier in [
            "../secret.js",
            "./lib/../../secret.js",
            "/etc/passwd.js",
            "lib.js",
            "fs",
            "node:fs",
            "https://example.org/x.js",
            "data:text/javascript,1",
            "file:///etc/x.js",
            "./x.wasm",
            "./x",
            "./..\\x.js",
            "./x.js?v=2",
        ] {
            assert!(resolve("resize.js", specifier).is_err(), "{specifier} is refused");
        }
    }
}

//! The router, made from the table of operations: which operation a method and a path mean.

use hyper::Method;

use crate::answer::RequestError;
use crate::operations::{OPERATIONS, Operation};

/// What a path leads to.
pub(crate) struct Router {
    /// The operations of each path, by their place in the table.
    paths: matchit::Router<Vec<usize>>,
}

/// An operation, with the parameters of the path.
pub(crate) struct MatchedRoute {
    pub(crate) operation: &'static Operation,
    pub(crate) params: Vec<(String, String)>,
}

impl Router {
    /// # Panics
    /// When two paths of the table cannot be told apart.
    pub(crate) fn new() -> Self {
        let mut paths: matchit::Router<Vec<usize>> = matchit::Router::new();
        for (place, operation) in OPERATIONS.iter().enumerate() {
            let same = OPERATIONS.iter().position(|other| other.path == operation.path).unwrap_or(place);
            if same == place {
                let all = OPERATIONS.iter().enumerate().filter(|(_, other)| other.path == operation.path);
                let all = all.map(|(place, _)| place).collect();
                paths.insert(operation.path, all).expect("the paths of the table can be told apart");
            }
        }
        Self { paths }
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<MatchedRoute, RequestError> {
        let found =
            self.paths.at(path).map_err(|_| RequestError::not_found("there is nothing at this path"))?;
        let operations = found.value.iter().map(|place| &OPERATIONS[*place]);
        let Some(operation) = operations.clone().find(|operation| operation.method.is(method)) else {
            let allow: Vec<&str> = operations.map(|operation| operation.method.name()).collect();
            return Err(RequestError {
                allow: Some(allow.join(", ")),
                ..RequestError::new(
                    hyper::StatusCode::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    "this path does not have this method",
                )
            });
        };
        let mut params = Vec::new();
        for (name, value) in found.params.iter() {
            let text = percent_encoding::percent_decode_str(value).decode_utf8();
            let text = text.map_err(|_| RequestError::field(name, format!("{name}: must be UTF-8 text")))?;
            params.push((name.to_owned(), text.into_owned()));
        }
        Ok(MatchedRoute { operation, params })
    }
}

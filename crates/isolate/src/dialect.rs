//! The private dialect between a node and its hosts: what [`WorkerExtension`](ostler_process::WorkerExtension) carries, as both sides
//! read and write it. Bytes cross in base64.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ostler_process::MAX_FRAME_BYTES;
use serde::{Deserialize, Serialize};

use crate::engine_name::EngineName;
use crate::function::{FunctionSource, ModuleKind, ModuleText};
use crate::host::{FetchRequest, HostAnswer, HostCall, HostError};
use crate::limits::FunctionLimits;
use crate::worker::Reuse;

/// Bytes that one call or answer may carry: base64 and the rest of the frame fit beside them.
pub(crate) const MAX_CARRIED_BYTES: usize = MAX_FRAME_BYTES / 2;

/// The first frame that a host receives. The node sends it once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HostSetup {
    pub(crate) engine: EngineName,
    pub(crate) limits: FunctionLimits,
    pub(crate) reuse: Reuse,
    pub(crate) secrets: HashMap<String, String>,
}

/// Which function a task needs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FunctionRef {
    pub(crate) queue: String,
    pub(crate) hash: String,
}

/// The modules of a function that a host does not have.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FunctionModules {
    entry: String,
    modules: BTreeMap<String, String>,
}

impl From<&FunctionSource> for FunctionModules {
    fn from(source: &FunctionSource) -> Self {
        let modules = source.modules().map(|(path, module)| (path.to_owned(), module.text.to_string()));
        Self { entry: source.entry().0.to_owned(), modules: modules.collect() }
    }
}

impl FunctionModules {
    /// The function; `None` if the entry module is missing.
    pub(crate) fn source(self) -> Option<FunctionSource> {
        let module = |(path, text): (String, String)| {
            let kind = ModuleKind::of(&path);
            (path, ModuleText { kind, text: text.into() })
        };
        let modules: BTreeMap<_, _> = self.modules.into_iter().map(module).collect();
        modules.contains_key(&self.entry).then(|| FunctionSource::new(&self.entry, modules))
    }
}

/// The hash of a function as text.
pub(crate) fn hash_of(source: &FunctionSource) -> String {
    source.hash().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A call that a host passes on to its node. Steps are frames of the protocol.
#[derive(Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum WireCall {
    WriteFile { path: String, bytes: String },
    Fetch(FetchRequest),
    FetchBody { response: u32 },
    FetchClose { response: u32 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireAnswer {
    /// JSON text.
    Json(String),
    Bytes(String),
    Nothing,
    Error(String),
}

/// A call as JSON text.
///
/// # Errors
/// When it is a call of another sort, or too large.
pub(crate) fn encode_call(call: HostCall) -> Result<String, HostError> {
    let carried = |bytes: &[u8]| {
        if bytes.len() > MAX_CARRIED_BYTES {
            return Err(HostError(format!("more than {MAX_CARRIED_BYTES} bytes at once")));
        }
        Ok(())
    };
    let call = match call {
        HostCall::WriteFile { path, bytes } => {
            carried(&bytes)?;
            WireCall::WriteFile { path, bytes: BASE64_STANDARD.encode(bytes) }
        }
        HostCall::Fetch(request) => {
            request.body.as_deref().map_or(Ok(()), carried)?;
            WireCall::Fetch(request)
        }
        HostCall::FetchBody { response } => WireCall::FetchBody { response },
        HostCall::FetchClose { response } => WireCall::FetchClose { response },
        HostCall::BeginStep { .. } | HostCall::SaveStep { .. } => {
            return Err(HostError("steps are frames of their own".to_owned()));
        }
    };
    serde_json::to_string(&call).map_err(|error| HostError(error.to_string()))
}

/// A call from its JSON text.
///
/// # Errors
/// When it is none.
pub(crate) fn decode_call(text: &str) -> Result<HostCall, HostError> {
    let wrong = |error: &dyn std::fmt::Display| HostError(format!("the node cannot read this call: {error}"));
    Ok(match serde_json::from_str(text).map_err(|error| wrong(&error))? {
        WireCall::WriteFile { path, bytes } => {
            let bytes = BASE64_STANDARD.decode(bytes).map_err(|error| wrong(&error))?;
            HostCall::WriteFile { path, bytes }
        }
        WireCall::Fetch(request) => HostCall::Fetch(request),
        WireCall::FetchBody { response } => HostCall::FetchBody { response },
        WireCall::FetchClose { response } => HostCall::FetchClose { response },
    })
}

/// An answer as JSON text.
pub(crate) fn encode_answer(answer: Result<HostAnswer, HostError>) -> String {
    let answer = match answer {
        Ok(HostAnswer::Json(text)) => WireAnswer::Json(text),
        Ok(HostAnswer::Bytes(bytes)) if bytes.len() > MAX_CARRIED_BYTES => {
            WireAnswer::Error(format!("the answer has more than {MAX_CARRIED_BYTES} bytes"))
        }
        Ok(HostAnswer::Bytes(bytes)) => WireAnswer::Bytes(BASE64_STANDARD.encode(bytes)),
        Ok(HostAnswer::Nothing) => WireAnswer::Nothing,
        Err(HostError(why)) => WireAnswer::Error(why),
    };
    // Texts and bytes are always JSON.
    serde_json::to_string(&answer).unwrap_or_else(|_| "null".to_owned())
}

/// An answer from its JSON text.
///
/// # Errors
/// Why the call failed.
pub(crate) fn decode_answer(text: &str) -> Result<HostAnswer, HostError> {
    let wrong = |error: &dyn std::fmt::Display| HostError(format!("the answer cannot be read: {error}"));
    match serde_json::from_str(text).map_err(|error| wrong(&error))? {
        WireAnswer::Json(text) => Ok(HostAnswer::Json(text)),
        WireAnswer::Bytes(text) => {
            BASE64_STANDARD.decode(text).map(HostAnswer::Bytes).map_err(|error| wrong(&error))
        }
        WireAnswer::Nothing => Ok(HostAnswer::Nothing),
        WireAnswer::Error(why) => Err(HostError(why)),
    }
}

/// A body in base64.
pub(crate) mod base64_body {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(body: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        body.as_ref().map(|bytes| BASE64_STANDARD.encode(bytes)).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        text.map(|text| BASE64_STANDARD.decode(text).map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::FetchRedirect;

    #[test]
    fn calls_and_answers_arrive_as_they_were_sent() {
        let request = FetchRequest {
            response: 3,
            redirect: FetchRedirect::Manual,
            method: "POST".to_owned(),
            url: "https://example.org/".to_owned(),
            headers: vec![("a".to_owned(), "b".to_owned())],
            body: Some(vec![0, 255]),
        };
        for call in [
            HostCall::WriteFile { path: "a/ü".to_owned(), bytes: vec![0, 10, 255] },
            HostCall::Fetch(FetchRequest { body: None, ..request.clone() }),
            HostCall::Fetch(request),
            HostCall::FetchBody { response: 7 },
            HostCall::FetchClose { response: 7 },
        ] {
            let text = encode_call(call.clone()).expect("it can be sent");
            assert_eq!(decode_call(&text), Ok(call));
        }
        for answer in [
            Ok(HostAnswer::Json("{\"a\": [1]}".to_owned())),
            Ok(HostAnswer::Bytes(vec![1, 2, 3])),
            Ok(HostAnswer::Nothing),
            Err(HostError("no".to_owned())),
        ] {
            assert_eq!(decode_answer(&encode_answer(answer.clone())), answer);
        }
        let large = HostCall::WriteFile { path: "x".to_owned(), bytes: vec![0; MAX_CARRIED_BYTES + 1] };
        assert!(encode_call(large).is_err_and(|error| error.0.contains("bytes at once")));
        assert!(decode_call("{}").is_err() && decode_answer("[]").is_err());
    }

    #[test]
    fn a_function_arrives_with_its_hash() {
        let source = FunctionSource::single("a.js", "export default 1");
        let text = serde_json::to_string(&FunctionModules::from(&source)).expect("it is JSON");
        let arrived: FunctionModules = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(hash_of(&arrived.source().expect("it has its entry")), hash_of(&source));
    }
}

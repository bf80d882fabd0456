//! A function host for tests: records what a function reports, and answers its calls from memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use ostler_core::Level;
use ostler_isolate::{
    CallInfo, FetchHead, FunctionCall, FunctionEnd, FunctionHost, FunctionLimits, FunctionProgress,
    FunctionSource, FunctionWorker, HostAnswer, HostCall, HostError, HostReply, Reuse,
};

use crate::engines::tested;

/// What a function asked of its host.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) logs: RefCell<Vec<(Level, String)>>,
    /// Called at each log line.
    pub(crate) on_log: RefCell<Option<Box<dyn Fn()>>>,
    pub(crate) progress: RefCell<Vec<FunctionProgress>>,
    pub(crate) files: RefCell<Vec<(String, Vec<u8>)>>,
    /// Saved steps: JSON by name.
    pub(crate) steps: RefCell<HashMap<String, String>>,
    pub(crate) saves: Cell<usize>,
    /// Bodies of `fetch`, in pieces, by URL.
    pub(crate) pages: RefCell<HashMap<String, Vec<Vec<u8>>>>,
    open: RefCell<HashMap<u32, std::vec::IntoIter<Vec<u8>>>>,
    /// Responses that the function gave up.
    pub(crate) closed: RefCell<Vec<u32>>,
    pub(crate) requests: RefCell<Vec<ostler_isolate::FetchRequest>>,
    /// Calls that are never answered.
    pub(crate) unanswered: RefCell<Vec<HostReply>>,
}

impl Desk {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.logs.borrow().iter().map(|(_, line)| line.clone()).collect()
    }
}

impl FunctionHost for Desk {
    fn log(&self, level: Level, line: &str) {
        self.logs.borrow_mut().push((level, line.to_owned()));
        if let Some(act) = &*self.on_log.borrow() {
            act();
        }
    }

    fn progress(&self, progress: &FunctionProgress) {
        self.progress.borrow_mut().push(progress.clone());
    }

    fn secret(&self, name: &str) -> Option<String> {
        (name == "token").then(|| "s3cret-value".to_owned())
    }

    fn call(&self, call: HostCall, reply: HostReply) {
        match call {
            HostCall::BeginStep { name } => {
                let saved = self.steps.borrow().get(&name).cloned();
                reply.send(Ok(saved.map_or(HostAnswer::Nothing, HostAnswer::Json)));
            }
            HostCall::SaveStep { name, value } => {
                self.saves.set(self.saves.get() + 1);
                self.steps.borrow_mut().insert(name, value);
                reply.send(Ok(HostAnswer::Nothing));
            }
            HostCall::WriteFile { path, bytes } => {
                self.files.borrow_mut().push((path, bytes));
                reply.send(Ok(HostAnswer::Nothing));
            }
            HostCall::Fetch(request) if request.url.ends_with("/never") => {
                self.unanswered.borrow_mut().push(reply);
            }
            HostCall::Fetch(request) => {
                let page = self.pages.borrow().get(&request.url).cloned();
                let answer = page.ok_or_else(|| HostError("fetch failed".to_owned())).map(|page| {
                    self.open.borrow_mut().insert(request.response, page.into_iter());
                    let head = FetchHead {
                        response: request.response,
                        status: 200,
                        status_text: "OK".to_owned(),
                        url: request.url.clone(),
                        redirected: false,
                        headers: vec![("content-type".to_owned(), "text/plain".to_owned())],
                    };
                    HostAnswer::Json(serde_json::to_string(&head).expect("it is JSON"))
                });
                self.requests.borrow_mut().push(request);
                reply.send(answer);
            }
            HostCall::FetchBody { response } => {
                let piece = self.open.borrow_mut().get_mut(&response).and_then(Iterator::next);
                reply.send(Ok(piece.map_or(HostAnswer::Nothing, HostAnswer::Bytes)));
            }
            HostCall::FetchClose { response } => {
                self.open.borrow_mut().remove(&response);
                self.closed.borrow_mut().push(response);
                reply.send(Ok(HostAnswer::Nothing));
            }
        }
    }
}

pub(crate) type Output = Result<Option<String>, FunctionEnd>;

/// A call with a host.
pub(crate) fn call(payload: &str, host: &Rc<Desk>) -> FunctionCall {
    let host: Rc<dyn FunctionHost> = Rc::<Desk>::clone(host);
    let info = CallInfo {
        task: "t-1".to_owned(),
        queue: "functions".to_owned(),
        kind: "test".to_owned(),
        attempt: 2,
        deadline: Some(1_700_000_000_000),
    };
    FunctionCall::new(payload, info, host)
}

pub(crate) fn worker(limits: FunctionLimits, reuse: Reuse) -> FunctionWorker {
    FunctionWorker::new(tested().engine(), limits, reuse)
}

/// Runs a module once.
pub(crate) fn run_in(limits: FunctionLimits, module: &str, payload: &str) -> (Output, Rc<Desk>) {
    let host = Rc::new(Desk::default());
    let source = FunctionSource::single("test.js", module);
    let output = worker(limits, Reuse::Fresh).run(&source, call(payload, &host));
    (output, host)
}

/// Runs a module once, within the default limits.
pub(crate) fn run(module: &str, payload: &str) -> (Output, Rc<Desk>) {
    run_in(FunctionLimits::default(), module, payload)
}

/// Runs the body of a function, within the default limits, and returns its output.
pub(crate) fn output(body: &str) -> String {
    let (output, _) = run(&format!("export default async function (payload, ctx) {{ {body} }}"), "null");
    output.unwrap_or_else(|end| panic!("{body}: {end:?}")).unwrap_or_else(|| "nothing".to_owned())
}

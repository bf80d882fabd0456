//! A scripted server with the API of a model, on loopback: what it was asked is the truth about what was paid for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct LlmRequest {
    /// Counted from 1, in the order of arrival.
    pub number: usize,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl LlmRequest {
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct LlmReply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// Sent one by one.
    pub pieces: Vec<Vec<u8>>,
    pub end: ReplyEnd,
    /// How long the model works before anything is sent.
    pub works: Duration,
}

/// What follows the last piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The body ends as it should.
    Whole,
    /// The connection is cut.
    Cut,
    /// Nothing, until the client closes.
    Silence,
    /// The last piece again and again at this interval, until the client closes.
    Drip(Duration),
}

impl LlmReply {
    /// A body of JSON with this status.
    #[must_use]
    pub fn json(status: u16, body: impl Into<String>) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let pieces = vec![body.into().into_bytes()];
        Self { status, headers, pieces, end: ReplyEnd::Whole, works: Duration::ZERO }
    }

    /// A stream of events.
    #[must_use]
    pub fn stream(events: impl IntoIterator<Item = String>) -> Self {
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        let pieces = events.into_iter().map(String::into_bytes).collect();
        Self { status: 200, headers, pieces, end: ReplyEnd::Whole, works: Duration::ZERO }
    }

    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub fn ending(self, end: ReplyEnd) -> Self {
        Self { end, ..self }
    }

    #[must_use]
    pub fn working(self, works: Duration) -> Self {
        Self { works, ..self }
    }
}

/// The events of a whole stream of the Messages API of Anthropic: the words of the text one by one.
#[must_use]
pub fn anthropic_events(text: &str, input: u64, output: u64) -> Vec<String> {
    let event = |name: &str, data: String| format!("event: {name}\ndata: {data}\n\n");
    let start = format!(
        r#"{{"type":"message_start","message":{{"model":"claude-sonnet-4-5","usage":{{"input_tokens":{input},"output_tokens":1}}}}}}"#
    );
    let delta = |word: &str| {
        let word = quoted(word);
        event(
            "content_block_delta",
            format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{word}}}}}"#
            ),
        )
    };
    let ended = format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{{"output_tokens":{output}}}}}"#
    );
    [event("message_start", start)]
        .into_iter()
        .chain(text.split_inclusive(' ').map(delta))
        .chain([
            event("message_delta", ended),
            event("message_stop", r#"{"type":"message_stop"}"#.to_owned()),
        ])
        .collect()
}

/// The same of chat completions of OpenAI.
#[must_use]
pub fn chat_events(text: &str, input: u64, output: u64) -> Vec<String> {
    let data = |data: String| format!("data: {data}\n\n");
    let delta = |word: &str| {
        let word = quoted(word);
        data(format!(
            r#"{{"model":"gpt-5","choices":[{{"index":0,"delta":{{"content":{word}}},"finish_reason":null}}],"usage":null}}"#
        ))
    };
    let usage =
        format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{input},"completion_tokens":{output}}}}}"#);
    let finish = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#.to_owned();
    let words = text.split_inclusive(' ').map(delta);
    words.chain([data(finish), data(usage), data("[DONE]".to_owned())]).collect()
}

/// The same of the Responses API of OpenAI.
#[must_use]
pub fn responses_events(text: &str, input: u64, output: u64) -> Vec<String> {
    let event = |data: String| format!("data: {data}\n\n");
    let delta = |word: &str| {
        let word = quoted(word);
        event(format!(r#"{{"type":"response.output_text.delta","delta":{word}}}"#))
    };
    let start =
        r#"{"type":"response.created","response":{"model":"gpt-5","status":"in_progress"}}"#.to_owned();
    let end = format!(
        r#"{{"type":"response.completed","response":{{"model":"gpt-5","status":"completed","output":[],"usage":{{"input_tokens":{input},"output_tokens":{output}}}}}}}"#
    );
    [event(start)].into_iter().chain(text.split_inclusive(' ').map(delta)).chain([event(end)]).collect()
}

/// A text as JSON. Control characters other than line breaks do not occur in scripts.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

type Script = dyn Fn(&LlmRequest) -> LlmReply + Send + Sync;

/// The server. It stops with the program.
pub struct LlmServer {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<LlmRequest>,
    in_flight: usize,
    /// When a request arrived, and how many were in flight with it.
    arrivals: Vec<(Instant, usize)>,
}

impl LlmServer {
    /// Answers each request as the script says.
    #[must_use]
    pub fn start(script: impl Fn(&LlmRequest) -> LlmReply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (seen, script) =
            (Arc::<Mutex<Seen>>::default(), Arc::<Script>::from(Box::new(script) as Box<Script>));
        let served = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, script) = (Arc::clone(&served), Arc::clone(&script));
                std::thread::spawn(move || {
                    // A client that closes early is no fault of the server.
                    let _ = serve(&stream, &seen, &*script);
                });
            }
        });
        Self { port, seen }
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    #[must_use]
    pub fn requests(&self) -> Vec<LlmRequest> {
        locked(&self.seen).requests.clone()
    }

    /// When each request arrived, and how many were in flight with it.
    #[must_use]
    pub fn arrivals(&self) -> Vec<(Instant, usize)> {
        locked(&self.seen).arrivals.clone()
    }
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, seen: &Mutex<Seen>, script: &Script) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(mut request) = read_request(&mut reader)? else { return Ok(()) };
    {
        let mut seen = locked(seen);
        seen.in_flight += 1;
        request.number = seen.requests.len() + 1;
        let arrival = (Instant::now(), seen.in_flight);
        seen.arrivals.push(arrival);
        seen.requests.push(request.clone());
    }
    let reply = script(&request);
    pause(reply.works);
    let answered = answer(stream, &reply);
    locked(seen).in_flight -= 1;
    answered
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<LlmRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Some(LlmRequest { number: 0, path, headers, body }))
}

fn answer(mut stream: &TcpStream, reply: &LlmReply) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = format!("HTTP/1.1 {} Scripted\r\ntransfer-encoding: chunked\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let send = |mut stream: &TcpStream, piece: &[u8]| {
        let size = format!("{:x}\r\n", piece.len());
        stream.write_all(&[size.as_bytes(), piece, b"\r\n"].concat())
    };
    for piece in reply.pieces.iter().filter(|piece| !piece.is_empty()) {
        send(stream, piece)?;
    }
    match reply.end {
        ReplyEnd::Whole => stream.write_all(b"0\r\n\r\n"),
        ReplyEnd::Cut => Ok(()),
        ReplyEnd::Silence => {
            let _ = stream.read(&mut [0])?;
            Ok(())
        }
        ReplyEnd::Drip(interval) => {
            let last = reply.pieces.last().cloned().unwrap_or_default();
            while send(stream, &last).is_ok() {
                pause(interval);
            }
            Ok(())
        }
    }
}

/// Works for this long.
fn pause(time: Duration) {
    let (_open, never) = mpsc::channel::<()>();
    let waited = never.recv_timeout(time);
    debug_assert_eq!(waited, Err(RecvTimeoutError::Timeout), "nothing is sent");
}

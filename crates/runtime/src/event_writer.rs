//! Event writer: stores the events of a running attempt, in batches.

use std::time::Duration;

use ostler_core::price::PriceTable;
use ostler_core::{EventBody, LogStream};
use ostler_exec::{EventReceiver, QueuedEvent, Receipt};
use ostler_store::calls::Appended;
use ostler_store::{Error, LeaseRef, Store};
use tokio_util::sync::CancellationToken;

/// Events per write.
const MAX_EVENTS: usize = 256;
/// Lines of a child's output are stored together, up to this many bytes.
const MAX_JOINED_BYTES: usize = 32 * 1024;
/// The pauses after the store did not answer: from the first to the last, each twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// Stores events until the channel is closed and empty. While the store is away, the batch is kept and the buffer fills: log
/// lines are then left out, and senders of a conversation wait. Ends early when the lease is lost.
pub(crate) async fn write_events(
    store: &dyn Store,
    lease: LeaseRef,
    events: &EventReceiver,
    lost: &CancellationToken,
    prices: &PriceTable,
) {
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, MAX_EVENTS).await > 0 {
        let (bodies, receipts): (Vec<EventBody>, Vec<Receipt>) =
            batch.drain(..).map(|QueuedEvent { body, receipt }| (priced(body, prices), receipt)).unzip();
        let count = bodies.len();
        match write(store, lease, joined(bodies), lost).await {
            Written::Yes => receipts.into_iter().for_each(Receipt::stored),
            Written::Refused(error) => {
                let warning = EventBody::warning(format!("{count} events could not be stored: {error}"));
                let _ = store.append(lease, vec![warning]).await;
            }
            Written::LeaseLost => {
                // Senders must not wait for events that cannot be stored any more.
                events.close();
                return;
            }
        }
    }
}

enum Written {
    Yes,
    /// The store does not take them.
    Refused(Error),
    LeaseLost,
}

async fn write(
    store: &dyn Store,
    lease: LeaseRef,
    bodies: Vec<EventBody>,
    lost: &CancellationToken,
) -> Written {
    let mut pause = FIRST_PAUSE;
    loop {
        match store.append(lease, bodies.clone()).await {
            Ok(Appended::Recorded { .. }) => return Written::Yes,
            Ok(Appended::LeaseLost) => return Written::LeaseLost,
            Err(error) if !error.is_transient() => return Written::Refused(error),
            Err(_) => {}
        }
        tokio::select! {
            () = lost.cancelled() => return Written::LeaseLost,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_PAUSE),
        }
    }
}

/// Usage without a cost gets one, if the price of its model is known.
fn priced(mut body: EventBody, prices: &PriceTable) -> EventBody {
    if let EventBody::Usage(usage) = &mut body {
        usage.cost = usage.cost.or_else(|| prices.cost(usage));
    }
    body
}

/// The events, with consecutive lines of one output stream in one event: a row for each line would be slow to write and to
/// read.
fn joined(events: Vec<EventBody>) -> Vec<EventBody> {
    let mut all: Vec<EventBody> = Vec::new();
    for event in events {
        match (all.last_mut(), &event) {
            (
                Some(EventBody::Log { level: before, stream: source, text: lines }),
                EventBody::Log { level, stream, text },
            ) if before == level
                && source == stream
                && *stream != LogStream::Log
                && lines.len() + text.len() < MAX_JOINED_BYTES =>
            {
                lines.push('\n');
                lines.push_str(text);
            }
            _ => all.push(event),
        }
    }
    all
}

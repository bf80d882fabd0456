//! `ostler breaker`: lists circuit breakers of queues, limit keys and calls, and opens or resets those of queues and keys by hand.

use ostler_ops::overview::breakers;
use ostler_ops::queues::{BreakerPosition, BreakerRequest, set_breaker};
use ostler_store::{Clock as _, SystemClock};

use super::Console;
use crate::args::BreakerCommand;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, command: BreakerCommand) -> anyhow::Result<Code> {
    let Some(request) = request(command) else { return list(console).await };
    let place = console.place()?;
    request.check(place.bounds(), SystemClock.now())?;
    let store = place.open(IfMissing::Refuse).await?;
    let view = set_breaker(store.as_ref(), &request).await?;
    console.out.answer(&view, |looks| print::breaker(&view, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

/// What the command does to a breaker; `None`: it lists them.
pub(super) fn request(command: BreakerCommand) -> Option<BreakerRequest> {
    match command {
        BreakerCommand::Ls => None,
        BreakerCommand::Open { queue, key, span } => {
            Some(BreakerRequest { queue, key, position: BreakerPosition::Open(span) })
        }
        BreakerCommand::Reset { queue, key } => {
            Some(BreakerRequest { queue, key, position: BreakerPosition::Reset })
        }
    }
}

async fn list(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let views = breakers(store.as_ref()).await?;
    console.out.answer(&views, |looks| print::breakers(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

//! `ostler top`: the system on a terminal, or one screen of it as text or JSON.

use std::io::IsTerminal as _;

use ostler_ops::overview::whole;

use super::{Console, config};
use crate::args::TopArgs;
use crate::exit::{Code, refused};
use crate::print::Format;
use crate::store_location::{IfMissing, OpenMode};
use crate::top::{self, KeysAllowed, TopPlan};

pub(super) async fn run(console: &Console, args: &TopArgs) -> anyhow::Result<Code> {
    if !args.once && console.out.format() == Format::Json {
        return Err(refused(Code::BadInput, "--json prints one reading: add --once"));
    }
    let on_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !args.once && !on_terminal {
        return Err(refused(Code::BadInput, "top needs a terminal; add --once to print one screen"));
    }
    let place = console.place()?;
    let config = || config::here().map(|path| config::read(&path));
    if args.once {
        let store = place.open(IfMissing::Refuse).await?;
        let findings = top::findings(place.url().clone(), config()).await;
        let seen = whole(store.as_ref(), findings).await?;
        console.out.answer(&seen, |_| top::text(&place.name(), &seen))?;
        return Ok(Code::Done);
    }
    let store = place.open_for(OpenMode::Long, IfMissing::Refuse).await?.store();
    let keys = if args.readonly { KeysAllowed::Looking } else { KeysAllowed::All };
    top::run(TopPlan { store, url: place.url().clone(), name: place.name(), config, keys }).await
}

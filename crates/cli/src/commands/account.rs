//! `ostler account`: shows accounts, whose limits queues share; holds and releases them, and sets their concurrency.

use ostler_ops::accounts;
use ostler_ops::queues::Lift;
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::account::AccountView;

use super::Console;
use crate::args::AccountCommand;
use crate::exit::Code;
use crate::print::{self, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, command: AccountCommand) -> anyhow::Result<Code> {
    let place = console.place()?;
    if let AccountCommand::Hold(hold) = &command {
        accounts::check_hold(&hold.name, &hold.reason)?;
    }
    let store = place.open(IfMissing::Refuse).await?;
    let store = store.as_ref();
    match command {
        AccountCommand::Ls => {
            let views = accounts::list(store).await?;
            console.out.answer(&views, |looks| print::accounts(&views, SystemClock.now(), looks))?;
            Ok(Code::Done)
        }
        AccountCommand::Show { name } => tell(console, &accounts::show(store, &name).await?),
        AccountCommand::Hold(hold) => {
            let view = accounts::hold(store, &hold.name, hold.end(), hold.reason).await?;
            tell(console, &view)
        }
        AccountCommand::Release { name } => {
            let (view, lift) = accounts::release(store, &name).await?;
            released(console, &view, lift)
        }
        AccountCommand::Cap { name, most } => tell(console, &accounts::cap(store, &name, most.0).await?),
    }
}

pub(super) fn released(console: &Console, view: &AccountView, lift: Lift) -> anyhow::Result<Code> {
    console.out.answer(view, |_| {
        let how = match lift {
            Lift::Lifted => "is no longer on hold",
            Lift::NotNeeded => "was not on hold",
        };
        format!("{} {how}\n", visible(&view.account))
    })?;
    Ok(Code::Done)
}

pub(super) fn tell(console: &Console, view: &AccountView) -> anyhow::Result<Code> {
    console.out.answer(view, |looks| print::account(view, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

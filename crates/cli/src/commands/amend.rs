//! `ostler amend`: changes the retry and timeout settings of a task that has not finished.

use ostler_store::calls::Amended;
use ostler_store::check_overrides;
use ostler_wire::action::{ActionResult, ActionView};

use super::{Console, show};
use crate::args::Amend;
use crate::exit::{Code, refused};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, amend: &Amend) -> anyhow::Result<Code> {
    let overrides = amend.rules.overrides();
    check_overrides(&overrides)?;
    if let (Some(base), Some(max)) = (overrides.base, overrides.max)
        && base > max
    {
        return Err(refused(Code::BadInput, "--base must not be longer than --max"));
    }
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let id = show::find(store.as_ref(), &amend.one).await?.task.id;
    match store.amend(id, overrides).await? {
        Amended::Done => {
            let answer =
                ActionView { id: id.to_string(), result: ActionResult::Amended, state: None, copy: None };
            console.out.answer(&answer, |_| format!("{id} amended\n"))?;
            Ok(Code::Done)
        }
        Amended::Ended(state) => Err(refused(
            Code::BadInput,
            format!("{id} is {}: only a task that has not finished can be amended", state.name()),
        )),
        Amended::NotFound => Err(refused(Code::NotFound, format!("there is no task {id}"))),
    }
}

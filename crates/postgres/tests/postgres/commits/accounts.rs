//! Account case: a hold of an account.

use std::sync::Arc;

use ostler_core::AccountChange;
use ostler_store::Store;

use super::verbs::{Case, Stage, same, told};

pub(crate) fn case(stage: &Stage) -> Case {
    let (here, name) = (Arc::clone(&stage.store), stage.name("change_account"));
    Case::new(
        "change_account",
        async move {
            let hold = AccountChange::Hold { until: None, why: "by hand".to_owned() };
            let account = here.change_account(&name, hold).await.map_err(told)?;
            same(&account.hold.is_some(), &true)
        },
        async move |stage| {
            let (name, accounts) =
                (stage.name("change_account"), stage.store.accounts().await.map_err(told)?);
            let is_held = accounts.iter().any(|record| record.name == name && record.account.hold.is_some());
            same(&is_held, &true)
        },
    )
}

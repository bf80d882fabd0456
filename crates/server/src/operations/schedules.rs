//! Operations on schedules.

use ostler_ops::{input, schedules};
use ostler_store::schedules::Activity;
use ostler_wire::input::ScheduleInput;
use ostler_wire::schedule::ScheduleView;

use crate::answer::{Answer, RequestError, ok};
use crate::call::ApiCall;

pub(super) async fn list(call: ApiCall) -> Result<Answer, RequestError> {
    let views: Vec<ScheduleView> = call.store().schedules().await?.iter().map(ScheduleView::from).collect();
    ok(&views)
}

pub(super) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&schedules::detail(&schedules::find(call.store(), call.param("name")).await?))
}

pub(super) async fn put(call: ApiCall) -> Result<Answer, RequestError> {
    let plan = input::schedule(call.param("name"), call.body::<ScheduleInput>()?)?;
    schedules::check(&plan, call.app.now())?;
    ok(&schedules::put(call.store(), &plan).await?.0)
}

pub(super) async fn remove(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&schedules::remove(call.store(), call.param("name")).await?)
}

pub(super) async fn pause(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&schedules::set(call.store(), call.param("name"), Activity::Paused).await?)
}

pub(super) async fn resume(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&schedules::set(call.store(), call.param("name"), Activity::Active).await?)
}

//! Filters for tasks, from JSON or a query.

use ostler_store::views::{Filter, ItemFilter, LeaseFilter, ListOrder};
use ostler_wire::input::FilterInput;
use ostler_wire::value;

use super::{BadField, read};

/// The filter that the input describes.
///
/// # Errors
/// A sentence with the field.
pub fn filter(input: FilterInput, order: ListOrder) -> Result<Filter, BadField> {
    Ok(Filter {
        state: read("state", input.state, value::state)?,
        queue: read("queue", input.queue, value::queue)?,
        kind: read("kind", input.kind, value::kind)?,
        text: input.text,
        field: read("where", input.field, value::field)?,
        class: read("class", input.class, value::class)?,
        failed_since: read("failed_since", input.failed_since, value::moment)?,
        failed_until: read("failed_until", input.failed_until, value::moment)?,
        ended_since: read("ended_since", input.ended_since, value::moment)?,
        ended_until: read("ended_until", input.ended_until, value::moment)?,
        lease: if input.stale == Some(true) { LeaseFilter::Stale } else { LeaseFilter::Any },
        items: if input.items == Some(false) { ItemFilter::Hidden } else { ItemFilter::Listed },
        order,
    })
}

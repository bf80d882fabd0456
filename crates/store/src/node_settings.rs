//! Settings of a node, stored with its session as JSON by queue: what they say of the node itself.

use crate::views::NodeRecord;

/// The entry of the node itself: no queue has an empty name.
pub const OF_THE_NODE: &str = "";
/// The field of that entry that says that the node serves metrics.
pub const METRICS: &str = "metrics";
/// The beginning of the fields of that entry that say, by queue, why it is not known what the work of its pool costs.
pub const UNPRICED: &str = "unpriced:";

impl NodeRecord {
    /// Whether the node serves metrics.
    #[must_use]
    pub fn serves_metrics(&self) -> bool {
        let settings: serde_json::Value = serde_json::from_str(&self.settings).unwrap_or_default();
        settings.get(OF_THE_NODE).and_then(|own| own.get(METRICS)).is_some()
    }

    /// Why it is not known what the work of its pool for a queue costs, if so.
    #[must_use]
    pub fn unpriced(&self, queue: &str) -> Option<String> {
        let settings: serde_json::Value = serde_json::from_str(&self.settings).unwrap_or_default();
        let why = settings.get(OF_THE_NODE)?.get(format!("{UNPRICED}{queue}"))?;
        why.as_str().map(str::to_owned)
    }
}
